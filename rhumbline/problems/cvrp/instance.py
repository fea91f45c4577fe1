"""CVRP instances and routes on the host, exact."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from rhumbline.errors import Infeasible, InputError, LimitExceeded
from rhumbline.problems.metrics import MAX_NUMBER, Metric, MetricInstance

MAX_CUSTOMERS = 1000
# Vehicles that solvers may use beyond those of a given plan, as far as the fleet allows.
MORE_VEHICLES = 10
MAX_CAPACITY = 10**9  # the kernels count loads in 32 bits


@dataclass(frozen=True, eq=False)
class CVRPInstance(MetricInstance):
    """One instance as its file gives it: the depot at index 0, the other nodes in file order.

    Customer k of a plan is the k-th node of the file that is not the depot, as on CVRPLIB.
    """

    problem = "cvrp"

    name: str
    metric: Metric
    demands: tuple[int, ...]  # of all nodes; 0 for the depot
    capacity: int
    xy: Float[np.ndarray, "N 2"] | None = None
    matrix: Float[np.ndarray, "N N"] | Int[np.ndarray, "N N"] | None = None
    vehicles: int | None = None  # most routes allowed; None means no limit
    best_known: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.capacity <= MAX_CAPACITY:
            found = f"the capacity is {self.capacity}"
            raise InputError(f"{self.name}: {found}, expected 1 to {MAX_CAPACITY}")
        for customer, demand in enumerate(self.demands):
            if demand > self.capacity:
                found = f"customer {customer} demands {demand}"
                raise InputError(f"{self.name}: {found}, more than the capacity {self.capacity}")
        needed = min_vehicles(self.demands, self.capacity)
        if self.vehicles is not None and self.vehicles < needed:
            found = f"{self.vehicles} vehicles are allowed"
            need = f"needs at least {needed} of capacity {self.capacity}"
            raise InputError(f"{self.name}: {found}, but the demand of {sum(self.demands)} {need}")

    @property
    def size(self) -> int:
        """Return the number of nodes, the depot included."""
        return len(self.demands)

    @property
    def shape(self) -> tuple[int, int]:
        """Return what instances of one batch share: the size, and whether there is a matrix."""
        return self.size, self.metric != "EXACT_2D"


@dataclass(frozen=True)
class Routes:
    """Customers of each vehicle in visiting order, as indices 1..N-1; the depot is left out."""

    routes: tuple[tuple[int, ...], ...]

    def check(self, instance: CVRPInstance) -> None:
        """Raise `Infeasible` unless the plan is feasible.

        Every customer is served once, no vehicle is overloaded and the fleet suffices.
        """
        customers = [customer for route in self.routes for customer in route]
        served = np.asarray(customers, dtype=np.int64)
        strange = served[(served < 1) | (served >= instance.size)]
        if len(strange):
            found = f"a route visits customer {strange[0]} of {instance.size - 1}"
            raise Infeasible(f"{instance.name}: {found}")
        counts = np.bincount(served, minlength=instance.size)
        for customer in range(1, instance.size):
            if counts[customer] != 1:
                found = f"customer {customer} is visited {counts[customer]} times"
                raise Infeasible(f"{instance.name}: {found}")
        self.check_fleet(instance)

    def check_fleet(self, instance: CVRPInstance) -> None:
        """Raise `Infeasible` at an overloaded vehicle, then `LimitExceeded` at too many vehicles.

        `LimitExceeded` therefore means that everything else is right.
        """
        for number, route in enumerate(self.routes, start=1):
            load = sum(instance.demands[customer] for customer in route)
            if load > instance.capacity:
                limit = f"the capacity is {instance.capacity}"
                raise Infeasible(f"{instance.name}: route {number} carries {load}, {limit}")
        if instance.vehicles is not None and len(self.routes) > instance.vehicles:
            limit = f"{instance.vehicles} are allowed"
            raise LimitExceeded(
                f"{instance.name}: the plan needs {len(self.routes)} vehicles, {limit}"
            )

    def cost(self, instance: CVRPInstance) -> int | float:
        """Return the length of all routes, from the depot and back, in the instance's metric.

        It is an int where costs are whole numbers.
        """
        walk = [0]
        for route in self.routes:
            walk += [*route, 0]
        nodes = np.asarray(walk)
        total = float(instance.distances[nodes[:-1], nodes[1:]].sum())
        return round(total) if instance.has_integer_costs else total

    def to_file_numbers(self, instance: CVRPInstance) -> list[list[int]]:
        """Return the routes in the numbers of a solution file."""
        return [list(route) for route in self.routes]


def cvrp_from_arrays(
    depot: np.ndarray | Sequence[int | float],
    customers: np.ndarray | Sequence[Any],
    demands: np.ndarray | Sequence[int | float],
    capacity: np.ndarray | np.number | int | float,
    name: str = "arrays",
    vehicles: int | None = None,
) -> CVRPInstance:
    """Return an instance from a depot [2], customers [n, 2], demands [n] and a capacity.

    Demands and capacity are whole numbers. Distances are unrounded straight lines.
    """
    try:
        arrays = {
            "depot": np.asarray(depot),
            "customers": np.asarray(customers),
            "demands": np.asarray(demands),
            "capacity": np.asarray(capacity),
        }
    except ValueError as error:
        raise InputError(f"{name}: expected arrays, got lists of unequal lengths") from error
    for what, array in arrays.items():
        if array.dtype.kind not in "iuf":
            raise InputError(f"{name}: expected real numbers as {what}, got {array.dtype}")
    depot, customers, demands, limit = arrays.values()
    check_array_shapes(name, depot, customers, demands)
    if not 1 <= len(customers) <= MAX_CUSTOMERS:
        supported = f"1 to {MAX_CUSTOMERS} are supported"
        raise InputError(f"{name}: has {len(customers)} customers; {supported}")
    if limit.shape or not (np.isfinite(limit) and limit == np.rint(limit)):
        raise InputError(f"{name}: the capacity is {capacity}, expected a whole number")
    xy = np.concatenate([depot[None], customers]).astype(np.float64)
    check_nodes(name, xy, demands)
    all_demands = (0, *(int(demand) for demand in demands))
    return CVRPInstance(name, "EXACT_2D", all_demands, int(limit), xy=xy, vehicles=vehicles)


def check_array_shapes(
    name: str, depot: np.ndarray, customers: np.ndarray, demands: np.ndarray
) -> None:
    """Raise unless the arrays have shapes [2], [n, 2] and [n]."""
    pairs = customers.ndim == 2 and customers.shape[1] == 2
    if depot.shape != (2,) or not pairs or demands.shape != customers.shape[:1]:
        expected = "expected a depot [2], customers [n, 2] and demands [n]"
        shapes = f"{depot.shape}, {customers.shape}, {demands.shape}"
        advice = "several instances are a list with all four of each"
        raise InputError(f"{name}: {expected}, got shapes {shapes}; {advice}")


def check_nodes(name: str, xy: Float[np.ndarray, "N 2"], demands: np.ndarray) -> None:
    """Raise at the first node without finite coordinates, then at the first invalid demand."""
    nowhere = np.flatnonzero(~(np.abs(xy) <= MAX_NUMBER).all(1))
    if len(nowhere):
        node = nowhere[0]
        who = f"customer {node}" if node else "the depot"
        expected = f"expected finite coordinates of size up to {MAX_NUMBER:g}"
        raise InputError(f"{name}: {who} is at {xy[node]}, {expected}")
    is_count = np.isfinite(demands) & (demands == np.rint(demands)) & (demands >= 0)
    wrong = np.flatnonzero(~is_count)
    if len(wrong):
        found = f"customer {wrong[0] + 1} demands {demands[wrong[0]]}"
        raise InputError(f"{name}: {found}, expected a whole number, not negative")


def with_fleet(instance: Any, vehicles: int | float) -> CVRPInstance:
    """Return the instance with at most this many vehicles, whatever its file says."""
    if not isinstance(vehicles, int | np.integer):
        raise InputError(f"vehicles is {vehicles!r}, expected a whole number")
    if instance.problem != "cvrp":
        found = f"this is '{instance.problem}'"
        raise InputError(f"{instance.name}: a number of vehicles is for vehicle routing, {found}")
    return replace(instance, vehicles=int(vehicles))


def min_vehicles(demands: Sequence[int], capacity: int) -> int:
    """Return a lower bound on the vehicles that can carry the demand.

    Whether this number suffices is a packing problem.
    """
    return max(1, -(-sum(demands) // capacity))
