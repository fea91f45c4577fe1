"""benchmarks/micro: each program runs on a CPU, and its lines hold what was measured."""

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MICRO = ROOT / "benchmarks" / "micro"
FEW = ["--device", "cpu", "--threads", "1", "--repeats", "1"]
CASES = {
    "rollout": ["--size", "8", "--latents", "2"],
    "rollout of vehicles": ["--problem", "cvrp", "--size", "8", "--latents", "2"],
    "rollout of completions": ["--size", "12", "--completions", "3"],
    "rollout of job shops": ["--problem", "jssp", "--size", "3x3", "--engines", "torch"],
    "rollout with a layer": ["--size", "8", "--latents", "2", "--layer", "--engines", "torch"],
    "scoring": ["--size", "8", "--instances", "2", "--plans", "3"],
    "train_step": ["--only", "TSP100 COMPASS", "--batch", "1", "--updates", "1"],
    "search_step": ["--size", "8", "--search", "cmaes+population=4"],
    "partitioning": ["--size", "8", "--instances", "2", "--pool", "16", "--width", "8"],
    "local_search": ["--size", "12", "--tries", "2"],
}


Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a program in this process; what it prints."""

    def run_program(program: str, *words: str) -> str:
        monkeypatch.syspath_prepend(str(MICRO))
        path = MICRO / f"{program}.py"
        monkeypatch.setattr(sys, "argv", [str(path), *words])
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    return run_program


@pytest.mark.parametrize("case", CASES)
def test_each_program_measures(run: Run, case: str, tmp_path: Path) -> None:
    """Every case has a time above 0, and says where and with what it was measured."""
    program = case.partition(" ")[0]
    lines = tmp_path / "lines.jsonl"
    run(program, *FEW, *CASES[case], "--json", str(lines))
    found = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    assert found
    for one in found:
        assert one["benchmark"] == program
        assert one["milliseconds"] > 0
        assert one["rate"] is None or one["rate"] > 0
        assert one["hardware"].endswith("1 thread")
        assert {"torch", "numpy"} <= set(one["versions"])


def test_engines_agree_and_are_compared(run: Run) -> None:
    """Both engines build the same plans, and the ratio of their times is printed."""
    told = run("rollout", *FEW, "--size", "8", "--latents", "2")
    assert "equal plans 100.00%" in told
    assert "fused is" in told


def test_every_program_has_a_case() -> None:
    """`startup` alone is left out: it takes four processes, and seconds of each."""
    programs = {path.stem for path in MICRO.glob("*.py")} - {"harness", "startup"}
    assert {case.partition(" ")[0] for case in CASES} == programs
    assert len(programs) + 1 <= 8
