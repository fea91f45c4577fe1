"""TOML tables that map one to one onto dataclasses: recipes, suites, settings of a search.
Unknown keys are errors.
"""

import tomllib
from collections import abc
from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from rhumbline.errors import InputError

T = TypeVar("T")


def read_toml(path: str | Path, kind: str, where: str = "") -> dict[str, Any]:
    """The tables of a TOML file of some kind; `where` says where such files are, if it is not
    there.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such {kind}{where}") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: not a readable TOML {kind} ({error})") from error


def parse_value(text: str) -> Any:
    """A value as a user types it, read as TOML: 3, 0.5, true; anything else is a word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to whoever mistyped a name, if one of those known is close to it."""
    close = get_close_matches(name, known, n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def build_dataclass(kind: type[T], tables: Mapping[str, Any], where: str) -> T:
    """A dataclass from a table, each value checked against its field."""
    hints = get_type_hints(kind)
    known = [f.name for f in fields(kind)]  # pyright: ignore[reportArgumentType]
    unknown = sorted(set(tables) - set(known))
    if unknown:
        hint = did_you_mean(unknown[0], known)
        raise InputError(
            f"{where}: unknown key '{unknown[0]}'{hint}; known here: {', '.join(known) or 'none'}"
        )
    return kind(**{n: _value(hints[n], x, f"{where}: {n}") for n, x in tables.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    """A TOML value as the field's type; what may be None in Python has to be left out in TOML."""
    if isinstance(hint, UnionType):
        parts = [part for part in get_args(hint) if part is not NoneType]
        hint = type(value) if type(value) in parts else parts[0]
    if hasattr(hint, "__dataclass_fields__") and isinstance(value, Mapping):
        return build_dataclass(hint, value, where)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise InputError(
                f"{where} is {value!r}; expected one of {', '.join(map(repr, get_args(hint)))}"
            )
        return value
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if parts[1:] == (...,) and isinstance(value, list):
            parts = parts[:1] * len(value)
        if not isinstance(value, list) or len(value) != len(parts):
            many = "" if parts[1:] == (...,) else f" of {len(parts)}"
            raise InputError(f"{where} is {value!r}; expected a list{many}")
        return tuple(_value(part, x, where) for part, x in zip(parts, value, strict=True))
    if get_origin(hint) is abc.Mapping and not isinstance(value, Mapping):
        raise InputError(f"{where} is {value!r}; expected a table")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and (
        not isinstance(value, hint) or (hint is int and isinstance(value, bool))
    ):
        raise InputError(f"{where} is {value!r}; expected a value of type {hint.__name__}")
    return value
