"""Every error a user can cause, each with the exit code the command line gives it.

RhumbError
├── InputError        a file, an array or an option cannot be used                      exit 3
│   └── CheckpointError   a checkpoint is missing, damaged or made for another problem  exit 3
├── MissingExtra      an optional dependency is not installed                           exit 4
└── Infeasible        a plan failed verification, or none was found                     exit 5
    ├── LimitExceeded     a plan is sound, but exceeds a limit such as the fleet         exit 5
    └── MissedLimit       the same at the end of a solve, with all solutions             exit 5
"""

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any


class RhumbError(Exception):
    """An error the user can fix; the message says what is wrong and where."""

    exit_code = 1


class InputError(RhumbError):
    """The input cannot be used."""

    exit_code = 3

    @classmethod
    def at(cls, path: object, line: int | None, message: str) -> "InputError":
        """Create an error that points at a line of a file, as compilers do."""
        where = f"{path}:{line}" if line else f"{path}"
        return cls(f"{where}: {message}")


class CheckpointError(InputError):
    """A checkpoint cannot be loaded, or it does not fit the instances."""


class MissingExtra(RhumbError):
    """An optional dependency is not installed; the message names the extra."""

    exit_code = 4


class Infeasible(RhumbError):
    """A plan violates the constraints of its problem."""

    exit_code = 5


class LimitExceeded(Infeasible):
    """A plan is feasible, but exceeds a limit that the user set, such as the number of vehicles."""


class MissedLimit(Infeasible):
    """Some of the plans that a solve has found exceed a limit; `solutions` are all of them."""

    def __init__(self, message: str, solutions: Sequence[Any]) -> None:
        super().__init__(message)
        self.solutions = list(solutions)


@cache
def note_once(line: str) -> None:
    """Print a note on stderr, once in the life of the process."""
    print(f"note: {line}", file=sys.stderr, flush=True)
