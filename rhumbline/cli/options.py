"""Options that several commands share. Importing this loads no torch, so that help is quick."""

from enum import StrEnum
from functools import partial
from typing import Annotated, Any, TypeVar

import typer

from rhumbline.cli.arguments import known_engines
from rhumbline.errors import shorten
from rhumbline.registry import suggest_known

Choice = TypeVar("Choice", bound=StrEnum)

LARGEST_SEED = 2**63 - 1


def flag(name: str, words: str, **more: Any) -> Any:
    """Create an option without a value.

    The empty metavar keeps the help from showing `<bool>` behind it, as if it took a value.
    """
    return typer.Option(name, help=words, metavar="", **more)


def one_of(choices: type[StrEnum], words: str, *names: str) -> Any:
    """Create an option that takes one of some names; a mistyped one is refused with a suggestion.

    Typer's own message for an enumeration suggests nothing.
    """
    names_of_choices = "|".join(choices)
    metavar = f"<{names_of_choices}>"
    parser = partial(parse_choice, choices)
    return typer.Option(*names, help=words, metavar=metavar, parser=parser)


def parse_choice(choices: type[Choice], name: str) -> Choice:
    """Return the choice of a name that a user typed."""
    if name not in list(choices):
        hint = suggest_known(name, choices)
        raise typer.BadParameter(f"'{shorten(name)}' is not known{hint}")
    return choices(name)


class DeviceChoice(StrEnum):
    """Where to search."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


def parse_engine(name: str) -> str:
    """Return the name of an engine that a user typed."""
    known = known_engines()
    if name not in known:
        hint = suggest_known(name, known)
        raise typer.BadParameter(f"'{shorten(name)}' is not known{hint}")
    return name


Device = Annotated[DeviceChoice, one_of(DeviceChoice, "auto is a GPU if there is one.")]
Engine = Annotated[
    str,
    typer.Option(
        help="fused is the quick one; on a CPU it needs numba. Packages add others.",
        metavar="<auto|torch|fused>",
        parser=parse_engine,
    ),
]
Threads = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Threads on a CPU. [all cores]")
]
