"""Every error a user can cause, each with the exit code the command line gives it.

RhumbError
├── InputError        a file, an array or an option cannot be used                      exit 3
│   ├── PlanError         a given plan breaks the rules, or its stated cost is wrong    exit 3
│   └── CheckpointError   a checkpoint is missing, damaged or made for another problem  exit 3
├── MissingExtra      an optional dependency is not installed                           exit 4
├── Infeasible        a plan failed verification, or none was found                     exit 5
│   └── LimitExceeded     a plan is sound, but exceeds a limit such as the fleet         exit 5
└── OutputFailed      results were found, but one of their outputs could not be written exit 6
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from reprlib import Repr
from typing import Any


@dataclass(frozen=True)
class EchoLimits:
    """How much of what a user gave is repeated in a message."""

    max_characters: int = 60
    max_path_characters: int = 300
    max_name_characters: int = 200  # of an instance; longer ones are refused, not shortened
    max_message_characters: int = 2_000  # of a whole message, should a part not be shortened
    max_integer_bits: int = 10_000  # Python refuses to write more than 4,300 digits
    # Of lists and tables; deeper or longer ones have dots in their place.
    max_depth: int = 3
    max_entries: int = 8
    ellipsis: str = "..."  # in the place of what is left out


LIMITS = EchoLimits()


def shorten(value: object, limit: int = LIMITS.max_characters) -> str:
    """Return a value for a message: at most about 60 characters, control characters escaped.

    Texts stand without quotes, see `quote`. Lists and tables are never written out in full first:
    they may hold millions of entries, or be nested too deep for `repr`.
    """
    text = value if isinstance(value, str) else describe_value(value)
    short = cut_end(text, limit)
    return escape_controls(short)


def quote(text: str) -> str:
    """Return the beginning of a text in quotes."""
    short = cut_end(text, LIMITS.max_characters)
    return repr(short)


def shorten_repr(value: object) -> str:
    """Return a value as Python writes it, texts in quotes, and as short as `shorten` makes it."""
    if isinstance(value, str):
        return quote(value)
    return shorten(value)


def describe_value(value: object) -> str:
    """Return a value as Python writes it, with dots in the place of its bulk."""
    if isinstance(value, int) and value.bit_length() > LIMITS.max_integer_bits:
        digits = int(value.bit_length() * 0.30103) + 1
        return f"a number of about {digits:,} digits"
    writer = Repr()
    writer.maxlevel = LIMITS.max_depth
    writer.maxlist = LIMITS.max_entries
    writer.maxtuple = LIMITS.max_entries
    writer.maxdict = LIMITS.max_entries
    writer.maxstring = LIMITS.max_characters
    writer.maxother = LIMITS.max_characters
    try:
        return writer.repr(value)
    except ValueError:  # a number that is too long to be written, inside a list
        return f"a {type(value).__name__} with numbers of thousands of digits"


def escape_controls(text: str) -> str:
    """Return a text in which characters that steer a terminal are written as escapes."""
    if text.isprintable():
        return text
    letters: list[str] = []
    for letter in text:
        escaped = ascii(letter)[1:-1]
        letters.append(letter if letter.isprintable() else escaped)
    return "".join(letters)


def shorten_path(path: object) -> str:
    """Return a path, without its middle if it is longer than systems allow in practice."""
    text = str(path)
    return cut_middle(text, LIMITS.max_path_characters)


def cut_end(text: str, limit: int) -> str:
    """Return a text without its end if it is longer than a limit."""
    if len(text) <= limit:
        return text
    kept = limit - len(LIMITS.ellipsis)
    return text[:kept] + LIMITS.ellipsis


def cut_middle(text: str, limit: int) -> str:
    """Return a text without its middle if it is longer than a limit."""
    if len(text) <= limit:
        return text
    half = (limit - len(LIMITS.ellipsis)) // 2
    return text[:half] + LIMITS.ellipsis + text[-half:]


def explain_parse_error(error: Exception) -> str:
    """Return what is wrong with a text that is no JSON or TOML, without Python's own advice."""
    if isinstance(error, RecursionError):
        return "its brackets are nested too deep"
    if "integer string conversion" in str(error):
        return "a number has more than 4,300 digits"
    return shorten(str(error), limit=200)


class RhumbError(Exception):
    """An error the user can fix; the message says what is wrong and where.

    Control characters of a message are escaped here, because files and names may bring them from
    anywhere. Values that a message repeats are shortened where it is written (`shorten`, `quote`);
    a message that is endless all the same loses its middle.
    """

    exit_code = 1

    def __init__(self, message: object = "") -> None:
        lines = str(message).splitlines()
        one_line = " ".join(lines)
        readable = escape_controls(one_line)
        shortened = cut_middle(readable, LIMITS.max_message_characters)
        super().__init__(shortened)


class InputError(RhumbError):
    """The input cannot be used."""

    exit_code = 3

    @classmethod
    def at(cls, path: object, line: int | None, message: str) -> "InputError":
        """Create an error that points at a line of a file, as compilers do."""
        place = shorten_path(path)
        where = f"{place}:{line}" if line else place
        return cls(f"{where}: {message}")


class PlanError(InputError):
    """A plan that was given is readable, but not feasible, or not of the cost that it states."""


class CheckpointError(InputError):
    """A checkpoint cannot be loaded, or it does not fit the instances."""


class MissingExtra(RhumbError):
    """An optional dependency is not installed; the message names the extra."""

    exit_code = 4


class Infeasible(RhumbError):
    """A plan violates the constraints of its problem.

    `solutions` are what `solve` had found, if it raises this because some exceed a limit.
    """

    exit_code = 5

    def __init__(self, message: str = "", solutions: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.solutions = list(solutions)


class LimitExceeded(Infeasible):
    """A plan is feasible, but exceeds a limit that the user set, such as the number of vehicles.

    `excess` says briefly by how much: "needs 5 vehicles, limit 4".
    """

    def __init__(self, message: str, excess: str = "") -> None:
        super().__init__(message)
        self.excess = excess or message


class OutputFailed(RhumbError):
    """A result could not be written to one of its outputs; the other outputs have it."""

    exit_code = 6


@cache
def note_once(line: str) -> None:
    """Print a note on stderr, once in the life of the process.

    A note is worth less than a result, so a stderr that is closed or full is no error.
    """
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        return
    with suppress(OSError, ValueError):
        print(f"note: {escape_controls(line)}", file=sys.stderr, flush=True)
