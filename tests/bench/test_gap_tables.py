"""tools/gap_tables.py: what its tables say, by rows made by hand and by results."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rhumbline.bench.results import Result

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gap_tables

    monkeypatch.setattr(gap_tables, "shipped_weights", lambda problem: "new")
    return gap_tables


def row(tables: Any, method: str, gap: float, **more: Any) -> Any:
    usual = {"set": "vrp100", "first": 256, "error": 0.02, "where": "NVIDIA H200", "weights": "new"}
    return tables.GapRow(**usual | {"method": method, "gap": gap, "date": "today"} | more)


def cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.split("|")[1:-1]]


def test_a_row_of_the_overview(tables: Any) -> None:
    """The newest row of each search counts, with what keeps it from being compared."""
    rows = [
        row(tables, "cmaes 160", 9.0),
        row(tables, "cmaes 160", 0.8512),
        row(tables, "cmaes-refine 160", 0.24, first=64, note="beside others"),
        row(tables, "cmaes 1600", 0.5, weights="old"),
        row(tables, "cmaes-refine 1600", 0.095, where="CPU"),
        row(tables, "sampling-elite 1600", 0.01),
    ]
    assert cells(tables.overview_row("vrp100", tables.newest_rows(rows))) == [
        "CVRP100, 256",
        "0.76",
        "0.85 ± 0.02",
        "0.24 ± 0.02 (first 64; beside others)",
        "0.20",
        "0.50 ± 0.02 (older weights)",
        "0.095 ± 0.020 (CPU)",
    ]


def test_weights_that_were_rounded_are_not_older(tables: Any, monkeypatch: Any) -> None:
    """A row of the float32 weights, from which those in 16 bits were made, has no mark."""
    monkeypatch.setattr(tables, "ROUNDED", {"exact": "new"})
    assert not row(tables, "cmaes 160", 0.5, weights="exact").has_old_weights
    assert row(tables, "cmaes 160", 0.5, weights="other").has_old_weights


def test_a_set_without_measurements(tables: Any) -> None:
    """Has the paper's gaps alone."""
    found = cells(tables.overview_row("jssp20x15", {}))
    assert found == ["JSSP 20x15, 0", "11.83", "", "", "10.40", "", ""]


def test_strategies_at_equal_time(tables: Any) -> None:
    """The seconds that most strategies had are a column; the best comparable gap is bold."""
    rows = [
        row(tables, "cmaes 5 s", 0.5, attempts=100),
        row(tables, "cmaes-refine 5 s", 0.3, attempts=1200),
        row(tables, "sgbs 9 s", 0.1, attempts=7),
        row(tables, "eas-emb 5 s", 0.2, attempts=9, weights="old"),
    ]
    columns = tables.timed_columns(rows)
    assert columns == [("vrp100", "5 s")]
    lines = tables.strategy_table(rows, columns).splitlines()
    assert cells(lines[0]) == ["gap in %", "CVRP100, 256, 5 s"]
    assert {cells(line)[0]: cells(line)[1] for line in lines[2:]} == {
        "`cmaes`": "0.50 ± 0.02 (100)",
        "`eas-emb`": "0.20 ± 0.02 (9; older weights)",
        "`cmaes-refine`": "**0.30 ± 0.02** (1,200)",
    }


def result(place: int, cost: float) -> Result:
    """A line of `rhumb bench compare vrp100 --first 2`, solved together with the other one."""
    texts = dict.fromkeys(("suite", "suite_hash", "commit", "machine", "set_hash"), "x")
    return Result(
        **texts,
        set="vrp100, first 2",
        method="cmaes, cvrp100, 160 attempts",
        instance=f"vrp100-{place}",
        seed=0,
        problem="cvrp",
        size=101,
        cost=cost,
        reference=10.0,
        referee="HGS",
        attempts=160,
        seconds=3.0,
        together=2,
        hardware="NVIDIA H200",
        solver="cmaes, policy cvrp100 (weights new)",
        budget="160 attempts",
        versions={},
        when="2026-11-18T20:00:00+00:00",
    )


def test_results_become_rows(tables: Any) -> None:
    """By hand: gaps of 1 and 3 % are 2 ± 1.96; the seconds of a group count once."""
    (found,) = tables.rows_of_results([result(1, 10.1), result(2, 10.3)])
    assert (found.set, found.first, found.method) == ("vrp100", 2, "cmaes 160")
    assert (found.gap, found.error) == pytest.approx((2.0, 1.96), abs=1e-4)
    assert (found.seconds, found.attempts, found.weights) == (3.0, 160, "new")
    assert (found.date, found.where) == ("2026-11-18", "NVIDIA H200")
    assert cells(tables.overview_row("vrp100", tables.newest_rows([found])))[2] == "2.00 ± 1.96"


@pytest.mark.parametrize(
    "change",
    [
        {"set": "vrp100, validation, first 2"},
        {"set": "vrp100, first 2 without 1"},
        {"solver": "cmaes, starts 1.0, policy cvrp100 (weights new)"},
        {"solver": "cmaes, 8 copies, policy cvrp100 (weights new)"},
    ],
)
def test_other_results_are_not_for_the_tables(tables: Any, change: dict[str, str]) -> None:
    """Validation instances, parts of a set, other settings and symmetric copies."""
    assert tables.rows_of_results([replace(result(1, 10.1), **change)]) == []


def test_budgets_of_seconds_are_those_of_all_instances(tables: Any) -> None:
    """As in the heads of the tables; suites count them for each instance."""
    some = [replace(result(place, 10.1), budget="2.5 s") for place in (1, 2)]
    assert tables.rows_of_results(some)[0].method == "cmaes 5 s"


def test_tables_of_gaps_are_those_of_the_ledger(tmp_path: Path) -> None:
    """They are not edited by hand: the script that makes them leaves the pages as they are."""
    names = {
        "readme": "README.md",
        "all": "research/notebooks/gaps.md",
        "search": "docs/results/strategies.md",
    }
    command = [sys.executable, str(ROOT / "tools" / "gap_tables.py")]
    for option, name in names.items():
        command += [f"--{option}", str(shutil.copy(ROOT / name, tmp_path / f"{option}.md"))]
    subprocess.run(command, check=True, cwd=ROOT)
    for option, name in names.items():
        made = (tmp_path / f"{option}.md").read_text(encoding="utf-8")
        assert made == (ROOT / name).read_text(encoding="utf-8")
