"""Tables: a pure function of result lines."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import groupby

import numpy as np

from rhumbline.bench.results import Result, costs_of, found_among

NOTHING = "-"
NORMAL_95 = 1.96


@dataclass(frozen=True)
class Row:
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


def rows(results: Sequence[Result]) -> list[Row]:
    """A row for each suite, set, method, hardware and commit, in order of first appearance."""
    kinds: dict[tuple[str, ...], list[Result]] = {}
    for r in results:
        kinds.setdefault((r.suite, r.set, r.method, r.hardware, r.commit), []).append(r)
    places = {s: i for i, s in enumerate(dict.fromkeys((r.suite, r.set) for r in results))}
    return sorted((summary(some) for some in kinds.values()), key=lambda row: places[row.suite, row.set])


def summary(some: Sequence[Result]) -> Row:
    """The row of results of one kind; numbers are of those with a cost."""
    first, found = some[0], found_among(some)
    spent = sum(r.seconds / r.together for r in found)
    gap, low, high = interval(found)
    return Row(
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
    )


def interval(some: Sequence[Result]) -> tuple[float | None, float | None, float | None]:
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


TITLES = (
    "method",
    "budget",
    "n",
    "mean cost",
    "gap",
    "95 % interval",
    "s / instance",
    "total",
    "hardware",
    "paper's gap",
)


def cells(row: Row) -> list[str]:
    """A row for people."""
    seeds = f" x {row.seeds} seeds" if row.seeds > 1 else ""
    span = NOTHING if row.low is None or row.high is None else f"{100 * row.low:.3f} to {100 * row.high:.3f} %"
    return [
        row.method,
        row.budget,
        f"{row.n:,}{seeds}" + (f" ({row.missing:,} missing)" if row.missing else ""),
        cost_text(row.cost),
        percent(row.gap),
        span,
        f"{row.seconds:.3g}",
        duration(row.total),
        row.hardware,
        percent(row.paper),
    ]


def cost_text(cost: float | None) -> str:
    """Whole costs as they are, those of the unit square with four decimals, other means with one."""
    if cost is None:
        return NOTHING
    if cost == int(cost):
        return f"{cost:,.0f}"
    return f"{cost:,.4f}" if cost < 1000 else f"{cost:,.1f}"


def percent(fraction: float | None) -> str:
    """A gap in percent, three decimals."""
    return NOTHING if fraction is None else f"{100 * fraction:.3f} %"


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def facts(results: Sequence[Result]) -> list[str]:
    """Where the numbers come from, a sentence for each origin."""
    lines: list[str] = []
    for origin in dict.fromkeys((r.suite, r.suite_hash, r.commit, tuple(sorted(r.versions.items()))) for r in results):
        suite, digest, commit, versions = origin
        libraries = ", ".join(f"{name} {number}" for name, number in versions)
        lines.append(f"Suite {suite} ({digest}), commit {commit}, {libraries}.")
    for method, solver in dict.fromkeys((r.method, r.solver) for r in results):
        lines.append(f"{method}: {solver}.")
    for name, referee in dict.fromkeys((r.set, r.referee) for r in results):
        lines += [f"References of {name}: {referee}."] if referee else []
    return lines + missing_facts(results)


def missing_facts(results: Sequence[Result]) -> list[str]:
    """How many results each method lacks on each set, and the first reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for r in results:
        if r.cost is None:
            reasons.setdefault((r.method, r.set), []).append(r.missing)
    return [
        f"{method} on {name}: {len(said):,} missing, in no other number; the first: {said[0].rstrip('.')}."
        for (method, name), said in reasons.items()
    ]


def markdown(results: Sequence[Result]) -> str:
    """A table for each set, and where the numbers come from."""
    parts: list[str] = []
    for (suite, name), some in groupby(rows(results), key=lambda row: (row.suite, row.set)):
        parts.append(f"### {name}\n\n{table([list(TITLES), *map(cells, some)])}")
        mine = [r for r in results if (r.suite, r.set) == (suite, name)]
        parts += [table(by_instance(mine))] if len({r.size for r in mine}) > 1 else []
    notes = "\n".join(f"- {line}" for line in facts(results))
    return "\n\n".join([*parts, "Gaps are means over instances; s / instance is wall time.", notes]) + "\n"


def table(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose first line has the titles."""
    ruled = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in ruled)


def by_instance(results: Sequence[Result]) -> list[list[str]]:
    """Instances of different sizes one by one: the mean cost and gap of each method."""
    methods = list(dict.fromkeys(r.method for r in results))
    lines = [["instance", "nodes", "reference", *methods]]
    for name in dict.fromkeys(r.instance for r in results):
        mine = [r for r in results if r.instance == name]
        known = NOTHING if mine[0].reference is None else f"{mine[0].reference:g}"
        costs = [summary(found) if (found := [r for r in mine if r.method == m]) else None for m in methods]
        lines.append([name, str(mine[0].size), known, *map(cost_and_gap, costs)])
    return lines


def cost_and_gap(row: Row | None) -> str:
    """A cell of an instance and a method."""
    if row is None or row.cost is None:
        return NOTHING if row is None else "missing"
    return cost_text(row.cost) + ("" if row.gap is None else f" ({100 * row.gap:.2f} %)")


def put_into(page: str, name: str, text: str) -> str | None:
    """A page with the part between its marks for a suite replaced; None if it has no such marks."""
    begin, end = f"<!-- suite: {name} -->", f"<!-- end: {name} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    return f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}" if found and closed else None


def comma_separated(results: Sequence[Result]) -> str:
    """One line for each row, numbers unrounded."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in fields(Row)]
    writer.writerow(names)
    writer.writerows(["" if getattr(row, n) is None else getattr(row, n) for n in names] for row in rows(results))
    return text.getvalue()


def latex(results: Sequence[Result]) -> str:
    """One tabular for all sets."""
    columns = (0, 1, 2, 3, 4, 5, 7, 9)
    lines = [f"\\begin{{tabular}}{{{'l' * 2 + 'r' * (len(columns) - 2)}}}", "\\hline"]
    lines += [" & ".join(escaped(TITLES[c]) for c in columns) + " \\\\"]
    for (_, name), some in groupby(rows(results), key=lambda row: (row.suite, row.set)):
        lines += ["\\hline", f"\\multicolumn{{{len(columns)}}}{{l}}{{{escaped(name)}}} \\\\"]
        lines += [" & ".join(escaped(cells(row)[c]) for c in columns) + " \\\\" for row in some]
    notes = [f"% {line}" for line in facts(results)]
    return "\n".join([*lines, "\\hline", "\\end{tabular}", *notes, ""])


def escaped(text: str) -> str:
    """Text that means itself in LaTeX."""
    for sign in "&%$#_{}":
        text = text.replace(sign, f"\\{sign}")
    return "--" if text == NOTHING else text


FORMATS: dict[str, Callable[[Sequence[Result]], str]] = {"md": markdown, "csv": comma_separated, "latex": latex}
