"""Dataclasses from TOML tables: recipes, suites, settings of a search. Unknown keys are errors."""

import re
import tomllib
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from rhumbline.errors import (
    InputError,
    explain_parse_error,
    note_once,
    shorten,
    shorten_path,
    shorten_repr,
)
from rhumbline.formats.safe_io import read_any_bytes, suggest_file
from rhumbline.registry import did_you_mean

RecordT = TypeVar("RecordT")


@dataclass(frozen=True)
class TomlTuning:
    """Limits of TOML files."""

    max_bytes: int = 4 * 2**20
    # a.b."c d": Python takes quadratic time for such keys, 100 seconds for 60 kB of one.
    long_key: re.Pattern[str] = re.compile(
        r"""(?<![\w-])(?:(?:"[^"\n]*+"|'[^'\n]*+'|[\w-]++)[ \t]*+\.[ \t]*+){100}"""
    )


TUNING = TomlTuning()

# What `tomllib` raises: ValueError also for a number of more than 4,300 digits.
BAD_TOML = (ValueError, RecursionError)


def read_toml(path: str | Path, kind: str, where: str = "") -> dict[str, Any]:
    """Read the tables of a TOML file.

    `kind` names the file in messages, as in "recipe". `where` is appended to the message for a
    missing file and says where such files are.
    """
    path = Path(path)
    place = shorten_path(path)
    try:
        if not path.exists():
            raise InputError(f"{place}: no such {kind}{suggest_file(path)}{where}")
        text = read_any_bytes(path, TUNING.max_bytes).decode("utf-8")
        return parse_toml(text.replace("\r\n", "\n"))
    except (OSError, UnicodeDecodeError, *BAD_TOML) as error:
        reason = explain_parse_error(error)
        raise InputError(f"{place}: not a readable TOML {kind} ({reason})") from error


def parse_value(text: str) -> Any:
    """Parse a value as a user types it, as TOML: 3, 0.5, true. Anything else is a string."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except BAD_TOML:
        return text


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a text; may raise `BAD_TOML`."""
    if TUNING.long_key.search(text):
        raise ValueError("a key has more than 100 parts")
    return tomllib.loads(text)


_FORMER_NAMES: dict[type[Any], Mapping[str, str]] = {}


def former_names(**present: str) -> Callable[[type[RecordT]], type[RecordT]]:
    """Let a dataclass accept fields under names that they had before, as in `former="present"`.

    The old names work in Python and in tables, and a note on stderr says the new one.
    """

    def decorate(kind: type[RecordT]) -> type[RecordT]:
        _FORMER_NAMES[kind] = present
        original = kind.__init__

        @wraps(original)
        def accept_both(self: RecordT, *values: Any, **named: Any) -> None:
            present_fields = present_names(kind, named)
            original(self, *values, **present_fields)

        kind.__init__ = accept_both
        return kind

    return decorate


def present_names(kind: type[Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of fields under their present names; refuse a field that is there twice."""
    present: Mapping[str, str] = {}
    for parent in kind.__mro__:
        present = {**_FORMER_NAMES.get(parent, {}), **present}
    renamed: dict[str, Any] = {}
    for name, value in table.items():
        new = present.get(name, name)
        if new != name:
            note_once(f"the setting '{name}' is now called '{new}'")
        if new in renamed:
            before = shorten(renamed[new])
            raise InputError(f"'{new}' is given twice: {before} and {shorten(value)}")
        renamed[new] = value
    return renamed


def build_dataclass(kind: type[RecordT], tables: Mapping[str, Any], where: str) -> RecordT:
    """Build a dataclass from a table, with each value checked against the type of its field."""
    tables = present_names(kind, tables)
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind)]  # pyright: ignore[reportArgumentType]
    unknown = sorted(set(tables) - set(known))
    if unknown:
        hint = did_you_mean(unknown[0], known)
        choices = ", ".join(known) or "none"
        raise InputError(
            f"{where}: unknown key '{shorten(unknown[0])}'{hint}; known here: {choices}"
        )
    values: dict[str, Any] = {}
    for name, value in tables.items():
        place = f"{where}: {name}"
        values[name] = _convert_value(hints[name], value, place)
    return kind(**values)


def _convert_value(hint: Any, value: Any, where: str) -> Any:
    """Convert a TOML value to the type of its field.

    TOML has no null: fields that may be None in Python are left out in TOML.
    """
    if isinstance(hint, UnionType):
        hint = _member_for(hint, value)
    if hasattr(hint, "__dataclass_fields__") and isinstance(value, Mapping):
        return build_dataclass(hint, value, where)
    origin = get_origin(hint)
    if origin is Literal:
        choices = get_args(hint)
        if value not in choices:
            guess = did_you_mean(value, map(str, choices)) if isinstance(value, str) else ""
            expected = ", ".join(map(repr, choices))
            raise InputError(f"{where} is {shorten_repr(value)}{guess}; expected one of {expected}")
        return value
    if origin is tuple:
        return _convert_list(get_args(hint), value, where)
    if origin is abc.Mapping and not isinstance(value, Mapping):
        raise InputError(f"{where} is {shorten_repr(value)}; expected a table")
    is_bool = isinstance(value, bool)
    if hint is float and isinstance(value, int) and not is_bool:
        return _convert_float(value, where)
    if isinstance(hint, type) and (not isinstance(value, hint) or (hint is int and is_bool)):
        raise InputError(
            f"{where} is {shorten_repr(value)}; expected a value of type {hint.__name__}"
        )
    return value


def _convert_float(value: int, where: str) -> float:
    """Convert a whole number, which in TOML may be larger than any float."""
    try:
        return float(value)
    except OverflowError as error:
        raise InputError(f"{where} is {shorten(value)}; expected a smaller number") from error


def _member_for(union: UnionType, value: Any) -> Any:
    """Return the member of a union that has the type of a value, or else its first member."""
    members = [member for member in get_args(union) if member is not NoneType]
    kind = type(value)
    return kind if kind in members else members[0]


def _convert_list(parts: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    """Convert a TOML list to a tuple, of fixed length or of any length (`tuple[int, ...]`)."""
    any_length = parts[1:] == (...,)
    length = "" if any_length else f" of {len(parts)}"
    is_list = isinstance(value, list)
    if any_length and is_list:
        parts = parts[:1] * len(value)
    if not is_list or len(value) != len(parts):
        raise InputError(f"{where} is {shorten_repr(value)}; expected a list{length}")
    items: list[Any] = []
    for part, item in zip(parts, value, strict=True):
        converted = _convert_value(part, item, where)
        items.append(converted)
    return tuple(items)
