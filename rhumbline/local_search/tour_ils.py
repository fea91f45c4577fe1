"""Iterated local search for tours: kicks of a local optimum, followed by 2-opt and Or-opt.

Each thread kicks the best of the plans.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from threading import Event

import numpy as np

from rhumbline import kernels
from rhumbline.local_search import threads
from rhumbline.local_search.threads import run_interruptible
from rhumbline.problems.tsp import Tour, TSPInstance

TourListener = Callable[[Tour], None]
PLAN_TYPES = (Tour,)


@dataclass(frozen=True)
class IlsTuning:
    """How long tours are kicked."""

    # Share of the seconds for each plan, before the best of them gets the rest.
    time_share_per_plan: float = 0.1
    kicks_between_clock_checks: int = 200
    # The search ends after this many kicks for each city without a shorter tour.
    idle_kicks_per_city: int = 500


TUNING = IlsTuning()


def prepare() -> None:
    """Compile the kernels."""
    kernels.require_numba("ils")
    from rhumbline.kernels.numba.local_search import launch as local_moves

    local_moves.load_kernel("tour moves")
    local_moves.load_kernel("tour kicks")


def improve(
    instance: TSPInstance, plans: Sequence[Tour], seconds: float, seed: int, on_plan: TourListener
) -> None:
    """Kick each plan for a while, then the best of them; report each shorter tour."""
    stopped = Event()
    workers = threads.thread_count()
    began = time.monotonic()

    def work(report: TourListener) -> None:
        search = IteratedLocalSearch(instance, seed, stopped, report, workers)
        passed = time.monotonic() - began  # while the neighbours of each city were sorted
        search.run(plans, seconds - passed)

    run_interruptible(work, stopped.set, on_plan)


class IteratedLocalSearch:
    """Workers that kick tours, and report each tour that is shorter than all before."""

    def __init__(
        self,
        instance: TSPInstance,
        seed: int,
        stopped: Event,
        report: TourListener,
        workers: int = 1,
    ) -> None:
        from rhumbline.kernels.numba.local_search import launch as local_moves

        self.stopped = stopped
        self.best = threads.CheapestPlan(instance, report)
        self.distance = np.ascontiguousarray(instance.distances)
        self.near = local_moves.nearest_nodes(self.distance)
        self.random_states = [threads.generator_state(seed, number) for number in range(workers)]

    def run(self, plans: Sequence[Tour], seconds: float) -> None:
        """Kick the local optimum of each plan, then the best tour of all.

        Some plans have two turns if there are more workers than plans are left.
        """
        from rhumbline.kernels.numba.local_search import launch as local_moves

        began = time.monotonic()
        workers = len(self.random_states)
        optima: list[list[int]] = []
        for plan in plans:
            order, _ = local_moves.shorten_tour(self.distance, self.near, plan.order)
            optima.append(order)
        tours = cycle(optima)
        groups = -(-len(plans) // workers)
        for number in range(groups):
            share = TUNING.time_share_per_plan * seconds * (number + 1)
            self.kick_tours(list(islice(tours, workers)), began + share)
        assert self.best.plan, "every plan was reported"
        self.kick_tours([list(self.best.plan.order)] * workers, began + seconds)

    def kick_tours(self, tours: Sequence[list[int]], end: float) -> None:
        """Kick one tour in each thread, until the time `end`."""
        walks: list[Callable[[], None]] = []
        pairs = zip(tours, self.random_states, strict=True)
        for tour, random_state in pairs:
            walk = partial(self.kick_tour, tour, random_state, end)
            walks.append(walk)
        threads.run_workers(walks, self.stopped)

    def kick_tour(self, order: list[int], random_state: np.ndarray, end: float) -> None:
        """Kick a tour until the time `end`, or until it has not become shorter for long."""
        from rhumbline.kernels.numba.local_search import launch as local_moves

        idle = 0
        max_idle = TUNING.idle_kicks_per_city * len(order)
        kicks = TUNING.kicks_between_clock_checks
        is_better = True
        while not self.stopped.is_set() and time.monotonic() < end and idle < max_idle:
            if is_better:
                self.best(Tour(tuple(order)))
            order, is_better = local_moves.kick_and_shorten_tour(
                self.distance, self.near, order, kicks, random_state
            )
            idle = 0 if is_better else idle + kicks
        self.best(Tour(tuple(order)))
