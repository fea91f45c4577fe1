"""The command `rhumb`. Results go to stdout, everything else to stderr.

`train` and `bench compare` are parsed without typer and rich, because bare GPU nodes do not have
them.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec

from rhumbline.cli.process import (
    exit_on_error,
    flush_stdout,
    guard_streams,
    install_signal_handlers,
    print_note,
)
from rhumbline.cli.signals import end_quickly
from rhumbline.errors import MissingExtra


def main() -> None:
    """Run the command line of this process and exit with its code."""
    guard_streams()
    install_signal_handlers()
    words = sys.argv[1:]
    with end_quickly(words), exit_on_error():
        try:
            command = find_command(words)
            sys.exit(command())
        finally:
            flush_stdout()


def find_command(words: Sequence[str]) -> Callable[[], int | None]:
    """Return what runs a command line; it returns the exit code, or exits with it."""
    if words[:1] == ["train"]:
        from rhumbline.cli.commands import train

        return partial(train.run_train, words[1:])
    if words[:2] == ["bench", "compare"]:
        from rhumbline.cli.commands import compare

        return partial(compare.run_compare, words[2:])
    require_parser()
    from rhumbline.cli.app import app

    return partial(app, prog_name="rhumb")


def require_parser() -> None:
    """Exit unless the packages are there that parse every other command."""
    if find_spec("typer") and find_spec("rich"):
        return
    print_note(
        "error: only `train` and `bench compare` run without typer and rich; "
        "get them with: pip install rhumbline"
    )
    sys.exit(MissingExtra.exit_code)
