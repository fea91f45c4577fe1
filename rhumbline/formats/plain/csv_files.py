"""CSV files with a row for each node: x, y and, for CVRP, demand (`node_table`).

The first line names the columns. Separators are commas, semicolons or tabs; with the latter two a
comma may be a decimal point. Lines that begin with '#' are comments, and `# capacity: 100`,
`# vehicles: 5` and `# name: monday` say what a column cannot.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rhumbline.errors import InputError, shorten_path, shorten_repr
from rhumbline.formats.best_known import read_best_known
from rhumbline.formats.plain.node_table import WORDS, Table, as_number, instance_from_table
from rhumbline.formats.sections import decode_lines
from rhumbline.problems.mappings import check_name_length

COMMENT = re.compile(r"#\s*(capacity|vehicles|name)\s*[:=](.*)", re.IGNORECASE)


def read_csv(path: Path, capacity: int | float | None = None) -> Any:
    """Read the TSP or CVRP of a CSV file; `capacity` has priority over what the file says."""
    table = read_table(path, capacity)
    instance = instance_from_table(table)
    best_known = read_best_known(path.parent, instance.name)
    return replace(instance, best_known=best_known)


def is_csv(path: Path) -> bool:
    """Return whether the first line of a file names the columns of a table of places."""
    for _, text in table_lines(path):
        if text.startswith("#"):
            continue
        names = {name.strip().lower() for name in split_cells(text, find_separator(text)) or ()}
        return {"x", "y"} <= names or len(names & set(WORDS.degrees)) > 1
    return False


def read_table(path: Path, capacity: int | float | None) -> Table:
    """Return the table of a file with the numbers of its lines."""
    comments: dict[str, str] = {}
    header: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []
    separator = ","
    for line, text in table_lines(path):
        if text.startswith("#"):
            if stated := COMMENT.match(text):
                key = stated[1].lower()
                comments[key] = stated[2].strip()
            continue
        if not header:
            separator = find_separator(text)
            header = read_header(path, line, text, separator)
            continue
        width = len(header)
        cells = split_cells(text, separator)
        if cells is None or len(cells) != width:
            found = "is no row of a table" if cells is None else f"read {len(cells)} cells"
            expected = f"expected {width} as in the first line, separated by {separator!r}"
            raise InputError.at(path, line, f"{found}, {expected}")
        rows.append(cells)
        lines.append(line)
    columns: dict[str, list[str]] = {}
    for place, name in enumerate(header):
        columns[name] = [row[place] for row in rows]
    stated_name = comments.get("name", "")
    check_name_length(stated_name, shorten_path(path))
    return Table(
        name=stated_name or path.stem,
        columns=columns,
        path=path,
        lines=lines,
        capacity=comments.get("capacity") if capacity is None else capacity,
        vehicles=stated_vehicles(path, comments),
    )


def table_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are not blank, with their numbers.

    Their ends are kept: a tab there separates an empty cell.
    """
    for line, text in enumerate(decode_lines(path), 1):
        if text.strip():
            yield line, text


def read_header(path: Path, line: int, text: str, separator: str) -> list[str]:
    """Return the names of the columns in lower case."""
    cells = split_cells(text, separator) or ()
    names = [name.strip().lower() for name in cells]
    if names and all(as_number(name) is not None for name in names):
        expected = "expected the names of the columns in the first line, such as x,y,demand"
        raise InputError.at(path, line, f"read numbers, {expected}")
    for name in names:
        if names.count(name) > 1:
            raise InputError.at(
                path, line, f"column {shorten_repr(name)} is there twice, expected once"
            )
    return names


def stated_vehicles(path: Path, comments: dict[str, str]) -> int | None:
    """Return the limit on vehicles of a comment, or None."""
    if "vehicles" not in comments:
        return None
    text = comments["vehicles"]
    vehicles = as_number(text)
    if not isinstance(vehicles, int) or vehicles < 1:
        found = f"vehicles is {shorten_repr(text)}"
        raise InputError.at(path, None, f"{found}, expected a whole number of 1 or more")
    return vehicles


def find_separator(text: str) -> str:
    """Return the separator of a line: the first of ; tab and comma that occurs in it."""
    # A comma may be a decimal point, and so comes last.
    for separator in (";", "\t"):
        if separator in text:
            return separator
    return ","


def split_cells(text: str, separator: str) -> list[str] | None:
    """Return the cells of a line, or None if quotes are wrong or a cell is far too long."""
    try:
        return next(csv.reader([text], delimiter=separator, strict=True))
    except (csv.Error, StopIteration):
        return None
