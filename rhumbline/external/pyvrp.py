"""PyVRP (MIT): iterated local search for CVRP, which starts from the best plan.

For TSP, the tour is the route of a single vehicle.
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
from rhumbline.problems.cvrp.instance import LIMITS
from rhumbline.problems.tsp import Tour, TSPInstance


def prepare() -> None:
    """Do nothing: there are no kernels to compile."""


def improve(
    instance: Any, plans: Sequence[Any], seconds: float, seed: int, on_plan: Callable[[Any], None]
) -> None:
    """Report the plans of one run."""
    began = time.monotonic()
    pyvrp: Any = import_module("pyvrp")

    if instance.size < 3:
        return
    is_tour = isinstance(instance, TSPInstance)
    stop = Stop(seconds, began)
    given = [client_routes(plan) for plan in plans]
    vehicles = 1 if is_tour else vehicle_limit(instance, given)
    data = make_data(instance, vehicles, is_tour)
    start = pyvrp.Solution(data, given[0])

    def work(report: Callable[[Any], None]) -> None:
        def report_routes(routes: list[list[int]]) -> None:
            plan = plan_of_routes(routes, is_tour)
            report(plan)

        params = listening_params(report_routes)
        run_pyvrp(data, stop, seed, params=params, initial_solution=start)

    run_interruptible(work, stop.request, on_plan)


@dataclass
class Stop:
    """PyVRP's stopping criterion: after some seconds, or on request.

    PyVRP asks before each step. Unless a start is given, the clock starts with the first one.
    """

    seconds: float
    began: float | None = None
    requested: bool = False

    def __call__(self, best_cost: int) -> bool:
        """Return whether to stop."""
        if self.began is None:
            self.began = time.monotonic()
        if self.requested:
            return True
        return time.monotonic() - self.began > self.seconds

    def request(self) -> None:
        """Stop after the current step."""
        self.requested = True


def listening_params(report: Callable[[list[list[int]]], None]) -> Any:
    """Return PyVRP's parameters with a callback for each best solution without overload."""
    pyvrp: Any = import_module("pyvrp")

    class Listener(pyvrp.IteratedLocalSearchCallbacks):
        """Keeps the defaults of all other callbacks."""

        def on_best(self, best: Any) -> None:
            """Report the routes. PyVRP calls this in its own thread."""
            if best.is_feasible():
                report(solution_routes(best))

    search_params = pyvrp.IteratedLocalSearchParams(callbacks=Listener())
    return pyvrp.SolveParams(search_params)


def solve_routes(data: Any, seconds: float, seed: int) -> list[list[int]] | None:
    """Return the best routes of one run that ends by the clock; None if they overload a vehicle."""
    result = run_pyvrp(data, Stop(seconds), seed)
    best = result.best
    if not best.is_feasible():
        return None
    return solution_routes(best)


def run_pyvrp(data: Any, stop: Stop, seed: int, **options: Any) -> Any:
    """Run PyVRP without any output; return its result."""
    pyvrp: Any = import_module("pyvrp")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as penalties at their bound
        return pyvrp.solve(
            data, stop, seed=seed % 2**31, display=False, collect_stats=False, **options
        )


def solution_routes(solution: Any) -> list[list[int]]:
    """Return the routes of a solution, with our numbers of the customers."""
    routes: list[list[int]] = []
    for route in solution.routes():
        customers = [visit.idx + 1 for visit in route if visit.is_client()]
        routes.append(customers)
    return routes


def plan_of_routes(routes: list[list[int]], is_tour: bool) -> Tour | Routes:
    """Return routes as a plan; a tour is one route."""
    if is_tour:
        return Tour((0, *routes[0]))
    visits = tuple(map(tuple, routes))
    return Routes(visits)


def client_routes(plan: Tour | Routes) -> list[list[int]]:
    """Return the routes of a plan in PyVRP's numbers of clients; a tour begins in city 0."""
    if isinstance(plan, Routes):
        routes = [route for route in plan.routes if route]
    else:
        start = plan.order.index(0)
        after = plan.order[start + 1 :]
        before = plan.order[:start]
        routes = [(*after, *before)]
    return [[city - 1 for city in route] for route in routes]


def vehicle_limit(instance: Any, plans: Sequence[Sequence[Any]]) -> int:
    """Return the number of vehicles that PyVRP may use."""
    if instance.vehicles:
        return instance.vehicles
    return max(map(len, plans)) + LIMITS.extra_vehicles


def make_data(instance: Any, vehicles: int, is_tour: bool) -> Any:
    """Return the instance as PyVRP reads it; it uses positions in its pictures only."""
    pyvrp: Any = import_module("pyvrp")

    # PyVRP's penalties for overload end at 1e5. With 1e6 it preferred overload.
    max_distance = 1_000_000 if is_tour else 10_000
    distance = integer_distances(instance, max_distance)
    clients: list[Any] = []
    for node in range(1, instance.size):
        delivery = [] if is_tour else [int(instance.demands[node])]
        client = pyvrp.Client(node, delivery=delivery)
        clients.append(client)
    capacity = [] if is_tour else [int(instance.capacity)]
    vehicle = pyvrp.VehicleType(vehicles, capacity)
    locations = [pyvrp.Location(float(x), float(y)) for x, y in instance.planar_xy]
    durations = np.zeros_like(distance)
    return pyvrp.ProblemData(
        locations, clients, [pyvrp.Depot(0)], [vehicle], [distance], [durations]
    )
