"""The command as a process: signals, pipes, terminals, and what it imports."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rhumbline import __version__
from rhumbline.checkpoint import load
from rhumbline.files import read
from rhumbline.formats.tsplib import read_tour

Start = Callable[..., subprocess.Popen[str]]
PATIENCE = 60  # seconds; busy machines


def wait_for_line(process: subprocess.Popen[str], wanted: Callable[[str], bool]) -> str:
    """Read stderr up to the first line that `wanted` accepts, and return that line."""
    assert process.stderr
    line = process.stderr.readline()
    while line and not wanted(line):
        line = process.stderr.readline()
    assert line, "it ended before"
    return line


TRACE = ("--trace", "/dev/stderr")  # lines of progress


def is_optimal(line: str) -> bool:
    """Return whether a trace line is of the best tour of the square, the last improvement."""
    return line.startswith("{") and json.loads(line)["cost"] == 40


def test_ctrl_c_ends_the_search_and_keeps_its_tour(
    start: Start, policy: Path, square: Path, tmp_path: Path
) -> None:
    """SIGINT: exit 130, the tour verified, written and printed, no traceback."""
    budget = ("--policy", policy, "--seconds", 300, "--device", "cpu")
    process = start("solve", square, *budget, *TRACE, "--json", "--output", "out")
    wait_for_line(process, lambda line: line.startswith("square  tsp, 4 cities"))
    wait_for_line(process, is_optimal)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr) == (
        130,
        "interrupted; these plans are the best found so far\n",
    )
    found = json.loads(stdout)
    assert (found["cost"], found["verified"]) == (40, True)
    assert read_tour(tmp_path / "out" / "square.tour", read(square)).cost(read(square)) == 40


def test_a_signal_leaves_later_groups_out(
    start: Start, policy: Path, square: Path, tsp: Callable[..., Path]
) -> None:
    """SIGTERM acts like Ctrl-C; the instances that were not reached are counted."""
    process = start(
        "solve",
        square,
        tsp("b", 9),
        "--policy",
        policy,
        "--seconds",
        300,
        "--device",
        "cpu",
        *TRACE,
    )
    wait_for_line(process, is_optimal)
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr) == (130, "interrupted; 1 of 2 instances were not reached\n")
    assert [line.split()[0] for line in stdout.splitlines()] == ["square"]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Write a job shop of 20 jobs on 15 machines, too hard to prove an optimum during a test."""
    rng = np.random.default_rng(0)
    rows = [" ".join(f"{m} {rng.integers(1, 100)}" for m in rng.permutation(15)) for _ in range(20)]
    path = tmp_path / "shop.jsp"
    path.write_text("\n".join(["20 15", *rows, ""]))
    return path


@pytest.mark.parametrize("solver", ["cpsat", "tabu", "pyvrp"])
def test_ctrl_c_keeps_what_a_solver_has_found(
    start: Start, solver: str, policy: Path, shop: Path, tsp: Callable[..., Path]
) -> None:
    """After SIGINT during a solver the exit code is 130, and its best plan so far is printed as the
    solver's.
    """
    words = (shop,) if solver != "pyvrp" else (tsp("a", 60), "--policy", policy)
    budget = ("--search", "greedy", "--seconds", 600, "--device", "cpu")
    process = start("solve", *words, *budget, "--then", solver, *TRACE, "--json", "--quiet")
    traced = json.loads(wait_for_line(process, lambda line: json.loads(line)["phase"] == solver))
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    found = json.loads(stdout)
    assert (process.returncode, "Traceback" in stderr) == (130, False)
    assert found["cost"] <= traced["cost"] < found["then"]["before"]
    assert (found["phase"], found["verified"], found["then"]["after"]) == (
        solver,
        True,
        found["cost"],
    )


def test_a_closed_pipe_ends_quietly(start: Start, policy: Path, tsp: Callable[..., Path]) -> None:
    """`rhumb ... | head -0`: no traceback, and the exit code that shells give for it."""
    reader, writer = os.pipe()
    os.close(reader)
    words = ("--policy", policy, "--search", "greedy", "--device", "cpu", "--quiet")
    process = start("solve", tsp("a"), *words, stdout=writer)
    os.close(writer)
    assert (process.communicate(timeout=PATIENCE)[1], process.returncode) == ("", 141)


def test_a_full_disk_behind_stdout_is_an_error(start: Start) -> None:
    """Results that cannot be printed are an error."""
    code = (
        "import sys; from rhumbline.cli.process import print_result, run_command; "
        "sys.exit(run_command(lambda: print_result('result')))"
    )
    with open("/dev/full", "w") as full:
        process = start(args=[sys.executable, "-c", code], stdout=full)
        stderr = process.communicate(timeout=PATIENCE)[1]
    expected = "error: standard output: cannot be written (No space left on device)\n"
    assert (process.returncode, stderr) == (6, expected)


def test_a_terminal_sees_live_progress_and_stdout_stays_clean(
    start: Start, policy: Path, square: Path
) -> None:
    """The bar with attempts, best, latest and gap is drawn on stderr; stdout has only the result
    line.
    """
    ours, theirs = pty.openpty()
    words = ("--policy", policy, "--seconds", 1, "--device", "cpu")
    process = start("solve", square, *words, stderr=theirs)
    os.close(theirs)
    stdout, _ = process.communicate(timeout=PATIENCE)
    drawn = read_all(ours)
    assert process.returncode == 0
    assert stdout.startswith("square  cost 40   gap 0.00% to 40 (best known)   ")
    assert stdout.count("\n") == 1
    assert "best 40   latest 40   gap 0.00%" in drawn


def read_all(terminal: int) -> str:
    """Return everything that was drawn; reading past the end of a closed terminal is an error on
    Linux.
    """
    parts: list[bytes] = []
    try:
        while part := os.read(terminal, 65536):
            parts.append(part)
    except OSError:
        pass
    os.close(terminal)
    return b"".join(parts).decode()


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["solve", "--help"], ["train", "--help"]]
)
def test_help_is_quick(start: Start, words: list[str]) -> None:
    """Neither --help nor --version imports torch or numpy, so they take a fraction of a second."""
    code = (
        "import sys; from rhumbline.cli import main\n"
        "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    process = start(*words, args=[sys.executable, "-c", code, *words])
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert not {"torch", "numpy", "matplotlib"} & set(stderr.split())
    assert (process.returncode, bool(stdout)) == (0, True)


@pytest.mark.parametrize("verb", ["solve", "bench", "sample", "info"])
def test_flags_want_no_value(rhumb: Callable[..., Any], verb: str) -> None:
    """Only options with a value show one in the help; `--help` itself is typer's."""
    shown = [line for line in rhumb(verb, "--help").stdout.splitlines() if "<bool>" in line]
    assert all("--help" in line for line in shown), shown


@pytest.mark.parametrize("verb", ["solve", "train", "sample", "info"])
def test_every_help_has_an_example(
    rhumb: Callable[..., Any], verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The help of each command shows an example."""
    done = rhumb(verb, "--help")
    assert done.exit_code == 0
    assert f"rhumb {verb} " in done.stdout.partition("xample")[2]


def test_version(rhumb: Callable[..., Any]) -> None:
    """The version is one line on stdout."""
    done = rhumb("--version")
    assert (done.exit_code, done.stdout) == (0, f"rhumbline {__version__}\n")


def test_training_needs_neither_typer_nor_rich(start: Start, recipe: Path, tmp_path: Path) -> None:
    """`python -m rhumbline train` trains on a bare GPU node, where importing them fails."""
    for name in ("typer", "rich", "matplotlib"):
        (tmp_path / "bare" / name).mkdir(parents=True)
        (tmp_path / "bare" / name / "__init__.py").write_text(
            f"raise ImportError('no {name} here')"
        )
    bare = os.environ | {
        "PYTHONPATH": f"{tmp_path / 'bare'}:{Path(__file__).parents[2]}",
        "OMP_NUM_THREADS": "1",
    }
    process = start("train", recipe, "--out", "run", "--device", "cpu", "--quiet", env=bare)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stdout, stderr) == (0, "run/policy.safetensors\n", "")


def test_a_signal_during_training_leaves_the_checkpoint(
    start: Start, recipe: Path, tmp_path: Path
) -> None:
    """Ctrl-C: exit 130, and a readable policy."""
    process = start("train", recipe, "--device", "cpu", "--minutes", 9, "--set", "updates=0")
    assert process.stderr
    process.stderr.readline()
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stdout) == (130, "")
    assert stderr.splitlines()[-1] == "interrupted; the last checkpoint in runs/tiny is intact"
    assert "Traceback" not in stderr
    assert load(tmp_path / "runs" / "tiny" / "policy.safetensors").problem == "tsp"
