"""Ruin and recreate for vehicle routes, by our own kernel: rounds of simulated annealing from the
best plan.

On each thread another one goes its own way. Let them take over one another's plans on the way, and
eight of them end no better, or worse (docs/polish.md).
"""

import time
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from threading import Event

import numpy as np

from rhumbline import kernels
from rhumbline.local_search import threads
from rhumbline.local_search.threads import run_interruptible
from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.cvrp.instance import MORE_VEHICLES

HOT, COLD = 0.1, 0.001  # first and last temperature of a round, in mean legs of the given plan
AT_ONCE = 500  # times between two looks at the clock
NEAR = 100  # customers round whom routes are ruined
PLENTY = 100_000  # times for each customer, in which a round is cold at the latest
IN_VAIN = 3  # rounds after one another, and then the search ends


def prepare() -> None:
    """Make the kernel."""
    kernels.require_numba("ruin")
    from rhumbline.kernels.numba.local_search import launch as local_moves

    local_moves.load_kernel("cvrp ruin")


RoutesListener = Callable[[Routes], None]


def improve(
    instance: CVRPInstance,
    plans: Sequence[Routes],
    seconds: float,
    seed: int,
    found: RoutesListener,
) -> None:
    """From the first plan, the cheapest, on each thread."""
    if instance.size > 2:
        stopped = Event()
        walkers = threads.thread_count()
        end = time.monotonic() + seconds

        def work(tell: RoutesListener) -> None:
            first = Annealing(
                instance, plans[0], seed, stopped, threads.CheapestPlan(instance, tell)
            )
            others = (first.clone(seed, number) for number in range(1, walkers))
            threads.run_walkers([partial(walker.run, end) for walker in (first, *others)], stopped)

        run_interruptible(work, stopped.set, found)


class Annealing:
    """A search that tells of each plan that is cheaper than all before."""

    def __init__(
        self, instance: CVRPInstance, plan: Routes, seed: int, stopped: Event, tell: RoutesListener
    ) -> None:
        from rhumbline.kernels.numba.local_search import launch as local_moves

        self.stopped, self.tell, self.kernel = stopped, tell, local_moves.load_kernel("cvrp ruin")
        routes = [route for route in plan.routes if route]
        size = instance.size
        self.distance = np.ascontiguousarray(instance.distances, dtype=np.float64)
        self.demand = np.asarray(instance.demands, np.int64)
        count = min(max(len(routes), instance.vehicles or size - 1), len(routes) + MORE_VEHICLES)
        rows, length = local_moves.pack_routes(routes, count, size)
        self.plan = (
            rows,
            length,
            np.zeros(count, np.int64),
            np.zeros(size, np.int32),
            np.zeros(size, np.int32),
            np.zeros(size),
            np.zeros(count),
        )
        self.saved = np.zeros(count, np.int32), rows.copy(), length.copy(), np.zeros(count)
        self.best, self.scratch = (
            (rows.copy(), length.copy()),
            (np.zeros(size, np.int32), np.zeros(size)),
        )
        self.near = local_moves.nearest_customers(self.distance, NEAR)
        self.random = threads.generator_state(seed)
        cost = float(plan.cost(instance))
        self.costs, self.leg = np.array([cost, cost]), cost / (size - 1 + len(routes))
        self.capacity = int(instance.capacity)
        self.plenty = PLENTY * (size - 1)
        self.tolerance = local_moves.improvement_tolerance(self.distance)

    def clone(self, seed: int, number: int) -> "Annealing":
        """Another one that begins with the same plan, and shares only what nobody writes to."""
        other = copy(self)
        for name in ("plan", "saved", "best", "scratch"):
            setattr(other, name, tuple(array.copy() for array in getattr(self, name)))
        other.costs, other.random = self.costs.copy(), threads.generator_state(seed, number)
        return other

    def run(self, end: float) -> None:
        """Rounds from the best plan, until the time is up or they have been in vain."""
        in_vain = 0
        while in_vain < IN_VAIN and not self.stopped.is_set() and time.monotonic() < end:
            in_vain = 0 if self.run_round(end) else in_vain + 1

    def run_round(self, end: float) -> bool:
        """One round from hot to cold, in the time there is, or less; whether it has brought a
        cheaper plan.
        """
        for mine, best in zip(self.plan, self.best, strict=False):
            mine[:] = best
        began = time.monotonic()
        done = 0
        found = False
        while done < self.plenty and not self.stopped.is_set() and (now := time.monotonic()) < end:
            passed = max(done / self.plenty, (now - began) / (end - began))
            found |= self.run_steps(HOT * (COLD / HOT) ** passed)
            done += AT_ONCE
        return found

    def run_steps(self, temperature: float, times: int = AT_ONCE) -> bool:
        """So many times at a temperature; whether that has brought a cheaper plan, which is
        told.
        """
        better = self.kernel(
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
            temperature * self.leg,
            self.tolerance,
            times,
        )
        if better:
            rows = zip(*self.best, strict=True)
            self.tell(Routes(tuple(tuple(row[:count].tolist()) for row, count in rows if count)))
        return better
