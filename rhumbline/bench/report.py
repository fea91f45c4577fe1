"""Tables of results. They are pure functions of result lines."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from rhumbline.bench.problems import find_bench_problem
from rhumbline.bench.provenance import (
    LabelKey,
    describe_differences,
    group_by_label,
    label_key,
)
from rhumbline.bench.results import (
    FIELDS,
    Result,
    SetKey,
    costs_of,
    drop_missing,
    field_text,
    group_key,
    group_results,
)


@dataclass(frozen=True)
class TableStyle:
    """What all tables have in common."""

    # The cell of a missing value
    nothing: str = "-"
    # Title of the mean gap; without the interval if no row has one
    gap_title: str = "gap (95 % interval)"
    # Titles of columns without numbers, which are flush left
    text_columns: tuple[str, ...] = (
        "method",
        "budget",
        "hardware",
        "solver",
        "commit",
        "instance",
        "set",
        "task",
        "phase",
    )


STYLE = TableStyle()


@dataclass(frozen=True)
class TableRow:
    """One method on one set on one kind of hardware."""

    suite: str
    set: str
    method: str
    budget: str
    # Number of instances with a cost
    n: int
    seeds: int
    # Mean cost
    cost: float | None
    # Mean gap over instances, a fraction, and the 95 % interval of that mean
    gap: float | None
    low: float | None
    high: float | None
    # Wall time per instance and seed, and of all
    seconds: float
    total: float
    hardware: str
    solver: str
    paper: float | None
    commit: str
    # Number of results without a plan, which no other number counts
    missing: int
    suite_hash: str
    set_hash: str
    versions: str
    # Names of the instances with a cost. Rows of different instances cannot be compared.
    instances: frozenset[str]

    @property
    def set_key(self) -> SetKey:
        """The set and its suite."""
        return self.suite, self.set


class GapInterval(NamedTuple):
    """A mean gap and the ends of its 95 % interval, None where they are unknown."""

    mean: float | None
    low: float | None
    high: float | None


def table_rows(results: Sequence[Result]) -> list[TableRow]:
    """Return a row for each group of results, in order of first appearance.

    Results that differ in a field of `FIELDS.group` are never averaged.
    """
    groups = group_results(results, group_key)
    rows = [summarise(group) for group in groups.values()]
    order = list(group_results(results, lambda result: result.set_key))
    rows.sort(key=lambda row: order.index(row.set_key))
    return rows


def summarise(group: Sequence[Result]) -> TableRow:
    """Return the row of a group of results. Its numbers are of those with a cost."""
    first = group[0]
    found = drop_missing(group)
    total = sum(result.seconds / result.together for result in found)
    gap = gap_interval(found)
    return TableRow(
        suite=first.suite,
        set=first.set,
        method=first.method,
        budget=first.budget,
        n=len({result.instance for result in found}),
        seeds=len({result.seed for result in group}),
        cost=float(np.mean(costs_of(found))) if found else None,
        gap=gap.mean,
        low=gap.low,
        high=gap.high,
        seconds=total / max(1, len(found)),
        total=total,
        hardware=first.hardware,
        solver=first.solver,
        paper=first.paper,
        commit=first.commit,
        missing=len(group) - len(found),
        suite_hash=first.suite_hash,
        set_hash=first.set_hash,
        versions=field_text(first, "versions"),
        instances=frozenset(result.instance for result in found),
    )


def gap_interval(results: Sequence[Result]) -> GapInterval:
    """Return the mean gap and its 95 % interval.

    Instances are the sample. The seeds of an instance are averaged first.
    """
    gaps_by_instance: dict[str, list[float]] = {}
    for result in results:
        if result.gap is None:
            return GapInterval(None, None, None)
        gaps_by_instance.setdefault(result.instance, []).append(result.gap)
    if not gaps_by_instance:
        return GapInterval(None, None, None)
    gaps = np.array([np.mean(gaps) for gaps in gaps_by_instance.values()])
    mean = float(gaps.mean())
    if len(gaps) < 2:
        return GapInterval(mean, None, None)
    half = float(half_interval_95(gaps))
    return GapInterval(mean, mean - half, mean + half)


def half_interval_95(values: np.ndarray) -> np.ndarray:
    """Return half the 95 % interval of the mean over the first axis, of at least two values."""
    deviation = values.std(0, ddof=1)
    return 1.96 * deviation / np.sqrt(len(values))


def count_text(row: TableRow) -> str:
    """Return the number of instances, of seeds, and of missing results."""
    text = f"{row.n:,}"
    if row.seeds > 1:
        text += f" x {row.seeds} seeds"
    if row.missing:
        text += f" ({row.missing:,} missing)"
    return text


def gap_interval_text(row: TableRow) -> str:
    """Return the mean gap with half its interval, which is symmetric."""
    if row.gap is None or row.high is None:
        return percent_text(row.gap)
    half = row.high - row.gap
    percent = decimal_text(100 * row.gap, 3)
    half_percent = f"{100 * half:.3f}"
    return f"{percent} ± {half_percent} %"


def mean_cost_text(cost: float | None) -> str:
    """Return a cost without decimals if it is whole.

    Costs of the unit square get four decimals, other means get one.
    """
    if cost is None:
        return STYLE.nothing
    is_whole = cost == int(cost)
    if is_whole:
        return f"{cost:,.0f}"
    if cost < 1000:
        return f"{cost:,.4f}"
    return f"{cost:,.1f}"


def percent_text(fraction: float | None) -> str:
    """Return a gap in percent with three decimals."""
    if fraction is None:
        return STYLE.nothing
    return f"{decimal_text(100 * fraction, 3)} %"


def decimal_text(value: float, digits: int) -> str:
    """Return a number with a fixed number of decimals. A value that rounds to 0 has no sign."""
    text = f"{value:.{digits}f}"
    if float(text) == 0.0:
        return text.lstrip("-")
    return text


def duration_text(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    if seconds < 0.995:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    if seconds < 6000:
        return f"{minutes:.1f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h"


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    cell: Callable[[TableRow], str]
    # Left out if no row has a value
    is_optional: bool = False
    # Left out unless rows of one set, method and hardware differ in these fields
    difference_fields: tuple[str, ...] = ()


TABLE_COLUMNS = (
    Column("method", lambda row: row.method),
    Column("budget", lambda row: row.budget),
    Column("n", count_text),
    Column("mean cost", lambda row: mean_cost_text(row.cost)),
    Column(STYLE.gap_title, gap_interval_text, is_optional=True),
    Column("paper's gap", lambda row: percent_text(row.paper), is_optional=True),
    Column("time / instance", lambda row: duration_text(row.seconds)),
    Column("total", lambda row: duration_text(row.total)),
    Column("hardware", lambda row: row.hardware),
    Column("solver", lambda row: row.solver, difference_fields=("solver",)),
    Column("commit", lambda row: row.commit, difference_fields=FIELDS.origin),
)


def table_cells(rows: Sequence[TableRow], *, hardware: bool) -> list[list[str]]:
    """Return the titles and then the cells of each row, for people.

    The hardware is shown only if wanted. Other origins are shown only where a method has several.
    """
    columns = [column for column in TABLE_COLUMNS if is_shown(column, rows, hardware=hardware)]
    titles = [column_title(column, rows) for column in columns]
    lines = [[column.cell(row) for column in columns] for row in rows]
    if "commit" in titles:
        place = titles.index("commit")
        differences = row_differences(rows, ("suite_hash", "versions"))
        for line, difference in zip(lines, differences, strict=True):
            if difference:
                line[place] += f"; {difference}"
    return [titles, *lines]


def is_shown(column: Column, rows: Sequence[TableRow], *, hardware: bool) -> bool:
    """Return whether a column tells anything about these rows."""
    if column.title == "hardware":
        return hardware
    if column.difference_fields:
        return any(row_differences(rows, column.difference_fields))
    if column.is_optional:
        return any(column.cell(row) != STYLE.nothing for row in rows)
    return True


def column_title(column: Column, rows: Sequence[TableRow]) -> str:
    """Return the title of a column. It does not promise an interval if no row has one."""
    has_interval = any(row.high is not None for row in rows)
    is_gap = column.title == STYLE.gap_title
    if is_gap and not has_interval:
        return "gap"
    return column.title


def row_differences(rows: Sequence[TableRow], fields: Sequence[str]) -> list[str]:
    """Return how each row differs, in these fields, from others of its set, method and hardware."""
    keys = []
    for row in rows:
        parts = (row.suite, row.set, row.method, row.hardware)
        name = "\0".join(parts)
        key = label_key(row, name, fields)
        keys.append(key)
    texts = describe_differences(keys, fields)
    return [texts[key] for key in keys]


def describe_set(results: Sequence[Result]) -> str:
    """Return the problem, the sizes and the mutation of a set, and who made its references."""
    first = results[0]
    text = f"{first.problem}, {size_text(results)}"
    if first.power is not None:
        text += f", mutated with power {first.power:g}"
    referees = dict.fromkeys(result.referee for result in results)
    for referee in referees:
        if referee:
            text += f"; references: {referee}"
    return text


def size_text(results: Sequence[Result]) -> str:
    """Return how large the instances of a set are, in the words of their problem."""
    first = results[0]
    distinct_sizes = {result.size for result in results}
    sizes = sorted(distinct_sizes)
    record = find_bench_problem(first.problem)
    return record.size_text(first.set, sizes)


def provenance_notes(results: Sequence[Result]) -> list[str]:
    """Return sentences that say where the numbers come from."""
    notes = origin_notes(results)
    for solver, methods in methods_by_solver(results).items():
        names = "; ".join(methods)
        notes.append(f"{names}: {solver}.")
    hardware = distinct_hardware(results)
    if len(hardware) == 1:
        notes.append(f"Hardware: {hardware[0]}.")
    return notes + missing_notes(results)


def distinct_hardware(results: Sequence[Result]) -> list[str]:
    """Return the hardware of results, in order of first appearance."""
    names = dict.fromkeys(result.hardware for result in results)
    return list(names)


def origin_notes(results: Sequence[Result]) -> list[str]:
    """Return suite, commit and versions of the results.

    If the results of a suite have several origins, each note names the methods of its origin.
    """
    fields = ("suite_hash", "commit", "versions")
    groups: dict[LabelKey, list[Result]] = {}
    for result in results:
        key = label_key(result, result.suite, fields)
        groups.setdefault(key, []).append(result)
    suites = [key[0] for key in groups]
    notes: list[str] = []
    for key, group in groups.items():
        suite, digest, commit, versions = key
        note = f"Suite {suite} ({digest}), commit {commit}, {versions}"
        if suites.count(suite) > 1:
            note += f"; of {methods_text(group, results)}"
        notes.append(f"{note}.")
    return notes


def methods_text(group: Sequence[Result], results: Sequence[Result]) -> str:
    """Return the methods of a group, and its hardware if not all results have the same."""
    methods = dict.fromkeys(result.method for result in group)
    text = "; ".join(methods)
    all_hardware = distinct_hardware(results)
    if len(all_hardware) > 1:
        hardware = distinct_hardware(group)
        machines = "; ".join(hardware)
        text += f", on {machines}"
    return text


def methods_by_solver(results: Sequence[Result]) -> dict[str, list[str]]:
    """Return the methods of each solver. A solver with several budgets has several methods."""
    methods: dict[str, list[str]] = {}
    for result in results:
        names = methods.setdefault(result.solver, [])
        if result.method not in names:
            names.append(result.method)
    return methods


def missing_notes(results: Sequence[Result]) -> list[str]:
    """Return how many results each method lacks on each set, with the first reason."""
    missing = [result for result in results if result.cost is None]
    groups = group_results(missing, lambda result: (result.method, result.set, result.suite))
    notes: list[str] = []
    for (method, set_name, _), group in groups.items():
        reason = group[0].missing.rstrip(".")
        notes.append(
            f"{method} on {set_name}: {len(group):,} missing, in no other number; "
            f"the first: {reason}."
        )
    return notes


def markdown_report(results: Sequence[Result]) -> str:
    """Return a table for each set, and notes that say where the numbers come from.

    The best of comparable rows is bold.
    """
    parts: list[str] = []
    rows = table_rows(results)
    several_machines = len(distinct_hardware(results)) > 1
    for set_key, heading in set_headings(results).items():
        set_results = [result for result in results if result.set_key == set_key]
        set_rows = [row for row in rows if row.set_key == set_key]
        lines = table_cells(set_rows, hardware=several_machines)
        parts.append(f"### {heading}")
        parts.append(f"{describe_set(set_results)}.")
        marked = mark_best(lines, set_rows)
        parts.append(markdown_table(marked))
        if len({result.size for result in set_results}) > 1:
            parts.append(markdown_table(instance_table(set_results)))
    parts.append(
        "Gaps are means over instances; times are wall-clock times, "
        "shared out where instances are solved together."
    )
    notes = [f"- {note}" for note in provenance_notes(results)]
    parts.append("\n".join(notes))
    return "\n\n".join(parts) + "\n"


def set_headings(results: Sequence[Result]) -> dict[SetKey, str]:
    """Return the heading of each set: its name, with the suite if there are several suites."""
    several_suites = len({result.suite for result in results}) > 1
    headings: dict[SetKey, str] = {}
    for result in results:
        heading = result.set
        if several_suites:
            heading += f" ({result.suite})"
        headings[result.set_key] = heading
    return headings


def mark_best(lines: list[list[str]], rows: Sequence[TableRow]) -> list[list[str]]:
    """Put the lowest gap of comparable rows in bold, or the lowest cost if not all have gaps.

    The first line has the titles, the others are of these rows. Lines are changed in place.
    """
    rivals = comparable_rows(rows)
    by_gap = all(row.gap is not None for row in rivals)
    values = {row: row.gap if by_gap else row.cost for row in rivals}
    known = [value for value in values.values() if value is not None]
    if not known:
        return lines
    best = min(known)
    titles, *body = lines
    place = find_title(titles, "gap" if by_gap else "mean cost")
    for line, row in zip(body, rows, strict=True):
        if values.get(row) == best:
            line[place] = f"**{line[place]}**"
    return lines


def find_title(titles: Sequence[str], start: str) -> int:
    """Return the place of the first title that starts with a text."""
    for place, title in enumerate(titles):
        if title.startswith(start):
            return place
    raise ValueError(f"no column starts with '{start}'")


def comparable_rows(rows: Sequence[TableRow]) -> list[TableRow]:
    """Return the rows with the most instances, if they are several and of the same instances."""
    most = max(row.n for row in rows)
    candidates = [row for row in rows if row.n == most]
    if len(candidates) < 2:
        return []
    if len({row.instances for row in candidates}) > 1:
        return []
    return candidates


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table. The first line has the titles; numbers are flush right."""
    titles, *body = lines
    rule = ["---" if title in STYLE.text_columns else "---:" for title in titles]
    rows: list[str] = []
    for line in (titles, rule, *body):
        cells = " | ".join(line)
        rows.append(f"| {cells} |")
    return "\n".join(rows)


def instance_table(results: Sequence[Result]) -> list[list[str]]:
    """Return a line for each instance, with the mean cost and gap of each method."""
    methods = group_by_label(results)
    unit = find_bench_problem(results[0].problem).unit
    lines = [["instance", unit, "reference", *methods]]
    for instance, group in group_results(results, lambda result: result.instance).items():
        first = group[0]
        reference = STYLE.nothing if first.reference is None else f"{first.reference:g}"
        line = [instance, str(first.size), reference]
        for method_results in methods.values():
            line.append(instance_cell(instance, method_results))
        lines.append(line)
    return lines


def instance_cell(instance: str, results: Sequence[Result]) -> str:
    """Return the mean cost and gap of a method on an instance."""
    mine = [result for result in results if result.instance == instance]
    if not mine:
        return STYLE.nothing
    row = summarise(mine)
    if row.cost is None:
        return "missing"
    text = mean_cost_text(row.cost)
    if row.gap is not None:
        text += f" ({decimal_text(100 * row.gap, 2)} %)"
    return text


def replace_section(page: str, name: str, text: str) -> str | None:
    """Replace the part of a page between its marks for a suite. Return None without marks."""
    begin = f"<!-- suite: {name} -->"
    end = f"<!-- end: {name} -->"
    before, begin_found, rest = page.partition(begin)
    _, end_found, after = rest.partition(end)
    if not begin_found or not end_found:
        return None
    return f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}"


def csv_report(results: Sequence[Result]) -> str:
    """Return a line of comma-separated values for each row, with unrounded numbers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in fields(TableRow) if field.name != "instances"]
    writer.writerow(names)
    for row in table_rows(results):
        values = [getattr(row, name) for name in names]
        writer.writerow(["" if value is None else value for value in values])
    return text.getvalue()


def compact_report(results: Sequence[Result]) -> str:
    """Return one table for each suite, with a line for each set and a column for each method.

    A suite is named if there are several. A cell has the gap in percent with its interval, and the
    published gap. Rows of one method on one set that are not averaged are in one cell.
    """
    parts: list[str] = []
    suites = group_results(results, lambda result: result.suite)
    for suite, suite_results in suites.items():
        if len(suites) > 1:
            parts.append(f"### {suite}")
        lines = compact_table(suite_results)
        parts.append(markdown_table(lines))
    parts.append(
        "Gaps in %, ± 95 % intervals over instances, mean costs where there are no references. In "
        "brackets: the number of instances where it differs from the set's, and the published gap."
    )
    notes = [f"- {note}" for note in provenance_notes(results)]
    parts.append("\n".join(notes))
    return "\n\n".join(parts) + "\n"


def compact_table(results: Sequence[Result]) -> list[list[str]]:
    """Return the titles, and then for each set its name and the cell of each method."""
    methods = group_results(results, lambda result: result.method)
    lines = [["set", *methods]]
    sets = group_results(table_rows(results), lambda row: row.set_key)
    for (_, name), rows in sets.items():
        size = max(row.n for row in rows)
        cells = compact_cells(rows, size)
        line = [f"{name}, {size:,}"]
        for method in methods:
            text = "; ".join(cells.get(method, []))
            line.append(text or STYLE.nothing)
        lines.append(line)
    return lines


def compact_cells(rows: Sequence[TableRow], size: int) -> dict[str, list[str]]:
    """Return the texts of the rows of a set by method. Several of one method say what differs."""
    keys = [label_key(row, row.method, FIELDS.label) for row in rows]
    differences = describe_differences(keys, FIELDS.label)
    cells: dict[str, list[str]] = {}
    for row, key in zip(rows, keys, strict=True):
        text = compact_cell(row, size, differences[key])
        cells.setdefault(row.method, []).append(text)
    return cells


def compact_cell(row: TableRow, size: int, difference: str) -> str:
    """Return the gap of a row, or its mean cost, and what differs from its set or method."""
    text = mean_cost_text(row.cost)
    if row.gap is not None:
        text = gap_interval_text(row).removesuffix(" %")
    notes: list[str] = []
    if row.n != size:
        notes.append(f"{row.n:,} instances")
    if row.missing:
        notes.append(f"{row.missing:,} missing")
    if row.paper is not None:
        notes.append(f"paper {decimal_text(100 * row.paper, 3)}")
    if difference:
        notes.append(difference)
    return f"{text} ({'; '.join(notes)})" if notes else text


def latex_report(results: Sequence[Result]) -> str:
    """Return one LaTeX tabular for all sets, and comments that say where the numbers come from."""
    rows = table_rows(results)
    several_machines = len(distinct_hardware(results)) > 1
    titles, *body = table_cells(rows, hardware=several_machines)
    width = len(titles)
    sides = ["l" if title in STYLE.text_columns else "r" for title in titles]
    alignment = "".join(sides)
    headings = set_headings(results)
    lines = [f"\\begin{{tabular}}{{{alignment}}}"]
    lines.append("\\hline")
    lines.append(latex_line(titles))
    for set_key, heading in headings.items():
        title = escape_latex(heading)
        lines.append("\\hline")
        lines.append(f"\\multicolumn{{{width}}}{{l}}{{{title}}} \\\\")
        for row, cells in zip(rows, body, strict=True):
            if row.set_key == set_key:
                lines.append(latex_line(cells))
    lines.append("\\hline")
    lines.append("\\end{tabular}")
    for set_key, group in group_results(results, lambda result: result.set_key).items():
        lines.append(f"% {headings[set_key]}: {describe_set(group)}.")
    for note in provenance_notes(results):
        lines.append(f"% {note}")
    return "\n".join(lines) + "\n"


def latex_line(cells: Sequence[str]) -> str:
    """Return a line of a LaTeX tabular."""
    escaped = map(escape_latex, cells)
    row = " & ".join(escaped)
    return f"{row} \\\\"


def escape_latex(text: str) -> str:
    """Escape the characters that LaTeX would interpret."""
    if text == STYLE.nothing:
        return "--"
    for sign in "&%$#_{}":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("±", "$\\pm$")


REPORT_FORMATS: dict[str, Callable[[Sequence[Result]], str]] = {
    "md": markdown_report,
    "compact": compact_report,
    "csv": csv_report,
    "latex": latex_report,
}
