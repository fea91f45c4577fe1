"""benchmarks/gaps.py: what a cell of its tables says, by hand-made lines."""

from typing import Any

import pytest


@pytest.fixture
def script(load_script: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = load_script("gaps")
    monkeypatch.setattr(module, "shipped_weights", lambda problem: "new")
    return module


def line(method: str, gap: float, **more: Any) -> dict[str, Any]:
    usual = {"set": "vrp100", "first": 256, "error": 0.02, "where": "NVIDIA H200", "weights": "new"}
    return usual | {"method": method, "gap": gap} | more


def test_a_row_of_the_overview(script: Any) -> None:
    """The newest line of each search counts, and what keeps it from being compared with its row
    is said.
    """
    lines = [
        line("cmaes 160", 9.0),
        line("cmaes 160", 0.8512),
        line("cmaes-refine 160", 0.24, first=64, note="beside others"),
        line("cmaes 1600", 0.5, weights="old"),
        line("cmaes-refine 1600", 0.095, where="CPU"),
        line("sampling-elite 1600", 0.01),
    ]
    row = script.row_of("vrp100", script.newest(lines))
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        "CVRP100, 256",
        "0.76",
        "0.85 ± 0.02",
        "0.24 ± 0.02 (first 64; beside others)",
        "0.20",
        "0.50 ± 0.02 (older weights)",
        "0.095 ± 0.020 (CPU)",
    ]


def test_a_set_that_nobody_has_measured(script: Any) -> None:
    """Has the paper's gaps alone."""
    row = script.row_of("jssp20x15", {})
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        "job shop 20x15, 0",
        "11.83",
        "",
        "",
        "10.40",
        "",
        "",
    ]
