"""The README's table of gaps, from the lines that evaluate.py keeps: the newest of each set and method.

python benchmarks/gaps.py [docs/gaps.jsonl] [README.md]
"""

import argparse
import json
from pathlib import Path
from typing import Any

from evaluate import PAPER

from rhumbline.bench.report import put_into

METHODS = {
    "greedy": "greedy, all starts", "sampling": "sampling", "cmaes": "CMA-ES", "cmaes-elite": "CMA-ES that learns",
    "cmaes-refine": "CMA-ES that refines", "sampling-elite": "sampling that learns",
}  # fmt: skip
SETS = {"tsp": "TSP", "vrp": "CVRP", "jssp": "job shop "}


def newest(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each set and method of the table: sets in the paper's order, methods by attempts, then by name."""
    found = {(x["set"], x["method"]): x for x in lines if x["method"].split()[0] in METHODS}

    def place(x: dict[str, Any]) -> tuple[int, int, int]:
        kind, *attempts = x["method"].split()
        return list(PAPER).index(x["set"]), int(attempts[0]) if attempts else 0, list(METHODS).index(kind)

    return sorted(found.values(), key=place)


def published(name: str, method: str) -> str:
    """The paper's gap of a single agent by this method, and of its COMPASS with as many attempts."""
    known = PAPER.get(name, {})
    names = {method: "", method.replace("sampling", "cmaes").replace("-elite", "").replace("-refine", ""): " (COMPASS)"}
    names |= {} if method.startswith("cmaes") else {method: " (single agent)"}
    return ", ".join(f"{known[x]:.{digits(known[x])}f} %{who}" for x, who in names.items() if x in known) or "-"


def digits(gap: float) -> int:
    """How many say anything."""
    return 2 if gap >= 0.1 else 3


def table(lines: list[dict[str, Any]]) -> str:
    """Markdown; a set is named once for all rows of as many instances."""
    rows, last = ["| set | method | our gap | paper's gap | on |", "| --- | --- | --- | --- | --- |"], ""
    for x in newest(lines):
        name = next(x["set"].replace(short, long) for short, long in SETS.items() if x["set"].startswith(short))
        kind, *attempts = x["method"].split()
        method = METHODS[kind] + (f", {int(attempts[0]):,} attempts" if attempts else "")
        where = x["where"].removeprefix("NVIDIA ")
        title = f"{name}, first {x['first']:,}"
        places = digits(x["gap"])
        gap = f"{x['gap']:.{places}f} ± {x['error']:.{places}f} %"
        shown, last = "" if title == last else title, title
        rows.append(f"| {shown} | {method} | {gap} | {published(x['set'], x['method'])} | {where} |")
    return "\n".join(rows)


def main() -> None:
    root, parser = Path(__file__).parent.parent, argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ledger", type=Path, nargs="?", default=root / "docs/gaps.jsonl")
    parser.add_argument("page", type=Path, nargs="?", default=root / "README.md")
    args = parser.parse_args()
    lines = [json.loads(line) for line in args.ledger.read_text(encoding="utf-8").splitlines()]
    changed = put_into(args.page.read_text(encoding="utf-8"), "gaps", table(lines))
    if changed is None:
        raise SystemExit(f"{args.page}: has no marks <!-- suite: gaps --> and <!-- end: gaps -->")
    args.page.write_text(changed, encoding="utf-8")


if __name__ == "__main__":
    main()
