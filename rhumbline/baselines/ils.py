"""Iterated local search for tours, by our own kernels: kicks of a local optimum, improved again by 2-opt and Or-opt."""

import time
from collections.abc import Sequence

import numpy as np

from rhumbline import kernels
from rhumbline.problems.tsp import Tour, TSPInstance

TRIED = 0.1  # of the seconds, for each of the plans before the best of them gets the rest
AT_ONCE = 200  # kicks between two looks at the clock
IDLE = 500  # kicks for each city without a shorter tour after which the search ends


def prepare() -> None:
    """Make the kernels."""
    kernels.require_numba("ils")
    from rhumbline.kernels import local

    local.kernel("tsp")
    local.kernel("tsp kicks")


def improve(instance: TSPInstance, plans: Sequence[Tour], seconds: float, seed: int) -> Tour | None:
    """The best tour found; each plan is kicked for a while, then the best of them."""
    from rhumbline.kernels import local

    began, distance = time.monotonic(), np.ascontiguousarray(instance.distances)
    near, random = local.nearest(distance), np.array([2 * seed + 1], dtype=np.uint64)
    tours = [local.shorter_tour(distance, near, plan.order)[0] for plan in plans]
    ends = [*(began + TRIED * seconds * (k + 1) for k in range(len(tours))), began + seconds]
    for place in range(len(tours)):
        tours[place] = kicked(distance, near, tours[place], ends[place], random)
    best = min(tours, key=lambda order: Tour(tuple(order)).cost(instance))
    return Tour(tuple(kicked(distance, near, best, ends[-1], random)))


def kicked(distance: np.ndarray, near: np.ndarray, order: list[int], end: float, random: np.ndarray) -> list[int]:
    """A tour after kicks until a time, or until they have long been in vain."""
    from rhumbline.kernels import local

    idle = 0
    while time.monotonic() < end and idle < IDLE * len(order):
        order, better = local.kicked_tour(distance, near, order, AT_ONCE, random)
        idle = 0 if better else idle + AT_ONCE
    return order
