"""The stored reference costs belong to their instances: each lies within bounds of its instance."""

from pathlib import Path

import numpy as np
import pytest

from rhumbline.problems.metrics import euclidean_distances
from rhumbline.problems.standard_sets import CVRP_SETS, TSP_SETS, cvrp_set, tsp_set

FOLDER = Path(__file__).parents[1] / "benchmarks" / "reference"


def stored(name: str) -> np.ndarray:
    """Return the costs of a set, which must be stored, complete and signed."""
    with np.load(FOLDER / f"{name}.npz") as file:
        assert len(str(file["made_by"])) > 10
        cost = file["cost"]
    assert np.isfinite(cost).all()
    return cost


def nearest_neighbour(distances: np.ndarray) -> float:
    """Return the length of the tour that always visits the nearest city next, from city 0."""
    away, here, length = distances + np.diag(np.full(len(distances), np.inf)), 0, 0.0
    for _ in range(len(distances) - 1):
        away[:, here] = np.inf
        following = int(away[here].argmin())
        length, here = length + away[here, following], following
    return length + distances[here, 0]


@pytest.mark.parametrize("name", TSP_SETS)
def test_tours_lie_between_their_bounds(name: str) -> None:
    """Each city has two edges, at best its two shortest; LKH beats the nearest-neighbour tour."""
    cost = stored(name)
    assert len(cost) >= 256
    for xy, found in zip(
        tsp_set(name)[:64], cost, strict=False
    ):  # enough to see a shift, and quick
        distances = euclidean_distances(xy)
        assert np.sort(distances, axis=1)[:, 1:3].sum() / 2 < found < nearest_neighbour(distances)


@pytest.mark.parametrize("name", CVRP_SETS)
def test_routes_lie_between_their_bounds(name: str) -> None:
    """The lower bound is each demand's share of a round trip; the upper one gives each customer a
    vehicle.
    """
    cost = stored(name)
    xy, demands, capacity = cvrp_set(name)
    away = 2 * np.linalg.norm(xy - xy[:, :1], axis=2)[: len(cost)]
    least = (away * demands[: len(cost)]).sum(1) / capacity
    assert len(cost) >= 64
    assert (least < cost).all()
    assert (cost < away.sum(1) / 2).all()


def test_optimal_makespans_are_proven() -> None:
    """All of jssp10x10 is solved to optimality: integers, with bound equal to cost."""
    cost = stored("jssp10x10")
    with np.load(FOLDER / "jssp10x10.npz") as file:
        assert (file["bound"] == cost).all()
    assert len(cost) == 100
    assert (cost == np.rint(cost)).all()
