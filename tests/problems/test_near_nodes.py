"""Near nodes against tables of all distances, and paths that are joined at their ends."""

import numpy as np
import pytest

from rhumbline.problems.construction.neighbours import near_nodes, nearest_points
from rhumbline.problems.construction.paths import JoinedPaths
from rhumbline.problems.tsp import TSPInstance

RNG = np.random.default_rng(1)
TOWNS = RNG.random((9, 2)) * 100.0
LAYOUTS = {
    "uniform": RNG.random((700, 2)),
    "towns": np.concatenate([RNG.normal(town, 0.1, (70, 2)) for town in TOWNS]),
    "grid": RNG.integers(0, 12, (500, 2)).astype(float),  # places that coincide, equal distances
    "line": np.stack([RNG.random(400), np.zeros(400)], axis=1),
    "one place": np.zeros((300, 2)),
}


def check_against_all(points: np.ndarray, count: int) -> None:
    """Each point has `count` different others, and none that is nearer was left out."""
    near = nearest_points(points, count)
    squared = ((points[:, None] - points) ** 2).sum(-1)
    np.fill_diagonal(squared, np.inf)
    found = np.take_along_axis(squared, near, axis=1)
    np.testing.assert_array_equal(found, np.sort(squared, axis=1)[:, :count])
    assert all(len(set(row)) == count for row in near.tolist())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [1, 8, 40])
def test_near_points_are_the_nearest(layout: str, count: int) -> None:
    """Whatever the layout, the boxes that are searched leave out no nearer point."""
    check_against_all(LAYOUTS[layout], count)


@pytest.mark.parametrize("size", [2, 3, 16, 17, 33])
def test_few_points_have_all_others(size: int) -> None:
    """Boxes that hold all points, or nearly all."""
    for count in range(1, size):
        check_against_all(RNG.integers(0, 4, (size, 2)).astype(float), count)


def test_some_nodes_alone() -> None:
    """Only the named nodes are compared, and they are called by their own numbers."""
    xy = np.array([[0.0, 0.0], [9.0, 0.0], [1.0, 0.0], [5.0, 0.0]])
    instance = TSPInstance("line", "EUC_2D", xy=xy)
    some = np.array([0, 1, 3])
    assert near_nodes(instance, 2, some).tolist() == [[3, 1], [3, 0], [1, 0]]
    assert near_nodes(instance, 9).shape == (4, 3)
    assert near_nodes(instance, 9, np.array([2])).shape == (1, 0)


@pytest.mark.parametrize("metric", ["GEO", "EXPLICIT"])
def test_nearness_is_that_of_the_metric(metric) -> None:
    """On a sphere the meridian of the date line separates nothing; a matrix needs no plane."""
    xy = np.array([[0.0, 179.0], [0.0, -179.0], [0.0, 170.0], [80.0, 0.0]])
    matrix = TSPInstance("m", "GEO", xy=xy).distances if metric == "EXPLICIT" else None
    instance = TSPInstance("m", metric, xy=xy, matrix=matrix)
    assert near_nodes(instance, 2)[0].tolist() == [1, 2]


def test_paths_are_joined_at_their_ends_only() -> None:
    """1-2 and 3 become 3-1-2 with the head of 3; nothing joins 1, or closes the path."""
    paths = JoinedPaths([0, 1, 1, 1], capacity=3)
    assert paths.join(1, 2)
    assert paths.join(3, 1)
    assert not paths.join(0, 1)
    assert not paths.join(3, 2)
    assert paths.ends() == [0, 2, 3]
    assert list(paths.paths()) == [[0], [3, 1, 2]]


def test_a_load_beyond_the_capacity_is_not_joined() -> None:
    """Loads of 2 and 2 exceed 3; those of 2 and 1 do not."""
    paths = JoinedPaths([2, 2, 1], capacity=3)
    assert not paths.join(0, 1)
    assert paths.join(0, 2)
    assert not paths.join(2, 1)
