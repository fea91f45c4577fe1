"""CVRP instances and routes on the host, exact."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from rhumbline.errors import Infeasible, InputError, LimitExceeded
from rhumbline.problems.metrics import MAX_NUMBER, Metric, MetricInstance

MAX_CUSTOMERS = 1000
MORE_VEHICLES = (
    10  # than the given plans have, for solvers that improve them, as far as the fleet allows
)
MAX_CAPACITY = 10**9  # the kernels count loads in 32 bits


@dataclass(frozen=True, eq=False)
class CVRPInstance(MetricInstance):
    """One instance as its file says it, with the depot at index 0 and the other nodes in the file's
    order.

    Plans name customer k of a solution file: the k-th node of the file that is not the depot, as
    CVRPLIB does.
    """

    problem = "cvrp"

    name: str
    metric: Metric
    demands: tuple[int, ...]  # of all nodes; 0 for the depot
    capacity: int
    xy: Float[np.ndarray, "N 2"] | None = None
    matrix: Float[np.ndarray, "N N"] | Int[np.ndarray, "N N"] | None = None
    vehicles: int | None = None  # most routes allowed; None is a free fleet
    best_known: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.capacity <= MAX_CAPACITY:
            raise InputError(
                f"{self.name}: the capacity is {self.capacity}, expected 1 to {MAX_CAPACITY}"
            )
        for customer, demand in enumerate(self.demands):
            if demand > self.capacity:
                raise InputError(
                    f"{self.name}: customer {customer} demands {demand}, more than the capacity {self.capacity}"
                )
        needed = min_vehicles(self.demands, self.capacity)
        if self.vehicles is not None and self.vehicles < needed:
            raise InputError(
                f"{self.name}: {self.vehicles} vehicles are allowed, but the demand of {sum(self.demands)} needs at "
                f"least {needed} of capacity {self.capacity}"
            )

    @property
    def size(self) -> int:
        """Number of nodes, the depot included."""
        return len(self.demands)

    @property
    def shape(self) -> tuple[int, int]:
        """What instances must share to be solved together: nodes, and whether a matrix comes
        with them.
        """
        return self.size, self.metric != "EXACT_2D"


@dataclass(frozen=True)
class Routes:
    """Customers of each vehicle in visiting order, as indices 1..N-1; the depot is left out."""

    routes: tuple[tuple[int, ...], ...]

    def check(self, instance: CVRPInstance) -> None:
        """Raise `Infeasible` unless every customer is served once, no vehicle is overloaded and
        the fleet suffices.
        """
        served = np.asarray([c for route in self.routes for c in route], dtype=np.int64)
        strange = served[(served < 1) | (served >= instance.size)]
        if len(strange):
            raise Infeasible(
                f"{instance.name}: a route visits customer {strange[0]} of {instance.size - 1}"
            )
        counts = np.bincount(served, minlength=instance.size)
        wrong = [c for c in range(1, instance.size) if counts[c] != 1]
        if wrong:
            raise Infeasible(
                f"{instance.name}: customer {wrong[0]} is visited {counts[wrong[0]]} times"
            )
        self.check_fleet(instance)

    def check_fleet(self, instance: CVRPInstance) -> None:
        """Loads, and last the number of vehicles: `LimitExceeded` says that all else is right."""
        for number, route in enumerate(self.routes, start=1):
            load = sum(instance.demands[c] for c in route)
            if load > instance.capacity:
                raise Infeasible(
                    f"{instance.name}: route {number} carries {load}, the capacity is {instance.capacity}"
                )
        if instance.vehicles is not None and len(self.routes) > instance.vehicles:
            raise LimitExceeded(
                f"{instance.name}: the plan needs {len(self.routes)} vehicles, {instance.vehicles} are allowed"
            )

    def cost(self, instance: CVRPInstance) -> int | float:
        """Length of all routes, from the depot and back, in the instance's metric."""
        walk = np.asarray([0, *(node for route in self.routes for node in (*route, 0))])
        total = float(instance.distances[walk[:-1], walk[1:]].sum())
        return round(total) if instance.has_integer_costs else total

    def to_file_numbers(self, instance: CVRPInstance) -> list[list[int]]:
        """The routes as a solution file writes them."""
        return [list(route) for route in self.routes]


def cvrp_from_arrays(
    depot: np.ndarray | Sequence[int | float],
    customers: np.ndarray | Sequence[Any],
    demands: np.ndarray | Sequence[int | float],
    capacity: np.ndarray | np.number | int | float,
    name: str = "arrays",
    vehicles: int | None = None,
) -> CVRPInstance:
    """An instance from a depot [2], customers [n, 2], whole demands [n] and a capacity; straight
    lines, unrounded.
    """
    try:
        depot, customers, demands, load = (
            np.asarray(x) for x in (depot, customers, demands, capacity)
        )
    except ValueError as error:
        raise InputError(f"{name}: expected arrays, got lists of unequal lengths") from error
    arrays = {"depot": depot, "customers": customers, "demands": demands, "capacity": load}
    for what, array in arrays.items():
        if array.dtype.kind not in "iuf":
            raise InputError(f"{name}: expected real numbers as {what}, got {array.dtype}")
    if (
        depot.shape != (2,)
        or customers.ndim != 2
        or customers.shape[1] != 2
        or demands.shape != customers.shape[:1]
    ):
        shapes = f"{depot.shape}, {customers.shape}, {demands.shape}"
        wanted = "expected a depot [2], customers [n, 2] and demands [n]"
        raise InputError(
            f"{name}: {wanted}, got shapes {shapes}; several instances are a list with all four of each"
        )
    if not 1 <= len(customers) <= MAX_CUSTOMERS:
        raise InputError(
            f"{name}: has {len(customers)} customers; 1 to {MAX_CUSTOMERS} are supported"
        )
    if load.shape or not (np.isfinite(load) and load == np.rint(load)):
        raise InputError(f"{name}: the capacity is {capacity}, expected a whole number")
    xy = np.concatenate([depot[None], customers]).astype(np.float64)
    check_nodes(name, xy, demands)
    return CVRPInstance(
        name, "EXACT_2D", (0, *(int(q) for q in demands)), int(load), xy=xy, vehicles=vehicles
    )


def check_nodes(name: str, xy: Float[np.ndarray, "N 2"], demands: np.ndarray) -> None:
    """Raise at the first node that is nowhere, and at the first customer whose demand is no
    count.
    """
    nowhere = np.flatnonzero(~(np.abs(xy) <= MAX_NUMBER).all(1))
    if len(nowhere):
        who = f"customer {nowhere[0]}" if nowhere[0] else "the depot"
        raise InputError(
            f"{name}: {who} is at {xy[nowhere[0]]}, expected finite coordinates of size up to {MAX_NUMBER:g}"
        )
    wrong = np.flatnonzero(~(np.isfinite(demands) & (demands == np.rint(demands)) & (demands >= 0)))
    if len(wrong):
        customer = wrong[0] + 1
        demand = demands[wrong[0]]
        raise InputError(
            f"{name}: customer {customer} demands {demand}, expected a whole number, not negative"
        )


def with_fleet(instance: Any, vehicles: int | float) -> CVRPInstance:
    """The same instance with at most so many vehicles, whatever its file says."""
    if not isinstance(vehicles, int | np.integer):
        raise InputError(f"vehicles is {vehicles!r}, expected a whole number")
    if instance.problem != "cvrp":
        raise InputError(
            f"{instance.name}: a number of vehicles is for vehicle routing, this is '{instance.problem}'"
        )
    return replace(instance, vehicles=int(vehicles))


def min_vehicles(demands: Sequence[int], capacity: int) -> int:
    """No fleet of fewer vehicles can carry the demand; whether this many can is a packing
    problem.
    """
    return max(1, -(-sum(demands) // capacity))
