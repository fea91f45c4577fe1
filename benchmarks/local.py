"""Local moves alone: random plans of files taken to a local optimum, without any policy.

    python benchmarks/local.py ../shared/instances/tsplib ../shared/instances/cvrplib
../shared/instances/jsplib

For each folder: mean gaps to the best known costs before and after, and the processor time of one
polish. Random plans are a random order of cities, customers packed into vehicles in random order,
or operations dispatched in random order. With --restarts S, instead: the mean gap of the best of as
many polished random plans as fit into S seconds (wall) each.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from rhumbline.files import read
from rhumbline.kernels.numba.local_search import launch as local_moves
from rhumbline.problems.cvrp import Routes
from rhumbline.problems.jssp import Schedule
from rhumbline.problems.tsp import Tour
from rhumbline.search.plan_sets.similarity import PLAN_TOOLS

ENDINGS = (".tsp", ".vrp", ".txt", ".jsp")


def random_tour(instance: Any, rng: np.random.Generator) -> Tour:
    return Tour(tuple(rng.permutation(instance.size).tolist()))


def random_routes(instance: Any, rng: np.random.Generator) -> Routes:
    routes: list[list[int]] = [[]]
    for customer in (rng.permutation(instance.size - 1) + 1).tolist():
        if sum(instance.demands[c] for c in [*routes[-1], customer]) > instance.capacity:
            routes.append([])
        routes[-1].append(customer)
    return Routes(tuple(map(tuple, routes)))


def random_schedule(instance: Any, rng: np.random.Generator) -> Schedule:
    starts: list[list[int]] = [[] for _ in instance.durations]
    jobs, machines = [0] * instance.job_count, [0] * instance.machine_count
    for job in rng.permutation(
        [job for job, row in enumerate(instance.durations) for _ in row]
    ).tolist():
        step = len(starts[job])
        machine = instance.machines[job][step]
        starts[job].append(max(jobs[job], machines[machine]))
        jobs[job] = machines[machine] = starts[job][-1] + instance.durations[job][step]
    return Schedule(tuple(map(tuple, starts)))


RANDOM = {"tsp": random_tour, "cvrp": random_routes, "jssp": random_schedule}


def gaps(instance: Any, tries: int) -> tuple[float, float, float, float]:
    """Mean before, mean after, best after, and milliseconds of one polish."""
    polish, rng = PLAN_TOOLS[instance.problem].polisher(instance), np.random.default_rng(0)
    given = [RANDOM[instance.problem](instance, rng) for _ in range(tries)]
    began = time.process_time()
    found = [polish(plan) for plan in given]
    spent = 1000 * (time.process_time() - began) / tries
    for plan in found:
        plan.check(instance)
    before, after = (
        [p.cost(instance) / instance.best_known - 1 for p in plans] for plans in (given, found)
    )
    return float(np.mean(before)), float(np.mean(after)), min(after), spent


def restarted(instance: Any, seconds: float) -> float:
    """The gap of the best of many polished random plans."""
    polish, rng = PLAN_TOOLS[instance.problem].polisher(instance), np.random.default_rng(0)
    end, best = time.monotonic() + seconds, np.inf
    while time.monotonic() < end:
        best = min(best, polish(RANDOM[instance.problem](instance, rng)).cost(instance))
    return best / instance.best_known - 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--tries", type=int, default=8)
    parser.add_argument("--restarts", type=float, default=None, metavar="S")
    args = parser.parse_args()
    for folder in args.folders:
        instances = [read(path) for path in sorted(folder.iterdir()) if path.suffix in ENDINGS]
        began = time.process_time()
        local_moves.load_kernel(instances[0].problem)
        ready = time.process_time() - began
        if args.restarts:
            rows = [restarted(i, args.restarts) for i in instances if i.best_known]
            print(
                f"{instances[0].problem}: {len(rows)} files, best of {args.restarts:g} s: mean {np.mean(rows):.3%}"
            )
            continue
        rows = np.array([gaps(i, args.tries) for i in instances if i.best_known])
        before, after, best, spent = rows.mean(0)
        print(
            f"{instances[0].problem}: {len(rows)} files, gap {before:.1%} -> {after:.2%} (best of {args.tries}: "
            f"{best:.2%}), {spent:.1f} ms each (longest {rows[:, 3].max():.1f}); kernel ready in {ready:.1f} s"
        )


if __name__ == "__main__":
    main()
