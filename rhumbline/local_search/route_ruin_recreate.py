"""Ruin and recreate for CVRP routes with local search: simulated annealing from the best plan.

Workers on different threads are independent. Exchanging plans between eight of them made results no
better, or worse (research/notebooks/polish.md).
"""

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

import numpy as np

from rhumbline import kernels
from rhumbline.local_search import threads
from rhumbline.local_search.threads import run_interruptible
from rhumbline.problems.construction.neighbours import near_nodes
from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.cvrp.instance import LIMITS
from rhumbline.problems.metrics import geo_radians

RoutesListener = Callable[[Routes], None]


@dataclass(frozen=True)
class AnnealingTuning:
    """The temperatures, sizes and lengths of a search."""

    # Temperatures are in mean legs of the given plan. With 0.01 at the end, most runs found nothing
    # in the last third of the time.
    last_temperature: float = 0.03
    # A round of this many steps for each customer, or more, begins at the first temperature, others
    # at one in proportion to their number. Costs rise while a plan is hot, and large
    # instances lack the time to cool down: 17 s of X-n641, X-n1001 and Leuven1 end at 0.63 % from a
    # constant 0.3, and at 0.77 % from 0.6.
    first_temperature: float = 0.5
    steps_per_customer_for_first_temperature: float = 350.0
    least_first_temperature: float = 0.3
    # Customers that a step removes on average, and at most from one route.
    mean_removed: float = 15.0
    longest_string: float = 15.0
    # A load above the capacity by a mean demand costs this many mean legs. At 20 the search is
    # stuck in tight plans, at 2 it spends its time on repairs.
    overload_price: float = 5.0
    # The nearest customers of each customer, to which it may be joined.
    neighbours: int = 20
    # At most this many. There are fewer if routes are long, because a step reads every customer of
    # a route several times: 100 steps on one route of 10,000 customers take 2 s.
    steps_between_clock_checks: int = 100
    route_customers_between_clock_checks: int = 50_000
    # After this many steps for each customer a round has cooled down, whatever time is left.
    steps_per_customer: int = 5_000
    # At most `rounds` rounds share the time. There are fewer if a round would have less than about
    # `least_steps_per_customer` steps for each customer. The first round has two shares.
    # Later rounds start at `reheat_temperature`, which does not destroy the best plan. If time is
    # left after `rounds` rounds, the next one is as hot as the first, and so on.
    # 18 files of CVRPLIB X, 8.4 s of one core, 1 or 2 seeds: the mean gap is 0.25 %. With one round
    # for all the time, and steps that took 11 % longer, it was 0.32 % (-0.07 ± 0.06 points).
    rounds: int = 4
    least_steps_per_customer: float = 200.0
    reheat_temperature: float = 0.15
    # The search ends after this many consecutive rounds without a cheaper plan. At least one of
    # them is as hot as the first round.
    idle_rounds: int = 4
    # The least time between reports, in multiples of the time that steps with a report took:
    # reading a plan of 10,000 customers takes as long as hundreds of steps.
    report_interval: float = 10.0
    # Share of the largest distance from the depot; an apparent gain below it is rounding.
    relative_tolerance: float = 1e-10

    def time_shares(self, steps_per_customer: float, number: int) -> float:
        """Return the time that is left at the start of a round, divided by the time of the round.

        `number` counts rounds from 0. `steps_per_customer` fit into all the time that is left.
        """
        left = max(1.0, float(self.rounds - number))
        if number == 0:
            left = (left + 1.0) / 2.0
        wanted = steps_per_customer / self.least_steps_per_customer
        return min(left, max(1.0, wanted))

    def temperature(self, share: float, steps_per_customer: float, number: int = 0) -> float:
        """Return the temperature after a share of a round: equal factors in equal times.

        `steps_per_customer` are those of the whole round, and `number` counts rounds from 0.
        """
        steps = steps_per_customer / self.steps_per_customer_for_first_temperature
        wanted = self.first_temperature * min(1.0, steps)
        first = max(self.least_first_temperature, wanted)
        if number % self.rounds > 0:
            first = self.reheat_temperature
        return first * (self.last_temperature / first) ** share


TUNING = AnnealingTuning()


def prepare() -> None:
    """Compile the kernel."""
    kernels.require_numba("ruin")
    from rhumbline.kernels.numba.local_search import launch as local_moves

    local_moves.load_kernel("route search")


def improve(
    instance: CVRPInstance,
    plans: Sequence[Routes],
    seconds: float,
    seed: int,
    on_plan: RoutesListener,
    stopped: Event | None = None,
) -> None:
    """Improve the first plan, which is the cheapest, on each thread; report each cheaper plan."""
    if instance.size <= 2:
        return
    stopped = stopped or Event()
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


def describe_customers(instance: CVRPInstance) -> Any:
    """Return what the kernel reads: distances, near customers, demands and the capacity."""
    from rhumbline.kernels.numba.legs import matrix_legs, point_legs
    from rhumbline.kernels.numba.route_search.records import Customers

    if instance.has_table:
        legs = matrix_legs(instance.distances)
    else:
        assert instance.xy is not None
        points = geo_radians(instance.xy) if instance.metric == "GEO" else instance.xy
        legs = point_legs(instance.metric, points)
    nodes = np.arange(instance.size)
    near = near_nodes(instance, TUNING.neighbours, nodes[1:])
    near = np.insert(near, 0, 0, axis=0)  # the row of the depot has no meaning
    near_leg = instance.legs(nodes[:, None], near)
    demand = np.asarray(instance.demands, np.int64)
    return Customers(legs, near.astype(np.uint32), near_leg, demand, int(instance.capacity))


class Annealing:
    """A worker that reports each plan that is cheaper than all of its earlier plans."""

    def __init__(
        self,
        instance: CVRPInstance,
        plan: Routes,
        seed: int,
        stopped: Event,
        report: RoutesListener,
    ) -> None:
        from rhumbline.kernels.numba.local_search import launch as local_moves
        from rhumbline.kernels.numba.route_search import arrays

        self.stopped = stopped
        self.report = report
        self.kernel = local_moves.load_kernel("route search")
        routes = [route for route in plan.routes if route]
        size = instance.size
        allowed = max(len(routes), instance.vehicles or size - 1)
        vehicles = min(allowed, len(routes) + LIMITS.extra_vehicles)
        self.customers = describe_customers(instance)
        self.plan = arrays.make_plan(routes, vehicles, size)
        self.log = arrays.make_log(vehicles, size)
        self.best = arrays.make_best(self.plan)
        self.queue = arrays.make_queue(size)
        self.scratch = arrays.make_scratch(size)
        self.random = threads.generator_state(seed)
        cost = float(plan.cost(instance))
        self.mean_leg = cost / (size - 1 + len(routes))
        mean_demand = max(1.0, float(np.mean(instance.demands)))
        price = TUNING.overload_price * self.mean_leg / mean_demand
        self.costs = np.array([cost, cost, price])
        self.reported_cost = cost
        self.customer_count = size - 1
        self.max_round_steps = TUNING.steps_per_customer * self.customer_count
        depot_legs = instance.legs(0, np.arange(size))
        self.tolerance = TUNING.relative_tolerance * float(depot_legs.max())

    def clone(self, seed: int, number: int) -> "Annealing":
        """Return a worker that begins with the same plan; it shares only read-only data."""
        shared = (self.stopped, self.report, self.kernel, self.customers)
        other = deepcopy(self, {id(value): value for value in shared})
        other.random = threads.generator_state(seed, number)
        return other

    def run(self, end: float) -> None:
        """Run rounds from the best plan, until the time `end` or some rounds without success."""
        idle = 0
        number = 0
        max_idle = TUNING.idle_rounds
        while idle < max_idle and not self.stopped.is_set():
            if time.monotonic() >= end:
                break
            is_better = self.run_round(end, number)
            idle = 0 if is_better else idle + 1
            number += 1

    def run_round(self, end: float, number: int) -> bool:
        """Cool down once, by the time `end` or sooner; return whether a cheaper plan was found.

        `number` counts rounds from 0. Early rounds leave time for later ones.
        """
        self.return_to_best()
        began = time.monotonic()
        done = 0
        is_better = False
        next_report = began
        while not self.stopped.is_set():
            now = time.monotonic()
            if now >= end:
                break
            share = self.round_share(done, (now - began) / (end - began), number)
            if share >= 1.0:
                break
            expected = done / share if share > 0.0 else 0.0
            temperature = TUNING.temperature(share, expected / self.customer_count, number)
            times = self.steps_before_check()
            is_better |= self.run_steps(temperature, times)
            done += times
            if now >= next_report:
                self.report_best()
                passed = time.monotonic() - now
                next_report = now + passed * TUNING.report_interval
        self.report_best()
        return is_better

    def round_share(self, done: int, time_share: float, number: int) -> float:
        """Return how much of a round is over, after `done` steps; 1 at its end.

        `time_share` is the share of the time that was left when the round began.
        """
        step_share = done / self.max_round_steps
        if time_share <= 0.0:
            return step_share
        steps = done / time_share / self.customer_count
        return max(step_share, time_share * TUNING.time_shares(steps, number))

    def steps_before_check(self) -> int:
        """Return how many steps to make before the next look at the clock."""
        longest = max(1, int(self.plan.size.max()))
        steps = TUNING.route_customers_between_clock_checks // longest
        return min(TUNING.steps_between_clock_checks, max(1, steps))

    def report_best(self) -> None:
        """Report the best plan, if it is cheaper than the one reported last."""
        _, cost, _ = self.costs.tolist()  # of the current and the best plan, and the price
        if cost < self.reported_cost:
            self.reported_cost = cost
            self.report(self.best_plan())

    def return_to_best(self) -> None:
        """Make the best plan the current one."""
        from rhumbline.kernels.numba.route_search import arrays

        routes = self.best_plan().routes
        size = len(self.plan.route)
        self.plan = arrays.make_plan(routes, len(self.plan.size), size)
        self.best = arrays.make_best(self.plan)

    def run_steps(self, temperature: float, times: int) -> bool:
        """Make `times` steps at a temperature in mean legs; return whether the best plan changed.

        The mean is that of the given plan.
        """
        return self.kernel(
            self.customers,
            self.plan,
            self.log,
            self.best,
            self.queue,
            self.scratch,
            self.settings(temperature),
            self.random,
            self.costs,
            times,
        )

    def settings(self, temperature: float) -> Any:
        """Return what the kernel needs to know of a step, at a temperature in mean legs."""
        from rhumbline.kernels.numba.route_search.records import Settings

        length = temperature * self.mean_leg
        return Settings(length, self.tolerance, TUNING.mean_removed, TUNING.longest_string)

    def best_plan(self) -> Routes:
        """Return the best plan, without empty routes."""
        from rhumbline.kernels.numba.route_search.arrays import linked_routes

        return Routes(tuple(linked_routes(self.best.behind, self.best.first)))
