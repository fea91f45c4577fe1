"""Quality of a policy on a standard test set: greedy, sampling and CMA-ES, beside the paper's
numbers.

    python benchmarks/evaluate.py --set tsp100 --first 1000 [--policy tsp100] [--attempts 160 1600]
    python benchmarks/evaluate.py --set vrp100 --first 256
    python benchmarks/evaluate.py --set jssp10x10 --first 100 --ledger docs/gaps.jsonl && python benchmarks/gaps.py

Gaps are per instance, against the costs in benchmarks/reference. `--ledger` adds a line of JSON per
row, from which gaps.py makes the README's table. Never tune on a test set: temperature.py has
validation instances.
"""

import argparse
import hashlib
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rhumbline.api import find_device, load_policy, make_tasks
from rhumbline.checkpoint import find_checkpoint, read_tensor_file, shipped_checkpoints
from rhumbline.problems.cvrp import cvrp_from_arrays
from rhumbline.problems.jssp import jssp_from_tables
from rhumbline.problems.standard_sets import cvrp_set, jssp_set, tsp_set
from rhumbline.problems.tsp import TSPInstance
from rhumbline.search.driver import Budget, search
from rhumbline.search.strategies import STRATEGIES
from rhumbline.search.strategy import Strategy

METHODS = ("greedy", "sampling 160", "sampling 1600", "cmaes 160", "cmaes 1600")
# Published mean costs of HGS (Choo et al. 2022, table 1) and of these methods in the paper, whose
# own gaps for vehicles are to LKH3: its plans are dearer than those of HGS, to which our gaps are.
VEHICLES = {
    "vrp100": (15.563, (15.874, 15.767, 15.713, 15.681, 15.594)),
    "vrp150": (19.055, (19.750, 19.610, 19.488, 19.532, 19.313)),
    "vrp200": (21.766, (23.318, 23.817, 23.378, 22.946, 22.462)),
}
# Gap in % of the paper's greedy and sampling single agent, and of its COMPASS at 160 and 1600
# attempts (spec 8.1, 8.5).
PAPER = {
    "tsp100": {
        "greedy": 0.404,
        "sampling 160": 0.263,
        "sampling 1600": 0.185,
        "cmaes 160": 0.044,
        "cmaes 1600": 0.002,
    },
    "tsp125": {
        "greedy": 0.607,
        "sampling 160": 0.424,
        "sampling 1600": 0.299,
        "cmaes 160": 0.138,
        "cmaes 1600": 0.036,
    },
    "tsp150": {
        "greedy": 1.001,
        "sampling 160": 0.835,
        "sampling 1600": 0.585,
        "cmaes 160": 0.283,
        "cmaes 1600": 0.083,
    },
    "tsp200": {
        "greedy": 2.300,
        "sampling 160": 3.545,
        "sampling 1600": 2.513,
        "cmaes 160": 0.933,
        "cmaes 1600": 0.348,
    },
    **{
        name: {method: 100 * (cost / hgs - 1) for method, cost in zip(METHODS, costs, strict=True)}
        for name, (hgs, costs) in VEHICLES.items()
    },
    "jssp10x10": {
        "sampling 160": 7.684,
        "sampling 1600": 6.7,
        "cmaes 160": 5.48,
        "cmaes 1600": 4.7,
    },
    "jssp15x15": {
        "sampling 160": 10.47,
        "sampling 1600": 9.6,
        "cmaes 160": 9.518,
        "cmaes 1600": 8.0,
    },
    "jssp20x15": {
        "sampling 160": 12.787,
        "sampling 1600": 11.7,
        "cmaes 160": 11.827,
        "cmaes 1600": 10.4,
    },
}


def instances_of(name: str, first: int) -> list[Any]:
    """The first instances of a standard set."""
    if name.startswith("tsp"):
        return [TSPInstance(f"{i}", "EXACT_2D", xy=x) for i, x in enumerate(tsp_set(name)[:first])]
    if name.startswith("vrp"):
        xy, demands, capacity = cvrp_set(name)
        rows = zip(xy[:first], demands[:first], strict=True)
        return [
            cvrp_from_arrays(x[0], x[1:], d[1:], capacity, name=f"{i}")
            for i, (x, d) in enumerate(rows)
        ]
    return [jssp_from_tables(d, m, f"{i}") for i, (d, m) in enumerate(jssp_set(name)[:first])]


def references(name: str, count: int) -> np.ndarray | None:
    """Costs of a set's first instances to measure against; None if it has no file."""
    file = Path(__file__).parent / "reference" / f"{name}.npz"
    known = np.load(file)["cost"] if file.exists() else None
    if known is not None and len(known) < count:
        raise SystemExit(f"{file} holds {len(known)} references; use --first {len(known)}")
    return known if known is None else known[:count]


def problem_of(name: str) -> str:
    """What the instances of a set are."""
    return {"tsp": "tsp", "vrp": "cvrp", "jss": "jssp"}[name[:3]]


def of_the_paper(problem: str) -> str | None:
    """Weights for the paper's protocol, trained at 100 nodes; where none are shipped, None: the
    default ones.
    """
    return f"{problem}100" if f"{problem}100" in shipped_checkpoints() else None


def fingerprint(policy: str | None, problem: str) -> str:
    """Of weights alone, whatever their header says: tells which ones a row was measured with."""
    digest, tensors = hashlib.sha256(), read_tensor_file(find_checkpoint(policy, problem))[0]
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].numpy().tobytes())
    return digest.hexdigest()[:8]


def costs(
    instances: list[Any], policy: Any, strategy: Strategy, attempts: int, device: torch.device
) -> tuple[np.ndarray, float]:
    """Verified cost of each instance, and the seconds it took."""
    found, began = np.full(len(instances), np.nan), time.perf_counter()
    for group, task in make_tasks(
        instances, {policy.problem: policy}, seed=0, device=device, engine="auto"
    ):
        solutions, _ = search(strategy, task, Budget(attempts=attempts))
        found[list(group.places)] = [s.cost for s in solutions]
    return found, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", default="tsp100")
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--policy", default=None)
    parser.add_argument("--attempts", type=int, nargs="*", default=[160, 1600])
    methods = ["greedy", "cmaes", "sampling"]
    parser.add_argument("--methods", nargs="+", default=methods, choices=methods)
    parser.add_argument(
        "--temperature", type=float, default=None, help="of cmaes; its own default if not given"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--ledger", type=Path, default=None)
    args = parser.parse_args()
    if args.ledger and args.policy:
        raise SystemExit(
            "--ledger is for the weights of the paper's protocol, not for those of --policy"
        )
    problem = problem_of(args.set)
    name = args.policy or of_the_paper(problem)
    device, policy, weights = (
        find_device(args.device),
        load_policy(name, problem),
        fingerprint(name, problem),
    )
    instances = instances_of(args.set, args.first)
    settings = {"starts": 1.0}  # as published, on every device
    settings |= {} if args.temperature is None else {"temperature": args.temperature}
    known = references(args.set, len(instances))
    rows = [("greedy", STRATEGIES["greedy"](), 1)]
    if policy.space.size:
        rows += [(f"cmaes {n}", STRATEGIES["cmaes"](**settings), n) for n in args.attempts]
    rows += [(f"sampling {n}", STRATEGIES["sampling"](), n) for n in args.attempts]
    where = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{args.set}, first {len(instances)}, {where}, cmaes settings {settings}")
    for name, strategy, attempts in (row for row in rows if row[0].split()[0] in args.methods):
        cost, seconds = costs(instances, policy, strategy, attempts, device)
        facts = {"where": where, "seconds": round(seconds, 1), "weights": weights}
        row = summary(args.set, name, cost, known) | facts
        say(row)
        if args.ledger:
            keep(row, args.ledger)


def summary(name: str, method: str, cost: np.ndarray, known: np.ndarray | None) -> dict[str, Any]:
    """What the ledger keeps of a method's costs on a set, and the day."""
    row = {"set": name, "first": len(cost), "method": method, "cost": round(float(cost.mean()), 5)}
    row["date"] = f"{datetime.now(UTC):%Y-%m-%d}"
    if known is None:
        return row
    gap = 100 * (cost / known - 1)
    error = 1.96 * gap.std(ddof=1) / np.sqrt(len(gap))
    return row | {"gap": round(float(gap.mean()), 4), "error": round(float(error), 4)}


def say(row: dict[str, Any]) -> None:
    """Print a row beside the paper's."""
    gap = f" {row['gap']:.4f} % ± {row['error']:.4f} |" if "gap" in row else ""
    published = PAPER.get(row["set"], {}).get(row["method"])
    paper = "-" if published is None else f"{published:.3f} %"
    print(
        f"| {row['method']:14s} | {row['cost']:.5f} |{gap} {row['seconds']} s | paper {paper} |",
        flush=True,
    )


def keep(row: dict[str, Any], ledger: Path) -> None:
    """Add a row to the ledger that `benchmarks/gaps.py` makes the README's table of."""
    with ledger.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
