"""A strategy from its name and from settings as a user types them: `components=3`."""

import tomllib
from collections.abc import Sequence
from typing import Any

from rhumbline.errors import InputError
from rhumbline.search import STRATEGIES
from rhumbline.training.config import build


def named(name: str, settings: Sequence[str]) -> Any:
    """The strategy of a known name with these settings."""
    return build(STRATEGIES[name], table_of(settings), name)


def table_of(settings: Sequence[str]) -> dict[str, Any]:
    """Fields and their values; one that is given twice would leave open which of the two was meant."""
    table = dict[str, Any]()
    for text in settings:
        name, value = setting(text)
        if name in table:
            raise InputError(f"'{name}' is given twice: {table[name]} and {value}")
        table[name] = value
    return table


def setting(text: str) -> tuple[str, Any]:
    """A field and its value, read as TOML: 3, 0.5, true; anything else is a word."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"'{text}' is not FIELD=VALUE, for example components=3")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value
