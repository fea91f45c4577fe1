"""Kicks and exchanges of tours: exact lengths, exact undoing, and the same moves in all metrics."""

from itertools import permutations
from typing import get_args

import numpy as np
import pytest

from rhumbline.kernels.numba.legs import matrix_legs, point_legs
from rhumbline.kernels.numba.tour_search.launch import (
    TourSearch,
    TourSpace,
    space_of_matrix,
    space_of_plane,
)
from rhumbline.local_search.threads import generator_state
from rhumbline.local_search.tour_exact import shortest_order
from rhumbline.local_search.tour_ils import tour_space
from rhumbline.problems.metrics import Metric, geo_radians
from rhumbline.problems.tsp import TSPInstance

METRICS = [metric for metric in get_args(Metric) if metric != "EXPLICIT"]


def random_points(size: int, seed: int = 0) -> np.ndarray:
    """Return points with two decimals, from -80 to 80: they are positions on the globe, too."""
    return np.round(np.random.default_rng(seed).uniform(-80, 80, (size, 2)), 2)


def length(distance: np.ndarray, order: list[int]) -> float:
    return float(distance[order, np.roll(order, -1)].sum())


def repaired(space: TourSpace, size: int, seed: int = 0) -> TourSearch:
    """Return the search of a random tour after its first repair."""
    order = np.random.default_rng(seed).permutation(size).tolist()
    search = TourSearch(space, order, generator_state(seed))
    while not search.is_local_optimum:
        search.run(1000)
    return search


def computed_space(instance: TSPInstance) -> TourSpace:
    """Return a space whose distances are computed from coordinates."""
    assert instance.xy is not None
    points = geo_radians(instance.xy) if instance.metric == "GEO" else instance.xy
    return space_of_plane(point_legs(instance.metric, points), instance.planar_xy)


@pytest.mark.parametrize("metric", METRICS)
def test_computed_distances_are_those_of_the_instance(metric: Metric) -> None:
    """Distances to near cities equal the instance's own, and near cities are sorted by them."""
    instance = TSPInstance("metric", metric, xy=random_points(70))
    space = computed_space(instance)
    rows = np.arange(70)[:, None]
    known = np.isfinite(space.near_leg)
    assert np.array_equal(space.near_leg[known], instance.distances[rows, space.near][known])
    assert (np.diff(np.where(known, space.near_leg, 1e9), axis=1) >= 0).all()


@pytest.mark.parametrize("metric", METRICS)
def test_matrix_and_coordinates_make_the_same_moves(metric: Metric) -> None:
    """Kicks with distances of a matrix and with computed ones lead to the same tour."""
    instance = TSPInstance("metric", metric, xy=random_points(60, 1))
    spaces = [
        computed_space(instance),
        space_of_plane(matrix_legs(instance.distances), instance.planar_xy),
    ]
    found = list[list[int]]()
    for space in spaces:
        search = repaired(space, 60)
        search.run(300, temperature=1.0)
        found.append(search.tour.order.tolist())
    assert found[0] == found[1]


def test_near_cities_are_the_nearest_and_one_in_each_quadrant() -> None:
    """The sweep finds the same cities as sorting all distances."""
    points = random_points(200, 3)
    instance = TSPInstance("near", "EXACT_2D", xy=points)
    space = computed_space(instance)
    for here in range(200):
        distance = instance.distances[here].copy()
        distance[here] = np.inf
        expected = set(np.argsort(distance)[:8].tolist())
        offset = points - points[here]
        for right in (True, False):
            for above in (True, False):
                inside = ((offset[:, 0] >= 0) == right) & ((offset[:, 1] >= 0) == above)
                if np.isfinite(distance[inside]).any():
                    expected.add(int(np.where(inside, distance, np.inf).argmin()))
        found = space.near[here][np.isfinite(space.near_leg[here])]
        assert set(found.tolist()) == expected


def test_lengths_stay_exact() -> None:
    """After 100,000 kicks the tour is a permutation, and sums of gains equal recomputed lengths."""
    instance = TSPInstance("kicks", "EXACT_2D", xy=np.random.default_rng(2).random((20, 2)))
    search = repaired(tour_space(instance), 20)
    before = length(instance.distances, search.best_order)
    shorter = 0.0
    for _ in range(10):
        shorter += search.run(10_000, temperature=0.05)
    after = length(instance.distances, search.best_order)
    now = search.tour.order.tolist()
    assert sorted(now) == sorted(search.best_order) == list(range(20))
    assert (search.tour.place[search.tour.order] == np.arange(20)).all()
    assert before - shorter == pytest.approx(after, abs=1e-9)
    assert length(instance.distances, now) - search.surplus == pytest.approx(after, abs=1e-9)


def test_rejected_kicks_change_nothing() -> None:
    """At an optimal tour no kick is accepted, and the arrays are what they were."""
    angle = np.arange(30) * 2 * np.pi / 30
    instance = TSPInstance("ring", "EXACT_2D", xy=np.stack([np.cos(angle), np.sin(angle)], 1))
    search = TourSearch(tour_space(instance), range(30), generator_state(0))
    assert search.run(1) == 0.0
    assert search.is_local_optimum
    assert search.run(5000) == 0.0
    order = np.roll(search.tour.order, -int(search.tour.place[0])).tolist()
    assert order in (list(range(30)), [0, *range(29, 0, -1)])
    assert (search.tour.order[search.tour.place] == np.arange(30)).all()


def test_kicks_repeat_under_a_seed() -> None:
    """Equal seeds give equal tours, whether in one call or in several; other seeds do not."""
    space = tour_space(TSPInstance("seed", "EXACT_2D", xy=random_points(60)))
    found = list[list[int]]()
    for seed, calls in ((1, 1), (1, 4), (2, 1)):
        search = repaired(space, 60)
        search.tour.random[0] = seed
        for _ in range(calls):
            search.run(400 // calls, 2.0)
        found.append(search.tour.order.tolist())
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("size", range(5, 9))
def test_kicks_find_the_shortest_of_few_cities(size: int) -> None:
    """The tour equals the best of all permutations, in the plane and with any matrix."""
    rng = np.random.default_rng(size)
    matrix = rng.integers(1, 100, (size, size)).astype(float)
    matrix = np.triu(matrix, 1) + np.triu(matrix, 1).T
    planar = TSPInstance("few", "EUC_2D", xy=100 * rng.random((size, 2)))
    for distance, space in (
        (matrix, space_of_matrix(matrix_legs(matrix))),
        (planar.distances, tour_space(planar)),
    ):
        best = min(length(distance, [0, *rest]) for rest in permutations(range(1, size)))
        search = repaired(space, size)
        search.run(1000, 5.0)
        assert length(distance, search.best_order) == best


@pytest.mark.parametrize("size", range(1, 9))
def test_exact_tours(size: int) -> None:
    """Dynamic programming finds the shortest of all permutations."""
    matrix = np.random.default_rng(size).integers(1, 100, (size, size)).astype(float)
    matrix = np.triu(matrix, 1) + np.triu(matrix, 1).T
    best = min(length(matrix, [0, *rest]) for rest in permutations(range(1, size)))
    order = shortest_order(matrix)
    assert sorted(order) == list(range(size))
    assert length(matrix, order) == best


def test_duplicates_of_points() -> None:
    """Thirty cities at each of four corners: the shortest tour is the square."""
    corners = np.array([[0.0, 0.0], [0.0, 10.0], [10.0, 10.0], [10.0, 0.0]])
    instance = TSPInstance("corners", "EUC_2D", xy=np.repeat(corners, 30, axis=0))
    search = repaired(tour_space(instance), 120)
    search.run(2000)
    assert length(instance.distances, search.best_order) == 40.0


def test_equal_distances_end() -> None:
    """If all tours have one length, no exchange gains and the repair ends at once."""
    space = space_of_matrix(matrix_legs(0.1 * (1.0 - np.eye(30))))
    search = TourSearch(space, range(30), generator_state(0))
    assert search.run(10**6) == 0.0
    assert search.is_local_optimum
    assert search.run(1000) == 0.0


def test_cities_in_one_place_and_on_a_line() -> None:
    """Distances of zero are no trouble, nor are points without neighbours above or below."""
    place = TSPInstance("place", "EUC_2D", xy=np.ones((40, 2)))
    line = TSPInstance("line", "EXACT_2D", xy=np.arange(80.0).reshape(40, 2)[::-1] * [1.0, 0.0])
    for instance, expected in ((place, 0.0), (line, 156.0)):
        search = repaired(tour_space(instance), 40)
        search.run(1000)
        assert length(instance.distances, search.best_order) == expected


def test_matrix_that_is_no_plane() -> None:
    """A tour of random distances comes near a bound: the two nearest of each city."""
    matrix = np.random.default_rng(0).integers(1, 1000, (60, 60)).astype(float)
    matrix = np.triu(matrix, 1) + np.triu(matrix, 1).T
    search = repaired(space_of_matrix(matrix_legs(matrix)), 60)
    before = length(matrix, search.best_order)
    shorter = search.run(3000)
    assert length(matrix, search.best_order) == before - shorter < before
    nearest = np.sort(matrix + 1e6 * np.eye(60), axis=1)
    assert before - shorter < 1.5 * (nearest[:, 0] + nearest[:, 1]).sum() / 2


def test_tours_that_cannot_be_kicked() -> None:
    """Four cities are too few for three segments and a rest."""
    space = space_of_matrix(matrix_legs(1.0 - np.eye(4)))
    with pytest.raises(ValueError, match="needs 5 cities"):
        TourSearch(space, range(4), generator_state(0))
