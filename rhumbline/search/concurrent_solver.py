"""Local search on the host while a policy searches on a GPU; they exchange plans.

The cores of the host are idle during a search on a GPU. Our own local search works there in a
thread, because its kernels release Python's global lock. Its time is divided into slices: the first
one is short, and each later one takes half of the time that is left. A slice starts from the best
different plans of the search and from the best plan of the slices before.

The main thread exchanges plans between two steps of the search. It offers the plans that the search
has kept, and enters the plans of ended slices into the account. Strategies read the incumbents
there, so `cmaes-refine` refines them like a warm start.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from rhumbline import improvers
from rhumbline.problems import Plan, Problem
from rhumbline.search.driver import Budget
from rhumbline.search.first_plans import first_candidate
from rhumbline.search.plan_sets.diverse import different_plans
from rhumbline.search.solution import Candidate, costs_less, is_feasible
from rhumbline.search.task import Task, enter_plans


@dataclass(frozen=True)
class ConcurrentTuning:
    """When a local search works at the same time as a search, and how often they exchange plans."""

    # Off until it is measured on a GPU: all tests run on a CPU (docs/internals/method.md).
    enabled: bool = False
    # Share of the seconds of a search for the first slices of all instances
    first_slice_share: float = 0.1
    # Share of the time left for each later slice, because simulated annealing needs long slices
    later_slice_share: float = 0.5
    # A slice takes all the time left if that is at most this many times the first slice.
    max_last_slice_ratio: float = 3.0
    min_slice_seconds: float = 0.1
    # A solver that ends after less than this share of a slice is exhausted: it has met a
    # lower bound, or has found no cheaper plan for long. It waits until the search finds one.
    exhausted_share: float = 0.5
    # How often the search offers its plans within the time of the first slices of all instances,
    # and at the same intervals later. Reading them makes the host wait for the GPU.
    offers_per_first_round: int = 10
    # With more instances, or fewer seconds for each, the local search follows the search.
    max_instances_per_core: float = 1.0
    min_seconds_per_instance: float = 0.5
    # One core is needed to launch the kernels of the GPU.
    min_cores: int = 2


TUNING = ConcurrentTuning()


def can_work_concurrently(
    device_type: str, budget: Budget, solver: str | None, instances: int, cores: int
) -> bool:
    """Return whether a solver works while the search does, instead of after it.

    With a limit of attempts, or with a solver that is not our own, the solver follows the search.
    `cores` is the number of cores of the host that the solver may use.
    """
    known = improvers.SOLVERS.get(solver or "")
    if not TUNING.enabled:
        return False
    if device_type != "cuda" or known is None or not known.is_stoppable:
        return False
    if budget.seconds is None or budget.attempts is not None:
        return False
    if budget.seconds < instances * TUNING.min_seconds_per_instance:
        return False
    return cores >= TUNING.min_cores and instances <= cores * TUNING.max_instances_per_core


@dataclass
class HostPlans:
    """What the local search knows of one instance.

    Only the thread of the local search writes it; `entered` belongs to the thread of the search.
    """

    instance: Any
    sequences: list[list[int]] | None = None  # of the search, not yet decoded
    offered: list[Candidate] = field(default_factory=list[Candidate])  # by the search
    construction: Candidate | None = None  # if it costs less than the first plans of the search
    best: Candidate | None = None  # of the local search, if it costs less than its starts
    cost_before: int | float | None = None  # of the best plan before the first slice
    # Of the best plan when the solver ended early; only a cheaper one is improved again.
    exhausted_cost: float = math.inf
    trouble: str = ""  # what ended the local search of this instance
    entered: set[Plan] = field(default_factory=set[Plan])  # into the account, as decoded from it

    @property
    def plans(self) -> list[Candidate]:
        """All plans that a slice may start from."""
        others = [plan for plan in (self.construction, self.best) if plan is not None]
        return [*self.offered, *others]

    @property
    def least_cost(self) -> float:
        """The cost of the cheapest plan, infinite if there is none."""
        costs = [plan.cost for plan in self.plans]
        return min(costs, default=math.inf)

    def decode(self, problem: Problem[Any, Any]) -> None:
        """Replace the plans of the search by newer ones, if there are any."""
        if self.sequences is None:
            return
        plans = [problem.decode(self.instance, actions) for actions in self.sequences]
        feasible = [plan for plan in plans if is_feasible(plan, self.instance)]
        self.offered = [Candidate(plan, plan.cost(self.instance), "search") for plan in feasible]
        self.sequences = None

    def add_construction(self) -> None:
        """Construct a plan; keep it if it is feasible and costs less than all others."""
        built = first_candidate(self.instance, None)
        if built is None or not is_feasible(built.plan, self.instance):
            return
        if built.cost < self.least_cost:
            self.construction = built

    def keep_if_best(self, plan: Plan, solver: str) -> bool:
        """Check and price a plan of the solver; keep it and return True if it is the best one."""
        plan.check(self.instance)
        cost = plan.cost(self.instance)
        if not costs_less(cost, self.least_cost):
            return False
        self.best = Candidate(plan, cost, solver)
        return True


class ConcurrentSolver:
    """A local search in a thread, at the same time as the search of a task.

    The thread of the search calls `exchange`, `take_reported` and `end`. `work` and the methods
    below it run in the thread of the local search.
    """

    def __init__(self, task: Task, name: str, handed_plans: int) -> None:
        self.task = task
        self.name = name
        self.handed_plans = handed_plans  # that a slice starts from, at most
        self.host_plans = [HostPlans(instance) for instance in task.instances]
        self.thread: Thread | None = None
        self.failure: BaseException | None = None  # of the thread, not of the solver
        self.ending = Event()  # tells the thread to end
        self.ended = Event()  # set when the thread has ended
        self.slice_stopped = Event()  # tells the solver to end its slice
        self.slices = 0  # that have begun
        self.deadline = 0.0
        self.first_slice_seconds = 0.0
        self.slice_seconds = 0.0  # of the round under way
        self.next_offer = 0.0
        self.offered: list[list[list[int]]] | None = None  # that the thread has not read
        self.reported = SimpleQueue[tuple[int, Plan]]()  # better plans, with their instances
        self.finished = SimpleQueue[tuple[int, Plan]]()  # the same at the end of a slice

    # --- in the thread of the search

    def exchange(self) -> None:
        """Enter the plans of ended slices into the account, and offer those of the search.

        Call it only after a step of the search. The first call starts the local search.
        """
        finished = newest_by_instance(self.finished)
        if finished:  # they enter also if the thread has just ended
            rows = range(self.task.count)
            decoded = enter_plans(self.task, [finished.get(row) for row in rows])
            for known, plan in zip(self.host_plans, decoded, strict=True):
                if plan is not None:
                    known.entered.add(plan)
        now = time.monotonic()
        if now < self.next_offer or self.ended.is_set():
            return
        self.offered = kept_sequences(self.task)
        if self.thread is None:
            self.start()
        first_round_seconds = self.first_slice_seconds * self.task.count
        self.next_offer = now + first_round_seconds / TUNING.offers_per_first_round

    def start(self) -> None:
        """Start the thread, which works until the deadline of the search."""
        account = self.task.account
        assert account.deadline is not None, "AfterSearch.check has refused"
        self.deadline = account.deadline
        seconds = account.deadline - account.start_time
        share = TUNING.first_slice_share * seconds / self.task.count
        self.first_slice_seconds = max(TUNING.min_slice_seconds, share)
        self.slice_seconds = self.first_slice_seconds
        self.thread = Thread(target=self.work, name="local search", daemon=True)
        self.thread.start()

    def take_reported(self) -> dict[int, Plan]:
        """Return the best plan of each instance that has a better one since the last call."""
        return newest_by_instance(self.reported)

    def end(self) -> bool:
        """End the thread and wait for its last plans; return whether Ctrl-C came meanwhile.

        What the thread raised is raised here; errors of the solver are kept as `trouble`.
        """
        interrupted = False
        while True:
            try:
                self.ending.set()
                self.slice_stopped.set()
                # After Ctrl-C, `Thread.join` returns too early in Python 3.11. If the thread is not
                # alive, it has ended, or Ctrl-C came while it was being started.
                if self.thread is not None and self.thread.is_alive():
                    self.ended.wait()
                    self.thread.join()
                break
            except KeyboardInterrupt:
                interrupted = True
        if self.failure is not None:
            raise self.failure
        return interrupted

    # --- in the thread of the local search

    def work(self) -> None:
        """Run slices of all instances in turns until the deadline, or until `end` is called."""
        try:
            while not self.is_over:
                began = time.monotonic()
                for place in range(len(self.host_plans)):
                    self.run_slice(place)
                self.slice_seconds = self.next_slice_seconds()
                passed = time.monotonic() - began
                if passed < TUNING.min_slice_seconds:  # there was nothing to improve
                    self.ending.wait(TUNING.min_slice_seconds)
        except BaseException as error:
            self.failure = error
        finally:
            self.ended.set()

    @property
    def is_over(self) -> bool:
        """Whether no other slice is to begin."""
        is_late = time.monotonic() >= self.deadline
        has_failed = all(known.trouble for known in self.host_plans)
        return self.ending.is_set() or is_late or has_failed

    def run_slice(self, place: int) -> None:
        """Improve the best different plans of an instance, unless the solver has failed on it."""
        self.read_offer()
        known = self.host_plans[place]
        if self.is_over or known.trouble:
            return
        known.decode(self.task.problem)
        if known.cost_before is None:
            known.add_construction()
        if not known.plans:
            return  # every plan exceeds a limit of the instance
        least = known.least_cost
        if known.cost_before is None:
            known.cost_before = least
        elif least >= known.exhausted_cost:
            return
        best_before = known.best
        began = time.monotonic()
        seconds = max(0.0, min(self.slice_seconds, self.deadline - began))
        try:
            self.run_solver(place, seconds)
        except Exception as error:  # the search continues without the solver
            known.trouble = str(error) or type(error).__name__
        passed = time.monotonic() - began
        if passed < TUNING.exhausted_share * seconds:
            known.exhausted_cost = known.least_cost
        if known.best is not None and known.best is not best_before:
            self.finished.put((place, known.best.plan))

    def run_solver(self, place: int, seconds: float) -> None:
        """Run the solver for some seconds, and keep and report its plans as they come."""
        known = self.host_plans[place]
        tools = self.task.plan_tools("different plans")
        starts = different_plans(
            self.task.problem, tools, known.instance, known.plans, self.handed_plans
        )
        # The solver sets its event when it ends, so each slice needs a new one.
        self.slice_stopped = Event()
        if self.ending.is_set():
            return
        seed = self.task.seed + self.slices
        self.slices += 1
        solver = improvers.load_stoppable(self.name)
        solver.improve(
            known.instance,
            [start.plan for start in starts],
            seconds,
            seed,
            partial(self.report, place),
            self.slice_stopped,
        )

    def next_slice_seconds(self) -> float:
        """Return the length of the next slice of each instance."""
        left = max(0.0, self.deadline - time.monotonic()) / len(self.host_plans)
        if left <= TUNING.max_last_slice_ratio * self.first_slice_seconds:
            return left
        return max(self.first_slice_seconds, TUNING.later_slice_share * left)

    def report(self, place: int, plan: Plan) -> None:
        """Keep and report a plan if it costs less than all before it."""
        if self.host_plans[place].keep_if_best(plan, self.name):
            self.reported.put((place, plan))

    def read_offer(self) -> None:
        """Give each instance the plans that the search has offered since the last call, if any."""
        offered = self.offered
        if offered is None:
            return
        self.offered = None
        for known, sequences in zip(self.host_plans, offered, strict=True):
            known.sequences = sequences


def newest_by_instance(queue: SimpleQueue[tuple[int, Plan]]) -> dict[int, Plan]:
    """Empty a queue of instances and plans; return the last plan of each instance."""
    newest = dict[int, Plan]()
    while not queue.empty():
        place, plan = queue.get()
        newest[place] = plan
    return newest


def kept_sequences(task: Task) -> list[list[list[int]]]:
    """Return the action sequences of each instance: its incumbent, then its diverse set."""
    incumbents: Sequence[list[int]] = task.incumbents.tolist()
    diverse_set = task.account.diverse_set
    kept = diverse_set.plans() if diverse_set else []
    kept = kept or [[] for _ in incumbents]
    return [[first, *others] for first, others in zip(incumbents, kept, strict=True)]
