"""The recorded rows that a figure draws, and the note on rows that are missing or out of date.

Rows are those of `tools.tables`. A row is drawn from results of one origin: complete results of
the shipped weights and today's settings if there are any, else the newest results.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from rhumbline.bench.results import Result, drop_missing, group_results
from rhumbline.bench.suite import read_suite
from tools.tables import (
    ResultStore,
    Status,
    describe_statuses,
    lines_by_name,
    origin_of_result,
    rows_of_suite,
    status_of,
)

GroupedRows = Mapping[str, Mapping[str, "FigureRow"]]  # by set, then by method


@dataclass(frozen=True)
class FigureRow:
    """A method on a set: what is drawn, and how it compares with what would be measured today."""

    status: Status
    results: Sequence[Result]

    @property
    def set(self) -> str:
        """The name of the set."""
        return self.status.row.spec.name

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.status.row.method.name

    @property
    def power(self) -> float | None:
        """The power of the mutation of the set; None for other sets."""
        return self.status.row.spec.power

    @property
    def published(self) -> float | None:
        """The published gap in %, if there is one."""
        return self.status.row.method.paper.get(self.set)


@cache
def read_store() -> ResultStore:
    """Read all committed lines once."""
    return ResultStore().read()


@cache
def rows_of(suite: str) -> list[FigureRow]:
    """Return the rows of a suite with their recorded results."""
    return figure_rows(read_store(), suite)


def figure_rows(store: ResultStore, suite: str) -> list[FigureRow]:
    """Return the rows of a suite of a store. Their results are empty if nothing was measured."""
    current = lines_by_name(store.results)
    older = lines_by_name(store.older)
    rows: list[FigureRow] = []
    for row in rows_of_suite(read_suite(store.suites / f"{suite}.toml")):
        status = status_of(row, current)
        candidates = [*current.get(row.name, ()), *older.get(row.name, ())]
        rows.append(FigureRow(status, choose_results(status, candidates)))
    return rows


def choose_results(status: Status, candidates: Sequence[Result]) -> list[Result]:
    """Return results of one origin: complete and up to date if there are any, else the newest."""
    groups = group_results(drop_missing(candidates), origin_of_result).values()
    if not groups:
        return []

    def order(results: Sequence[Result]) -> tuple[bool, str]:
        is_current = status.is_complete and all(map(status.row.is_current, results))
        return is_current, max(result.when for result in results)

    return max(groups, key=order)


def by_set(rows: Iterable[FigureRow]) -> dict[str, dict[str, FigureRow]]:
    """Return measured rows by set and method, in the order of the suite."""
    found: dict[str, dict[str, FigureRow]] = {}
    for row in rows:
        if row.results:
            found.setdefault(row.set, {})[row.method] = row
    return found


def describe_rows(rows: Sequence[FigureRow]) -> str:
    """Return a note on the rows of a figure that are missing or out of date."""
    statuses = [row.status for row in rows]
    if all(status.is_complete for status in statuses):
        return "All rows were measured with the weights that are shipped today."
    newest = max((line.when[:10] for row in rows for line in row.results), default="")
    text = describe_statuses(statuses)
    if not newest:
        return f"Nothing in this figure has been measured yet.\n{text}"
    return f"The figure shows measurements until {newest}.\n{text}"
