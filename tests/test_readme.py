"""The promises of the README, run."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Python block runs as it stands, with the shipped weights, and ends in a cost near the
    optimum.
    """
    monkeypatch.chdir(ROOT)
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    exec(compile(code[1], "README.md", "exec"), {})
    last = float(capsys.readouterr().out.split()[-1])
    assert 5191 <= last < 1.05 * 5191


def test_the_example_of_a_strategy_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The strategy of docs/extend/strategy.md solves the demo as it stands; with jaxtyping's
    checks, so its shapes are right.
    """
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / "extend" / "strategy.md").read_text(encoding="utf-8")
    code = next(
        block
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if "class Nearby" in block
    )
    exec(compile(code, "strategy.md", "exec"), {"__name__": "example"})
    assert 5191 <= float(capsys.readouterr().out.split()[-1]) < 1.05 * 5191


def test_every_file_that_is_named_is_there() -> None:
    """Links and commands of the README point at files of the repository."""
    links = [x for x in re.findall(r"\]\(([^)]+)\)", README) if not x.startswith("http")]
    named = re.findall(
        r"\b((?:benchmarks|recipes|examples|docs|tools|research)/[\w./-]+\.\w+)", README
    )
    missing = [x for x in links + named if not (ROOT / x).exists()]
    assert not missing


def test_the_make_targets_exist() -> None:
    """Each `make` command of the README is a target of the Makefile."""
    targets = set(
        re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    used = {
        word for line in re.findall(r"\bmake ((?:\w+ ?)+)", README) for word in line.split()[:2]
    }
    assert {"demo", "test", "docs"} <= used & targets
