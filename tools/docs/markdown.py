"""Tables and words of Markdown."""

import re
from collections.abc import Iterable, Sequence


def make_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are Markdown, and vertical bars in them are escaped."""
    lines = [join_cells(titles), join_cells(["---"] * len(titles))]
    lines += [join_cells(row) for row in rows]
    return "\n".join(lines)


def join_cells(cells: Sequence[str]) -> str:
    """Return one row of a table."""
    escaped = [cell.replace("|", "\\|").replace("\n", " ") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def as_code(text: object) -> str:
    """Return a text as code, or nothing for an empty one."""
    return f"`{text}`" if text != "" else ""


def mark_options(text: str) -> str:
    """Return a help text with its options as code; what is code already stays as it is."""
    pattern = r"(?P<code>`[^`]*`)|(?<![\w-])(?P<option>--[a-z][\w-]*)"
    return re.sub(pattern, lambda match: match["code"] or as_code(match["option"]), text)


def first_paragraph(text: str | None) -> str:
    """Return the first paragraph of a docstring on one line."""
    paragraph, _, _ = (text or "").strip().partition("\n\n")
    return " ".join(paragraph.split())
