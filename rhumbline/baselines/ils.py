"""Iterated local search for tours, by our own kernels: kicks of a local optimum, improved again by 2-opt and Or-opt."""

import time
from collections.abc import Callable, Sequence
from threading import Event

import numpy as np

from rhumbline import kernels
from rhumbline.baselines.aside import aside
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


Tell = Callable[[Tour], None]


def improve(instance: TSPInstance, plans: Sequence[Tour], seconds: float, seed: int, found: Tell) -> None:
    """Each plan is kicked for a while, then the best of them."""
    stopped = Event()
    aside(lambda tell: Kicks(instance, seed, stopped, tell).run(plans, seconds), stopped.set, found)


class Kicks:
    """A search that tells of each tour that is shorter than all before."""

    def __init__(self, instance: TSPInstance, seed: int, stopped: Event, tell: Tell) -> None:
        from rhumbline.kernels import local

        self.instance, self.stopped, self.tell = instance, stopped, tell
        self.distance = np.ascontiguousarray(instance.distances)
        self.near, self.random = local.nearest(self.distance), np.array([2 * seed + 1], dtype=np.uint64)
        self.shortest = float("inf")

    def run(self, plans: Sequence[Tour], seconds: float) -> None:
        """From the local optimum of each plan, then from the best tour that came of it."""
        from rhumbline.kernels import local

        began = time.monotonic()
        tours = [local.shorter_tour(self.distance, self.near, plan.order)[0] for plan in plans]
        for number, tour in enumerate(tours):
            tours[number] = self.kicked(tour, began + TRIED * seconds * (number + 1))
        self.kicked(min(tours, key=self.cost), began + seconds)

    def kicked(self, order: list[int], end: float) -> list[int]:
        """A tour after kicks until a time, or until they have long been in vain."""
        from rhumbline.kernels import local

        idle, better = 0, True
        while not self.stopped.is_set() and time.monotonic() < end and idle < IDLE * len(order):
            if better:
                self.note(order)
            order, better = local.kicked_tour(self.distance, self.near, order, AT_ONCE, self.random)
            idle = 0 if better else idle + AT_ONCE
        self.note(order)
        return order

    def note(self, order: list[int]) -> None:
        """Tell of a tour, if it is shorter than all before."""
        if self.cost(order) < self.shortest:
            self.shortest = self.cost(order)
            self.tell(Tour(tuple(order)))

    def cost(self, order: list[int]) -> float:
        """In the file's own metric."""
        return Tour(tuple(order)).cost(self.instance)
