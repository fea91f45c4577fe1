"""Tabu search for schedules, by our own kernel: rounds from each plan, then from between two of the
best so far.

Each thread has its own round; what comes of it goes to the schedules that all of them begin with.
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

KEPT = 12  # of the best different schedules
LIKE = 0.9  # schedules that share so much of what comes next to what are one
PATIENCE = 2_500  # moves of a round without a shorter schedule
IN_VAIN = (
    10  # rounds after one another that brought nothing new, and then a round from farther away
)
AT_ONCE = (
    100_000  # operations that are looked at between two looks at the clock, a few milliseconds
)
BETWEEN = 0.3, 0.7  # what the first of two schedules weighs


def prepare() -> None:
    """Make the kernel."""
    kernels.require_numba("tabu")
    from rhumbline.kernels.numba.local_search import launch as local_moves

    local_moves.load_kernel("jssp tabu")


ScheduleListener = Callable[[Schedule], None]


def improve(
    instance: JSSPInstance,
    plans: Sequence[Schedule],
    seconds: float,
    seed: int,
    found: ScheduleListener,
) -> None:
    """Rounds until the time is up, or a bound is met that no schedule is below."""
    stopped = Event()
    walkers = threads.thread_count()
    run_interruptible(
        lambda tell: TabuSearch(instance, seed, stopped, tell).run(plans, seconds, walkers),
        stopped.set,
        found,
    )


class ShopTables:
    """An instance as the kernel has it. Operations are numbered job after job; behind them comes
    nobody.
    """

    def __init__(self, instance: JSSPInstance) -> None:
        from rhumbline.kernels.numba.local_search import launch as local_moves
        from rhumbline.kernels.numba.local_search import schedule_tabu

        duration, *neighbours = local_moves.flatten_jobs(instance.durations)
        self.orders = local_moves.machine_orders
        self.ban = schedule_tabu.LEAST_BAN + instance.job_count // instance.machine_count
        self.size = len(duration)
        self.duration = duration
        self.machine = np.concatenate(instance.machines).astype(np.int64)
        self.tables = (
            np.append(duration, 0),
            *(self.with_nobody(neighbour) for neighbour in neighbours),
        )
        self.slot = np.empty(
            self.size, np.uint32
        )  # the place of each operation among those of its machine
        for machine in np.unique(self.machine):
            self.slot[self.machine == machine] = np.arange((self.machine == machine).sum())
        # A move looks at all operations, and at each of a block, which may be all of a machine,
        # once for each other.
        self.effort = self.size + int(self.slot.max()) ** 2

    def with_nobody(self, neighbour: np.ndarray) -> np.ndarray:
        """Who has no neighbour has nobody."""
        return np.append(np.where(neighbour < 0, self.size, neighbour), self.size).astype(np.uint32)

    def links(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What comes before and behind each operation on its machine, in order of these times."""
        sequence = self.orders(self.machine, start, start + self.duration)
        previous, following = (np.full(self.size + 1, self.size, np.uint32) for _ in range(2))
        same = self.machine[sequence[1:]] == self.machine[sequence[:-1]]
        previous[sequence[1:][same]], following[sequence[:-1][same]] = (
            sequence[:-1][same],
            sequence[1:][same],
        )
        return previous, following


class TabuWalk:
    """A tabu search that begins with the orders of some times, which rise along each job."""

    def __init__(self, shop: ShopTables, start: np.ndarray, random: np.ndarray) -> None:
        from rhumbline.kernels.numba.local_search import launch as local_moves
        from rhumbline.kernels.numba.local_search import schedule_tabu

        self.shop, self.random, self.kernel = shop, random, local_moves.load_kernel("jssp tabu")
        self.links, long = shop.links(start), np.zeros((4, shop.size + 1), np.int64)
        self.times = (long[0], long[1])
        self.best = long[2]
        self.scratch = *np.zeros((4, shop.size + 1), np.uint32), long[3]
        self.until = np.zeros((shop.size, int(shop.slot.max()) + 1), np.int64)
        self.state = np.array([schedule_tabu.ENDLESS, 0, 0])
        self.at = schedule_tabu

    def run_moves(self, moves: int) -> bool:
        """So many moves; whether there were as many."""
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
        if made < 0:
            raise RuntimeError(
                "a move has made orders that contradict each other"
            )  # `is_safe` rules that out
        return made == moves

    @property
    def makespan(self) -> int:
        """Of the best schedule so far."""
        return int(self.state[self.at.BEST])

    @property
    def starts(self) -> np.ndarray:
        """Of the best schedule so far."""
        return self.best[:-1]

    @property
    def idle(self) -> int:
        """Moves since it was found."""
        return int(self.state[self.at.IDLE])


@dataclass(frozen=True)
class EliteSchedule:
    """A schedule to begin with again."""

    makespan: int
    starts: np.ndarray
    following: np.ndarray  # what comes next on each operation's machine

    def is_like(self, other: "EliteSchedule") -> bool:
        """Whether the machines have nearly the same orders."""
        return float(np.mean(self.following == other.following)) >= LIKE


class TabuSearch:
    """A search that tells of each schedule that is shorter than all before."""

    def __init__(
        self, instance: JSSPInstance, seed: int, stopped: Event, tell: ScheduleListener
    ) -> None:
        self.instance, self.stopped, self.tell, self.shop = (
            instance,
            stopped,
            tell,
            ShopTables(instance),
        )
        self.seed, self.rng, self.lock = seed, np.random.default_rng(seed), Lock()
        self.kept = list[EliteSchedule]()
        self.in_vain = 0
        self.end = 0.0
        self.shortest = instance.horizon + 1

    def run(self, plans: Sequence[Schedule], seconds: float, walkers: int = 1) -> None:
        """From each plan, from some of them again if there are more walkers, then from between
        two schedules.
        """
        self.end = time.monotonic() + seconds
        starts = deque(np.concatenate(plan.starts).astype(np.int64) for plan in plans)
        starts = deque(islice(cycle(starts), max(walkers, len(plans))))
        walks = [
            partial(self.walk, starts, threads.generator_state(self.seed, number))
            for number in range(walkers)
        ]
        threads.run_walkers(walks, self.stopped)

    def walk(self, starts: deque[np.ndarray], random: np.ndarray) -> None:
        """One round after the other."""
        while (start := self.next_start(starts)) is not None:
            found = self.round(start, random)
            with self.lock:
                self.keep(found)

    def next_start(self, starts: deque[np.ndarray]) -> np.ndarray | None:
        """What the next round begins with; nothing if it is over, but somebody has to begin."""
        with self.lock:
            if self.over and (self.kept or not starts):
                return None
            return starts.popleft() if starts else self.between()

    @property
    def over(self) -> bool:
        """Whether to stop."""
        late = self.stopped.is_set() or time.monotonic() >= self.end
        return late or self.shortest <= self.instance.lower_bound

    def round(self, start: np.ndarray, random: np.ndarray) -> EliteSchedule:
        """The best schedule of a walk that begins with the orders of these times."""
        walk = TabuWalk(self.shop, start, random)
        moves = max(10, AT_ONCE // self.shop.effort)
        going = True
        while going and walk.idle < PATIENCE:
            going = walk.run_moves(moves) and not self.over
            self.note(walk.makespan, walk.starts)
        return EliteSchedule(walk.makespan, walk.starts, self.shop.links(walk.starts)[1])

    def between(self) -> np.ndarray:
        """Means of the times of two schedules; of one and of random times if the others were long
        in vain.

        They rise along each job, as those of both do, so that no order contradicts a job.
        """
        first, *others = (self.kept[k].starts for k in self.rng.permutation(len(self.kept)))
        second = others[0] if others and self.in_vain < IN_VAIN else self.random_times()
        weight = self.rng.uniform(*BETWEEN)
        return weight * first + (1.0 - weight) * second

    def random_times(self) -> np.ndarray:
        """Times that rise along each job, up to the shortest makespan."""
        rows = [
            np.sort(self.rng.uniform(0, self.shortest, len(row))) for row in self.instance.durations
        ]
        return np.concatenate(rows)

    def keep(self, found: EliteSchedule) -> None:
        """Among the best, in the place of those that are like it, unless one of them is as
        short.
        """
        alike = [other for other in self.kept if other.is_like(found)]
        self.in_vain = (self.in_vain + 1) % (IN_VAIN + 1)
        if all(found.makespan < other.makespan for other in alike):
            others = [other for other in self.kept if not other.is_like(found)]
            self.kept = sorted([found, *others], key=lambda x: x.makespan)[
                :KEPT
            ]  # of equals the newest first
            self.in_vain = 0 if any(one is found for one in self.kept) else self.in_vain

    def note(self, makespan: int, starts: np.ndarray) -> None:
        """Tell of a schedule, if it is shorter than all before."""
        from rhumbline.kernels.numba.local_search import launch as local_moves

        with self.lock:
            if makespan >= self.shortest:
                return
            self.shortest = makespan
            self.tell(
                Schedule(
                    tuple(map(tuple, local_moves.split_by_job(starts, self.instance.durations)))
                )
            )
