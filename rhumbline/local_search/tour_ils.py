"""Iterated local search for tours, by our own kernels: kicks of a local optimum, improved again by
2-opt and Or-opt.

The best of the plans is kicked on each thread.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, islice
from threading import Event

import numpy as np

from rhumbline import kernels
from rhumbline.local_search import threads
from rhumbline.local_search.threads import run_interruptible
from rhumbline.problems.tsp import Tour, TSPInstance

TRIED = 0.1  # of the seconds, for each of the plans before the best of them gets the rest
AT_ONCE = 200  # kicks between two looks at the clock
IDLE = 500  # kicks for each city without a shorter tour after which the search ends


def prepare() -> None:
    """Make the kernels."""
    kernels.require_numba("ils")
    from rhumbline.kernels.numba.local_search import launch as local_moves

    local_moves.load_kernel("tsp")
    local_moves.load_kernel("tsp kicks")


TourListener = Callable[[Tour], None]


def improve(
    instance: TSPInstance, plans: Sequence[Tour], seconds: float, seed: int, found: TourListener
) -> None:
    """Each plan is kicked for a while, then the best of them."""
    stopped = Event()
    walkers = threads.thread_count()
    run_interruptible(
        lambda tell: IteratedLocalSearch(instance, seed, stopped, tell, walkers).run(
            plans, seconds
        ),
        stopped.set,
        found,
    )


class IteratedLocalSearch:
    """A search that tells of each tour that is shorter than all before."""

    def __init__(
        self, instance: TSPInstance, seed: int, stopped: Event, tell: TourListener, walkers: int = 1
    ) -> None:
        from rhumbline.kernels.numba.local_search import launch as local_moves

        self.stopped, self.best = stopped, threads.CheapestPlan(instance, tell)
        self.distance = np.ascontiguousarray(instance.distances)
        self.near = local_moves.nearest_nodes(self.distance)
        self.noise = [threads.generator_state(seed, number) for number in range(walkers)]

    def run(self, plans: Sequence[Tour], seconds: float) -> None:
        """From the local optimum of each plan, and again of some lest a walker be idle; then
        from the best of all.
        """
        from rhumbline.kernels.numba.local_search import launch as local_moves

        began = time.monotonic()
        walkers = len(self.noise)
        tours = cycle(
            [local_moves.shorten_tour(self.distance, self.near, plan.order)[0] for plan in plans]
        )
        for number in range(-(-len(plans) // walkers)):
            self.kick(list(islice(tours, walkers)), began + TRIED * seconds * (number + 1))
        assert self.best.plan, "every plan was noted"
        self.kick([list(self.best.plan.order)] * walkers, began + seconds)

    def kick(self, tours: Sequence[list[int]], end: float) -> None:
        """Some tours side by side."""
        pairs = zip(tours, self.noise, strict=True)
        threads.run_walkers(
            [partial(self.kicked, tour, noise, end) for tour, noise in pairs], self.stopped
        )

    def kicked(self, order: list[int], random: np.ndarray, end: float) -> None:
        """A tour gets kicks until a time, or until they have long been in vain."""
        from rhumbline.kernels.numba.local_search import launch as local_moves

        idle = 0
        better = True
        while not self.stopped.is_set() and time.monotonic() < end and idle < IDLE * len(order):
            if better:
                self.best(Tour(tuple(order)))
            order, better = local_moves.kick_and_shorten_tour(
                self.distance, self.near, order, AT_ONCE, random
            )
            idle = 0 if better else idle + AT_ONCE
        self.best(Tour(tuple(order)))
