"""Local search alone, without a policy: descents from random plans, and steps of the long searches.

    python benchmarks/micro/local_search.py                         # random instances
    python benchmarks/micro/local_search.py instances/tsplib instances/cvrplib instances/jsplib

For folders also the mean gaps to the best known costs before and after a descent. With
`--restarts S` instead the mean gap of the best of as many descents as fit into S seconds each.
"""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from harness import Case, Harness, make_parser

from rhumbline.domains import DOMAINS
from rhumbline.files import read
from rhumbline.files.discovery import find_instance_files
from rhumbline.kernels.numba.tour_search.launch import TourSearch
from rhumbline.local_search import route_ruin_recreate
from rhumbline.local_search.threads import generator_state
from rhumbline.local_search.tour_ils import tour_space
from rhumbline.problems.cvrp import Routes, cvrp_from_arrays
from rhumbline.problems.cvrp.construct import construct_routes
from rhumbline.problems.jssp import Schedule, jssp_from_arrays
from rhumbline.problems.tsp import Tour, tsp_from_array

KICKS = 1000
STEPS = 1000


def random_tour(instance: Any, rng: np.random.Generator) -> Tour:
    """Return the cities in random order."""
    return Tour(tuple(rng.permutation(instance.size).tolist()))


def random_routes(instance: Any, rng: np.random.Generator) -> Routes:
    """Return customers in random order, packed into vehicles."""
    routes: list[list[int]] = [[]]
    load = 0
    for customer in (rng.permutation(instance.size - 1) + 1).tolist():
        load += instance.demands[customer]
        if load > instance.capacity:
            routes.append([])
            load = instance.demands[customer]
        routes[-1].append(customer)
    return Routes(tuple(tuple(route) for route in routes))


def random_schedule(instance: Any, rng: np.random.Generator) -> Schedule:
    """Return operations dispatched in random order."""
    starts: list[list[int]] = [[] for _ in instance.durations]
    job_ends = [0] * instance.job_count
    machine_ends = [0] * instance.machine_count
    jobs = [job for job, row in enumerate(instance.durations) for _ in row]
    for job in rng.permutation(jobs).tolist():
        step = len(starts[job])
        machine = instance.machines[job][step]
        begin = max(job_ends[job], machine_ends[machine])
        starts[job].append(begin)
        job_ends[job] = machine_ends[machine] = begin + instance.durations[job][step]
    return Schedule(tuple(tuple(row) for row in starts))


RANDOM_PLANS = {"tsp": random_tour, "cvrp": random_routes, "jssp": random_schedule}


def random_instances(size: int) -> list[Any]:
    """Return one instance of each problem."""
    rng = np.random.default_rng(1)
    xy = rng.random((size + 1, 2))
    demands = rng.integers(1, 10, size)
    durations = rng.integers(1, 100, (10, 10))
    orders = np.stack([rng.permutation(10) for _ in range(10)])
    return [
        tsp_from_array(xy[1:], f"TSP{size}"),
        cvrp_from_arrays(xy[0], xy[1:], demands, 50, name=f"CVRP{size}"),
        jssp_from_arrays(durations, orders, "JSSP 10x10"),
    ]


def time_descents(harness: Harness, instances: Sequence[Any], tries: int, title: str) -> None:
    """Time descents from random plans of each instance; check every plan."""
    rng = np.random.default_rng(0)
    gaps = list[tuple[float, float]]()
    spent = 0.0
    for instance in instances:
        polish = DOMAINS[instance.problem].plans.polisher(instance)
        plans = [RANDOM_PLANS[instance.problem](instance, rng) for _ in range(tries)]
        polish(plans[0])
        began = time.process_time()
        found = [polish(plan) for plan in plans]
        spent += time.process_time() - began
        for before, after in zip(plans, found, strict=True):
            after.check(instance)
            known = instance.best_known or after.cost(instance)
            gaps.append((before.cost(instance) / known - 1, after.cost(instance) / known - 1))
    before, after = np.mean(gaps, axis=0)
    note = f"   gap {before:.1%} -> {after:.2%}" if instances[0].best_known else ""
    count = len(gaps)
    harness.report(
        Case("local_search", title, "numba", 1e3 * spent / count, count / spent, "descents"), note
    )


def time_kicks(harness: Harness, instance: Any) -> None:
    """Time the kicks of iterated local search on a tour."""
    order = random_tour(instance, np.random.default_rng(0)).order
    search = TourSearch(tour_space(instance), order, generator_state(1))
    while not search.is_local_optimum:
        search.run(KICKS)
    spent = harness.milliseconds(partial(search.run, KICKS))
    case = Case(
        "local_search", f"{instance.name} ILS", "numba", spent, 1e3 * KICKS / spent, "kicks"
    )
    harness.report(case)


def time_ruin_steps(harness: Harness, instance: Any) -> None:
    """Time steps of ruin and recreate with local search, from constructed routes."""
    route_ruin_recreate.prepare()
    plan = construct_routes(instance)
    search = route_ruin_recreate.Annealing(instance, plan, 1, Event(), lambda found: None)
    temperature = route_ruin_recreate.TUNING.least_first_temperature
    search.run_steps(temperature, STEPS)
    spent = harness.milliseconds(partial(search.run_steps, temperature, STEPS))
    case = Case(
        "local_search", f"{instance.name} ruin", "numba", spent, 1e3 * STEPS / spent, "steps"
    )
    harness.report(case)


def restart_gap(instance: Any, seconds: float) -> float:
    """Return the gap of the best of as many descents as fit into these seconds."""
    polish = DOMAINS[instance.problem].plans.polisher(instance)
    rng = np.random.default_rng(0)
    end = time.monotonic() + seconds
    best = np.inf
    while time.monotonic() < end:
        plan = polish(RANDOM_PLANS[instance.problem](instance, rng))
        best = min(best, plan.cost(instance))
    return best / instance.best_known - 1


def main() -> None:
    """Measure what the command line says."""
    parser = make_parser(__doc__)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--tries", type=int, default=8, help="random plans of an instance")
    parser.add_argument("--size", type=int, default=100, help="nodes of random instances")
    parser.add_argument("--restarts", type=float, default=None, metavar="S")
    given = parser.parse_args()
    harness = Harness("local_search", given)
    for folder in given.folders:
        instances = [i for i in map(read, find_instance_files(folder)) if i.best_known]
        title = f"{folder.name}, {len(instances)} files"
        if given.restarts:
            gaps = [restart_gap(instance, given.restarts) for instance in instances]
            print(f"{title}, best of {given.restarts:g} s: mean gap {np.mean(gaps):.3%}")
        else:
            time_descents(harness, instances, given.tries, title)
    if not given.folders:
        instances = random_instances(given.size)
        for instance in instances:
            time_descents(harness, [instance], given.tries, instance.name)
        tour_instance, route_instance, *_ = instances
        time_kicks(harness, tour_instance)
        time_ruin_steps(harness, route_instance)


if __name__ == "__main__":
    main()
