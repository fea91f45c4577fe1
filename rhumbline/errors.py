"""Every error a user can cause, each with the exit code the command line gives it.

RhumbError
├── InputError        a file, an array or an option cannot be used                      exit 3
│   ├── PlanError         a given plan breaks the rules, or its stated cost is wrong    exit 3
│   └── CheckpointError   a checkpoint is missing, damaged or made for another problem  exit 3
├── MissingExtra      an optional dependency is not installed                           exit 4
└── Infeasible        a plan failed verification, or none was found                     exit 5
    └── LimitExceeded     a plan is sound, but exceeds a limit such as the fleet         exit 5
"""

import sys
from functools import cache


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


class PlanError(InputError):
    """A plan that was given is readable, but not feasible, or not of the cost that it states."""


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


@cache
def note_once(line: str) -> None:
    """Print a note on stderr, once in the life of the process."""
    print(f"note: {line}", file=sys.stderr, flush=True)
