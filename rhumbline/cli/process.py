"""How a command talks and ends: exit codes, one-line errors, signals, closed or full streams.

Standard library only, because `rhumb train` runs without typer and rich.
"""

import io
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from enum import IntEnum
from types import FrameType
from typing import NoReturn, TextIO

from rhumbline.errors import OutputFailed, RhumbError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
REPORTED_ERRORS = (RhumbError, KeyboardInterrupt, BrokenPipeError)


class ExitCode(IntEnum):
    """The exit codes besides those of errors, which `rhumbline.errors` has."""

    INTERRUPTED = 130
    READER_LEFT = 141  # a closed pipe, as a shell reports a program that SIGPIPE ended


def print_note(line: str) -> None:
    """Print one line on stderr; line breaks in the text become spaces.

    A stderr that is closed or full is no error: results matter more than what is said about them.
    """
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        return
    text = " ".join(line.splitlines())
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def print_result(line: str) -> None:
    """Print one line of results on stdout; raise `OutputFailed` if it is closed or full."""
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise OutputFailed("standard output: cannot be written (it is closed)")
    try:
        print(line, flush=True)
    except OSError as error:
        refuse_stdout(error)


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
        return ExitCode.INTERRUPTED
    discard_stdout()  # `rhumb ... | head`: the reader has closed the pipe
    return ExitCode.READER_LEFT


# --- standard streams


def refuse_stdout(error: OSError) -> NoReturn:
    """Raise the error of a failed write to stdout; a closed pipe keeps its own."""
    if isinstance(error, BrokenPipeError):
        raise error
    discard_stdout()
    raise OutputFailed(f"standard output: cannot be written ({error.strerror})") from error


def discard_stdout() -> None:
    """Point stdout at /dev/null, so that the interpreter's last flush succeeds."""
    null = os.open(os.devnull, os.O_WRONLY)
    stdout = sys.stdout.fileno()
    os.dup2(null, stdout)
    os.close(null)


class GuardedStream(io.TextIOWrapper):
    """A standard stream that handles its own failures.

    Not only our own functions write to it: parsers, progress bars and warnings do too.
    """

    handle_failure: Callable[[OSError], object]

    def write(self, text: str, /) -> int:
        """Write a text, or handle the failure."""
        try:
            return super().write(text)
        except OSError as error:
            self.handle_failure(error)
            return len(text)

    def flush(self) -> None:
        """Write what is in the buffer, or handle the failure."""
        try:
            super().flush()
        except OSError as error:
            self.handle_failure(error)


def guard_streams() -> None:
    """Make stderr ignore its failures and stdout raise `OutputFailed`; escape odd characters.

    A descriptor that the caller has closed is opened on /dev/null: the next file opened would
    otherwise get its number, and with it what is meant for stderr.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = guard_stream(sys.stderr, lambda error: None)
    sys.stdout = guard_stream(sys.stdout, refuse_stdout)


def guard_stream(stream: TextIO, handle_failure: Callable[[OSError], object]) -> TextIO:
    """Return a stream on the same file with a handler; other kinds of streams stay."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    encoding = stream.encoding
    is_line_buffered = stream.line_buffering
    guarded = GuardedStream(
        stream.detach(), encoding, errors="backslashreplace", line_buffering=is_line_buffered
    )
    guarded.handle_failure = handle_failure
    return guarded


def flush_stdout() -> None:
    """Write what others have left in the buffer of stdout while a failure can still be reported."""
    if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdout.flush()


# --- signals


def install_signal_handlers() -> None:
    """Make SIGTERM act like Ctrl-C."""
    for number in SIGNALS:
        signal.signal(number, raise_interrupt)


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
