"""Long calls into compilers, in a thread: the main thread notices Ctrl-C meanwhile."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread, current_thread, main_thread
from typing import TypeVar

T = TypeVar("T")
_threads: list[Thread] = []


def run_in_background(work: Callable[[], T]) -> T:
    """Return the result of `work`, which runs in a thread of its own.

    Python handles signals between its own steps, and a compiler may take seconds for one of them.
    After `KeyboardInterrupt` the thread is left behind; it ends with the process at the latest.
    """
    if current_thread() is not main_thread():
        return work()
    future = Future[T]()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    _threads.append(thread)
    result = future.result()
    _threads.remove(thread)
    return result


def is_busy() -> bool:
    """Return whether a thread is at work that was left behind."""
    return any(thread.is_alive() for thread in _threads)
