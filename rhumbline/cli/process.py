"""How a command ends: exit codes, one-line errors, signals and closed pipes. Standard library
only.
"""

import io
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from rhumbline.errors import InputError, RhumbError

INTERRUPTED = 130
CLOSED_PIPE = 141  # as a shell reports a program that SIGPIPE ended
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def print_note(line: str) -> None:
    """One line on stderr, whatever breaks the text has."""
    print(" ".join(line.splitlines()), file=sys.stderr, flush=True)


def print_result(line: str) -> None:
    """One line of results on stdout."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        raise InputError(f"standard output: cannot be written ({error.strerror})") from error


def run_command(body: Callable[[], int | None], prefix: str = "") -> int:
    """The exit code of a command's body; what a user can put right becomes one line, never a
    traceback.
    """
    try:
        return body() or 0
    except RhumbError as error:
        print_note(f"{prefix}error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        print_note(f"{prefix}interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # `rhumb ... | head`: the reader has seen enough
        discard_stdout()
        return CLOSED_PIPE


def discard_stdout() -> None:
    """Let the interpreter's last flush of stdout succeed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def install_signal_handlers() -> None:
    """Make SIGTERM the same as Ctrl-C, and let names that cannot be encoded be printed escaped."""
    for number in SIGNALS:
        signal.signal(number, raise_interrupt)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def raise_interrupt(number: int, frame: FrameType | None) -> None:
    """The handler of both signals."""
    raise KeyboardInterrupt


@contextmanager
def defer_signals() -> Generator[None, None, None]:
    """Put off an interruption to the end of a short piece of work; a second one comes through at
    once.
    """
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        if len(noted) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if noted:
        raise KeyboardInterrupt
