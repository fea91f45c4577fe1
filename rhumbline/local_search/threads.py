"""Walkers of one search side by side, each in a thread of its own: our kernels let go of
Python's lock at work.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from threading import Event, Lock
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from rhumbline.problems import Plan

P = TypeVar("P", bound=Plan)


def thread_count() -> int:
    """How many walk: as many as the fused engine has threads (`--threads`)."""
    return torch.get_num_threads()


def generator_state(seed: int, number: int = 0) -> np.ndarray:
    """A walker's own state of a generator, as kernels have it: 64 bits, not 0."""
    return np.random.default_rng((number, seed)).integers(1, 2**63, 1, dtype=np.uint64)


def run_walkers(walks: Sequence[Callable[[], None]], stopped: Event) -> None:
    """All of them at once, until each has ended. The error of one stops the others, and is
    raised.
    """
    futures = list[Future[None]]()
    with ThreadPoolExecutor(len(walks)) as pool:
        try:
            futures.extend(pool.submit(walk) for walk in walks)
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        except (
            BaseException
        ):  # also where the system starts no more threads: nobody shall begin after the others
            pool.shutdown(wait=False, cancel_futures=True)
            stopped.set()
            raise


class CheapestPlan(Generic[P]):
    """Tells of each plan that costs less than all before, whoever has found it."""

    def __init__(self, instance: Any, tell: Callable[[P], None]) -> None:
        self.instance, self.tell, self.least, self.lock = instance, tell, float("inf"), Lock()
        self.plan: P | None = None

    def __call__(self, plan: P) -> None:
        """Tell of it, unless another one was as cheap."""
        cost = plan.cost(self.instance)
        with self.lock:
            if cost < self.least:
                self.least = cost
                self.plan = plan
                self.tell(plan)


PAUSE = 0.1  # seconds between two looks at what the solver says

T = TypeVar("T")
R = TypeVar("R")


def ignore_plan(plan: object) -> None:
    """Nobody wants to hear of plans."""


def run_interruptible(
    work: Callable[[Callable[[T], None]], R],
    stop: Callable[[], None],
    found: Callable[[T], None] = ignore_plan,
) -> R:
    """What `work` returns. The newest plan that it tells its argument of is passed to `found`, in
    this thread.

    After Ctrl-C it is asked to stop until it does; its last plan is passed on, and
    `KeyboardInterrupt` raised.
    """
    told = SimpleQueue[T]()
    untold = list[T]()
    interrupted = False
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work, told.put)
        try:
            over = False
            while not over or untold:
                try:
                    if interrupted:
                        stop()
                    wait([future], PAUSE)
                    over = future.done()
                    while not told.empty():
                        untold[:] = [told.get()]
                    for plan in untold:
                        found(plan)
                    untold.clear()  # only now: Ctrl-C may have come while it was passed on
                except KeyboardInterrupt:
                    if interrupted:
                        raise
                    interrupted = True
        finally:
            stop()
    if interrupted:
        raise KeyboardInterrupt
    return future.result()
