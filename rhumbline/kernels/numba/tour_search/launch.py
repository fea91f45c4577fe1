"""Iterated local search on tours: prepares the arrays of the compiled kernels, and calls them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rhumbline.kernels.numba.legs import EXPLICIT, Legs
from rhumbline.kernels.numba.local_search.launch import load_kernel, nearest_nodes
from rhumbline.kernels.numba.tour_search.exchanges import MAX_EDGES, WAITING, Chain, TourArrays
from rhumbline.kernels.numba.tour_search.near import QUADRANTS


@dataclass(frozen=True)
class ExchangeTuning:
    """Settings of exchanges and kicks."""

    nearest: int = 8  # near cities of each city, besides one in each quadrant
    # Near cities that a chain of 1, 2, ... edges tries. Chains of four edges take three times as
    # long, and tours are no shorter: 0.52 % with (10, 5, 2), 0.50 % with (10, 5).
    breadth: tuple[int, ...] = (10, 5)
    # Most cities of a segment that a kick moves. In 1 s of CPU time eight files of 150 to 318
    # cities end at 0.000 % with 50 cities, at 0.06 % with 30 and at 0.03 % with 100.
    kicked_cities: int = 50
    # Four files of 1,002 to 3,038 cities end at 0.32 % with 100 in 8 s, and at 0.50 % with 50.
    kicked_cities_of_large: int = 100
    min_large_cities: int = 1000
    # Share of the longest distance to a near city; an apparent gain below it is rounding.
    relative_tolerance: float = 1e-10


TUNING = ExchangeTuning()
MIN_CITIES = 5  # fewer cannot be kicked


@dataclass(frozen=True)
class TourSpace:
    """The distances of an instance, and the near cities of each city, nearest first."""

    legs: Legs
    near: np.ndarray
    near_leg: np.ndarray

    @property
    def tolerance(self) -> float:
        """The least change that counts as an improvement."""
        finite = self.near_leg[np.isfinite(self.near_leg)]
        return TUNING.relative_tolerance * float(finite.max(initial=0.0))


def is_large_tour(size: int) -> bool:
    """Return whether a tour is so large that seconds allow few kicks of each of its parts."""
    return size >= TUNING.min_large_cities


def load_kernels() -> None:
    """Compile the kernels, or load them."""
    load_kernel("near cities")
    load_kernel("tour search")


def space_of_matrix(legs: Legs) -> TourSpace:
    """Return the space of a matrix of distances."""
    assert legs.metric == EXPLICIT
    near = nearest_nodes(legs.matrix, TUNING.nearest + QUADRANTS)
    near_leg = np.take_along_axis(legs.matrix, near.astype(np.int64), axis=1)
    return TourSpace(legs, near, near_leg)


def space_of_plane(legs: Legs, plane: np.ndarray) -> TourSpace:
    """Return the space of cities that have positions in the plane, in any metric like that of the plane."""
    size = len(plane)
    nearest = min(TUNING.nearest, size - 1)
    points = np.ascontiguousarray(plane, dtype=np.float64)
    by_x = np.argsort(points[:, 0], kind="stable").astype(np.int32)
    near = np.zeros((size, nearest + QUADRANTS), np.int32)
    near_leg = np.zeros(near.shape)
    row = np.zeros(near.shape[1], np.int32)
    keys = np.zeros(near.shape[1])
    load_kernel("near cities")(legs, points, by_x, row, keys, near, near_leg)
    return TourSpace(legs, near, near_leg)


class TourSearch:
    """A tour that is kicked. `random` is the state of its generator, a uint64 above 0."""

    def __init__(self, space: TourSpace, order: Sequence[int], random: np.ndarray) -> None:
        size = len(order)
        if size < MIN_CITIES:
            raise ValueError(f"a tour needs {MIN_CITIES} cities to be kicked, and has {size}")
        self.space = space
        is_large = is_large_tour(size)
        kicked = TUNING.kicked_cities_of_large if is_large else TUNING.kicked_cities
        self.longest = min(kicked, (size - 1) // 3)
        self.tolerance = space.tolerance
        self.chain = make_chain()
        self.tour = make_tour(space, np.array(order, dtype=np.int32), random)
        self.surplus = 0.0
        self.kernel = load_kernel("tour search")

    @property
    def is_local_optimum(self) -> bool:
        """Whether no city waits in the queue, so that `run` kicks the tour."""
        return int(self.tour.counts[WAITING]) == 0

    @property
    def best_order(self) -> list[int]:
        """The shortest tour so far."""
        return self.tour.best.tolist()

    def run(self, most: int, temperature: float = 0.0) -> float:
        """Make up to `most` exchanges until the tour is a local optimum, or kick it `most` times.

        A tour that is longer after a kick and its repair is kept with the probability of simulated
        annealing. Returns by how much the best tour has become shorter.
        """
        self.surplus, shorter = self.kernel(
            self.space.legs,
            self.tour,
            self.chain,
            self.tolerance,
            self.longest,
            temperature,
            self.surplus,
            most,
        )
        return shorter


def make_tour(space: TourSpace, order: np.ndarray, random: np.ndarray) -> TourArrays:
    """Allocate the arrays of a tour, of which all cities are to be examined."""
    size = len(order)
    place = np.empty(size, np.int32)
    place[order] = np.arange(size, dtype=np.int32)
    breadth = np.zeros(MAX_EDGES, np.int32)
    breadth[1 : 1 + len(TUNING.breadth)] = TUNING.breadth
    return TourArrays(
        order=order,
        place=place,
        near=space.near,
        near_leg=space.near_leg,
        queue=order.copy(),
        is_waiting=np.ones(size, np.bool_),
        counts=np.array([0, size, 0, 0], np.int64),
        stamp=np.zeros(size, np.int64),
        log_position=np.zeros(size, np.int32),
        log_city=np.zeros(size, np.int32),
        scratch=np.zeros(size, np.int32),
        best=order.copy(),
        breadth=breadth,
        random=random,
    )


def make_chain() -> Chain:
    """Allocate a chain."""
    ends = 2 * MAX_EDGES
    return Chain(
        city=np.zeros(ends, np.int32),
        left=np.zeros(MAX_EDGES, np.int32),
        is_ahead=np.zeros(MAX_EDGES, np.bool_),
        best_city=np.zeros(ends, np.int32),
        best_left=np.zeros(MAX_EDGES, np.int32),
        best_is_ahead=np.zeros(MAX_EDGES, np.bool_),
        gain=np.zeros(MAX_EDGES + 1),
        choice=np.zeros(MAX_EDGES + 1, np.int32),
        choices=np.zeros(MAX_EDGES + 1, np.int32),
        rank=np.zeros(MAX_EDGES, np.int32),
        cut=np.zeros(MAX_EDGES + 1, np.int32),
        link=np.zeros(ends, np.int32),
    )
