"""CVRP instances and routes on the host, exact."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from rhumbline.errors import Infeasible, InputError, LimitExceeded, shorten, shorten_repr
from rhumbline.problems.decimals import format_load, scale_loads
from rhumbline.problems.metrics import METRIC_LIMITS, Metric, MetricInstance


@dataclass(frozen=True)
class CVRPLimits:
    """The largest instances that the package solves, and the vehicles that solvers may use."""

    max_customers: int = 10_000
    max_capacity: int = 10**9  # the kernels count loads in 32 bits
    # Vehicles beyond those of a given plan, as far as the fleet allows.
    extra_vehicles: int = 10


LIMITS = CVRPLimits()


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
    # Demands and capacity are the user's times this factor, which makes decimals whole.
    load_factor: int = 1

    def __post_init__(self) -> None:
        capacity = self.capacity
        if not 1 <= capacity <= LIMITS.max_capacity:
            expected = f"expected 1 to {LIMITS.max_capacity}"
            raise self.error(f"the capacity is {shorten(capacity)}, {expected}")
        for customer, demand in enumerate(self.demands):
            if demand > capacity:
                found = f"customer {customer} demands {self.show_load(demand)}"
                limit = f"more than the capacity {self.show_load(capacity)}"
                raise self.error(f"{found}, {limit}")
        self.check_fleet_limit()

    def check_fleet_limit(self) -> None:
        """Raise if the vehicles that are allowed cannot carry the demand."""
        capacity = self.capacity
        needed = min_vehicles(self.demands, capacity)
        limit = self.vehicles
        if limit is not None and limit < needed:
            found = f"{shorten(limit)} vehicles are allowed"
            demand = f"the demand of {self.show_load(sum(self.demands))}"
            need = f"needs at least {needed} of capacity {self.show_load(capacity)}"
            raise self.error(f"{found}, but {demand} {need}")

    def error(self, message: str) -> InputError:
        """Return an error that names this instance."""
        return InputError(f"{shorten(self.name)}: {message}")

    def to_user_load(self, load: int) -> int | float:
        """Return a load in the user's own unit, as a number."""
        return load if self.load_factor == 1 else load / self.load_factor

    def show_load(self, load: int) -> str:
        """Return a load in the user's own unit."""
        return format_load(load, self.load_factor)

    @property
    def size(self) -> int:
        """Return the number of nodes, the depot included."""
        return len(self.demands)

    @property
    def shape(self) -> tuple[int, int]:
        """Return what instances of one batch share: the size, and whether there is a matrix."""
        has_matrix = self.metric != "EXACT_2D"
        return self.size, has_matrix


@dataclass(frozen=True)
class Routes:
    """Customers of each vehicle in visiting order, as indices 1..N-1; the depot is left out."""

    routes: tuple[tuple[int, ...], ...]

    def check(self, instance: CVRPInstance) -> None:
        """Raise `Infeasible` unless the plan is feasible.

        Every customer is served once, no vehicle is overloaded and the fleet suffices.
        """
        name = shorten(instance.name)
        size = instance.size
        customers = list(chain.from_iterable(self.routes))
        unknown = [customer for customer in customers if not 1 <= customer < size]
        if unknown:  # perhaps beyond 64 bits
            found = f"a route visits customer {shorten(unknown[0])} of {size - 1}"
            raise Infeasible(f"{name}: {found}")
        served = np.asarray(customers, dtype=np.int64)
        counts = np.bincount(served, minlength=size)
        for customer in range(1, size):
            times = counts[customer]
            if times != 1:
                found = f"customer {customer} is visited {times} times"
                raise Infeasible(f"{name}: {found}")
        self.check_fleet(instance)

    def check_fleet(self, instance: CVRPInstance) -> None:
        """Raise `Infeasible` at an overloaded vehicle, then `LimitExceeded` at too many vehicles.

        `LimitExceeded` therefore means that everything else is right.
        """
        name = shorten(instance.name)
        for number, route in enumerate(self.routes, start=1):
            load = route_load(instance, route)
            if load > instance.capacity:
                found = f"route {number} carries {instance.show_load(load)}"
                limit = f"the capacity is {instance.show_load(instance.capacity)}"
                raise Infeasible(f"{name}: {found}, {limit}")
        needed = len(self.routes)
        allowed = instance.vehicles
        if allowed is not None and needed > allowed:
            found = f"the plan needs {needed} vehicles"
            limit = f"{allowed} are allowed"
            excess = f"needs {needed} vehicles, limit {allowed}"
            raise LimitExceeded(f"{name}: {found}, {limit}", excess)

    def cost(self, instance: CVRPInstance) -> int | float:
        """Return the length of all routes, from the depot and back, in the instance's metric.

        It is an int where costs are whole numbers.
        """
        walk = [0]
        for route in self.routes:
            walk += [*route, 0]
        return instance.walk_length(np.asarray(walk))

    def loads(self, instance: CVRPInstance) -> list[int]:
        """Return the demand that each route carries."""
        return [route_load(instance, route) for route in self.routes]

    def lengths(self, instance: CVRPInstance) -> list[int | float]:
        """Return the length of each route; their sum is the cost."""
        lengths = list[int | float]()
        for route in self.routes:
            walk = np.asarray([0, *route, 0])
            length = instance.walk_length(walk)
            lengths.append(length)
        return lengths

    def route_facts(self, instance: CVRPInstance) -> dict[str, Any]:
        """Return the capacity, and the customers, load and length of each route, for JSON."""
        loads = self.loads(instance)
        lengths = self.lengths(instance)
        routes: list[dict[str, Any]] = []
        for number, customers in enumerate(self.routes):
            route = {
                "customers": list(customers),
                "load": instance.to_user_load(loads[number]),
                "length": lengths[number],
            }
            routes.append(route)
        return {"capacity": instance.to_user_load(instance.capacity), "routes": routes}

    def to_file_numbers(self, instance: CVRPInstance) -> list[list[int]]:
        """Return the routes in the numbers of a solution file."""
        return [list(route) for route in self.routes]


def route_load(instance: CVRPInstance, route: Sequence[int]) -> int:
    """Return the demand of the customers of a route."""
    return sum(instance.demands[customer] for customer in route)


def cvrp_from_arrays(
    depot: np.ndarray | Sequence[Any],
    customers: np.ndarray | Sequence[Any],
    demands: np.ndarray | Sequence[Any],
    capacity: np.ndarray | np.number | int | float,
    name: str = "arrays",
    vehicles: int | None = None,
) -> CVRPInstance:
    """Return an instance from a depot [2], customers [n, 2], demands [n] and a capacity.

    Demands and capacity with decimals are scaled to whole numbers. Distances are unrounded straight
    lines.
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
    count = len(customers)
    if not 1 <= count <= LIMITS.max_customers:
        supported = f"1 to {LIMITS.max_customers:,} are supported"
        raise InputError(f"{name}: has {count:,} customers; {supported}")
    xy = np.concatenate([depot[None], customers]).astype(np.float64)
    check_positions(name, xy)
    check_array_demands(name, demands, limit)
    loads = scale_loads(name, demands, limit[()])
    return CVRPInstance(
        name,
        "EXACT_2D",
        (0, *loads.demands),
        loads.capacity,
        xy=xy,
        vehicles=vehicles,
        load_factor=loads.factor,
    )


def check_array_shapes(
    name: str, depot: np.ndarray, customers: np.ndarray, demands: np.ndarray
) -> None:
    """Raise unless the arrays have shapes [2], [n, 2] and [n]."""
    count = len(customers) if customers.ndim else 0
    are_valid = (
        depot.shape == (2,),
        customers.shape == (count, 2),
        demands.shape == (count,),
    )
    if not all(are_valid):
        expected = "expected a depot [2], customers [n, 2] and demands [n]"
        shapes = f"{depot.shape}, {customers.shape}, {demands.shape}"
        advice = "several instances are a list with all four of each"
        raise InputError(f"{name}: {expected}, got shapes {shapes}; {advice}")


def check_positions(name: str, xy: Float[np.ndarray, "N 2"]) -> None:
    """Raise at the first node without finite coordinates."""
    is_finite = np.abs(xy) <= METRIC_LIMITS.max_number
    is_placed = is_finite.all(1)
    nowhere = np.flatnonzero(~is_placed)
    if len(nowhere):
        node = nowhere[0]
        who = f"customer {node}" if node else "the depot"
        found = f"{who} is at {xy[node]}"
        expected = f"expected finite coordinates of size up to {METRIC_LIMITS.max_number:g}"
        raise InputError(f"{name}: {found}, {expected}")


def check_array_demands(
    name: str, demands: np.ndarray, capacity: np.ndarray | np.number | int | float
) -> None:
    """Raise unless the capacity is one finite number, or at the first invalid demand."""
    if not is_one_number(capacity):
        found = f"the capacity is {shorten(str(capacity))}"
        raise InputError(f"{name}: {found}, expected a number")
    is_load = np.isfinite(demands) & (demands >= 0)
    wrong = np.flatnonzero(~is_load)
    if len(wrong):
        index = wrong[0]
        found = f"customer {index + 1} demands {demands[index]}"
        raise InputError(f"{name}: {found}, expected a number of 0 or more")


def is_one_number(value: np.ndarray | np.number | int | float) -> bool:
    """Return whether a value is one finite number, of whatever size."""
    if isinstance(value, int):  # NumPy cannot hold integers of more than 64 bits
        return True
    is_scalar = not np.shape(value)
    return is_scalar and bool(np.isfinite(value))


def with_fleet(instance: Any, vehicles: int | float) -> CVRPInstance:
    """Return the instance with at most this many vehicles, whatever its file says."""
    if not isinstance(vehicles, int | np.integer):
        raise InputError(f"vehicles is {shorten_repr(vehicles)}, expected a whole number")
    if instance.problem != "cvrp":
        found = f"this is '{instance.problem}'"
        wanted = "a number of vehicles is for vehicle routing"
        raise InputError(f"{shorten(instance.name)}: {wanted}, {found}")
    return replace(instance, vehicles=int(vehicles))


def min_vehicles(demands: Sequence[int], capacity: int) -> int:
    """Return a lower bound on the vehicles that can carry the demand.

    Whether this number suffices is a packing problem.
    """
    total = sum(demands)
    loads = -(-total // capacity)  # rounded up
    return max(1, loads)
