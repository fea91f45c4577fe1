"""Make the tables of gaps in README.md, docs/results/strategies.md and research/notebooks/gaps.md.

    python tools/gap_tables.py [RESULTS.jsonl ...]

Rows come from the ledger research/notebooks/gaps.jsonl, a dated record of means, and from result
files of `rhumb bench compare` on test sets, which are reduced to the same means. Of each set and
method the newest row counts. The README has a few sets: the published search, the search of `rhumb
solve`, and the paper's figures; docs/results/strategies.md has all strategies at equal attempts and
at equal seconds. A row of other weights than those that are shipped today is marked.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from rhumbline.bench.compare.sets import TEST_SETS
from rhumbline.bench.methods import weights_digest
from rhumbline.bench.report import replace_section, summarise
from rhumbline.bench.results import Result, read_result_files

ROOT = Path(__file__).resolve().parents[1]
LEDGER = ROOT / "research" / "notebooks" / "gaps.jsonl"
PAGES = {
    "readme": ROOT / "README.md",
    "all": ROOT / "research" / "notebooks" / "gaps.md",
    "search": ROOT / "docs" / "results" / "strategies.md",
}
METHODS = {
    "greedy": "greedy, all starts",
    "sampling": "sampling",
    "cmaes": "CMA-ES",
    "cmaes-elite": "CMA-ES that learns",
    "cmaes-refine": "CMA-ES that refines",
    "sampling-elite": "sampling that learns",
}
STRATEGIES = (
    "sampling",
    "fixed",
    "uniform",
    "cmaes",
    "eas-emb",
    "eas-lay",
    "sgbs",
    "sgbs-eas",
    "cmaes-eas",
    "cmaes-elite",
    "sampling-elite",
    "cmaes-refine",
)
# The strategy of `rhumb solve` on a GPU, and the weights of the paper's protocol.
DEFAULTS = {"tsp": "cmaes-refine", "cvrp": "cmaes-refine", "jssp": "sampling-elite"}
CHECKPOINTS = {"tsp": "tsp100", "cvrp": "cvrp100", "jssp": "jssp"}
COMPARED = ("tsp100", "tsp150", "vrp100", "vrp200", "jssp10x10", "jssp15x15")  # by all strategies
BUDGETS = (160, 1600)  # attempts
OVERVIEW_SETS = ("tsp100", "tsp200", "vrp100", "vrp200", "jssp10x10")  # in the README
OVERVIEW_BUDGETS = (1600,)
TITLES = {"tsp": "TSP", "vrp": "CVRP", "jssp": "JSSP "}
# Gaps in % of the paper's greedy and sampling single agent, and of its COMPASS (table 1 and the
# table of 10 % of the budget).
PAPER_COLUMNS = ("greedy", "sampling 160", "sampling 1600", "cmaes 160", "cmaes 1600")
PAPER_GAPS = {
    "tsp100": (0.404, 0.263, 0.185, 0.044, 0.002),
    "tsp125": (0.607, 0.424, 0.299, 0.138, 0.036),
    "tsp150": (1.001, 0.835, 0.585, 0.283, 0.083),
    "tsp200": (2.300, 3.545, 2.513, 0.933, 0.348),
    "vrp100": None,
    "vrp150": None,
    "vrp200": None,
    "jssp10x10": (None, 7.684, 6.7, 5.48, 4.7),
    "jssp15x15": (None, 10.47, 9.6, 9.518, 8.0),
    "jssp20x15": (None, 12.787, 11.7, 11.827, 10.4),
}
# CVRP: published mean costs of HGS (Choo et al. 2022, table 1) and of the methods in the paper. The
# paper's own gaps are to LKH3, whose plans cost more than those of HGS, to which our gaps are.
PAPER_COSTS = {
    "vrp100": (15.563, (15.874, 15.767, 15.713, 15.681, 15.594)),
    "vrp150": (19.055, (19.750, 19.610, 19.488, 19.532, 19.313)),
    "vrp200": (21.766, (23.318, 23.817, 23.378, 22.946, 22.462)),
}

# Digests of weights that were measured in float32, and of the 16 bits that are shipped. Costs of
# validation instances do not differ (research/notebooks/training.md), so these rows are not old.
ROUNDED = {"c1152af0": "d226efd9", "d957415c": "234ca6fe", "70c64fa0": "347cd60b"}


@dataclass(frozen=True)
class GapRow:
    """The mean gap of a method on the first instances of a test set, as the ledger has it."""

    set: str
    first: int
    method: str  # a strategy, and its budget: "cmaes 160", "cmaes 6 s", "greedy"
    gap: float
    error: float  # half the 95 % interval
    where: str
    date: str
    cost: float | None = None
    seconds: float | None = None  # for all instances
    attempts: int | None = None
    weights: str = ""
    note: str = ""

    @property
    def strategy(self) -> str:
        """The name of the strategy."""
        return self.method.split()[0]

    @property
    def budget(self) -> str:
        """The budget as a word: attempts, or seconds with their unit."""
        return " ".join(self.method.split()[1:])

    @property
    def is_timed(self) -> bool:
        """Whether the budget is one of seconds."""
        return self.budget.endswith("s")

    @property
    def has_old_weights(self) -> bool:
        """Whether other weights are shipped today."""
        stored = ROUNDED.get(self.weights, self.weights)
        return stored != shipped_weights(TEST_SETS[self.set][0])

    def text(self) -> str:
        """The gap with its interval."""
        digits = significant_digits(self.gap)
        return f"{self.gap:.{digits}f} ± {self.error:.{digits}f}"

    def caveats(self, size: int) -> list[str]:
        """Return what distinguishes the row from one of a GPU, today's weights and all `size`
        instances.
        """
        found = ["CPU"] if self.where == "CPU" else []
        if self.first < size:
            found.append(f"first {self.first}")
        if self.has_old_weights:
            found.append("older weights")
        return [*found, self.note] if self.note else found


@cache
def shipped_weights(problem: str) -> str:
    """Return the digest of the weights that the tables are about."""
    return weights_digest(CHECKPOINTS[problem], problem)


@cache
def paper_gaps(name: str) -> dict[str, float]:
    """Return the gaps in % that the paper reports for a set, by method."""
    gaps = PAPER_GAPS[name]
    if gaps is None:
        reference, costs = PAPER_COSTS[name]
        gaps = tuple(100 * (cost / reference - 1) for cost in costs)
    pairs = zip(PAPER_COLUMNS, gaps, strict=True)
    return {method: gap for method, gap in pairs if gap is not None}


# --- rows


def read_ledger(path: Path) -> list[GapRow]:
    """Return the rows of the ledger."""
    rows = list[GapRow]()
    for line in path.read_text(encoding="utf-8").splitlines():
        rows.append(GapRow(**json.loads(line)))
    return rows


def rows_of_results(results: Sequence[Result]) -> list[GapRow]:
    """Return a row for each strategy with its default settings on the first of a test set.

    Other results are not for the tables: validation instances, other settings, symmetric copies.
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        match = re.fullmatch(r"(\w+), first \d+", result.set)
        strategy = re.match(r"([\w-]+), policy [^,]*$", result.solver)
        if match and match[1] in TEST_SETS and strategy:
            groups.setdefault((result.set, result.method), []).append(result)
    return [reduce_results(some) for some in groups.values()]


def reduce_results(some: Sequence[Result]) -> GapRow:
    """Return the row of the results of one method on one set."""
    row = summarise(some)
    assert row.gap is not None, "test sets have references"
    budget = ""
    if some[0].budget.endswith(" s"):
        seconds = float(some[0].budget.split()[0]) * row.n
        budget = f" {seconds:g} s"
    elif not some[0].solver.startswith("greedy"):
        budget = " " + some[0].budget.split()[0].replace(",", "")
    weights = re.search(r"\(weights (\w+)\)", some[0].solver)
    attempts = [result.attempts for result in some if result.attempts is not None]
    is_gpu = "NVIDIA" in row.hardware
    return GapRow(
        set=some[0].set.split(",")[0],
        first=row.n,
        method=some[0].solver.split(",")[0] + budget,
        gap=round(100 * row.gap, 4),
        error=round(100 * ((row.high or row.gap) - row.gap), 4),
        where=row.hardware if is_gpu else "CPU",
        date=some[0].when[:10],
        cost=row.cost,
        seconds=round(row.total, 1),
        attempts=round(float(np.mean(attempts))) if attempts else None,
        weights=weights[1] if weights else "",
    )


def newest_rows(rows: Sequence[GapRow]) -> dict[tuple[str, str], GapRow]:
    """Return the last row of each set and method."""
    return {(row.set, row.method): row for row in rows}


# --- tables


def significant_digits(gap: float) -> int:
    """Return how many decimals of a gap say anything."""
    if gap >= 0.1:
        return 2
    return 3 if gap >= 0.01 else 4


def paper_text(gap: float) -> str:
    """Return a gap of the paper, which has three decimals at most."""
    digits = min(significant_digits(gap), 3)
    return f"{gap:.{digits}f}"


def set_title(name: str) -> str:
    """Return the name of a set as readers know it."""
    kind = next(kind for kind in TITLES if name.startswith(kind))
    return name.replace(kind, TITLES[kind])


def with_notes(text: str, notes: Sequence[str]) -> str:
    """Return a text with notes in brackets."""
    return f"{text} ({'; '.join(notes)})" if notes else text


def overview_table(rows: Sequence[GapRow]) -> str:
    """Return the table of the README: a few sets by searches, at the budget of the paper."""
    heads = list[str]()
    for attempts in OVERVIEW_BUDGETS:
        for who in ("COMPASS, paper", "COMPASS, ours", "our default"):
            heads.append(f"{who}, {attempts:,}")
    newest = newest_rows(rows)
    lines = ["| gap in % | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    lines += [overview_row(name, newest, OVERVIEW_BUDGETS) for name in OVERVIEW_SETS]
    return "\n".join(lines)


def overview_row(
    name: str, newest: dict[tuple[str, str], GapRow], budgets: Sequence[int] = BUDGETS
) -> str:
    """Return a set at each budget: the paper's COMPASS, the same search with our weights, and the
    search of `rhumb solve`.
    """
    strategies = ("cmaes", DEFAULTS[TEST_SETS[name][0]])
    found = {
        (attempts, strategy): newest.get((name, f"{strategy} {attempts}"))
        for attempts in budgets
        for strategy in strategies
    }
    size = max((row.first for row in found.values() if row), default=0)
    cells = [f"{set_title(name)}, {size:,}"]
    for attempts in budgets:
        cells.append(paper_text(paper_gaps(name)[f"cmaes {attempts}"]))
        for strategy in strategies:
            row = found[attempts, strategy]
            cells.append(with_notes(row.text(), row.caveats(size)) if row else "")
    return "| " + " | ".join(cells) + " |"


def methods_table(rows: Sequence[GapRow]) -> str:
    """Return every method that compares with the paper; a set is named once for rows of as many
    instances.
    """

    def place(row: GapRow) -> tuple[int, int, int]:
        attempts = int(row.budget) if row.budget else 0
        return list(PAPER_GAPS).index(row.set), attempts, list(METHODS).index(row.strategy)

    newest = newest_rows(rows).values()
    shown = [row for row in newest if row.strategy in METHODS and not row.is_timed]
    lines = ["| set | method | our gap | paper's gap | on |", "| --- | --- | --- | --- | --- |"]
    last = ""
    for row in sorted(shown, key=place):
        method = METHODS[row.strategy]
        if row.budget:
            method += f", {int(row.budget):,} attempts"
        facts = [row.where.removeprefix("NVIDIA ")]
        facts += ["older weights"] * row.has_old_weights + [row.note] * bool(row.note)
        title = f"{set_title(row.set)}, first {row.first:,}"
        first = "" if title == last else title
        last = title
        where = ", ".join(facts)
        lines.append(f"| {first} | {method} | {row.text()} % | {paper_comparison(row)} | {where} |")
    return "\n".join(lines)


def paper_comparison(row: GapRow) -> str:
    """Return the paper's gaps of a single agent and of COMPASS with as many attempts."""
    gaps = paper_gaps(row.set)
    found = list[str]()
    if row.method in gaps and row.strategy != "cmaes":
        found.append(f"{paper_text(gaps[row.method])} % (single agent)")
    compass = f"cmaes {row.budget}"
    if row.budget and compass in gaps:
        found.append(f"{paper_text(gaps[compass])} % (COMPASS)")
    return ", ".join(found) or "-"


def strategy_table(rows: Sequence[GapRow], columns: Sequence[tuple[str, str]]) -> str:
    """Return strategies by sets, each with a budget: gaps, and the seconds or attempts."""
    if not columns:
        return ""
    newest = newest_rows(rows)
    heads = ["gap in %"]
    table = {name: [f"`{name}`"] for name in STRATEGIES}
    for place, budget in columns:
        found = {name: newest.get((place, f"{name} {budget}")) for name in STRATEGIES}
        size = max((row.first for row in found.values() if row), default=0)
        best = best_row([row for row in found.values() if row], size)
        head = f"{set_title(place)}, {size:,}"
        heads.append(f"{head}, {budget}" if budget.endswith("s") else head)
        for name, row in found.items():
            table[name].append(strategy_cell(row, size, row is best) if row else "")
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(columns)]
    for cells in table.values():
        if any(cells[1:]):
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def best_row(rows: Sequence[GapRow], size: int) -> GapRow | None:
    """Return the row with the least gap among those that compare with one another."""
    comparable = [
        row for row in rows if row.first == size and row.where != "CPU" and not row.has_old_weights
    ]
    return min(comparable, key=lambda row: row.gap, default=None)


def strategy_cell(row: GapRow, size: int, is_best: bool) -> str:
    """Return a gap with what it took and what keeps it from being compared with its column."""
    text = f"**{row.text()}**" if is_best else row.text()
    spent = list[str]()
    if row.is_timed:
        spent.append(f"{row.attempts:,}")
    elif row.seconds is not None:
        spent.append(f"{row.seconds:g} s")
    return with_notes(text, spent + row.caveats(size))


def timed_columns(rows: Sequence[GapRow]) -> list[tuple[str, str]]:
    """Return the sets with the seconds that most strategies had."""
    columns = list[tuple[str, str]]()
    for name in COMPARED:
        newest = newest_rows(rows).values()
        budgets = Counter(row.budget for row in newest if row.set == name and row.is_timed)
        columns += [(name, budget) for budget, _ in budgets.most_common(1)]
    return columns


def update_page(page: Path, tables: dict[str, str]) -> str:
    """Return a page with tables where their marks are."""
    text = page.read_text(encoding="utf-8")
    for name, table in tables.items():
        changed = replace_section(text, name, table)
        if changed is None:
            marks = f"<!-- suite: {name} --> and <!-- end: {name} -->"
            raise SystemExit(f"{page}: has no marks {marks}")
        text = changed
    return text


def warn(text: str) -> None:
    """Print a warning about a result file."""
    print(f"warning: {text}")


def main() -> None:
    """Read all rows, make all tables, and only then write the pages."""
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("results", type=Path, nargs="*", help="of `rhumb bench compare`")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    for name, path in PAGES.items():
        parser.add_argument(f"--{name}", type=Path, default=path, help="a page")
    given = parser.parse_args()
    rows = read_ledger(given.ledger)
    rows += rows_of_results(read_result_files(given.results, warn))
    by_attempts = {
        f"attempts-{count}": strategy_table(rows, [(name, str(count)) for name in COMPARED])
        for count in BUDGETS
    }
    pages = {
        given.readme: {"gaps": overview_table(rows)},
        given.all: {"all-gaps": methods_table(rows)},
        given.search: by_attempts | {"seconds": strategy_table(rows, timed_columns(rows))},
    }
    texts = {page: update_page(page, tables) for page, tables in pages.items()}
    for page, text in texts.items():
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
