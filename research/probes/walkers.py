# Dated record: a finished probe of November 2026. Its findings are in research/notebooks.
"""What several walkers of `ruin` are worth: one, the best of some, and one that walks as far as all
of them together.

    python research/probes/walkers.py [--walkers 8] [--times 600000] [--sizes 200,300] [--first 4]
[--seconds 5]

Four kinds of CVRP (`rhumb bench compare --validation --varied`), from plans of a short search
on one core; then steps are counted, not timed, so that it takes one core of whatever machine and
repeats under the plans it begins with. Gaps are to the cheapest plan of each instance in this run,
in %.
"""

import argparse
from threading import Event

import numpy as np
import torch
from rhumbline.kernels.numba.local_search.route_ruin_recreate import BEST

import rhumbline
from rhumbline import improvers
from rhumbline.bench.compare.sets import draw_varied
from rhumbline.local_search.route_ruin_recreate import TUNING, Annealing


def cooled(walker: Annealing, times: int) -> float:
    """The least cost of a round of so many times, from hot to cold."""
    steps = times // TUNING.steps_between_clock_checks
    for step in range(steps):
        walker.run_steps(TUNING.temperature(step / steps))
    return float(walker.costs[BEST])


def compared(
    instance: rhumbline.CVRPInstance, walkers: int, times: int, seconds: float
) -> list[float]:
    """Costs of the plan it begins with, of the first walker, of the best, and of one that walks
    as far as all.
    """
    found = rhumbline.solve(instance, seconds=seconds, device="cpu")[0]
    first = Annealing(instance, found.plan, 0, Event(), lambda plan: None)
    crew = [first.clone(0, number) for number in range(walkers)]
    costs = [cooled(walker, times) for walker in crew]
    return [float(found.cost), costs[0], min(costs), cooled(first, walkers * times)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--walkers", type=int, default=8)
    parser.add_argument("--times", type=int, default=600_000)
    parser.add_argument("--sizes", default="200,300")
    parser.add_argument("--first", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    improvers.prepare_solver("ruin")
    instances = [
        one
        for size in args.sizes.split(",")
        for one in draw_varied(f"vrp{size}", args.first).instances
    ]
    costs = np.array([compared(one, args.walkers, args.times, args.seconds) for one in instances])
    gaps = 100 * (costs / costs.min(1, keepdims=True) - 1)
    names = ("given", "one", f"best of {args.walkers}", f"one, {args.walkers} times as far")
    for name, gap in zip(names, gaps.T, strict=True):
        print(f"{name:24s} {gap.mean():.3f} ± {1.96 * gap.std(ddof=1) / len(gap) ** 0.5:.3f} %")


if __name__ == "__main__":
    main()
