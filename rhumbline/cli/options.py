"""Options that several commands share. Importing this loads no torch, so that help is quick."""

from enum import StrEnum
from typing import Annotated, Any

import typer

LARGEST_SEED = 2**63 - 1


def flag(name: str, words: str, **more: Any) -> Any:
    """Create an option without a value.

    The empty metavar keeps the help from showing `<bool>` behind it, as if it took a value.
    """
    return typer.Option(name, help=words, metavar="", **more)


class DeviceChoice(StrEnum):
    """Where to search."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class EngineChoice(StrEnum):
    """What decodes."""

    auto = "auto"
    torch = "torch"
    fused = "fused"


Device = Annotated[DeviceChoice, typer.Option(help="auto is a GPU if there is one.")]
Engine = Annotated[
    EngineChoice, typer.Option(help="fused is the quick one; on a CPU it needs numba.")
]
Threads = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Threads on a CPU. [all cores]")
]
