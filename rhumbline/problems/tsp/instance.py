"""TSP instances and tours on the host, exact."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from rhumbline.errors import Infeasible, InputError, shorten
from rhumbline.problems.metrics import (
    METRIC_LIMITS,
    Metric,
    MetricInstance,
    check_matrix_size,
)

MAX_CITIES = 10_000


@dataclass(frozen=True, eq=False)
class TSPInstance(MetricInstance):
    """One instance as its file gives it: coordinates or a matrix, a metric, and node numbers.

    `EXACT_2D` is the unrounded Euclidean metric of arrays. `EXPLICIT` needs `matrix`; its `xy`
    serves only drawings.
    """

    problem = "tsp"

    name: str
    metric: Metric
    xy: Float[np.ndarray, "N 2"] | None = None
    matrix: Float[np.ndarray, "N N"] | Int[np.ndarray, "N N"] | None = None
    numbers: tuple[int, ...] = ()  # node numbers of the file; empty means 1..N
    best_known: float | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Return what instances of one batch share: the size, and whether there is a matrix."""
        has_matrix = self.metric != "EXACT_2D"
        return self.size, has_matrix

    @cached_property
    def node_numbers(self) -> tuple[int, ...]:
        """Return the number of each city in its file."""
        return self.numbers or tuple(range(1, self.size + 1))


@dataclass(frozen=True)
class Tour:
    """Cities in visiting order, as indices 0..N-1."""

    order: tuple[int, ...]

    def check(self, instance: TSPInstance) -> None:
        """Raise `Infeasible` unless every city is visited exactly once."""
        name = shorten(instance.name)
        size = instance.size
        unknown = [city for city in self.order if not 0 <= city < size]  # may exceed 64 bits
        if unknown:
            found = f"the tour visits city index {shorten(unknown[0])} of {size}"
            raise Infeasible(f"{name}: {found}")
        order = np.asarray(self.order, dtype=np.int64)
        counts = np.bincount(order, minlength=size)
        wrong = np.flatnonzero(counts != 1)
        if len(wrong):
            city = wrong[0]
            number = instance.node_numbers[city]
            found = f"the tour visits city {number} {counts[city]} times"
            raise Infeasible(f"{name}: {found}")

    def cost(self, instance: TSPInstance) -> int | float:
        """Return the length of the closed tour in the instance's metric.

        It is an int where costs are whole numbers.
        """
        closed = np.asarray([*self.order, self.order[0]])
        return instance.walk_length(closed)

    def to_file_numbers(self, instance: TSPInstance) -> list[int]:
        """Return the tour in the file's own node numbers."""
        return [instance.node_numbers[city] for city in self.order]


def tsp_from_array(array: np.ndarray, name: str = "array") -> TSPInstance:
    """Return an instance from coordinates [N, 2] or a symmetric distance matrix [N, N].

    Two columns always mean coordinates, also for two cities.
    """
    is_integer = np.issubdtype(array.dtype, np.integer)
    is_real = is_integer or np.issubdtype(array.dtype, np.floating)
    size = len(array) if array.ndim == 2 else 0
    if not size or not is_real:
        expected = "expected coordinates [N, 2] or a distance matrix [N, N] of real numbers"
        found = f"got shape {array.shape} of {array.dtype}"
        raise InputError(f"{name}: {expected}, {found}")
    if size > MAX_CITIES:
        limit = f"up to {MAX_CITIES:,} are supported"
        raise InputError(f"{name}: has {size:,} cities; {limit}")
    if array.shape[1] != 2:
        check_matrix_size(array, name)
    if not np.isfinite(array).all():
        raise InputError(f"{name}: contains NaN or infinite numbers")
    largest = np.abs(array).max()
    if largest > METRIC_LIMITS.max_number:
        limit = f"numbers beyond {METRIC_LIMITS.max_number:g}, up to which costs are exact"
        raise InputError(f"{name}: contains {limit}; use another unit")
    if array.shape[1] == 2:
        xy = array.astype(np.float64)
        return TSPInstance(name, "EXACT_2D", xy=xy)
    return tsp_from_matrix(array, name)


def tsp_from_matrix(array: np.ndarray, name: str) -> TSPInstance:
    """Return an instance from a symmetric matrix of distances."""
    check_matrix_size(array, name)
    rows, columns = array.shape
    if rows != columns:
        raise InputError(f"{name}: a distance matrix must be square, got shape {array.shape}")
    if not np.array_equal(array, array.T):
        found = "the distance matrix is not symmetric"
        raise InputError(f"{name}: {found}; only symmetric problems are supported")
    if (array < 0).any() or np.diagonal(array).any():
        needed = "distances of at least 0 and zeros on its diagonal"
        raise InputError(f"{name}: a distance matrix needs {needed}")
    return TSPInstance(name, "EXPLICIT", matrix=array)
