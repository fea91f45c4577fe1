"""A solver at work in a thread of its own, so that Ctrl-C can be heard meanwhile and costs nothing that was found."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from queue import SimpleQueue
from typing import TypeVar

PAUSE = 0.1  # seconds between two looks at what the solver says

P = TypeVar("P")
R = TypeVar("R")


def ignore(plan: object) -> None:
    """Nobody wants to hear of plans."""


def aside(work: Callable[[Callable[[P], None]], R], stop: Callable[[], None], found: Callable[[P], None] = ignore) -> R:
    """What `work` returns. The newest plan that it tells its argument of is passed to `found`, in this thread.

    After Ctrl-C it is asked to stop until it does; its last plan is passed on, and `KeyboardInterrupt` raised.
    """
    told, untold, interrupted = SimpleQueue[P](), list[P](), False
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
