"""TSP and CVRP instances from tables with the columns x, y and, for CVRP, demand.

A table comes from a CSV file, a DataFrame or a list of mappings. Each row is a node; names of
columns may be in capitals. The depot is the first row, or the row marked in a column "depot".
Distances are unrounded straight lines.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from rhumbline.errors import InputError, note_once, shorten_repr
from rhumbline.problems.cvrp.instance import CVRPInstance, cvrp_from_arrays
from rhumbline.problems.metrics import METRIC_LIMITS
from rhumbline.problems.tsp.instance import TSPInstance, tsp_from_array
from rhumbline.registry import did_you_mean


@dataclass(frozen=True)
class TableWords:
    """The columns of tables, and the values of the column "depot"."""

    numbers: tuple[str, ...] = ("id", "number", "node")
    labels: tuple[str, ...] = ("name", "label", "city", "customer")
    # A near miss of one of these is refused: without it the instance would be another one.
    guarded: tuple[str, ...] = ("demand", "capacity", "depot")
    degrees: tuple[str, ...] = ("lon", "lng", "long", "longitude", "lat", "latitude")
    yes: tuple[str, ...] = ("1", "1.0", "true", "yes", "y", "x", "depot")
    no: tuple[str, ...] = ("0", "0.0", "false", "no", "n", "", "none", "nan")
    blank: tuple[str, ...] = ("", "nan", "none", "<na>")
    decimal_comma: re.Pattern[str] = re.compile(r"[+-]?\d+,\d+")


WORDS = TableWords()


@dataclass(frozen=True)
class Table:
    """Columns of equal length, named in lower case, and what is known besides."""

    name: str
    columns: Mapping[str, Sequence[Any]]
    path: Path | None = None
    lines: Sequence[int] = ()  # of each row, in a file
    capacity: Any = None  # of a comment or an option
    vehicles: int | None = None

    def error(self, row: int | None, message: str) -> InputError:
        """Return an error that names the line of the file or the row of the table."""
        if row is None:
            return InputError.at(self.path or self.name, None, message)
        if self.path is not None:
            return InputError.at(self.path, self.lines[row], message)
        return InputError(f"{self.name}, row {row} (from 0): {message}")

    @property
    def size(self) -> int:
        """Return the number of rows."""
        return len(self.columns["x"])

    def number(self, column: str, row: int) -> int | float:
        """Return a cell as a finite number."""
        cell = self.columns[column][row]
        return self.parse(cell, column, row)

    def parse(self, cell: Any, what: str, row: int | None) -> int | float:
        """Return a value as a finite number."""
        value = as_number(cell)
        if value is None:
            found = f"{what} is empty" if is_blank(cell) else f"{what} is {shorten_repr(cell)}"
            expected = f"expected a number of size up to {METRIC_LIMITS.max_number:g}"
            raise self.error(row, f"{found}, {expected}")
        return value


def instance_from_table(table: Table) -> TSPInstance | CVRPInstance:
    """Return the instance of a table: CVRP if it has demands, and else TSP."""
    check_columns(table)
    xy = np.array([[table.number(axis, row) for axis in "xy"] for row in range(table.size)])
    try:
        if "demand" in table.columns:
            return cvrp_from_table(table, xy.reshape(-1, 2))
        return tsp_from_table(table, xy.reshape(-1, 2))
    except InputError as error:
        if table.path is None or str(error).startswith(str(table.path)):
            raise
        raise table.error(None, str(error)) from error


def check_columns(table: Table) -> None:
    """Raise unless the columns are there that make a TSP or a CVRP."""
    columns = list(table.columns)
    degrees = [column for column in columns if column in WORDS.degrees]
    missing = [axis for axis in "xy" if axis not in columns]
    if missing and degrees:
        found = f"{' and '.join(degrees)} are degrees, between which straight lines mislead"
        advice = "project them to x and y in metres or kilometres, or give a matrix of distances"
        raise table.error(None, f"{found}; {advice}")
    shown = ", ".join(shorten_repr(column) for column in columns[:6])
    if missing:
        expected = "expected x and y, and demand for CVRP"
        raise table.error(None, f"column {missing[0]} is missing; there are {shown}; {expected}")
    if not table.size:
        raise table.error(None, "has no rows, expected one for each city or customer")
    known = ("x", "y", *WORDS.guarded, *WORDS.numbers, *WORDS.labels)
    unused = [column for column in columns if column not in known]
    for column in unused:
        absent = [word for word in WORDS.guarded if word not in columns]
        if guess := did_you_mean(column, absent):
            advice = "rename or remove it"
            raise table.error(None, f"column {shorten_repr(column)} is not known{guess}; {advice}")
    if "demand" not in columns:
        given = [word for word in ("depot", "capacity") if word in columns]
        if given or table.capacity is not None:
            what = given[0] if given else "capacity"
            raise table.error(None, f"has a {what} but no column demand, which CVRP needs")
    if unused:
        place = table.path or table.name
        note_once(f"{place}: columns that are not used: {', '.join(map(shorten_repr, unused[:6]))}")


def tsp_from_table(table: Table, xy: np.ndarray) -> TSPInstance:
    """Return a TSP. Whole ids that differ become the numbers of its cities in plans."""
    instance = tsp_from_array(xy, table.name)
    for column in WORDS.numbers:
        ids = [as_number(cell) for cell in table.columns.get(column, ())]
        numbers = tuple(int(one) for one in ids if isinstance(one, int) and one >= 0)
        if len(set(numbers)) == instance.size:
            return replace(instance, numbers=numbers)
    return instance


def cvrp_from_table(table: Table, xy: np.ndarray) -> CVRPInstance:
    """Return a CVRP; its customer k is row k of the table without the depot."""
    depot = depot_row(table)
    capacity = find_capacity(table)
    others = [row for row in range(table.size) if row != depot]
    demands = [table.number("demand", row) for row in others]
    cell = table.columns["demand"][depot]
    if not is_blank(cell) and table.parse(cell, "demand", depot) != 0:
        advice = "expected 0 or nothing; the depot is the first row or marked in a column depot"
        raise table.error(depot, f"the depot demands {shorten_repr(cell)}, {advice}")
    for row, demand in zip(others, demands, strict=True):
        if demand < 0:
            raise table.error(row, f"demand is {demand}, expected a number of 0 or more")
        if demand > capacity:
            raise table.error(row, f"demand is {demand}, more than the capacity {capacity}")
    loads = np.array([*demands, capacity], dtype=object)
    if all(isinstance(load, int) for load in loads):
        loads = loads.astype(np.int64)
    else:
        loads = loads.astype(np.float64)
    customers = xy[others]
    *_, limit = loads
    return cvrp_from_arrays(xy[depot], customers, loads[:-1], limit, table.name, table.vehicles)


def depot_row(table: Table) -> int:
    """Return the row of the only depot."""
    if "depot" not in table.columns:
        return 0
    marked: list[int] = []
    cells = table.columns["depot"]
    for row, cell in enumerate(cells):
        word = str(cell).strip().lower()
        if cell is not None and word in WORDS.yes:
            marked.append(row)
        elif cell is not None and word not in WORDS.no:
            raise table.error(
                row, f"depot is {shorten_repr(cell)}, expected 1 in one row and 0 or nothing"
            )
    count = len(marked)
    if count != 1:
        row = marked[1] if marked else None
        found = f"{count} rows are marked in the column depot"
        raise table.error(row, f"{found}, expected one; several depots are not supported")
    return marked[0]


def find_capacity(table: Table) -> int | float:
    """Return the capacity of an option or a comment, or the only one in a column."""
    given = table.capacity
    cells = [cell for cell in table.columns.get("capacity", ()) if not is_blank(cell)]
    if given is None and cells:
        found = {table.parse(cell, "capacity", None) for cell in cells}
        if len(found) > 1:
            words = "vehicles of different capacity are not supported"
            raise table.error(None, f"the column capacity has {len(found)} values; {words}")
        given = cells[0]
    if given is None:
        ways = "a line '# capacity: 100', a column capacity, --capacity 100 or capacity=100"
        raise table.error(None, f"has demands but no capacity of the vehicles; add {ways}")
    capacity = table.parse(given, "the capacity", None)
    if capacity <= 0:
        raise table.error(None, f"the capacity is {capacity}, expected more than 0")
    return capacity


def as_number(cell: Any) -> int | float | None:
    """Return a cell as a finite number, or None."""
    if isinstance(cell, bool | np.bool_):
        return None
    if isinstance(cell, str):
        text = cell.strip()
        if WORDS.decimal_comma.fullmatch(text):
            text = text.replace(",", ".")
        if "_" in text or len(text) > 40:
            return None
        is_whole = re.fullmatch(r"[+-]?[0-9]+", text)
        cell = int(text) if is_whole else text
    is_integer = isinstance(cell, int | np.integer)
    try:
        value = int(cell) if is_integer else float(str(cell))
    except ValueError:
        return None
    is_in_range = isfinite(value) and abs(value) <= METRIC_LIMITS.max_number
    return value if is_in_range else None


def is_blank(cell: Any) -> bool:
    """Return whether a cell holds nothing."""
    word = str(cell).strip().lower()
    return word in WORDS.blank
