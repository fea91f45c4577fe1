"""Costs and gaps on a folder of benchmark files, each solved by itself: per file and in total.

    python benchmarks/files.py instances/cvrplib --seconds 10 60 [--policy PATH] [--device cpu]

Best known costs come from the folder's optima.json or best_known.json. Files that cannot be read
are listed with the reason and count nowhere; every plan is verified. `--attempts` bounds the search
by attempts as well. Settings follow a strategy's name after `+`, as in `--search
cmaes-refine+plans=1`. With `--then SOLVER` the search has half of the time and a classical solver
the rest, with `--polish` the best plans are polished, both as in `rhumb solve`.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rhumbline import pipeline
from rhumbline.errors import InputError, MissingExtra
from rhumbline.files import read, reader_suffixes
from rhumbline.problems import PROBLEMS
from rhumbline.search.after_search import AfterSearch, solve_task
from rhumbline.search.driver import Budget
from rhumbline.search.solution import Solution
from rhumbline.search.strategies import build_strategy, default_strategy_for_task

ENDINGS = {*reader_suffixes(), ".txt", ""}  # job shops come with any ending or none
TABLES = ("optima.json", "best_known.json")
HEADER = "| file | size | best known | cost | gap | attempts | seconds |"


def strategy_of(text: str) -> Any:
    """Return the strategy of a name with settings behind `+`."""
    name, *settings = text.split("+")
    return build_strategy(name, settings)


def readable(folder: Path) -> list[object]:
    """The instances of a folder, smallest first; what cannot be read is printed."""
    instances = []
    for path in sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in ENDINGS and path.name not in TABLES
    ):
        try:
            instances.append(read(path))
        except InputError as error:
            print(f"left out: {error}")
    return sorted(instances, key=lambda i: (i.problem, i.size, i.name))


def solved(
    instance: object, policies: dict, name: str | None, budget: Budget, args: argparse.Namespace
) -> Solution:
    """The verified solution of one instance within the budget, by a strategy or the usual one;
    encoding is free.
    """
    device = pipeline.find_device(args.device)
    ((_, task),) = pipeline.make_tasks(
        [instance], policies, seed=args.seed, device=device, engine="auto", augment=args.augment
    )
    finish = AfterSearch(polish=args.polish, then=None if budget.seconds is None else args.then)
    (solution,), interrupted = solve_task(
        strategy_of(name or default_strategy_for_task(task)), task, budget, finish=finish
    )
    if interrupted:
        raise KeyboardInterrupt
    return solution


def row(solution: Solution) -> str:
    instance, gap = solution.instance, solution.gap
    size = PROBLEMS[instance.problem].item_count(instance)
    known = "" if gap is None else f"{instance.best_known:g}"
    shown = solution.unmet or ("" if gap is None else f"{gap:.2%}")
    cost = f"{solution.cost:g}" if instance.has_integer_costs else f"{solution.cost:.4f}"
    spent = f"{solution.attempts} | {solution.seconds:.1f}"
    return f"| {instance.name} | {size} | {known} | {cost} | {shown} | {spent} |"


def total(solutions: list[Solution], budget: Budget) -> str:
    gaps = [s.gap for s in solutions if s.gap is not None and not s.unmet]
    mean = (
        f"mean gap {np.mean(gaps):.2%}, median {np.median(gaps):.2%}, worst {max(gaps):.2%}"
        if gaps
        else "no gaps"
    )
    attempts = np.mean([s.attempts for s in solutions])
    counts = f"{len(solutions)} files, {len(gaps)} with a gap"
    return f"{budget.seconds:g} s: {counts}: {mean}; {attempts:.0f} attempts each"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, nargs="+", default=[10.0])
    parser.add_argument("--attempts", type=int, default=None)
    parser.add_argument(
        "--search", default=None, metavar="NAME[+FIELD=VALUE...]", help="[as rhumb solve]"
    )
    parser.add_argument("--augment", type=int, default=1, choices=(1, 2, 4, 8))
    parser.add_argument("--polish", action="store_true")
    parser.add_argument("--then", default=None, metavar="SOLVER")
    parser.add_argument("--policy", default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.search:
        strategy_of(args.search)  # refuse before any work
    instances = readable(args.folder)
    try:
        for problem in {instance.problem for instance in instances}:
            AfterSearch(polish=args.polish, then=args.then).check(problem, Budget(seconds=1.0))
    except (InputError, MissingExtra) as error:
        raise SystemExit(str(error)) from error
    loaded = pipeline.load_policies(instances, args.policy)
    policies = {problem: one.policy for problem, one in loaded.items()}
    device = pipeline.find_device(args.device)
    where = (
        torch.cuda.get_device_name()
        if device.type == "cuda"
        else f"CPU, {torch.get_num_threads()} threads"
    )
    for one in {
        i.problem: i for i in instances
    }.values():  # kernels are compiled before any clock runs
        solved(one, policies, "greedy", Budget(attempts=1), args)
    extras = (", polished" if args.polish else "") + (f", then {args.then}" if args.then else "")
    how = f"{args.search or 'usual search'}{extras}, policy {args.policy or 'as shipped'}"
    print(f"{args.folder.name}: {len(instances)} files, {how}, {where}")
    for seconds in args.seconds:
        budget = Budget(args.attempts, seconds)
        print(f"{HEADER}\n|{' --- |' * HEADER.count(' | ')} --- |")
        found = []
        for instance in instances:
            found.append(solved(instance, policies, args.search, budget, args))
            print(row(found[-1]), flush=True)
        print(total(found, budget))


if __name__ == "__main__":
    main()
