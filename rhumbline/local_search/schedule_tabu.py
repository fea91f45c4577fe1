"""Tabu search with path relinking for schedules, after TS/PR (Peng, Lü and Cheng 2015).

Rounds of tabu search begin with each plan and with random schedules, then between two schedules of
the population (path relinking). Each thread has its own round. All results enter one population.
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
from rhumbline.local_search.schedule_population import EliteSchedule, SchedulePopulation
from rhumbline.local_search.threads import run_interruptible
from rhumbline.problems.jssp import JSSPInstance, Schedule

ScheduleListener = Callable[[Schedule], None]


@dataclass(frozen=True)
class TabuTuning:
    """The population, and how long rounds are."""

    population: int = 20  # schedules
    # Until this share of the time, rounds begin with random schedules if the population has room.
    max_start_share: float = 0.15
    # The weight of random times where rounds begin with random schedules. After 8,000 moves a
    # weight of 0.1 gives schedules that are 0.6 to 2.1 % shorter than a weight of 1 (ta15, ta33,
    # swv07, yn1). They differ nearly as much from each other.
    random_share: float = 0.1
    # Schedules of the population differ in this share of the successors on machines at first.
    first_distance: float = 0.4
    # A round ends after this many moves without a shorter schedule.
    idle_moves: int = 5_000
    # Points between two schedules where a round may begin, and the trial moves that choose one.
    path_points: int = 5
    trial_moves: int = 500
    # Operations that moves read between two checks of the clock: a millisecond.
    operations_between_clock_checks: int = 500_000
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
    stopped: Event | None = None,
) -> None:
    """Run rounds until the time is up or a lower bound is met; report each shorter schedule."""
    stopped = stopped or Event()
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
        with_sentinel = np.append(duration, 0)
        self.tables = (with_sentinel.astype(np.int32), *terminated)
        # The place of each operation among those of its machine.
        self.slot = np.empty(self.size, np.uint32)
        for machine in np.unique(self.machine):
            is_here = self.machine == machine
            self.slot[is_here] = np.arange(is_here.sum())
        # Operations that a move reads: all of them, and each pair of a block. A block may consist
        # of all operations of a machine.
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
    """A tabu search from the machine orders of given times, which rise along each job."""

    def __init__(self, shop: ShopTables, start: np.ndarray, random: np.ndarray) -> None:
        from rhumbline.kernels.numba.local_search import launch as local_moves
        from rhumbline.kernels.numba.local_search import schedule_tabu

        self.shop = shop
        self.random = random
        self.kernel = local_moves.load_kernel("schedule tabu")
        self.links = shop.machine_neighbours(start)
        length = shop.size + 1
        times = np.zeros((3, length), np.int32)
        self.times = (times[0], times[1])  # earliest ends, and longest paths to the end
        self.best = times[2]
        self.scratch = tuple(np.zeros((5, length), np.uint32))
        self.path_data = tuple(np.zeros((4, length), np.int64))
        # The move until which an operation must not come before another of its machine again.
        self.until = np.zeros((shop.size, int(shop.slot.max()) + 1), np.int32)
        self.state = np.array([schedule_tabu.INFINITE_TIME, 0, 0])
        self.moves = tuple(np.zeros((2, 4 * length), np.uint32))
        self.kernel_module = schedule_tabu

    def run_moves(self, moves: int) -> bool:
        """Make up to `moves` moves; return whether all of them were possible."""
        shop = self.shop
        made = self.kernel(
            shop.tables,
            self.links,
            self.times,
            self.scratch,
            self.path_data,
            (self.until, shop.slot),
            self.best,
            self.random,
            self.state,
            self.moves,
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
        return self.start_times(self.best)

    @property
    def current_starts(self) -> np.ndarray:
        """The starts of the schedule after the last move."""
        return self.start_times(self.times[0])

    def start_times(self, end: np.ndarray) -> np.ndarray:
        """Return the starts of operations with these ends."""
        start = end - self.shop.tables[0]
        return start[:-1].astype(np.int64)

    @property
    def moves_made(self) -> int:
        """The number of moves made."""
        return int(self.state[self.kernel_module.MOVES])

    @property
    def idle_moves(self) -> int:
        """The number of moves since the best schedule was found."""
        return int(self.state[self.kernel_module.IDLE_MOVES])


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
        self.population = SchedulePopulation(TUNING.population)
        self.clock = time.monotonic
        self.start_time = 0.0
        self.end = 0.0
        self.shortest = instance.horizon + 1

    def run(self, plans: Sequence[Schedule], seconds: float, workers: int = 1) -> None:
        """Run rounds from each plan, from random schedules, then between two schedules.

        Some plans have two rounds if there are more workers than plans.
        """
        self.start_time = self.clock()
        self.end = self.start_time + seconds
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
        while points := self.next_starts(starts):
            schedule = self.run_round(points, random)
            with self.lock:
                left = 1.0 - self.progress
                distance = TUNING.first_distance * left
                self.population.add(schedule, distance)

    def next_starts(self, given: deque[np.ndarray]) -> list[np.ndarray]:
        """Return the times that the next round may begin with; none if the search is over.

        The first round is always run.
        """
        with self.lock:
            members = self.population.members
            if self.is_over and (members or not given):
                return []
            if given:
                return [given.popleft()]
            is_early = self.progress < TUNING.max_start_share
            if len(members) < 2 or (is_early and not self.population.is_full):
                return [self.draw_times()]
            return self.mix_times()

    @property
    def progress(self) -> float:
        """The share of the time that has passed."""
        total = self.end - self.start_time
        return (self.clock() - self.start_time) / total if total > 0 else 1.0

    @property
    def is_over(self) -> bool:
        """Whether the time is up or a lower bound is met."""
        if self.stopped.is_set():
            return True
        if self.clock() >= self.end:
            return True
        return self.shortest <= self.instance.lower_bound

    def run_round(self, starts: Sequence[np.ndarray], random: np.ndarray) -> EliteSchedule:
        """Return the best schedule of a walk that begins with the orders of one of these times."""
        walk = self.choose_walk(starts, random)
        going = True
        while going and walk.idle_moves < TUNING.idle_moves:
            going = self.make_moves(walk, self.moves_at_once)
        _, following = self.shop.machine_neighbours(walk.starts)
        return EliteSchedule(walk.makespan, walk.starts, following)

    def choose_walk(self, starts: Sequence[np.ndarray], random: np.ndarray) -> TabuWalk:
        """Return the walk with the shortest schedule after a few moves from each start."""
        chosen: TabuWalk | None = None
        for start in starts:
            walk = TabuWalk(self.shop, start, random)
            going = len(starts) > 1
            while going and walk.moves_made < TUNING.trial_moves:
                left = TUNING.trial_moves - walk.moves_made
                moves = min(left, self.moves_at_once)
                going = self.make_moves(walk, moves)
            if chosen is None or walk.makespan < chosen.makespan:
                chosen = walk
        assert chosen is not None
        return chosen

    @property
    def moves_at_once(self) -> int:
        """The number of moves between two checks of the clock."""
        affordable = TUNING.operations_between_clock_checks // self.shop.effort
        return max(TUNING.min_moves_between_clock_checks, affordable)

    def make_moves(self, walk: TabuWalk, moves: int) -> bool:
        """Make moves and report the best schedule; return whether the walk can go on."""
        possible = walk.run_moves(moves)
        self.report_if_shorter(walk)
        return possible and not self.is_over

    def mix_times(self) -> list[np.ndarray]:
        """Return weighted means of the times of two schedules of the population.

        They rise along each job, as those of both schedules do, so no order contradicts a job.
        """
        members = self.population.members
        one, two = self.rng.choice(len(members), 2, replace=False)
        first = members[one].starts
        second = members[two].starts
        points = TUNING.path_points
        low = TUNING.min_weight
        width = (TUNING.max_weight - low) / points
        weights = low + width * (np.arange(points) + self.rng.random(points))
        return [weight * first + (1.0 - weight) * second for weight in weights]

    def draw_times(self) -> np.ndarray:
        """Return times that rise along each job, up to the shortest makespan.

        They are weighted means of random times and of the share of the job's work done before.
        """
        share = TUNING.random_share
        rows: list[np.ndarray] = []
        for row in self.instance.durations:
            times = self.rng.random(len(row))
            times.sort()
            ends = np.cumsum(row)
            work_before = (ends - row) / max(1, ends[-1])
            rows.append(share * times + (1.0 - share) * work_before)
        return self.shortest * np.concatenate(rows)

    def report_if_shorter(self, walk: TabuWalk) -> None:
        """Report the best schedule of a walk if it is shorter than all earlier ones."""
        from rhumbline.kernels.numba.local_search import launch as local_moves

        with self.lock:
            if walk.makespan >= self.shortest:
                return
            self.shortest = walk.makespan
            by_job = local_moves.split_by_job(walk.starts, self.instance.durations)
            self.report(Schedule(tuple(map(tuple, by_job))))
