"""Tables: a pure function of result lines."""

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import groupby

import numpy as np

from rhumbline.bench.provenance import (
    ORIGIN_FIELDS,
    describe_differences,
    group_by_label,
    label_key,
)
from rhumbline.bench.results import (
    Result,
    costs_of,
    drop_missing,
    field_text,
    group_key,
    group_results,
)

NOTHING = "-"
NORMAL_95 = 1.96


@dataclass(frozen=True)
class TableRow:
    """One method on one set on one kind of hardware."""

    suite: str
    set: str
    method: str
    budget: str
    n: int  # instances with a cost
    seeds: int
    cost: float | None  # mean
    gap: float | None  # mean over instances, a fraction
    low: float | None  # 95 % interval of that mean
    high: float | None
    seconds: float  # wall time per instance and seed
    total: float  # wall time of all
    hardware: str
    solver: str
    paper: float | None
    commit: str
    missing: int  # instances and seeds without a plan, which no other number counts
    suite_hash: str
    set_hash: str
    versions: str
    instances: frozenset[str]  # those with a cost; rows of other ones do not compare


def table_rows(results: Sequence[Result]) -> list[TableRow]:
    """A row for each kind of results, in order of first appearance: nothing that differs in a
    fact is averaged.
    """
    kinds: dict[tuple[str, ...], list[Result]] = {}
    for r in results:
        kinds.setdefault(group_key(r), []).append(r)
    places = {s: i for i, s in enumerate(dict.fromkeys((r.suite, r.set) for r in results))}
    return sorted(
        (summarise(some) for some in kinds.values()), key=lambda row: places[row.suite, row.set]
    )


def summarise(some: Sequence[Result]) -> TableRow:
    """The row of results of one kind; numbers are of those with a cost."""
    first = some[0]
    found = drop_missing(some)
    spent = sum(r.seconds / r.together for r in found)
    gap, low, high = gap_interval(found)
    return TableRow(
        suite=first.suite,
        set=first.set,
        method=first.method,
        budget=first.budget,
        n=len({r.instance for r in found}),
        seeds=len({r.seed for r in some}),
        cost=float(np.mean(costs_of(found))) if found else None,
        gap=gap,
        low=low,
        high=high,
        seconds=spent / max(1, len(found)),
        total=spent,
        hardware=first.hardware,
        solver=first.solver,
        paper=first.paper,
        commit=first.commit,
        missing=len(some) - len(found),
        suite_hash=first.suite_hash,
        set_hash=first.set_hash,
        versions=field_text(first, "versions"),
        instances=frozenset(r.instance for r in found),
    )


def gap_interval(some: Sequence[Result]) -> tuple[float | None, float | None, float | None]:
    """Mean gap and its 95 % interval; instances are the sample, seeds of one are averaged first."""
    by_instance: dict[str, list[float]] = {}
    for r in some:
        if r.gap is None:
            return None, None, None
        by_instance.setdefault(r.instance, []).append(r.gap)
    if not by_instance:
        return None, None, None
    gaps = np.array([np.mean(g) for g in by_instance.values()])
    mean = float(gaps.mean())
    if len(gaps) < 2:
        return mean, None, None
    half = NORMAL_95 * float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
    return mean, mean - half, mean + half


def count_text(row: TableRow) -> str:
    """Instances, seeds, and what is missing."""
    seeds = f" x {row.seeds} seeds" if row.seeds > 1 else ""
    return f"{row.n:,}{seeds}" + (f" ({row.missing:,} missing)" if row.missing else "")


def gap_interval_text(row: TableRow) -> str:
    """A mean gap with half its interval, which lies evenly about it."""
    if row.gap is None or row.high is None:
        return percent_text(row.gap)
    return f"{decimal_text(100 * row.gap, 3)} ± {100 * (row.high - row.gap):.3f} %"


def mean_cost_text(cost: float | None) -> str:
    """Whole costs as they are, those of the unit square with four decimals, other means with
    one.
    """
    if cost is None:
        return NOTHING
    if cost == int(cost):
        return f"{cost:,.0f}"
    return f"{cost:,.4f}" if cost < 1000 else f"{cost:,.1f}"


def percent_text(fraction: float | None) -> str:
    """A gap in percent, three decimals."""
    return NOTHING if fraction is None else f"{decimal_text(100 * fraction, 3)} %"


def decimal_text(value: float, digits: int) -> str:
    """A number with so many decimals; what rounds to nothing has no sign."""
    text = f"{value:.{digits}f}"
    return text if float(text) else text.lstrip("-")


def duration_text(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 0.995:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


GAP_TITLE = "gap (95 % interval)"  # without the words in brackets where no row has an interval
COLUMNS: dict[str, Callable[[TableRow], str]] = {
    "method": lambda row: row.method,
    "budget": lambda row: row.budget,
    "n": count_text,
    "mean cost": lambda row: mean_cost_text(row.cost),
    GAP_TITLE: gap_interval_text,
    "paper's gap": lambda row: percent_text(row.paper),
    "time / instance": lambda row: duration_text(row.seconds),
    "total": lambda row: duration_text(row.total),
    "hardware": lambda row: row.hardware,
    "solver": lambda row: row.solver,
    "commit": lambda row: row.commit,
}
TEXT_COLUMNS = ("method", "budget", "hardware", "solver", "commit", "instance")
OPTIONAL_COLUMNS = (GAP_TITLE, "paper's gap")  # left out where no row has any
DIFFERENCE_COLUMNS = {
    "solver": ("solver",),
    "commit": ORIGIN_FIELDS,
}  # shown where rows of one set and method differ in these facts


def table_cells(some: Sequence[TableRow], *, hardware: bool) -> list[list[str]]:
    """Titles and rows for people: the hardware only if wanted, other origins only where methods
    have several.
    """
    hidden = {
        title
        for title, facts in DIFFERENCE_COLUMNS.items()
        if not any(row_differences(some, facts))
    }
    hidden |= {t for t in OPTIONAL_COLUMNS if all(COLUMNS[t](row) == NOTHING for row in some)}
    titles = [
        title for title in COLUMNS if title not in hidden and (hardware or title != "hardware")
    ]
    lines = [[COLUMNS[title](row) for title in titles] for row in some]
    titles = [
        "gap" if title == GAP_TITLE and all(row.high is None for row in some) else title
        for title in titles
    ]
    if "commit" in titles:
        for line, words in zip(
            lines, row_differences(some, ("suite_hash", "versions")), strict=True
        ):
            line[titles.index("commit")] += f"; {words}" if words else ""
    return [titles, *lines]


def row_differences(some: Sequence[TableRow], facts: Sequence[str]) -> list[str]:
    """What tells each row from others of its set, method and hardware, as far as these facts do."""
    sources = [
        label_key(row, f"{row.suite}\0{row.set}\0{row.method}\0{row.hardware}", facts)
        for row in some
    ]
    words = describe_differences(sources, facts)
    return [words[source] for source in sources]


def describe_set(results: Sequence[Result]) -> str:
    """What a set is: problem, sizes, mutation, and who made its references."""
    first = results[0]
    parts = [first.problem, size_text(results)]
    parts += [] if first.power is None else [f"mutated with power {first.power:g}"]
    referees = [f"references: {r}" for r in dict.fromkeys(r.referee for r in results) if r]
    return "; ".join([", ".join(parts), *referees])


def size_text(results: Sequence[Result]) -> str:
    """How large instances are; of job shops jobs and machines, if the name of the set has them,
    else operations.
    """
    sizes = sorted({r.size for r in results})
    span = f"{sizes[0]}" + (f" to {sizes[-1]}" if len(sizes) > 1 else "")
    if results[0].problem != "jssp":
        return f"size {span}"
    shape = re.search(r"(\d+)x(\d+)", results[0].set)
    if shape and sizes == [int(shape[1]) * int(shape[2])]:
        return f"{shape[1]} jobs x {shape[2]} machines"
    return f"{span} operations"


def provenance_notes(results: Sequence[Result]) -> list[str]:
    """Where the numbers come from, a sentence for each origin."""
    lines = [
        f"{'; '.join(methods)}: {solver}." for solver, methods in methods_by_solver(results).items()
    ]
    hardware = list(dict.fromkeys(r.hardware for r in results))
    lines += [f"Hardware: {hardware[0]}."] if len(hardware) == 1 else []
    return [*origin_notes(results), *lines, *missing_notes(results)]


def origin_notes(results: Sequence[Result]) -> list[str]:
    """Suite, commit and versions; and what is of which, where results of one suite come from
    several.
    """
    found: dict[tuple[str, ...], list[Result]] = {}
    for r in results:
        found.setdefault(label_key(r, r.suite, ("suite_hash", "commit", "versions")), []).append(r)
    lines: list[str] = []
    for (suite, digest, commit, versions), some in found.items():
        several = [other[0] for other in found].count(suite) > 1
        whose = f"; of {methods_text(some, results)}" if several else ""
        lines.append(f"Suite {suite} ({digest}), commit {commit}, {versions}{whose}.")
    return lines


def methods_text(some: Sequence[Result], results: Sequence[Result]) -> str:
    """The methods of some results, and their hardware where not all results have the same."""
    methods = "; ".join(dict.fromkeys(r.method for r in some))
    hardware = dict.fromkeys(r.hardware for r in some)
    return (
        f"{methods}, on {'; '.join(hardware)}"
        if len({r.hardware for r in results}) > 1
        else methods
    )


def methods_by_solver(results: Sequence[Result]) -> dict[str, list[str]]:
    """The methods of each solver: one with many budgets is named once."""
    found: dict[str, list[str]] = {}
    for method, solver in dict.fromkeys((r.method, r.solver) for r in results):
        found.setdefault(solver, []).append(method)
    return found


def missing_notes(results: Sequence[Result]) -> list[str]:
    """How many results each method lacks on each set, and the first reason."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for r in results:
        if r.cost is None:
            reasons.setdefault((r.method, r.set, r.suite), []).append(r.missing)
    return [
        f"{method} on {name}: {len(said):,} missing, in no other number; the first: {said[0].rstrip('.')}."
        for (method, name, _), said in reasons.items()
    ]


def markdown_report(results: Sequence[Result]) -> str:
    """A table for each set, the least gap or cost in bold, and where the numbers come from."""
    parts: list[str] = []
    several = len({r.hardware for r in results}) > 1
    called = set_headings(results)
    for (suite, name), some in groupby(table_rows(results), key=lambda row: (row.suite, row.set)):
        mine = [r for r in results if (r.suite, r.set) == (suite, name)]
        listed = list(some)
        lines = table_cells(listed, hardware=several)
        parts += [
            f"### {called[suite, name]}",
            f"{describe_set(mine)}.",
            markdown_table(mark_best(lines, listed)),
        ]
        parts += [markdown_table(instance_table(mine))] if len({r.size for r in mine}) > 1 else []
    notes = "\n".join(f"- {line}" for line in provenance_notes(results))
    said = "Gaps are means over instances; times are wall-clock times, shared out where instances are solved together."
    return "\n\n".join([*parts, said, notes]) + "\n"


def set_headings(results: Sequence[Result]) -> dict[tuple[str, str], str]:
    """What the tables of sets are called: as the sets, with the suite where several are
    reported.
    """
    sets = dict.fromkeys((r.suite, r.set) for r in results)
    several = len({suite for suite, _ in sets}) > 1
    return {(suite, name): f"{name} ({suite})" if several else name for suite, name in sets}


def mark_best(lines: list[list[str]], some: Sequence[TableRow]) -> list[list[str]]:
    """Lines of a table with the least gap in bold, or the least cost where not all have gaps."""
    rivals = comparable_rows(some)
    by_gap = all(row.gap is not None for row in rivals)
    values = [row.gap if by_gap else row.cost for row in rivals]
    least = min((v for v in values if v is not None), default=None)
    for line, row in zip(lines[1:], some, strict=True):
        if row in rivals and least is not None and (row.gap if by_gap else row.cost) == least:
            column = next(
                i
                for i, title in enumerate(lines[0])
                if title.startswith("gap" if by_gap else "mean cost")
            )
            line[column] = f"**{line[column]}**"
    return lines


def comparable_rows(some: Sequence[TableRow]) -> list[TableRow]:
    """The rows with the most instances, if there are several and these are the same: only they
    can be compared.
    """
    most = [row for row in some if row.n == max(r.n for r in some)]
    return most if len(most) > 1 and len({row.instances for row in most}) == 1 else []


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose first line has the titles; columns of numbers are flush right."""
    ruled = [
        lines[0],
        ["---" if title in TEXT_COLUMNS else "---:" for title in lines[0]],
        *lines[1:],
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in ruled)


def instance_table(results: Sequence[Result]) -> list[list[str]]:
    """Instances of different sizes one by one: the mean cost and gap of each method."""
    methods = group_by_label(results)
    lines = [
        [
            "instance",
            "operations" if results[0].problem == "jssp" else "nodes",
            "reference",
            *methods,
        ]
    ]
    for name in dict.fromkeys(r.instance for r in results):
        mine = [r for r in results if r.instance == name]
        known = NOTHING if mine[0].reference is None else f"{mine[0].reference:g}"
        cells = ([r for r in some if r.instance == name] for some in methods.values())
        costs = [summarise(cell) if cell else None for cell in cells]
        lines.append([name, str(mine[0].size), known, *map(cost_and_gap_text, costs)])
    return lines


def cost_and_gap_text(row: TableRow | None) -> str:
    """A cell of an instance and a method."""
    if row is None or row.cost is None:
        return NOTHING if row is None else "missing"
    return mean_cost_text(row.cost) + (
        "" if row.gap is None else f" ({decimal_text(100 * row.gap, 2)} %)"
    )


def replace_section(page: str, name: str, text: str) -> str | None:
    """A page with the part between its marks for a suite replaced; None if it has no such marks."""
    begin = f"<!-- suite: {name} -->"
    end = f"<!-- end: {name} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    return f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}" if found and closed else None


def csv_report(results: Sequence[Result]) -> str:
    """One line for each row, numbers unrounded."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in fields(TableRow) if field.name != "instances"]
    writer.writerow(names)
    writer.writerows(
        ["" if getattr(row, n) is None else getattr(row, n) for n in names]
        for row in table_rows(results)
    )
    return text.getvalue()


def latex_report(results: Sequence[Result]) -> str:
    """One tabular for all sets."""
    titles, *body = table_cells(
        all_rows := table_rows(results), hardware=len({r.hardware for r in results}) > 1
    )
    sides = "".join("l" if title in TEXT_COLUMNS else "r" for title in titles)
    called = set_headings(results)
    lines = [f"\\begin{{tabular}}{{{sides}}}", "\\hline", latex_line(titles)]
    for name, some in groupby(
        zip(all_rows, body, strict=True), key=lambda pair: (pair[0].suite, pair[0].set)
    ):
        lines += [
            "\\hline",
            f"\\multicolumn{{{len(titles)}}}{{l}}{{{escape_latex(called[name])}}} \\\\",
        ]
        lines += [latex_line(line) for _, line in some]
    sets = [
        f"{name}: {describe_set(some)}."
        for name, some in group_results(results, lambda r: called[r.suite, r.set]).items()
    ]
    notes = [f"% {line}" for line in [*sets, *provenance_notes(results)]]
    return "\n".join([*lines, "\\hline", "\\end{tabular}", *notes, ""])


def latex_line(cells: Sequence[str]) -> str:
    """A line of a tabular."""
    return " & ".join(map(escape_latex, cells)) + " \\\\"


def escape_latex(text: str) -> str:
    """Text that means itself in LaTeX."""
    for sign in "&%$#_{}":
        text = text.replace(sign, f"\\{sign}")
    return "--" if text == NOTHING else text.replace("±", "$\\pm$")


REPORT_FORMATS: dict[str, Callable[[Sequence[Result]], str]] = {
    "md": markdown_report,
    "csv": csv_report,
    "latex": latex_report,
}
