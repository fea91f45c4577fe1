"""PyVRP (MIT): iterated local search for vehicle routes; a tour is one vehicle's. It starts from
the best plan.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from rhumbline.external import integer_distances
from rhumbline.local_search.threads import run_interruptible
from rhumbline.problems.cvrp import Routes
from rhumbline.problems.cvrp.instance import MORE_VEHICLES
from rhumbline.problems.tsp import Tour

# distance; PyVRP's penalties for overload end at 1e5, and with 1e6 it preferred overloaded vehicles
LARGEST = 10_000
LARGEST_IN_TOURS = 1_000_000


def improve(
    instance: Any, plans: Sequence[Any], seconds: float, seed: int, found: Callable[[Any], None]
) -> None:
    """The plans of one run."""
    pyvrp: Any = import_module("pyvrp")

    if instance.size < 3:
        return
    tour = instance.problem == "tsp"
    stop = Stop(seconds)
    given = [[[city - 1 for city in route] for route in routes_of(plan)] for plan in plans]
    data = make_data(instance, 1 if tour else vehicle_limit(instance, given), tour)
    start = pyvrp.Solution(data, given[0])

    def work(tell: Callable[[Any], None]) -> None:
        run(
            data,
            stop,
            seed,
            params=listening(lambda routes: tell(plan_of(routes, tour))),
            initial_solution=start,
        )

    run_interruptible(work, stop.now, found)


@dataclass
class Stop:
    """PyVRP's way to ask whether it is to end: at a time, or when told."""

    seconds: float
    began: float | None = None
    told: bool = False

    def __call__(self, best_cost: int) -> bool:
        """Asked before each step; the clock starts with the first."""
        self.began = time.monotonic() if self.began is None else self.began
        return self.told or time.monotonic() - self.began > self.seconds

    def now(self) -> None:
        """End with the step that is being made."""
        self.told = True


def listening(tell: Callable[[list[list[int]]], None]) -> Any:
    """PyVRP's parameters with somebody who hears of each best solution that overloads no
    vehicle.
    """
    pyvrp: Any = import_module("pyvrp")

    class Listener(pyvrp.IteratedLocalSearchCallbacks):
        """All other calls are left as they are."""

        def on_best(self, best: Any) -> None:
            """In PyVRP's thread."""
            if best.is_feasible():
                tell(clients(best))

    return pyvrp.SolveParams(pyvrp.IteratedLocalSearchParams(callbacks=Listener()))


def solve_routes(data: Any, seconds: float, seed: int) -> list[list[int]] | None:
    """The best routes of one run that ends by the clock; None if even those overload a vehicle."""
    best = run(data, Stop(seconds), seed).best
    return clients(best) if best.is_feasible() else None


def run(data: Any, stop: Stop, seed: int, **more: Any) -> Any:
    """PyVRP, silent."""
    pyvrp: Any = import_module("pyvrp")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as penalties at their bound
        return pyvrp.solve(
            data, stop, seed=seed % 2**31, display=False, collect_stats=False, **more
        )


def clients(solution: Any) -> list[list[int]]:
    """The routes of a solution in our numbers."""
    return [[visit.idx + 1 for visit in route if visit.is_client()] for route in solution.routes()]


def plan_of(routes: list[list[int]], tour: bool) -> Tour | Routes:
    """The same as a plan; a tour is one route."""
    return Tour((0, *routes[0])) if tour else Routes(tuple(map(tuple, routes)))


def routes_of(plan: Tour | Routes) -> Sequence[Sequence[int]]:
    """The routes of a plan; a tour begins in city 0."""
    if isinstance(plan, Routes):
        return [route for route in plan.routes if route]
    start = plan.order.index(0)
    return [[*plan.order[start + 1 :], *plan.order[:start]]]


def vehicle_limit(instance: Any, plans: Sequence[Sequence[Any]]) -> int:
    """How many vehicles PyVRP may use."""
    return instance.vehicles or max(map(len, plans)) + MORE_VEHICLES


def make_data(instance: Any, vehicles: int, tour: bool) -> Any:
    """The instance as PyVRP sees it; positions are only for its pictures."""
    pyvrp: Any = import_module("pyvrp")

    distance = integer_distances(instance, LARGEST_IN_TOURS if tour else LARGEST)
    nodes = range(1, instance.size)
    clients = [pyvrp.Client(i, delivery=[] if tour else [int(instance.demands[i])]) for i in nodes]
    vehicle = pyvrp.VehicleType(vehicles, [] if tour else [int(instance.capacity)])
    places = [pyvrp.Location(float(x), float(y)) for x, y in instance.planar_xy]
    return pyvrp.ProblemData(
        places, clients, [pyvrp.Depot(0)], [vehicle], [distance], [np.zeros_like(distance)]
    )
