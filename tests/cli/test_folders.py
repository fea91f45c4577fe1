"""Calls with several files: what is left out, how long they take, how far they are."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rhumbline
from rhumbline import pipeline
from rhumbline.cli import solve_run
from rhumbline.cli.output import progress
from rhumbline.cli.output.progress import Overview
from rhumbline.cli.output.render import format_duration
from rhumbline.errors import InputError
from rhumbline.files import read
from rhumbline.files.discovery import discover_files, skipped_text
from rhumbline.kernels.background import CompilationTime
from rhumbline.pipeline import DEFAULT_BUDGET, TimeShares, budget_or_default
from rhumbline.problems.tsp import Tour
from rhumbline.search.driver import Budget

Run = Callable[..., Any]
BAD = "DIMENSION : 3\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n1 0 0\n2 1 1\nEOF\n"


@pytest.fixture
def solve(rhumb: Run, policy: Path) -> Run:
    """Return a function that runs a short search."""
    words = ("--policy", policy, "--search", "greedy", "--device", "cpu", "--attempts", 1)
    return lambda *more: rhumb("solve", *words, *more)


# --- what is left out


def test_bad_files_are_skipped_and_reported(solve: Run, tsp: Run, tmp_path: Path) -> None:
    """With --skip-bad each bad file has its error, the others are solved, the exit code is 3."""
    tsp("a", 6)
    tsp("z", 7)
    bad = tmp_path / "bad.tsp"
    bad.write_text(BAD)
    missing = tmp_path / "missing.tsp"
    done = solve(missing, tmp_path, "--json", "--quiet", "--skip-bad")
    assert done.exit_code == 3
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == ["a", "z"]
    first, second, last = done.stderr.splitlines()
    assert first.startswith(f"error: {missing}: there is no such file")
    assert second.startswith(f"error: {bad}:3: NODE_COORD_SECTION has 2 rows, DIMENSION says 3")
    assert last == "error: 2 files could not be used and had to be skipped; see above"


def test_nothing_but_bad_files(solve: Run, tmp_path: Path) -> None:
    """With --skip-bad all errors are printed once, and nothing is solved."""
    files = [tmp_path / "bad.tsp", tmp_path / "worse.tsp"]
    for file in files:
        file.write_text(BAD)
    done = solve(*files, "--skip-bad")
    assert (done.exit_code, done.stdout) == (3, "")
    named = [line.split(":")[1].strip() for line in done.stderr.splitlines()]
    assert named == [str(file) for file in files]


def test_skipped_files_are_named(solve: Run, tsp: Run, tmp_path: Path) -> None:
    """One note names the files of a folder that are no instances, unless --quiet was given."""
    tsp("a", 6)
    for name in ("b.md", "a.png", "empty.tsp", ".hidden"):
        (tmp_path / name).write_text("" if name == "empty.tsp" else "# nothing to solve")
    (tmp_path / "optima.json").write_text("{}")
    (tmp_path / "folder").mkdir()
    done = solve(tmp_path)
    note = "skipped 3 files that are no instances: a.png, b.md, empty.tsp"
    assert (done.exit_code, done.stderr.splitlines().count(note)) == (0, 1)
    assert solve(tmp_path, "--quiet").stderr == ""
    assert [file.name for file in discover_files(f"{tmp_path}/*").skipped] == note[39:].split(", ")
    assert skipped_text([Path("x")]) == "skipped 1 file that is no instance: x"
    assert skipped_text([Path("x")] * 10).endswith(", x, ...")


# --- how long it takes


def test_groups_share_the_total_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group gets an equal part of what is left, within the seconds of a group, and a moment
    if nothing is left.
    """
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    shares = TimeShares(12.0, 4, start_time=100.0)
    budget = Budget(50, 4.0)
    assert shares.next_budget(budget) == Budget(50, 3.0)
    now = 101.5  # the first group ended early
    assert shares.next_budget(budget) == Budget(50, 3.5)
    assert shares.next_budget(Budget(seconds=4.0)).seconds == 4.0
    now = 113.0
    seconds = shares.next_budget(budget).seconds
    assert seconds is not None
    assert 0 < seconds < 0.01
    assert TimeShares(None, 4, 0.0).next_budget(budget) is budget


def test_the_total_time_leaves_out_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a compiler delays the end of a call; loading a stored kernel does not."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    spent = CompilationTime(seconds=7.0)
    monkeypatch.setattr(pipeline, "COMPILATION_TIME", spent)
    shares = TimeShares(10.0, 2, start_time=100.0, compilation_seconds=spent.seconds)
    with spent.measure():
        now += 5.0
    assert shares.seconds_left == 10.0
    with spent.measure():
        now += 0.5
    assert shares.seconds_left == 9.5


@pytest.mark.slow
def test_files_are_searched_while_kernels_are_compiled(tmp_path: Path) -> None:
    """With an empty cache of kernels, a folder within a total time still gets its searches."""
    rng = np.random.default_rng(0)
    for size in (20, 30):
        points = rng.integers(0, 1000, (size, 2)).tolist()
        rows = "".join(f"{x},{y}\n" for x, y in points)
        (tmp_path / f"stops{size}.csv").write_text("x,y\n" + rows)
    command = [sys.executable, "-m", "rhumbline", "solve", str(tmp_path), "--json"]
    options = ["--total-seconds", "3", "--device", "cpu"]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    done = subprocess.run(
        [*command, *options], env=environment, capture_output=True, text=True, check=True
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 2
    assert all(one["attempts"] > 0 for one in found), done.stderr


def test_the_total_bounds_a_call(solve: Run, tsp: Run) -> None:
    """Three groups end within the total time, and each has a plan; --seconds would take 27 s."""
    files = [tsp(name, size) for name, size in (("a", 6), ("b", 7), ("c", 8))]
    words = ("--seconds", 9, "--total-seconds", 0.6, "--search", "sampling", "--json")
    start_time = time.monotonic()
    done = solve(*files, *words, "--attempts", 10**9)
    assert time.monotonic() - start_time < 3
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.exit_code, [one["name"] for one in found]) == (0, ["a", "b", "c"])
    assert sum(one["seconds"] for one in found) < 1
    assert "3 instances in 3 groups: at most 0.6 s in all" in done.stderr


def test_reading_counts(solve: Run, square: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a part of the total time, and of the seconds of the first group."""
    read_inputs = solve_run.read_inputs

    def slow(*given: Any) -> Any:
        time.sleep(0.3)
        return read_inputs(*given)

    monkeypatch.setattr(solve_run, "read_inputs", slow)
    (line,) = solve(square, "--total-seconds", 0.2, "--json").stdout.splitlines()
    assert json.loads(line)["phase"] == "construction"
    (line,) = solve(square, "--seconds", 9, "--then", "none", "--json").stdout.splitlines()
    assert json.loads(line)["seconds"] > 0.3


def test_groups_that_get_no_time_get_a_construction(
    solve: Run, tsp: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the total time is over, groups are not searched, and still have a verified plan; a
    problem without a construction gets a moment of search.
    """
    files = [tsp("a", 6), tsp("b", 7)]
    words = (*files, "--total-seconds", 1e-9, "--json")
    done = solve(*words)
    assert done.exit_code == 0, done.stderr
    for line, file in zip(done.stdout.splitlines(), files, strict=True):
        found = json.loads(line)
        assert (found["phase"], found["search"], found["attempts"]) == ("construction", None, 0)
        tour = Tour(tuple(number - 1 for number in found["plan"]))
        tour.check(read(file))
        assert (tour.cost(read(file)), found["verified"]) == (found["cost"], True)
    assert done.stderr.count("the total time is over: the rest gets cheap plans") == 1
    monkeypatch.setattr(pipeline, "first_solutions", lambda *_: [])
    searched = [json.loads(line) for line in solve(*words).stdout.splitlines()]
    assert [one["search"] for one in searched] == ["greedy", "greedy"]


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_nonsense_totals_are_refused(solve: Run, square: Path, value: str) -> None:
    """They are wrong usage, like those of --seconds; in Python they are errors that say so."""
    done = solve(square, "--total-seconds", value)
    assert (done.exit_code, done.stdout) == (2, "")
    with pytest.raises(InputError, match=r"total_seconds must be "):
        rhumbline.solve([[0.0, 0.0], [1.0, 0.0]], total_seconds=float(value))


def test_a_total_alone_replaces_the_default_budget() -> None:
    """It is the limit of each group too, whatever a group may spend otherwise."""
    assert budget_or_default(None, None) is DEFAULT_BUDGET
    assert budget_or_default(None, None, 90) == Budget(None, 90)
    assert budget_or_default(5, 10, 90) == Budget(5, 10)
    assert budget_or_default(5, 100, 90) == Budget(5, 90)


# --- how far it is


@pytest.mark.parametrize(
    ("budget", "total", "text"),
    [
        (Budget(seconds=10), None, "29 instances in 12 groups: at most 12 x 10 s = 2 min"),
        (Budget(7, 0.5), None, "29 instances in 12 groups: at most 12 x 0.5 s = 6 s"),
        (Budget(seconds=10), 60, "29 instances in 12 groups: at most 1 min in all"),
        (Budget(seconds=10), 500, "29 instances in 12 groups: at most 12 x 10 s = 2 min"),
        (Budget(100), None, "29 instances in 12 groups: 100 attempts for each instance"),
    ],
)
def test_the_plan_of_a_call(budget: Budget, total: float | None, text: str) -> None:
    """The first line says how many instances and groups there are, and how long they take."""
    assert Overview(29, 12, budget, total).plan() == text


def test_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of the groups to come and the rest of this one, within the total; without a limit
    of time it is expected from the groups before.
    """
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    limited = Overview(29, 12, Budget(seconds=10), None, start_time=0.0)
    bounded = Overview(29, 12, Budget(seconds=10), 60, start_time=0.0)
    free = Overview(29, 12, Budget(100), None, start_time=0.0)
    assert free.status() == "0 of 29 instances done"
    now = 8.0
    for overview in (limited, bounded, free):
        overview.end_group(3)
        overview.begin_group()
    now = 10.0
    assert limited.status() == "3 of 29 instances done   at most 1 min 48 s left"
    assert bounded.status("x") == "3 of 29 instances done   x   at most 50 s left"
    assert free.status() == "3 of 29 instances done   about 1 min 26 s left"


def test_lines_of_progress_without_a_terminal(
    solve: Run, tsp: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several instances have a line whenever one is due, a single one has none."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    words = ("--search", "sampling", "--attempts", 4)
    done = solve(tsp("a", 6), tsp("b", 6), *words)
    pattern = r"0 of 2 instances done   attempts \d+   mean best [\d.]+   latest [\d.]+"
    assert [line for line in done.stderr.splitlines() if re.fullmatch(pattern, line)]
    assert "instances done" not in solve(tsp("a", 6), *words).stderr
    assert solve(tsp("a", 6), tsp("b", 7), *words, "--quiet").stderr == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.25 s"),
        (10, "10 s"),
        (60, "1 min"),
        (100, "1 min 40 s"),
        (7500, "2 h 5 min"),
        (3600, "1 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    """Durations have the two units that suit them."""
    assert format_duration(seconds) == text
