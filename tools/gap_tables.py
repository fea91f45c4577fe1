"""Tables of gaps, from the lines that evaluate.py and strategies.py keep: the newest of each set
and method.

    python benchmarks/gaps.py [docs/gaps.jsonl] [README.md] [docs/gaps.md] [docs/search.md]

The README has the published search, what `rhumb solve` does, and the paper's own figures;
docs/gaps.md has every method that compares with the paper, docs/search.md all strategies at equal
attempts and at equal time. A row that was measured with other weights than those that are shipped
is marked, and so is one with a `note` in its line: how the search was another one then.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from evaluate import PAPER, fingerprint, of_the_paper, problem_of

from rhumbline.bench.report import replace_section

METHODS = {
    "greedy": "greedy, all starts",
    "sampling": "sampling",
    "cmaes": "CMA-ES",
    "cmaes-elite": "CMA-ES that learns",
    "cmaes-refine": "CMA-ES that refines",
    "sampling-elite": "sampling that learns",
}
SETS = {"tsp": "TSP", "vrp": "CVRP", "jssp": "job shop "}
COMPARED = ("tsp100", "tsp150", "vrp100", "vrp200", "jssp10x10", "jssp15x15")  # by all strategies
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
DEFAULTS = {
    "tsp": "cmaes-refine",
    "cvrp": "cmaes-refine",
    "jssp": "sampling-elite",
}  # of `rhumb solve` on a GPU
BUDGETS = (160, 1600)  # attempts
Line = dict[str, Any]


def newest(lines: Sequence[Line]) -> dict[tuple[str, str], Line]:
    """The last line of each set and method."""
    return {(x["set"], x["method"]): x for x in lines}


def beside_the_paper(lines: Sequence[Line]) -> list[Line]:
    """A line for each set and method of docs/gaps.md: sets in the paper's order, methods by
    attempts, then by name.
    """
    found = [
        x for x in newest(lines).values() if x["method"].split()[0] in METHODS and timed(x) is None
    ]

    def place(x: Line) -> tuple[int, int, int]:
        kind, *attempts = x["method"].split()
        return (
            list(PAPER).index(x["set"]),
            int(attempts[0]) if attempts else 0,
            list(METHODS).index(kind),
        )

    return sorted(found, key=place)


def timed(line: Line) -> str | None:
    """The seconds that a method had, if its budget was one of time."""
    words = line["method"].split()
    return words[1] if words[-1] == "s" else None


@cache
def shipped_weights(problem: str) -> str:
    """The fingerprint of those that tables are about."""
    return fingerprint(of_the_paper(problem), problem)


def is_older(line: Line) -> bool:
    """Whether a row is of weights that are no longer shipped."""
    return line.get("weights") != shipped_weights(problem_of(line["set"]))


def titled(name: str) -> str:
    """A set as readers know it."""
    return next(name.replace(short, long) for short, long in SETS.items() if name.startswith(short))


def published(name: str, method: str) -> str:
    """The paper's gap of a single agent by this method, and of its COMPASS with as many
    attempts.
    """
    known = PAPER.get(name, {})
    names = {
        method: "",
        method.replace("sampling", "cmaes")
        .replace("-elite", "")
        .replace("-refine", ""): " (COMPASS)",
    }
    names |= {} if method.startswith("cmaes") else {method: " (single agent)"}
    return ", ".join(f"{shortly(known[x])} %{who}" for x, who in names.items() if x in known) or "-"


def shortly(gap: float) -> str:
    """A gap of the paper, which has three digits at most."""
    return f"{gap:.{min(digits(gap), 3)}f}"


def digits(gap: float) -> int:
    """How many say anything."""
    return 2 if gap >= 0.1 else 3 if gap >= 0.01 else 4


def measured(line: Line) -> str:
    """A gap and its interval."""
    places = digits(line["gap"])
    return f"{line['gap']:.{places}f} ± {line['error']:.{places}f}"


def overview(lines: Sequence[Line]) -> str:
    """The README's, in Markdown: sets by searches, at two budgets."""
    heads = [
        f"{who}, {n:,}"
        for n in BUDGETS
        for who in ("COMPASS, paper", "COMPASS, ours", "our default")
    ]
    found = newest(lines)
    rows = (row_of(name, found) for name in PAPER)
    return "\n".join(
        [f"| gap in % | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads), *rows]
    )


def row_of(name: str, found: dict[tuple[str, str], Line]) -> str:
    """A set at each budget: the paper's COMPASS, the same search of our weights, and what `rhumb
    solve` does.
    """
    searches = ("cmaes", DEFAULTS[problem_of(name)])
    cells = {n: [found.get((name, f"{search} {n}")) for search in searches] for n in BUDGETS}
    size = max((x["first"] for row in cells.values() for x in row if x), default=0)
    paper = {n: shortly(PAPER[name][f"cmaes {n}"]) for n in BUDGETS}
    texts = [
        text for n, row in cells.items() for text in (paper[n], *(plain(x, size) for x in row))
    ]
    return f"| {titled(name)}, {size:,} | {' | '.join(texts)} |"


def plain(line: Line | None, size: int) -> str:
    """A gap with its interval, and what keeps it from being compared with its row."""
    if line is None:
        return ""
    return measured(line) + (f" ({'; '.join(notes)})" if (notes := marks(line, size)) else "")


def marks(line: Line, size: int) -> list[str]:
    """What keeps a line from being compared with others, of so many instances on a GPU with
    today's weights.
    """
    facts = {
        "CPU": line["where"] == "CPU",
        f"first {line['first']}": line["first"] < size,
        "older weights": is_older(line),
    }
    return [*(fact for fact, true in facts.items() if true), *filter(None, [line.get("note")])]


def table(lines: Sequence[Line]) -> str:
    """Every method that compares with the paper, in Markdown; a set is named once for all rows
    of as many instances.
    """
    rows, last = (
        ["| set | method | our gap | paper's gap | on |", "| --- | --- | --- | --- | --- |"],
        "",
    )
    for x in beside_the_paper(lines):
        kind, *attempts = x["method"].split()
        method = METHODS[kind] + (f", {int(attempts[0]):,} attempts" if attempts else "")
        facts = [
            x["where"].removeprefix("NVIDIA "),
            "older weights" if is_older(x) else "",
            x.get("note", ""),
        ]
        where = ", ".join(filter(None, facts))
        title = f"{titled(x['set'])}, first {x['first']:,}"
        shown, last = "" if title == last else title, title
        rows.append(
            f"| {shown} | {method} | {measured(x)} % | {published(x['set'], x['method'])} | {where} |"
        )
    return "\n".join(rows)


def matrix(lines: Sequence[Line], columns: Sequence[tuple[str, str]]) -> str:
    """Strategies by sets, of which each has a budget, in Markdown: gaps, and seconds or
    attempts.
    """
    if not columns:
        return ""
    found = newest(lines)
    cells = {
        name: [found.get((place, f"{name} {limit}")) for place, limit in columns]
        for name in STRATEGIES
    }
    sizes = [
        max((row[i]["first"] for row in cells.values() if row[i]), default=0)
        for i in range(len(columns))
    ]
    best = [least([row[i] for row in cells.values()], size) for i, size in enumerate(sizes)]
    titles = [
        f"{titled(place)}, {size:,}" + (f", {limit}" if limit.endswith("s") else "")
        for (place, limit), size in zip(columns, sizes, strict=True)
    ]
    rows = ["| gap in % | " + " | ".join(titles) + " |", "| --- |" + " ---: |" * len(columns)]
    for name, row in cells.items():
        if any(row):
            texts = [cell(x, size, x is top) for x, size, top in zip(row, sizes, best, strict=True)]
            rows.append(f"| `{name}` | " + " | ".join(texts) + " |")
    return "\n".join(rows)


def least(column: Sequence[Line | None], size: int) -> Line | None:
    """The best of those that compare with one another."""
    compare = (
        x for x in column if x and x["first"] == size and not is_older(x) and x["where"] != "CPU"
    )
    return min(compare, key=lambda x: x["gap"], default=None)


def cell(line: Line | None, size: int, best: bool) -> str:
    """A gap with its interval, what it took, and what keeps it from being compared with its
    column.
    """
    if line is None:
        return ""
    text = f"**{measured(line)}**" if best else measured(line)
    took = (
        f"{line['attempts']:,}"
        if timed(line)
        else f"{line['seconds']:g} s"
        if "seconds" in line
        else ""
    )
    notes = [*filter(None, [took]), *marks(line, size)]
    return f"{text} ({'; '.join(notes)})" if notes else text


def in_time(lines: Sequence[Line]) -> list[tuple[str, str]]:
    """The sets, and of each the seconds that most strategies had."""
    rows = [
        (x["set"], x["method"].split(maxsplit=1)[1]) for x in newest(lines).values() if timed(x)
    ]
    usual = {
        name: Counter(limit for place, limit in rows if place == name).most_common(1)
        for name in COMPARED
    }
    return [(name, found[0][0]) for name, found in usual.items() if found]


def main() -> None:
    root, parser = Path(__file__).parent.parent, argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ledger", type=Path, nargs="?", default=root / "docs/gaps.jsonl")
    parser.add_argument("page", type=Path, nargs="?", default=root / "README.md")
    parser.add_argument("all", type=Path, nargs="?", default=root / "docs/gaps.md")
    parser.add_argument("search", type=Path, nargs="?", default=root / "docs/search.md")
    args = parser.parse_args()
    lines = [json.loads(line) for line in args.ledger.read_text(encoding="utf-8").splitlines()]
    attempts = {
        f"attempts-{n}": matrix(lines, [(name, str(n)) for name in COMPARED]) for n in BUDGETS
    }
    pages = {
        args.page: {"gaps": overview(lines)},
        args.all: {"all-gaps": table(lines)},
        args.search: attempts | {"seconds": matrix(lines, in_time(lines))},
    }
    texts = {
        page: filled(page, tables) for page, tables in pages.items()
    }  # before anything is written
    for page, text in texts.items():
        page.write_text(text, encoding="utf-8")


def filled(page: Path, tables: dict[str, str]) -> str:
    """A page with tables where their marks are."""
    text = page.read_text(encoding="utf-8")
    for name, found in tables.items():
        changed = replace_section(text, name, found)
        if changed is None:
            raise SystemExit(
                f"{page}: has no marks <!-- suite: {name} --> and <!-- end: {name} -->"
            )
        text = changed
    return text


if __name__ == "__main__":
    main()
