"""How a command talks and ends: exit codes, one-line errors, signals and closed pipes.

Standard library only, because `rhumb train` runs without typer and rich.
"""

import io
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from rhumbline.errors import InputError, RhumbError

INTERRUPTED = 130  # exit code
SIGNALS = (signal.SIGINT, signal.SIGTERM)
REPORTED_ERRORS = (RhumbError, KeyboardInterrupt, BrokenPipeError)


def print_note(line: str) -> None:
    """Print one line on stderr; line breaks in the text become spaces."""
    text = " ".join(line.splitlines())
    print(text, file=sys.stderr, flush=True)


def print_result(line: str) -> None:
    """Print one line of results on stdout."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        raise InputError(f"standard output: cannot be written ({error.strerror})") from error


def run_command(body: Callable[[], int | None], prefix: str = "") -> int:
    """Run the body of a command and return its exit code.

    An error that the user can fix becomes one line on stderr, never a traceback.
    """
    try:
        return body() or 0
    except REPORTED_ERRORS as error:
        return report_error(error, prefix)


@contextmanager
def exit_on_error() -> Generator[None, None, None]:
    """Exit with the code of an error that the user can fix, after one line on stderr."""
    try:
        yield
    except REPORTED_ERRORS as error:
        raise SystemExit(report_error(error)) from error


def report_error(error: BaseException, prefix: str = "") -> int:
    """Print one of the `REPORTED_ERRORS` on stderr and return its exit code."""
    if isinstance(error, RhumbError):
        print_note(f"{prefix}error: {error}")
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        print_note(f"{prefix}interrupted")
        return INTERRUPTED
    discard_stdout()  # `rhumb ... | head`: the reader has closed the pipe
    return 141  # as a shell reports a program that SIGPIPE ended


def discard_stdout() -> None:
    """Point stdout at /dev/null, so that the interpreter's last flush succeeds."""
    null = os.open(os.devnull, os.O_WRONLY)
    stdout = sys.stdout.fileno()
    os.dup2(null, stdout)


def install_signal_handlers() -> None:
    """Make SIGTERM act like Ctrl-C, and print characters that cannot be encoded as escapes."""
    for number in SIGNALS:
        signal.signal(number, raise_interrupt)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def raise_interrupt(number: int, frame: FrameType | None) -> None:
    """Handle either signal as Python handles Ctrl-C."""
    raise KeyboardInterrupt


@contextmanager
def defer_signals() -> Generator[None, None, None]:
    """Delay an interruption to the end of a short block; a second one takes effect at once."""
    received: list[int] = []

    def record_signal(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, record_signal) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt
