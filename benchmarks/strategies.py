"""Strategies beside one another at equal attempts, and at equal seconds.

    python benchmarks/strategies.py --set tsp100 --first 1000 --attempts 160,1600 --strategies sampling,cmaes,eas-emb
    python benchmarks/strategies.py --set tsp100 --first 1000 --seconds 60 --strategies sampling,cmaes,eas-emb
    python benchmarks/strategies.py --set tsp100 --validation --first 16 --attempts 160 --strategies cmaes,cmaes+top=4

Settings follow a strategy's name after `+`. Gaps are per instance against benchmarks/reference where it has the set,
else against the best cost of the instance in the whole run. `vs first` is the mean difference of cost to the first
strategy of the same budget, instance by instance. ± are 95 % intervals. `--validation` draws other instances of the
same distribution: choose settings there, never on the test set. `population` needs --policy with a population.
"""

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from rhumbline.api import find_device, policy_for, tasks
from rhumbline.cli.solving import choose_strategy
from rhumbline.problems.cvrp import CVRPInstance, usual_capacity
from rhumbline.problems.standard import CVRP_SETS, TSP_SETS, cvrp_set, find, tsp_set
from rhumbline.problems.tsp import TSPInstance
from rhumbline.search.run import Budget, search
from rhumbline.search.strategy import engine_for

VALIDATION_SEED = 4321


@dataclass(frozen=True)
class Row:
    name: str
    budget: Budget
    cost: np.ndarray
    attempts: int
    seconds: float


def standard(name: str, count: int) -> list[TSPInstance | CVRPInstance]:
    if name.startswith("tsp"):
        return [TSPInstance(f"{i}", "EXACT_2D", xy=x) for i, x in enumerate(tsp_set(name)[:count])]
    xy, demands, capacity = cvrp_set(name)
    pairs = zip(xy[:count], demands[:count].tolist(), strict=True)
    return [CVRPInstance(f"{i}", "EXACT_2D", tuple(q), capacity, xy=x) for i, (x, q) in enumerate(pairs)]


def validation(name: str, count: int) -> list[TSPInstance | CVRPInstance]:
    stream = np.random.RandomState(VALIDATION_SEED)
    if name.startswith("tsp"):
        size = find(TSP_SETS, name).size
        return [TSPInstance(f"{i}", "EXACT_2D", xy=x) for i, x in enumerate(stream.uniform(size=(count, size, 2)))]
    size = find(CVRP_SETS, name).size
    xy, demands = stream.uniform(size=(count, size + 1, 2)), stream.randint(1, 10, size=(count, size))
    pairs = zip(xy, demands.tolist(), strict=True)
    return [CVRPInstance(f"{i}", "EXACT_2D", (0, *q), usual_capacity(size), xy=x) for i, (x, q) in enumerate(pairs)]


def measured(text: str, instances: list, policy: object, budget: Budget, device: torch.device, augment: int) -> Row:
    name, *settings = text.split("+")
    strategy = choose_strategy(name, settings)
    cost, began, attempts = np.full(len(instances), np.nan), time.perf_counter(), 0
    where = {"device": device, "engine": engine_for(strategy, "auto"), "augment": augment}
    for group, task in tasks(instances, {policy.problem: policy}, seed=0, **where):
        share = budget.seconds and budget.seconds * len(group.places) / len(instances)  # groups come one by one
        found, _ = search(strategy, task, replace(budget, seconds=share))
        cost[list(group.places)] = [s.cost for s in found]
        attempts = found[0].attempts
    return Row(text, budget, cost, attempts, time.perf_counter() - began)


def interval(values: np.ndarray) -> str:
    error = 1.96 * values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{values.mean():+.4f} ± {error:.4f}"


def table(rows: list[Row], known: np.ndarray, relative_to: str) -> None:
    print(f"| strategy | budget | attempts | mean cost | gap to {relative_to}, % | vs first | seconds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        first = next(r for r in rows if r.budget == row.budget)
        limit = f"{row.budget.attempts:,}" if row.budget.attempts else f"{row.budget.seconds:g} s"
        gap, behind = interval(100 * (row.cost / known - 1)), "" if row is first else interval(row.cost - first.cost)
        cost = f"{row.attempts:,} | {row.cost.mean():.5f}"
        print(f"| {row.name} | {limit} | {cost} | {gap} | {behind} | {row.seconds:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="tsp100")
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--attempts", default="")
    parser.add_argument("--seconds", default="")
    parser.add_argument("--strategies", default="sampling,fixed,uniform,cmaes,eas-emb,cmaes-eas")
    parser.add_argument("--policy", default=None)
    parser.add_argument("--augment", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    device = find_device(args.device)
    instances = (validation if args.validation else standard)(args.set, args.first)
    policy = policy_for(args.policy, instances[0].problem)
    budgets = [Budget(int(n)) for n in args.attempts.split(",") if n]
    budgets += [Budget(seconds=float(s)) for s in args.seconds.split(",") if s]
    rows: list[Row] = []
    for budget in budgets or [Budget(160)]:
        for text in args.strategies.split(","):
            rows.append(measured(text, instances, policy, budget, device, args.augment))
            print(f"{text}: {rows[-1].cost.mean():.5f}, {rows[-1].seconds:.1f} s", flush=True)
    file = Path(__file__).parent / "reference" / f"{args.set}.npz"
    known = None if args.validation or not file.exists() else np.load(file)["cost"][: len(instances)]
    what = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    kind = f"{args.set}{' (validation)' if args.validation else ''}, {len(instances)} instances"
    print(f"\n{kind}, augment {args.augment}, {what}\n")
    if known is None or len(known) < len(instances):
        table(rows, np.min([r.cost for r in rows], axis=0), "the best of these rows")
    else:
        table(rows, known, "the reference")


if __name__ == "__main__":
    main()
