"""What options of several commands have in common."""

from typing import Any

import typer


def flag(name: str, words: str, **more: Any) -> Any:
    """An option without a value; the help would else show `<bool>` behind it, as if it wanted
    one.
    """
    return typer.Option(name, help=words, metavar="", **more)
