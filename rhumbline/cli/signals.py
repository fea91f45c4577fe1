"""Signals during a solve: whenever one comes, plans are printed, and the process ends soon."""

import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType, TracebackType
from typing import Any

from rhumbline.cli.process import SIGNALS, ExitCode, flush_stdout, raise_interrupt
from rhumbline.kernels.numba.rollout import precompile

Handler = Callable[[int, FrameType | None], Any]


class SignalGate:
    """Decides whether a signal raises at once, or is kept until it can be answered with plans.

    The gate is open at first, while files are read: there is nothing to lose. `close` keeps
    signals. `raise_at_once` lets them raise where the solve loop is called, which catches them; the
    loop asks `raise_if_received` for one that came before. A second signal always raises.
    """

    def __init__(self) -> None:
        self.received = list[int]()
        self.before = dict[int, Any]()

    def __enter__(self) -> "SignalGate":
        for number in SIGNALS:
            self.before[number] = signal.getsignal(number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def close(self) -> None:
        """Keep signals from now on."""
        set_handlers(self.keep)

    @contextmanager
    def raise_at_once(self) -> Generator[None, None, None]:
        """Let signals raise during a block."""
        set_handlers(raise_interrupt)
        try:
            yield
        finally:
            set_handlers(self.keep)

    def keep(self, number: int, frame: FrameType | None) -> None:
        """Record a signal instead of raising; a second one raises."""
        self.received.append(number)
        if len(self.received) > 1:
            raise KeyboardInterrupt

    def raise_if_received(self) -> None:
        """Raise if a signal has been recorded."""
        if self.received:
            self.received.clear()
            raise KeyboardInterrupt


def set_handlers(handler: Handler) -> None:
    """Make both signals call a function."""
    for number in SIGNALS:
        signal.signal(number, handler)


@contextmanager
def leave_at_once(*codes: int) -> Generator[None, None, None]:
    """End the process as soon as its results are printed, if its exit code is one of these.

    An orderly end of Python takes half a second with torch, and waits for a compiler in another
    thread, or pulls its memory from under it. Threads of torch's gloo that still drop tensors of
    the last exchange then end in SIGABRT (seen with torch 2.13 on busy cores), which torchrun
    takes for a failure of a run that is complete.
    """
    try:
        yield
    except SystemExit as end:
        code = end.code or 0
        if isinstance(code, int) and code in codes:
            flush_stdout()
            sys.stderr.flush()
            precompile.stop_compiling()
            os._exit(code)
        raise


def end_quickly(words: Sequence[str]) -> AbstractContextManager[None]:
    """Return a context in which an orderly end of Python is left out where it does harm."""
    command = words[:1]
    if command == ["solve"]:
        return leave_at_once(ExitCode.INTERRUPTED)
    has_several_processes = os.environ.get("WORLD_SIZE", "1") != "1"
    if command == ["train"] and has_several_processes:
        return leave_at_once(0, ExitCode.INTERRUPTED)
    return nullcontext()
