"""PyVRP (MIT): iterated local search for vehicle routes; a tour is one vehicle's. It starts from the best plan."""

import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from rhumbline.baselines import whole_distances
from rhumbline.problems.cvrp import Routes
from rhumbline.problems.tsp import Tour

LARGEST = 10_000  # distance; PyVRP's penalties for overload end at 1e5, and with 1e6 it preferred overloaded vehicles
LARGEST_IN_TOURS = 1_000_000
MORE_VEHICLES = 10  # than the plans have, where the fleet is free


def improve(instance: Any, plans: Sequence[Any], seconds: float, seed: int) -> Any | None:
    """The best plan of one run."""
    pyvrp: Any = import_module("pyvrp")

    if instance.size < 3:
        return None
    tour = instance.problem == "tsp"
    given = [[[city - 1 for city in route] for route in routes_of(plan)] for plan in plans]
    data = problem(instance, 1 if tour else fleet(instance, given), tour)
    routes = routes_found(data, seconds, seed, initial_solution=pyvrp.Solution(data, given[0]))
    if routes is None:
        return None
    return Tour((0, *routes[0])) if tour else Routes(tuple(map(tuple, routes)))


def routes_found(data: Any, seconds: float, seed: int, **start: Any) -> list[list[int]] | None:
    """The best routes of one run that ends by the clock; None if even those overload a vehicle."""
    pyvrp: Any = import_module("pyvrp")

    options: dict[str, Any] = {"seed": seed % 2**31, "display": False, "collect_stats": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as penalties at their bound
        found = pyvrp.solve(data, pyvrp.stop.MaxRuntime(seconds), **options, **start).best
    if not found.is_feasible():
        return None
    return [[visit.idx + 1 for visit in route if visit.is_client()] for route in found.routes()]


def routes_of(plan: Tour | Routes) -> Sequence[Sequence[int]]:
    """The routes of a plan; a tour begins in city 0."""
    if isinstance(plan, Routes):
        return [route for route in plan.routes if route]
    start = plan.order.index(0)
    return [[*plan.order[start + 1 :], *plan.order[:start]]]


def fleet(instance: Any, plans: Sequence[Sequence[Any]]) -> int:
    """How many vehicles PyVRP may use."""
    return instance.vehicles or max(map(len, plans)) + MORE_VEHICLES


def problem(instance: Any, vehicles: int, tour: bool) -> Any:
    """The instance as PyVRP sees it; positions are only for its pictures."""
    pyvrp: Any = import_module("pyvrp")

    distance, nodes = whole_distances(instance, LARGEST_IN_TOURS if tour else LARGEST), range(1, instance.size)
    clients = [pyvrp.Client(i, delivery=[] if tour else [int(instance.demands[i])]) for i in nodes]
    vehicle = pyvrp.VehicleType(vehicles, [] if tour else [int(instance.capacity)])
    places = [pyvrp.Location(float(x), float(y)) for x, y in instance.plane]
    return pyvrp.ProblemData(places, clients, [pyvrp.Depot(0)], [vehicle], [distance], [np.zeros_like(distance)])
