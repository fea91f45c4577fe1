"""Tabu search for schedules: rounds from each plan, then from between two of the best schedules.

Each thread has its own round. Their results enter one elite set, from which all rounds begin.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from threading import Event, Lock

import numpy as np

from rhumbline import kernels
from rhumbline.local_search import threads
from rhumbline.local_search.threads import run_interruptible
from rhumbline.problems.jssp import JSSPInstance, Schedule

ScheduleListener = Callable[[Schedule], None]
PLAN_TYPES = (Schedule,)


@dataclass(frozen=True)
class TabuTuning:
    """The elite set, and how long rounds are."""

    # The best different schedules that are kept.
    elite_schedules: int = 12
    # Schedules with this share of equal successors on machines count as the same.
    min_equal_share: float = 0.9
    # A round ends after this many moves without a shorter schedule.
    idle_moves: int = 2_500
    # After this many consecutive rounds without a new schedule, one begins farther away.
    idle_rounds: int = 10
    # Operations that moves look at between two looks at the clock: a few milliseconds.
    operations_between_clock_checks: int = 100_000
    min_moves_between_clock_checks: int = 10
    # The weight of the first of two schedules, when a round begins between them.
    min_weight: float = 0.3
    max_weight: float = 0.7


TUNING = TabuTuning()


def prepare() -> None:
    """Compile the kernel."""
    kernels.require_numba("tabu")
    from rhumbline.kernels.numba.local_search import launch as local_moves

    local_moves.load_kernel("schedule tabu")


def improve(
    instance: JSSPInstance,
    plans: Sequence[Schedule],
    seconds: float,
    seed: int,
    on_plan: ScheduleListener,
) -> None:
    """Run rounds until the time is up or a lower bound is met; report each shorter schedule."""
    stopped = Event()
    workers = threads.thread_count()

    def work(report: ScheduleListener) -> None:
        search = TabuSearch(instance, seed, stopped, report)
        search.run(plans, seconds, workers)

    run_interruptible(work, stopped.set, on_plan)


class ShopTables:
    """An instance as the kernel reads it.

    Operations are numbered job after job. The number after the last one stands for no operation.
    """

    def __init__(self, instance: JSSPInstance) -> None:
        from rhumbline.kernels.numba.local_search import launch as local_moves
        from rhumbline.kernels.numba.local_search import schedule_tabu

        duration, *neighbours = local_moves.flatten_jobs(instance.durations)
        self.orders = local_moves.machine_orders
        self.ban = schedule_tabu.MIN_TENURE + instance.job_count // instance.machine_count
        self.size = len(duration)
        self.duration = duration
        self.machine = np.concatenate(instance.machines).astype(np.int64)
        terminated = [self.terminate(neighbour) for neighbour in neighbours]
        self.tables = (np.append(duration, 0), *terminated)
        # The place of each operation among those of its machine.
        self.slot = np.empty(self.size, np.uint32)
        for machine in np.unique(self.machine):
            is_here = self.machine == machine
            self.slot[is_here] = np.arange(is_here.sum())
        # Operations that a move looks at: all of them, and each pair of a block. A block may
        # consist of all operations of a machine.
        self.effort = self.size + int(self.slot.max()) ** 2

    def terminate(self, neighbour: np.ndarray) -> np.ndarray:
        """Replace missing neighbours by the number that stands for none, and add its own entry."""
        is_missing = neighbour < 0
        filled = np.where(is_missing, self.size, neighbour)
        terminated = np.append(filled, self.size)
        return terminated.astype(np.uint32)

    def machine_neighbours(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return predecessor and successor of each operation on its machine, by these times."""
        sequence = self.orders(self.machine, start, start + self.duration)
        previous = np.full(self.size + 1, self.size, np.uint32)
        following = previous.copy()
        earlier = sequence[:-1]
        later = sequence[1:]
        is_same_machine = self.machine[later] == self.machine[earlier]
        earlier = earlier[is_same_machine]
        later = later[is_same_machine]
        previous[later] = earlier
        following[earlier] = later
        return previous, following


class TabuWalk:
    """A tabu search that begins with the machine orders of times, which rise along each job."""

    def __init__(self, shop: ShopTables, start: np.ndarray, random: np.ndarray) -> None:
        from rhumbline.kernels.numba.local_search import launch as local_moves
        from rhumbline.kernels.numba.local_search import schedule_tabu

        self.shop = shop
        self.random = random
        self.kernel = local_moves.load_kernel("schedule tabu")
        self.links = shop.machine_neighbours(start)
        length = shop.size + 1
        long = np.zeros((4, length), np.int64)
        self.times = (long[0], long[1])  # heads and tails
        self.best = long[2]
        self.scratch = (*np.zeros((4, length), np.uint32), long[3])
        # The move until which an operation must not come before another of its machine again.
        self.until = np.zeros((shop.size, int(shop.slot.max()) + 1), np.int64)
        self.state = np.array([schedule_tabu.INFINITE_TIME, 0, 0])
        self.kernel_module = schedule_tabu

    def run_moves(self, moves: int) -> bool:
        """Make up to `moves` moves; return whether all of them were possible."""
        shop = self.shop
        made = self.kernel(
            shop.tables,
            self.links,
            self.times,
            self.scratch,
            self.until,
            shop.slot,
            self.best,
            self.random,
            self.state,
            shop.ban,
            moves,
        )
        if made < 0:  # the kernel's `is_safe` rules that out
            raise RuntimeError("a move has made orders that contradict each other")
        return made == moves

    @property
    def makespan(self) -> int:
        """The makespan of the best schedule so far."""
        return int(self.state[self.kernel_module.BEST_MAKESPAN])

    @property
    def starts(self) -> np.ndarray:
        """The starts of the best schedule so far."""
        return self.best[:-1]

    @property
    def idle(self) -> int:
        """The number of moves since the best schedule was found."""
        return int(self.state[self.kernel_module.IDLE_MOVES])


@dataclass(frozen=True)
class EliteSchedule:
    """A schedule from which rounds may begin."""

    makespan: int
    starts: np.ndarray
    following: np.ndarray  # the successor of each operation on its machine

    def is_similar(self, other: "EliteSchedule") -> bool:
        """Return whether the machines have nearly the same orders."""
        is_equal = self.following == other.following
        equal_share = float(np.mean(is_equal))
        return equal_share >= TUNING.min_equal_share


class TabuSearch:
    """A search that reports each schedule that is shorter than all before."""

    def __init__(
        self, instance: JSSPInstance, seed: int, stopped: Event, report: ScheduleListener
    ) -> None:
        self.instance = instance
        self.stopped = stopped
        self.report = report
        self.shop = ShopTables(instance)
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.lock = Lock()
        self.elite = list[EliteSchedule]()
        self.idle_rounds = 0
        self.end = 0.0
        self.shortest = instance.horizon + 1

    def run(self, plans: Sequence[Schedule], seconds: float, workers: int = 1) -> None:
        """Run rounds from each plan, then from between two schedules.

        Some plans have two rounds if there are more workers than plans.
        """
        self.end = time.monotonic() + seconds
        given: list[np.ndarray] = []
        for plan in plans:
            times = np.concatenate(plan.starts)
            given.append(times.astype(np.int64))
        rounds = max(workers, len(plans))
        starts = deque(islice(cycle(given), rounds))
        walks: list[Callable[[], None]] = []
        for number in range(workers):
            random = threads.generator_state(self.seed, number)
            walks.append(partial(self.walk, starts, random))
        threads.run_workers(walks, self.stopped)

    def walk(self, starts: deque[np.ndarray], random: np.ndarray) -> None:
        """Run one round after the other, until the search is over."""
        while (start := self.next_start(starts)) is not None:
            schedule = self.run_round(start, random)
            with self.lock:
                self.add_to_elite(schedule)

    def next_start(self, starts: deque[np.ndarray]) -> np.ndarray | None:
        """Return the times that the next round begins with; None if the search is over.

        The first round takes place in any case.
        """
        with self.lock:
            if self.is_over and (self.elite or not starts):
                return None
            return starts.popleft() if starts else self.times_between()

    @property
    def is_over(self) -> bool:
        """Whether the time is up or a lower bound is met."""
        if self.stopped.is_set():
            return True
        if time.monotonic() >= self.end:
            return True
        return self.shortest <= self.instance.lower_bound

    def run_round(self, start: np.ndarray, random: np.ndarray) -> EliteSchedule:
        """Return the best schedule of a walk that begins with the orders of these times."""
        walk = TabuWalk(self.shop, start, random)
        affordable = TUNING.operations_between_clock_checks // self.shop.effort
        moves = max(TUNING.min_moves_between_clock_checks, affordable)
        going = True
        while going and walk.idle < TUNING.idle_moves:
            going = walk.run_moves(moves) and not self.is_over
            self.report_if_shorter(walk.makespan, walk.starts)
        _, following = self.shop.machine_neighbours(walk.starts)
        return EliteSchedule(walk.makespan, walk.starts, following)

    def times_between(self) -> np.ndarray:
        """Return weighted means of the times of two elite schedules.

        After many rounds without success, random times take the place of the second schedule. The
        times rise along each job, as those of both schedules do, so no order contradicts a job.
        """
        order = self.rng.permutation(len(self.elite))
        first, *others = (self.elite[place].starts for place in order)
        if others and self.idle_rounds < TUNING.idle_rounds:
            second = others[0]
        else:
            second = self.random_times()
        weight = self.rng.uniform(TUNING.min_weight, TUNING.max_weight)
        return weight * first + (1.0 - weight) * second

    def random_times(self) -> np.ndarray:
        """Return times that rise along each job, up to the shortest makespan."""
        rows: list[np.ndarray] = []
        for row in self.instance.durations:
            times = self.rng.uniform(0, self.shortest, len(row))
            rows.append(np.sort(times))
        return np.concatenate(rows)

    def add_to_elite(self, schedule: EliteSchedule) -> None:
        """Add a schedule in the place of similar ones, unless one of these is as short.

        Of equally short schedules the newest comes first.
        """
        self.idle_rounds = (self.idle_rounds + 1) % (TUNING.idle_rounds + 1)
        ranked = [schedule]
        for other in self.elite:
            if not other.is_similar(schedule):
                ranked.append(other)
            elif schedule.makespan >= other.makespan:
                return
        ranked.sort(key=lambda x: x.makespan)
        self.elite = ranked[: TUNING.elite_schedules]
        if any(other is schedule for other in self.elite):
            self.idle_rounds = 0

    def report_if_shorter(self, makespan: int, starts: np.ndarray) -> None:
        """Report a schedule if it is shorter than all before."""
        from rhumbline.kernels.numba.local_search import launch as local_moves

        with self.lock:
            if makespan >= self.shortest:
                return
            self.shortest = makespan
            by_job = local_moves.split_by_job(starts, self.instance.durations)
            self.report(Schedule(tuple(map(tuple, by_job))))
