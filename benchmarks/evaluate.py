"""Quality of a TSP policy on a standard test set: greedy, sampling and CMA-ES, beside the paper's numbers.

    python benchmarks/evaluate.py --set tsp100 --first 1000 [--policy tsp100] [--attempts 160 1600]

Gaps are per instance against the reference costs in benchmarks/reference (see reference_tsp.py). `--validate` compares
sampling temperatures on validation instances of another seed first and takes the best: never tune on the test set.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from rhumbline.api import find_device, policy_for, tasks
from rhumbline.problems.standard import tsp_set
from rhumbline.problems.tsp import TSPInstance
from rhumbline.search import STRATEGIES
from rhumbline.search.run import Budget, Strategy, search

PAPER = {  # gap in % of POMO greedy, POMO sampling, COMPASS at 160 and at 1600 attempts (spec 8.1, 8.5)
    "tsp100": {"greedy": 0.404, "sampling 1600": 0.185, "cmaes 160": 0.044, "cmaes 1600": 0.002},
    "tsp125": {"greedy": 0.607, "sampling 1600": 0.299, "cmaes 160": 0.138, "cmaes 1600": 0.036},
    "tsp150": {"greedy": 1.001, "sampling 1600": 0.585, "cmaes 160": 0.283, "cmaes 1600": 0.083},
    "tsp200": {"greedy": 2.300, "sampling 1600": 2.513, "cmaes 160": 0.933, "cmaes 1600": 0.348},
}


def costs(
    xy: np.ndarray, policy: object, strategy: Strategy, attempts: int, device: torch.device
) -> tuple[np.ndarray, float]:
    """Verified cost of each instance, and the seconds it took."""
    instances = [TSPInstance(f"{i}", "EXACT_2D", xy=x) for i, x in enumerate(xy)]
    found, began = np.full(len(xy), np.nan), time.perf_counter()
    for group, task in tasks(instances, {"tsp": policy}, seed=0, device=device, engine="auto"):
        solutions, _ = search(strategy, task, Budget(attempts=attempts))
        found[list(group.places)] = [s.cost for s in solutions]
    return found, time.perf_counter() - began


def best_temperature(policy: object, device: torch.device, size: int, count: int, attempts: int) -> float:
    xy = np.random.RandomState(4321).uniform(size=(count, size, 2))
    seen: dict[float, float] = {}
    for temperature in (0.1, 0.3, 0.6, 1.0):
        cost, seconds = costs(xy, policy, STRATEGIES["cmaes"](temperature=temperature), attempts, device)
        seen[temperature] = float(cost.mean())
        print(
            f"validation: cmaes {attempts} at temperature {temperature:g}: {cost.mean():.5f}  ({seconds:.1f} s)",
            flush=True,
        )
    return min(seen, key=seen.get)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", default="tsp100")
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--policy", default=None)
    parser.add_argument("--attempts", type=int, nargs="*", default=[160, 1600])
    parser.add_argument("--temperature", type=float, default=None, help="of cmaes; its own default if not given")
    parser.add_argument("--validate", type=int, default=0, metavar="COUNT")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    device, policy = find_device(args.device), policy_for(args.policy, "tsp")
    xy = tsp_set(args.set)[: args.first]
    settings = {} if args.temperature is None else {"temperature": args.temperature}
    if args.validate:
        settings = {"temperature": best_temperature(policy, device, xy.shape[1], args.validate, 320)}
    file = Path(__file__).parent / "reference" / f"{args.set}.npz"
    known = np.load(file)["cost"][: args.first] if file.exists() else None
    if known is not None and len(known) < len(xy):
        raise SystemExit(f"{file} holds {len(known)} references; use --first {len(known)}")
    rows = [("greedy", STRATEGIES["greedy"](), 1)]
    rows += [(f"cmaes {n}", STRATEGIES["cmaes"](**settings), n) for n in args.attempts]
    rows += [(f"sampling {n}", STRATEGIES["sampling"](), n) for n in args.attempts[-1:]]
    where = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{args.set}, first {len(xy)}, {where}, cmaes settings {settings or 'default'}")
    for name, strategy, attempts in rows:
        cost, seconds = costs(xy, policy, strategy, attempts, device)
        line = f"| {name:14s} | {cost.mean():.5f} |"
        if known is not None:
            gap = 100 * (cost / known - 1)
            error = 1.96 * gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else float("nan")
            line += f" {gap.mean():.4f} % ± {error:.4f} |"
        paper = PAPER[args.set].get(name)
        print(f"{line} {seconds:.1f} s | paper {paper if paper is not None else '-'} % |", flush=True)


if __name__ == "__main__":
    main()
