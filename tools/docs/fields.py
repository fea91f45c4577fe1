"""Fields of dataclasses with their comments, which are read from the source."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from typing import Any

from tools.docs.markdown import as_code, make_table, mark_options


@dataclass(frozen=True)
class Setting:
    """A field of a dataclass for users."""

    name: str
    type: str
    default: str
    comment: str

    def row(self) -> tuple[str, str, str, str]:
        """Return the cells of the setting in a table."""
        return (
            as_code(self.name),
            as_code(self.type),
            as_code(self.default),
            mark_options(self.comment),
        )


def read_settings(record: type[Any]) -> list[Setting]:
    """Return the fields of a dataclass, also those that it inherits, with their comments."""
    texts: dict[str, tuple[str, str]] = {}
    for kind in reversed(record.__mro__):
        if is_dataclass(kind):
            texts |= field_texts(kind)
    settings: list[Setting] = []
    for field in fields(record):
        annotation, comment = texts[field.name]
        settings.append(Setting(field.name, annotation, default_text(field), comment))
    return settings


def default_text(field: "Field[Any]") -> str:
    """Return the default of a field as Python writes it; "" if it has none that is a value."""
    if field.default is MISSING:
        return ""
    return str(field.default) if not isinstance(field.default, str) else repr(field.default)


def field_texts(record: type[Any]) -> dict[str, tuple[str, str]]:
    """Return the annotation and the comment of each field that a class defines itself.

    A comment stands behind the field or in the lines above it.
    """
    source = textwrap.dedent(inspect.getsource(record))
    rows = source.splitlines()
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, tuple[str, str]] = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            annotation = ast.unparse(node.annotation)
            assert node.end_lineno is not None
            comment = [
                *comment_above(rows, node.lineno),
                *comment_behind(rows[node.end_lineno - 1]),
            ]
            texts[node.target.id] = (annotation, " ".join(comment))
    return texts


def comment_above(rows: Sequence[str], line: int) -> list[str]:
    """Return the lines of comment directly above a line, which is counted from 1."""
    found: list[str] = []
    for row in reversed(rows[: line - 1]):
        if not row.strip().startswith("#"):
            break
        found.insert(0, row.strip().removeprefix("#").strip())
    return found


def comment_behind(row: str) -> Iterator[str]:
    """Yield the comment at the end of a line, if there is one."""
    _, mark, comment = row.partition("  # ")
    if mark:
        yield comment.strip()


def settings_table(record: type[Any], comments: Mapping[str, str] | None = None) -> str:
    """Return the table of all settings, or a sentence if there are none.

    `comments` are for settings that have none of their own.
    """
    settings = read_settings(record)
    if not settings:
        return "It has no settings."
    known = comments or {}
    explained = [replace(one, comment=one.comment or known.get(one.name, "")) for one in settings]
    rows = [setting.row() for setting in explained]
    return make_table(("setting", "type", "default", "meaning"), rows)
