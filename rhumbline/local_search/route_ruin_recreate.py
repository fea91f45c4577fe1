"""Ruin and recreate for CVRP routes: rounds of simulated annealing from the best plan.

Workers on different threads are independent. When workers exchanged plans on the way, eight of them
ended no better, or worse (research/notebooks/polish.md).
"""

import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from threading import Event

import numpy as np

from rhumbline import kernels
from rhumbline.local_search import threads
from rhumbline.local_search.threads import run_interruptible
from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.cvrp.instance import MORE_VEHICLES

RoutesListener = Callable[[Routes], None]
PLAN_TYPES = (Routes,)


@dataclass(frozen=True)
class AnnealingTuning:
    """The temperatures and lengths of a round."""

    # Temperatures are in mean legs of the given plan.
    first_temperature: float = 0.1
    last_temperature: float = 0.001
    steps_between_clock_checks: int = 500
    # The nearest customers of each customer, around which routes are ruined.
    neighbours: int = 100
    # After this many steps for each customer a round has cooled down, whatever time is left.
    steps_per_customer: int = 100_000
    # The search ends after this many consecutive rounds without a cheaper plan.
    idle_rounds: int = 3

    def temperature(self, share: float) -> float:
        """Return the temperature after a share of a round: equal factors in equal times."""
        ratio = self.last_temperature / self.first_temperature
        return self.first_temperature * ratio**share


TUNING = AnnealingTuning()


def prepare() -> None:
    """Compile the kernel."""
    kernels.require_numba("ruin")
    from rhumbline.kernels.numba.local_search import launch as local_moves

    local_moves.load_kernel("route ruin")


def improve(
    instance: CVRPInstance,
    plans: Sequence[Routes],
    seconds: float,
    seed: int,
    on_plan: RoutesListener,
) -> None:
    """Improve the first plan, which is the cheapest, on each thread; report each cheaper plan."""
    if instance.size <= 2:
        return
    stopped = Event()
    workers = threads.thread_count()
    end = time.monotonic() + seconds

    def work(report: RoutesListener) -> None:
        best = threads.CheapestPlan(instance, report)
        first = Annealing(instance, plans[0], seed, stopped, best)
        walks = [partial(first.run, end)]
        for number in range(1, workers):
            worker = first.clone(seed, number)
            walks.append(partial(worker.run, end))
        threads.run_workers(walks, stopped)

    run_interruptible(work, stopped.set, on_plan)


class Annealing:
    """A worker that reports each plan that is cheaper than all of its plans before."""

    def __init__(
        self,
        instance: CVRPInstance,
        plan: Routes,
        seed: int,
        stopped: Event,
        report: RoutesListener,
    ) -> None:
        from rhumbline.kernels.numba.local_search import launch as local_moves

        self.stopped = stopped
        self.report = report
        self.kernel = local_moves.load_kernel("route ruin")
        routes = [route for route in plan.routes if route]
        size = instance.size
        self.distance = np.ascontiguousarray(instance.distances, dtype=np.float64)
        self.demand = np.asarray(instance.demands, np.int64)
        allowed = max(len(routes), instance.vehicles or size - 1)
        vehicles = min(allowed, len(routes) + MORE_VEHICLES)
        rows, length = local_moves.pack_routes(routes, vehicles, size)
        # Of routes: rows, lengths, loads. Of customers: route, place, distance from the one before.
        # Of routes again: the distance back to the depot.
        self.plan = (
            rows,
            length,
            np.zeros(vehicles, np.int64),
            np.zeros(size, np.int32),
            np.zeros(size, np.int32),
            np.zeros(size),
            np.zeros(vehicles),
        )
        self.saved = (
            np.zeros(vehicles, np.int32),
            rows.copy(),
            length.copy(),
            np.zeros(vehicles),
        )
        self.best = (rows.copy(), length.copy())
        self.scratch = (np.zeros(size, np.int32), np.zeros(size))
        self.near = local_moves.nearest_customers(self.distance, TUNING.neighbours)
        self.random = threads.generator_state(seed)
        cost = float(plan.cost(instance))
        self.costs = np.array([cost, cost])
        self.mean_leg = cost / (size - 1 + len(routes))
        self.capacity = int(instance.capacity)
        self.max_round_steps = TUNING.steps_per_customer * (size - 1)
        self.tolerance = local_moves.improvement_tolerance(self.distance)

    def clone(self, seed: int, number: int) -> "Annealing":
        """Return a worker that begins with the same plan, and shares only what is never written."""
        other = copy(self)
        for name in ("plan", "saved", "best", "scratch"):
            arrays = getattr(self, name)
            setattr(other, name, tuple(array.copy() for array in arrays))
        other.costs = self.costs.copy()
        other.random = threads.generator_state(seed, number)
        return other

    def run(self, end: float) -> None:
        """Run rounds from the best plan, until the time `end` or some rounds without success."""
        idle = 0
        max_idle = TUNING.idle_rounds
        while idle < max_idle and not self.stopped.is_set():
            if time.monotonic() >= end:
                break
            is_better = self.run_round(end)
            idle = 0 if is_better else idle + 1

    def run_round(self, end: float) -> bool:
        """Cool down once, by the time `end` or sooner; return whether a cheaper plan was found."""
        for current, best in zip(self.plan, self.best, strict=False):
            current[:] = best
        began = time.monotonic()
        done = 0
        is_better = False
        while done < self.max_round_steps and not self.stopped.is_set():
            now = time.monotonic()
            if now >= end:
                break
            share = max(done / self.max_round_steps, (now - began) / (end - began))
            is_better |= self.run_steps(TUNING.temperature(share))
            done += TUNING.steps_between_clock_checks
        return is_better

    def run_steps(self, temperature: float, times: int = TUNING.steps_between_clock_checks) -> bool:
        """Make `times` steps at a temperature in mean legs of the given plan.

        Reports the best plan if these steps have found one that is cheaper, and returns whether.
        """
        is_better = self.kernel(
            self.distance,
            self.near,
            self.demand,
            self.capacity,
            self.plan,
            self.saved,
            self.best,
            self.scratch,
            self.random,
            self.costs,
            temperature * self.mean_leg,
            self.tolerance,
            times,
        )
        if is_better:
            self.report(self.best_plan())
        return is_better

    def best_plan(self) -> Routes:
        """Return the best plan, without empty routes."""
        routes: list[tuple[int, ...]] = []
        for row, count in zip(*self.best, strict=True):
            if count:
                routes.append(tuple(row[:count].tolist()))
        return Routes(tuple(routes))
