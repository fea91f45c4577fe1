"""Calls into libraries, in a thread: the main thread notices Ctrl-C meanwhile."""

import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread, current_thread, main_thread
from typing import TypeVar

T = TypeVar("T")


@dataclass
class CompilationTime:
    """How long this process has waited for compilers, which no time limit includes."""

    min_seconds: float = 1.0  # of a compilation; loading a stored kernel takes less
    seconds: float = 0.0

    @contextmanager
    def measure(self) -> Generator[None]:
        """Add the time of the block, if it is long enough to be a compilation."""
        start_time = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - start_time
            if seconds >= self.min_seconds:
                self.seconds += seconds


COMPILATION_TIME = CompilationTime()


def run_in_background(work: Callable[[], T]) -> T:
    """Return the result of `work`, a call into a compiler, as `run_in_thread` does.

    Its time counts as compilation.
    """
    with COMPILATION_TIME.measure():
        return run_in_thread(work)


def run_in_thread(work: Callable[[], T]) -> T:
    """Return the result of `work`, which runs in a thread of its own.

    The main thread waits where Ctrl-C reaches it, outside libraries that would replace its
    exception. After `KeyboardInterrupt` the thread is left behind; it ends with the process at the
    latest.
    """
    if current_thread() is not main_thread():
        return work()
    future = Future[T]()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future.result()
