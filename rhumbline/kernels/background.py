"""Long calls into compilers, in a thread: the main thread notices Ctrl-C meanwhile."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread, current_thread, main_thread
from typing import TypeVar

T = TypeVar("T")


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

    Thread(target=run, daemon=True).start()
    return future.result()
