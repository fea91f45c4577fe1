"""The command `rhumb`. Results go to stdout, everything else to stderr.

`train` and `bench compare` are parsed without typer and rich, because bare GPU nodes do not have
them.
"""

import sys
from collections.abc import Sequence
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
            run_words(words)
        finally:
            flush_stdout()


def run_words(words: Sequence[str]) -> None:
    """Run a command line and exit with its code."""
    if words[:1] == ["train"]:
        from rhumbline.cli.commands import train

        sys.exit(train.run_train(words[1:]))
    if words[:2] == ["bench", "compare"]:
        from rhumbline.cli.commands import compare

        sys.exit(compare.run_compare(words[2:]))
    require_parser()
    from rhumbline.cli.app import app

    app(prog_name="rhumb")


def require_parser() -> None:
    """Exit unless the packages are there that parse every other command."""
    if find_spec("typer") and find_spec("rich"):
        return
    print_note(
        "error: only `train` and `bench compare` run without typer and rich; "
        "get them with: pip install rhumbline"
    )
    sys.exit(MissingExtra.exit_code)
