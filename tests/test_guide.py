"""The examples of docs/guide/solve.md, run."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rhumbline
from rhumbline.cli.app import app

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "guide" / "solve.md").read_text(encoding="utf-8")


def example(language: str) -> str:
    """Return the only block of a language."""
    (code,) = re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    return code


def test_the_table_is_an_instance(tmp_path: Path) -> None:
    """The CSV example is the CVRP that the page says it is."""
    path = tmp_path / "deliveries.csv"
    path.write_text(example("csv"))
    instance = rhumbline.read(path)
    assert (instance.problem, instance.size, instance.vehicles) == ("cvrp", 5, 3)
    assert [load / instance.load_factor for load in instance.demands] == [0, 7.5, 6, 12, 4.5]
    assert instance.capacity / instance.load_factor == 20


def test_the_calls_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of the block returns verified solutions; the seconds of one are shortened."""
    monkeypatch.chdir(ROOT)
    code = example("python").replace("seconds=2", "attempts=8").replace("10, 50, 2", "2, 10, 2")
    counts: list[int] = []
    solve = rhumbline.solve

    def count(*words, **options):
        counts.append(len(solve(*words, **options, device="cpu", threads=1)))

    monkeypatch.setattr(rhumbline, "solve", count, raising=False)
    exec(compile(code, "solve.md", "exec"), {})
    assert counts == [1, 1, 2, 1, 1, 1, 1, 1]


def test_the_checks_from_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands with examples pass."""
    monkeypatch.chdir(ROOT)
    commands = re.findall(r"^rhumb (check examples[^#|\n]*)", GUIDE, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert CliRunner().invoke(app, command.split()).exit_code == 0
