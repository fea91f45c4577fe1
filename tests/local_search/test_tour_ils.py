"""Iterated local search of tours as `--then ils` calls it."""

from threading import Event

import numpy as np
import pytest

from rhumbline import improvers
from rhumbline.local_search import tour_ils
from rhumbline.problems.tsp import Tour, TSPInstance


def shuffled(size: int) -> Tour:
    """Return cities in random order."""
    return Tour(tuple(np.random.default_rng(4).permutation(size).tolist()))


def improved(instance: TSPInstance, seconds: float) -> list[Tour]:
    """Return the reported tours, which have been checked."""
    improvers.prepare_solver("ils")
    reported = list[Tour]()
    improvers.improve_plans("ils", instance, [shuffled(instance.size)], seconds, 0, reported.append)
    for tour in reported:
        tour.check(instance)
    costs = [tour.cost(instance) for tour in reported]
    assert costs == sorted(costs, reverse=True)
    return reported


@pytest.mark.parametrize("size", range(1, 9))
def test_few_cities_are_solved_at_once(size: int) -> None:
    """The outline of a regular polygon is found without waiting for the end of the seconds."""
    angle = np.random.default_rng(size).permutation(size) * 2 * np.pi / size
    points = np.stack([np.cos(angle), np.sin(angle)], 1)
    tour = improved(TSPInstance("polygon", "EXACT_2D", xy=points), 600.0)[-1]
    outline = size * 2 * np.sin(np.pi / size)
    assert tour.cost(TSPInstance("polygon", "EXACT_2D", xy=points)) == pytest.approx(outline)


def test_all_seconds_are_used() -> None:
    """A search that has found the shortest tour goes on until its end."""
    angle = np.arange(14) * 2 * np.pi / 14
    instance = TSPInstance("ring", "EXACT_2D", xy=np.stack([np.cos(angle), np.sin(angle)], 1))
    search = tour_ils.IteratedLocalSearch(instance, 0, Event(), lambda _: None)
    began = tour_ils.time.monotonic()
    search.run([shuffled(14)], 0.3)
    assert tour_ils.time.monotonic() - began >= 0.3
    assert search.best.cost == pytest.approx(28 * np.sin(np.pi / 14))


def test_large_instances_need_no_matrix() -> None:
    """3,000 cities are improved with distances computed from coordinates."""
    points = np.random.default_rng(1).integers(0, 10_000, (3000, 2)).astype(float)
    instance = TSPInstance("large", "EUC_2D", xy=points)
    space = tour_ils.tour_space(instance)
    assert space.legs.matrix.size == 0
    assert "distances" not in vars(instance)
    here = np.arange(3000)
    difference = points[here, None] - points[space.near]
    lengths = np.floor(np.sqrt((difference**2).sum(-1)) + 0.5)
    known = np.isfinite(space.near_leg)
    assert known[:, :8].all()
    assert np.array_equal(space.near_leg[known], lengths[known])
