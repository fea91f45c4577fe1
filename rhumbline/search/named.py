"""A strategy from its name and from settings as a user types them: `components=3`."""

from collections.abc import Sequence
from typing import Any

from rhumbline.errors import InputError
from rhumbline.search import STRATEGIES
from rhumbline.tables import build, meant, value_of


def strategy_class(name: str) -> type[Any]:
    """What a name stands for."""
    if name not in STRATEGIES:
        raise InputError(f"strategy '{name}' is not known{meant(name, STRATEGIES)}; known: {', '.join(STRATEGIES)}")
    return STRATEGIES[name]


def named(name: str, settings: Sequence[str] = ()) -> Any:
    """The strategy of a name with these settings."""
    return build(strategy_class(name), table_of(settings), name)


def table_of(settings: Sequence[str]) -> dict[str, Any]:
    """Fields and their values; one that is given twice would leave open which of the two was meant."""
    table = dict[str, Any]()
    for text in settings:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise InputError(f"'{text}' is not FIELD=VALUE, for example components=3")
        if name in table:
            raise InputError(f"'{name}' is given twice: {table[name]} and {value}")
        table[name] = value_of(value)
    return table
