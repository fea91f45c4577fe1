"""Worker threads of local searches, and interruptible calls of solvers.

Our kernels release Python's global lock while they work, so workers in threads run in parallel.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from threading import Event, Lock
from typing import Any, Generic, TypeVar

import numpy as np

from rhumbline.kernels.threads import worker_threads
from rhumbline.problems import Plan

PlanT = TypeVar("PlanT", bound=Plan)
ReportT = TypeVar("ReportT")
ResultT = TypeVar("ResultT")


def thread_count() -> int:
    """Return the number of workers: the threads of the fused engine (`--threads`)."""
    return worker_threads()


def generator_state(seed: int, number: int = 0) -> np.ndarray:
    """Return the state of a worker's random generator for the kernels: 64 bits, not 0."""
    rng = np.random.default_rng((number, seed))
    largest = 2**63
    return rng.integers(1, largest, 1, dtype=np.uint64)


def run_workers(walks: Sequence[Callable[[], None]], stopped: Event) -> None:
    """Run all walks at once, each in a thread, until every one has ended.

    An error of one walk sets `stopped`, which ends the others, and is raised. So is an error of the
    system that cannot start more threads; walks that have not begun are cancelled.
    """
    futures = list[Future[None]]()
    with ThreadPoolExecutor(len(walks)) as pool:
        try:
            futures.extend(pool.submit(walk) for walk in walks)
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stopped.set()
            raise


class CheapestPlan(Generic[PlanT]):
    """The cheapest plan of several workers; each cheaper one is reported once."""

    def __init__(self, instance: Any, report: Callable[[PlanT], None]) -> None:
        self.instance = instance
        self.report = report
        self.cost = float("inf")
        self.lock = Lock()
        self.plan: PlanT | None = None

    def __call__(self, plan: PlanT) -> None:
        """Report a plan if it costs less than all before it."""
        cost = plan.cost(self.instance)
        with self.lock:
            if cost < self.cost:
                self.cost = cost
                self.plan = plan
                self.report(plan)


def ignore_plan(plan: object) -> None:
    """Do nothing: the caller needs the result only."""


def run_interruptible(
    work: Callable[[Callable[[ReportT], None]], ResultT],
    stop: Callable[[], None],
    on_plan: Callable[[ReportT], None] = ignore_plan,
) -> ResultT:
    """Run `work` in a thread and return its result; Ctrl-C interrupts it without losing a plan.

    `work` gets a function to report plans with. The newest reported plan is passed to `on_plan`, in
    this thread. After Ctrl-C, `stop` is called until the work ends. Its last plan is passed on, and
    then `KeyboardInterrupt` is raised. A second Ctrl-C raises at once.
    """
    seconds_between_looks = 0.1  # at the reported plans
    reported = SimpleQueue[ReportT]()
    pending = list[ReportT]()  # the newest plan, until it has been passed on
    interrupted = False
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work, reported.put)
        try:
            over = False
            while not over or pending:
                try:
                    if interrupted:
                        stop()
                    wait([future], seconds_between_looks)
                    over = future.done()
                    while not reported.empty():
                        pending[:] = [reported.get()]
                    for plan in pending:
                        on_plan(plan)
                    pending.clear()  # only now: Ctrl-C may have come while it was passed on
                except KeyboardInterrupt:
                    if interrupted:
                        raise
                    interrupted = True
        finally:
            stop()
    if interrupted:
        raise KeyboardInterrupt
    return future.result()
