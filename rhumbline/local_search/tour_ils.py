"""Iterated local search for tours: kicks of a local optimum, each repaired by edge exchanges.

Each thread kicks the best of the plans, with simulated annealing.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from threading import Event
from typing import TYPE_CHECKING

import numpy as np

from rhumbline import kernels
from rhumbline.local_search import threads
from rhumbline.local_search.threads import run_interruptible
from rhumbline.local_search.tour_exact import MAX_EXACT_CITIES, shortest_order
from rhumbline.problems.metrics import geo_radians
from rhumbline.problems.tsp import Tour, TSPInstance

if TYPE_CHECKING:  # numba is an extra
    from rhumbline.kernels.numba.tour_search.launch import TourSearch, TourSpace

TourListener = Callable[[Tour], None]


@dataclass(frozen=True)
class IlsTuning:
    """How long tours are kicked, and which tours are accepted."""

    # Share of the seconds for each plan, before the best of them gets the rest.
    time_share_per_plan: float = 0.1
    moves_between_clock_checks: int = 200  # kicks in 10 ms, or exchanges of the first repair
    min_seconds_between_reports: float = 0.1
    # First temperature, as a share of the mean leg of the tour; it falls linearly to 0. In 1 s
    # of CPU time eight files of 150 to 318 cities end at 0.013 % with 0.03, at 0.000 % with 0.1.
    temperature_share: float = 0.1
    # Four files of 1,002 to 3,038 cities end at 0.32 % with 0.03 in 8 s, and at 0.40 % with 0.1.
    large_temperature_share: float = 0.03
    # With more cities, legs are computed from coordinates each time. There are 12 % more kicks then
    # with 1,002 cities and 45 % more with 1,889, but 7 % fewer with 299.
    max_matrix_cities: int = 400


TUNING = IlsTuning()


def prepare() -> None:
    """Compile the kernels."""
    kernels.require_numba("ils")
    from rhumbline.kernels.numba.tour_search.launch import load_kernels

    load_kernels()


def improve(
    instance: TSPInstance,
    plans: Sequence[Tour],
    seconds: float,
    seed: int,
    on_plan: TourListener,
    stopped: Event | None = None,
) -> None:
    """Kick each plan for a while, then the best of them; report each shorter tour."""
    stopped = stopped or Event()
    workers = threads.thread_count()
    began = time.monotonic()

    def work(report: TourListener) -> None:
        if instance.size <= MAX_EXACT_CITIES:
            order = tuple(shortest_order(instance.distances))
            report(Tour(order))
            return
        search = IteratedLocalSearch(instance, seed, stopped, report, workers)
        passed = time.monotonic() - began  # for finding the near cities of each city
        left = seconds - passed
        search.run(plans, left)

    run_interruptible(work, stopped.set, on_plan)


def tour_space(instance: TSPInstance) -> "TourSpace":
    """Return the distances of an instance for the kernels, and the near cities of each city."""
    from rhumbline.kernels.numba.legs import matrix_legs, point_legs
    from rhumbline.kernels.numba.tour_search.launch import space_of_matrix, space_of_plane

    if instance.xy is None or instance.metric == "EXPLICIT":
        return space_of_matrix(matrix_legs(instance.distances))
    if instance.size <= TUNING.max_matrix_cities:
        legs = matrix_legs(instance.distances)
    elif instance.metric == "GEO":
        legs = point_legs("GEO", geo_radians(instance.xy))
    else:
        legs = point_legs(instance.metric, instance.xy)
    return space_of_plane(legs, instance.planar_xy)


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
        from rhumbline.kernels.numba.tour_search.launch import is_large_tour

        self.stopped = stopped
        self.best = threads.CheapestPlan(instance, report)
        self.space = tour_space(instance)
        is_large = is_large_tour(instance.size)
        self.temperature_share = (
            TUNING.large_temperature_share if is_large else TUNING.temperature_share
        )
        self.random_states = [threads.generator_state(seed, number) for number in range(workers)]

    def run(self, plans: Sequence[Tour], seconds: float) -> None:
        """Kick each plan, then the best tour of all with annealing.

        Some plans are kicked twice if there are more workers than plans.
        """
        began = time.monotonic()
        workers = len(self.random_states)
        if len(plans) > 1:
            tours = cycle(plans)
            groups = -(-len(plans) // workers)
            for number in range(groups):
                share = TUNING.time_share_per_plan * seconds * (number + 1)
                self.kick_tours(list(islice(tours, workers)), began + share, 0.0)
        else:
            self.best(plans[0])
        assert self.best.plan, "every plan was reported"
        self.kick_tours([self.best.plan] * workers, began + seconds, self.temperature_share)

    def kick_tours(self, tours: Sequence[Tour], end: float, temperature_share: float) -> None:
        """Kick one tour in each thread, until the time `end`."""
        walks: list[Callable[[], None]] = []
        pairs = zip(tours, self.random_states, strict=True)
        for tour, random_state in pairs:
            walk = partial(self.kick_tour, tour, random_state, end, temperature_share)
            walks.append(walk)
        threads.run_workers(walks, self.stopped)

    def kick_tour(
        self, tour: Tour, random_state: np.ndarray, end: float, temperature_share: float
    ) -> None:
        """Repair and kick a tour until the time `end`."""
        from rhumbline.kernels.numba.tour_search.launch import TourSearch

        search = TourSearch(self.space, tour.order, random_state)
        reporter = Reporter(search, self.best)
        began = time.monotonic()
        mean_leg = float(tour.cost(self.best.instance)) / len(tour.order)
        while not self.stopped.is_set() and (now := time.monotonic()) < end:
            share_left = (end - now) / (end - began)
            temperature = temperature_share * mean_leg * share_left
            shorter = search.run(TUNING.moves_between_clock_checks, temperature)
            reporter.note(shorter > 0, now)
        reporter.report()


class Reporter:
    """Reports the best tour of a search, but not too often: reports take longer than some kicks."""

    def __init__(self, search: "TourSearch", report: TourListener) -> None:
        self.search = search
        self.listener = report
        self.is_due = True
        self.reported_at = -np.inf

    def note(self, is_shorter: bool, now: float) -> None:
        """Report the best tour if it has become shorter and enough time has passed."""
        self.is_due = self.is_due or is_shorter
        next_report = self.reported_at + TUNING.min_seconds_between_reports
        if self.is_due and now >= next_report:
            self.reported_at = now
            self.report()

    def report(self) -> None:
        """Report the best tour."""
        self.is_due = False
        order = tuple(self.search.best_order)
        self.listener(Tour(order))
