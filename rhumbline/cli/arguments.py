"""Parsers of `train` and `bench compare` with suggestions for mistyped words.

Standard library only: these commands run without typer and rich, and argparse suggests nothing
before Python 3.14.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from rhumbline.errors import shorten
from rhumbline.registry import Registry, did_you_mean, suggest_known


class SuggestingParser(argparse.ArgumentParser):
    """A parser whose message for a mistyped option names the option that was meant."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Parse all words; exit with 2 at words that mean nothing."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            word, _, _ = unknown[0].partition("=")
            known = self._option_string_actions
            hint = did_you_mean(word, known)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return options

    def add_choice(self, name: str, choices: Sequence[str], words: str | None = None) -> None:
        """Add an option that takes one of some names, by default the first."""
        self.add_argument(
            name,
            type=choice_parser(choices),
            default=choices[0],
            metavar=f"{{{','.join(choices)}}}",
            help=words,
        )


def choice_parser(choices: Sequence[str]) -> Callable[[str], str]:
    """Return a function that refuses all other names, for argparse."""

    def parse_choice(name: str) -> str:
        if name not in choices:
            hint = suggest_known(name, choices)
            message = f"'{shorten(name)}' is not known{hint}"
            raise argparse.ArgumentTypeError(message)
        return name

    return parse_choice


def known_engines() -> tuple[str, ...]:
    """Return what `--engine` takes: our own names, and the engines of installed packages."""
    of_packages = Registry[Any]("engines", {}).outside
    return ("auto", "torch", "fused", *of_packages)
