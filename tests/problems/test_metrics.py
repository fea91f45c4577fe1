"""Facts about the metrics of TSP instances."""

import numpy as np
import pytest

from rhumbline.errors import InputError
from rhumbline.problems.metrics import (
    LENGTH_FUNCTIONS,
    Metric,
    classical_scaling,
    distance_table,
    embed_in_plane,
    euclidean_distances,
    geo_radians,
    relative_stress,
)
from rhumbline.problems.tsp import Tour, TSPInstance

METRICS = sorted(LENGTH_FUNCTIONS)


def cities(size: int = 40, scale: float = 80.0) -> np.ndarray:
    return np.random.default_rng(size).uniform(-scale, scale, (size, 2))


def distance(metric: Metric, a: tuple[float, float], b: tuple[float, float]) -> float:
    return float(distance_table(metric, np.array([a, b], dtype=float))[0, 1])


@pytest.mark.parametrize("metric", METRICS)
def test_distances_are_symmetric_with_a_zero_diagonal(metric: Metric) -> None:
    """Going there costs what coming back costs, and staying costs nothing."""
    table = distance_table(metric, cities())
    np.testing.assert_array_equal(table, table.T)
    np.testing.assert_array_equal(np.diag(table), 0.0)
    assert (table >= 0).all()


@pytest.mark.parametrize("metric", [m for m in METRICS if m != "EXACT_2D"])
def test_rounded_metrics_are_whole(metric: Metric) -> None:
    """Every metric of TSPLIB has whole distances."""
    table = distance_table(metric, cities())
    np.testing.assert_array_equal(table, np.rint(table))


@pytest.mark.parametrize(
    ("metric", "a", "b", "expected"),
    [
        ("EXACT_2D", (0, 0), (3, 4), 5.0),
        ("EUC_2D", (0, 0), (1, 1), 1),  # 1.41
        ("EUC_2D", (0, 0), (0, 2.5), 3),  # halves go up, also from an even number
        ("EUC_2D", (0, 0), (0, 2.49), 2),
        ("CEIL_2D", (0, 0), (1, 1), 2),
        ("CEIL_2D", (0, 0), (3, 4), 5),  # whole stays whole
        ("ATT", (0, 0), (10, 0), 4),  # sqrt(10) = 3.16
        ("ATT", (0, 0), (30, 10), 10),  # sqrt(100)
        ("ATT", (0, 0), (0, 12), 4),  # sqrt(14.4) = 3.79
        (
            "GEO",
            (0, 0),
            (0, 90),
            10020,
        ),  # a quarter of the equator is 10019.1 km; TSPLIB adds 1 and cuts
        ("GEO", (90, 0), (0, 33), 10020),  # from the pole
        ("GEO", (0, 0), (0, 0.30), 56),  # 30 minutes: 55.66 km
        ("GEO", (0, 0), (0, -0.30), 56),
        (
            "GEO",
            (10, 20),
            (10, 20),
            1,
        ),  # the distance of two cities in one place is 1 km by TSPLIB's formula
    ],
)
def test_small_distances_by_hand(
    metric: Metric, a: tuple[float, float], b: tuple[float, float], expected: float
) -> None:
    """Each metric gives the value worked out beside it."""
    assert distance(metric, a, b) == expected


def test_minutes_stand_behind_the_point() -> None:
    """16.47 is 16 degrees and 47 minutes, in TSPLIB's value of pi."""
    radians = geo_radians(np.array([[16.47, -96.10]]))
    np.testing.assert_allclose(
        radians, np.array([[16 + 47 / 60, -(96 + 10 / 60)]]) * 3.141592 / 180, rtol=1e-13
    )


def test_one_degree_of_longitude_shrinks_with_latitude() -> None:
    """At 60 degrees north a degree of longitude is half of that at the equator (111.3 km)."""
    assert distance("GEO", (0, 0), (0, 1)) == 112
    assert distance("GEO", (60, 0), (60, 1)) == 56


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_an_embedding_recovers_planar_points(size: int) -> None:
    """Points rebuilt from their distances have those distances again."""
    table = euclidean_distances(cities(size, 1.0))
    np.testing.assert_allclose(euclidean_distances(embed_in_plane(table)), table, rtol=0, atol=1e-9)


def test_short_distances_are_embedded_best() -> None:
    """With random detours, short distances come out far better than by scaling alone."""
    rng = np.random.default_rng(5)
    detour = 1.0 + np.triu(rng.exponential(0.3, (40, 40)), 1)
    roads = euclidean_distances(cities(40, 1.0)) * np.maximum(detour, detour.T)

    def error(plane: np.ndarray) -> float:
        near = np.argsort(roads, axis=1)[:, 1:6]
        wanted, found = (
            np.take_along_axis(x, near, 1) for x in (roads, euclidean_distances(plane))
        )
        return np.abs(found / wanted - 1.0).mean()

    assert error(embed_in_plane(roads)) < 0.7 * error(classical_scaling(roads))


def test_cities_at_one_place_are_embedded_there() -> None:
    """Neither a matrix of zeros nor a distance of 0 among others makes trouble."""
    assert not embed_in_plane(np.zeros((4, 4))).any()
    xy = np.array([[0.0, 0.0], [0.0, 0.0], [3.0, 4.0], [6.0, 0.0]])
    np.testing.assert_allclose(
        euclidean_distances(embed_in_plane(euclidean_distances(xy))),
        euclidean_distances(xy),
        rtol=0,
        atol=1e-6,
    )


def test_an_explicit_instance_is_laid_out_by_its_matrix() -> None:
    """The policy sees positions that fit the matrix, not those of the drawing."""
    xy = cities(12, 1.0)
    instance = TSPInstance("m", "EXPLICIT", xy=np.zeros((12, 2)), matrix=euclidean_distances(xy))
    np.testing.assert_allclose(
        euclidean_distances(instance.planar_xy), euclidean_distances(xy), rtol=0, atol=1e-9
    )


def test_near_on_the_globe_is_near_in_the_plane() -> None:
    """In a region of the size of a country, planar distances follow those on the sphere."""
    xy = np.random.default_rng(2).uniform((47, 6), (54, 15), (30, 2)).round()
    instance = TSPInstance("g", "GEO", xy=xy)
    pairs = np.triu_indices(30, 1)
    assert (
        np.corrcoef(instance.distances[pairs], euclidean_distances(instance.planar_xy)[pairs])[0, 1]
        > 0.99
    )


# --- the stress of reconstructed positions


def test_the_stress_by_hand() -> None:
    """Points on a line for three nodes that are 1 apart: distances 1, 1 and 2 instead.

    Scaled to fit best, the cosine of (1, 1, 2) and (1, 1, 1) is 4 / sqrt(18): the stress is 1 / 3.
    """
    apart = np.ones((3, 3)) - np.eye(3)
    line = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    assert relative_stress(apart, line) == pytest.approx(1 / 3)
    assert relative_stress(apart, 7.0 * line) == pytest.approx(1 / 3)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_points_of_a_plane_have_no_stress(scale: float) -> None:
    """In any unit; distances that are given by positions have none either."""
    xy = scale * cities(30)
    matrix = euclidean_distances(xy)
    assert relative_stress(matrix, 3.0 * xy + scale) < 1e-6
    assert TSPInstance("m", "EXPLICIT", matrix=matrix).plane_stress < 0.01
    assert TSPInstance("m", "ATT", xy=xy).plane_stress == 0.0


def test_small_distances_have_the_stress_of_large_ones() -> None:
    """Their squares are 0 in double precision; equal distances of four points fit no plane."""
    matrix = euclidean_distances(cities(30))
    assert TSPInstance("m", "EXPLICIT", matrix=1e-300 * matrix).plane_stress < 0.01
    apart = np.ones((4, 4)) - np.eye(4)
    large = TSPInstance("l", "EXPLICIT", matrix=apart).plane_stress
    small = TSPInstance("s", "EXPLICIT", matrix=1e-320 * apart).plane_stress
    assert large > 0.1
    assert small == pytest.approx(large, rel=1e-3)


def test_what_resembles_no_plane_has_much_stress() -> None:
    """Independent distances, and a sparse network where all else is forbidden."""
    rng = np.random.default_rng(0)
    upper = np.triu(rng.random((60, 60)), 1)
    independent = upper + upper.T
    forbidden = np.where(independent < 0.1, independent, 10_000.0)
    np.fill_diagonal(forbidden, 0.0)
    assert TSPInstance("i", "EXPLICIT", matrix=independent).plane_stress > 0.6
    assert TSPInstance("f", "EXPLICIT", matrix=forbidden).plane_stress > 0.9


@pytest.mark.parametrize("size", [1, 2])
def test_few_nodes_have_no_stress(size: int) -> None:
    """One distance fits into any plane; equal places have none."""
    zeros = np.zeros((size, size))
    assert TSPInstance("z", "EXPLICIT", matrix=zeros).plane_stress == 0.0
    assert TSPInstance("o", "EXPLICIT", matrix=1.0 - np.eye(size)).plane_stress < 1e-6


# --- distances on demand


@pytest.mark.parametrize("metric", [*METRICS, "EXPLICIT"])
def test_legs_are_those_of_the_table(metric: Metric) -> None:
    """Bit by bit, for pairs, from one node to all, and from a node to itself."""
    xy = np.concatenate([cities(60), cities(60)[:20]])  # twenty places that coincide
    matrix = None
    if metric == "EXPLICIT":
        matrix = distance_table("ATT", xy)
    instance = TSPInstance("legs", metric, xy=xy, matrix=matrix)
    nodes = np.arange(80)
    np.testing.assert_array_equal(instance.legs(nodes[:, None], nodes), instance.distances)
    np.testing.assert_array_equal(instance.legs(7, nodes), instance.distances[7])
    np.testing.assert_array_equal(instance.legs(nodes, 67), instance.distances[:, 67])
    assert instance.legs(7, 7) == 0.0


def test_a_large_instance_has_no_table() -> None:
    """2,001 nodes have legs, an exact price, and an error that says what there is no table of."""
    xy = np.stack([np.arange(2001.0), np.zeros(2001)], axis=1)
    instance = TSPInstance("long", "EUC_2D", xy=xy)
    assert Tour(tuple(range(2001))).cost(instance) == 4000
    with pytest.raises(
        InputError, match=r"long: a table .* up to 2,000 nodes, and there are 2,001"
    ):
        _ = instance.distances


def test_the_price_of_large_numbers_is_exact() -> None:
    """4,000 legs of 2e12 + 1 are more than float64 counts in steps of 1."""
    far = 1e12
    row = [[-far, 0.0], [far + 1.0, 0.0]]
    instance = TSPInstance("far", "EUC_2D", xy=np.array(row * 2000))
    tour = Tour(tuple(range(4000)))
    assert tour.cost(instance) == 4000 * (2 * 10**12 + 1)
    half = TSPInstance("half", "EXACT_2D", xy=np.array(row * 2))
    assert isinstance(Tour((0, 1, 2, 3)).cost(half), float)
