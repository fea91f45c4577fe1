"""`rhumb bench` and `rhumb report`."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rhumbline.bench import baselines, provenance
from rhumbline.bench.problems import BENCH_PROBLEMS, ReferenceSolver
from rhumbline.bench.reference.file import read_references
from rhumbline.bench.results import read_results
from rhumbline.bench.runner import CurrentWork, RunProgress
from rhumbline.cli import bench_run
from rhumbline.cli.bench_run import progress_text

Run = Callable[..., Any]
QUICK = Path(__file__).parents[2] / "suites" / "quick.toml"
GOLDEN = Path(__file__).parents[1] / "bench" / "golden" / "results.jsonl"
SUITE = """
[[set]]
name = "six"
problem = "tsp"
recipe = "uniform"
size = 6
count = 3
seed = 1
sha256 = "99eb824bf2169ac872316e7838feaa46"
reference = "six.npz"
[[method]]
name = "greedy"
strategy = "greedy"
policy = "{policy}"
attempts = 1
[[method]]
name = "nearest"
solver = "nearest"
"""


@pytest.fixture
def suite(tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(provenance, "current_commit", lambda: "c0ffee")
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "six.npz", cost=np.ones(3), made_by="me")
    path = tmp_path / "small.toml"
    path.write_text(SUITE.replace("{policy}", str(policy)))
    return path


def test_a_suite_runs_and_is_reported(rhumb: Run, suite: Path, tmp_path: Path) -> None:
    """A suite writes six lines and prints their path; the report has a row for each method; a
    second run adds nothing.
    """
    out = tmp_path / "deep" / "r.jsonl"
    done = rhumb("bench", suite, "--device", "cpu", "--out", out)
    assert (done.exit_code, done.stdout) == (0, f"{out}\n")
    assert "6 of 6   six   nearest   cost" in done.stderr
    assert len(out.read_text().splitlines()) == 6
    before = out.read_bytes()
    assert rhumb("bench", suite, "--device", "cpu", "--out", out, "--quiet").stderr == ""
    assert out.read_bytes() == before
    table = rhumb("report", out).stdout
    assert [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| ")][2:] == [
        "| greedy",
        "| nearest",
    ]


def test_results_have_a_default_path(rhumb: Run, suite: Path, tmp_path: Path) -> None:
    """Without --out they are in results/, under the name of the suite; --only and --limit
    select.
    """
    done = rhumb("bench", suite, "--device", "cpu", "--only", "nearest", "--limit", 2)
    assert done.stdout == "results/small.jsonl\n"
    lines = [json.loads(x) for x in (tmp_path / "results/small.jsonl").read_text().splitlines()]
    assert [(x["method"], x["instance"]) for x in lines] == [
        ("nearest", "six-00001"),
        ("nearest", "six-00002"),
    ]


@pytest.mark.parametrize("kind", ["md", "csv", "latex"])
def test_reports_come_in_three_formats(rhumb: Run, suite: Path, tmp_path: Path, kind: str) -> None:
    """Each format is deterministic: the same lines give the same text."""
    rhumb("bench", suite, "--device", "cpu", "--only", "nearest", "--out", tmp_path / "r.jsonl")
    one, two = (rhumb("report", tmp_path / "r.jsonl", "--format", kind) for _ in range(2))
    assert (one.exit_code, one.stderr) == (0, "")
    assert one.stdout == two.stdout != ""


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["bench"], 2, "Missing argument"),
        (["bench", "nowhere.toml"], 3, "nowhere.toml: no such suite"),
        (["bench", "small.toml", "other.toml"], 2, "expected one suite"),
        (["bench", "reference"], 2, "expected one suite"),
        (["bench", "small.toml", "--seconds", "1"], 2, "a suite has its own budgets"),
        (
            ["bench", "small.toml", "--only", "x"],
            3,
            "--only x: no such set or method in suite 'small'",
        ),
        (["bench", "small.toml", "--limit", "0"], 2, "--limit"),
        (["bench", "small.toml", "--folder", "x"], 3, "--folder x: expected NAME=DIR"),
        (
            ["bench", "small.toml", "--out", "/proc/nothing/r.jsonl"],
            3,
            "nothing can be written there",
        ),
        (["report"], 2, "Missing argument"),
        (["report", "nowhere.jsonl"], 3, "nowhere.jsonl: there is no such file"),
        (["report", "empty.jsonl"], 3, "empty.jsonl: holds no results"),
        (["report", "empty.jsonl", "--format", "pdf"], 2, "'pdf' is not known"),
    ],
)
def test_bad_usage_is_one_message(
    rhumb: Run, suite: Path, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    """Exit codes are those of all commands, with the reason in words, never a traceback."""
    (tmp_path / "empty.jsonl").touch()
    done = rhumb(*words)
    assert (done.exit_code, done.stdout) == (code, "")
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_page_can_be_updated(rhumb: Run, suite: Path, tmp_path: Path) -> None:
    """The tables go between the marks of their suite, any number of times; a page without marks is
    refused.
    """
    rhumb("bench", suite, "--device", "cpu", "--only", "nearest", "--out", tmp_path / "r.jsonl")
    page = tmp_path / "page.md"
    page.write_text("# Results\n\n<!-- suite: small -->\n<!-- end: small -->\n")
    for _ in range(2):
        assert rhumb("report", tmp_path / "r.jsonl", "--into", page).stdout == f"{page}\n"
    assert page.read_text().count("| nearest |") == 1
    page.write_text("# Results\n")
    done = rhumb("report", tmp_path / "r.jsonl", "--into", page)
    assert (done.exit_code, page.read_text()) == (3, "# Results\n")
    assert "has no place for suite 'small'; write '<!-- suite: small -->'" in done.stderr
    assert rhumb("report", tmp_path / "r.jsonl", "--into", page, "--format", "csv").exit_code == 2


def test_a_missing_solver_is_exit_4(
    rhumb: Run, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the command that installs it."""
    suite.write_text(suite.read_text().replace('solver = "nearest"', 'solver = "lkh"'))
    monkeypatch.setattr(baselines, "find_spec", lambda name: None)
    done = rhumb("bench", suite, "--device", "cpu")
    assert done.exit_code == 4
    assert "needs elkai; get it with: pip install 'rhumbline[lkh]'" in done.stderr


def refer_to_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the references of TSPs be made by the solver that needs no library."""
    nearest = replace(BENCH_PROBLEMS["tsp"], reference=ReferenceSolver("nearest"))
    monkeypatch.setitem(BENCH_PROBLEMS, "tsp", nearest)


def test_references_are_made_and_continued(
    rhumb: Run, suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference solver solves what the file lacks; stored costs stay, and gaps are to both."""
    refer_to_nearest(monkeypatch)
    np.savez(tmp_path / "six.npz", cost=np.array([0.5]), made_by="me")
    done = rhumb("bench", "reference", suite, "--limit", 2, "--machine", "a desk")
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'six.npz'}\n")
    assert rhumb("bench", suite, "--device", "cpu").exit_code == 3
    assert rhumb("bench", "reference", suite, "--workers", 2).exit_code == 0
    stored = read_references(tmp_path / "six.npz")
    assert (stored.cost[0], stored.made_by[0], len(stored.cost)) == (0.5, "me", 3)
    assert [x.startswith("nearest neighbour + 2-opt") for x in stored.made_by] == [
        False,
        True,
        True,
    ]
    assert stored.made_on[1].endswith(", a desk, 1 process")
    assert stored.made_on[2].endswith(", 2 processes")
    assert rhumb("bench", suite, "--device", "cpu", "--only", "nearest", "--quiet").exit_code == 0
    lines = [json.loads(x) for x in (tmp_path / "results/small.jsonl").read_text().splitlines()]
    assert [x["cost"] == x["reference"] for x in lines] == [False, True, True]
    assert lines[0]["referee"].startswith("me (1); nearest neighbour")


def test_references_stop_in_time_and_say_so(
    rhumb: Run, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --minutes 0 nothing is solved; the message says that the same command continues."""
    refer_to_nearest(monkeypatch)
    Path("six.npz").unlink()
    done = rhumb("bench", "reference", suite, "--minutes", 0)
    assert (done.exit_code, Path("six.npz").exists()) == (0, False)
    assert "six.npz: has 0 of 3; the same command goes on from there" in done.stderr


def test_references_made_elsewhere_are_taken_over(rhumb: Run, suite: Path, tmp_path: Path) -> None:
    """The better cost of both files is kept with its solver. With --minutes 0 nothing is solved. A
    missing folder is refused.
    """
    (tmp_path / "node").mkdir()
    np.savez(
        tmp_path / "node" / "six.npz", cost=np.array([2.0, 0.5]), made_by="them", made_on="a node"
    )
    assert (
        rhumb("bench", "reference", suite, "--from", tmp_path / "node", "--minutes", 0).exit_code
        == 0
    )
    stored = read_references(tmp_path / "six.npz")
    assert (stored.cost.tolist(), stored.made_by.tolist()) == (
        [1.0, 0.5, 1.0],
        ["me", "them", "me"],
    )
    done = rhumb("bench", "reference", suite, "--from", tmp_path / "nowhere")
    assert (done.exit_code, "is no folder" in done.stderr) == (3, True)


def test_options_of_references_are_refused_for_suites(rhumb: Run, suite: Path) -> None:
    """Options without an effect are refused."""
    done = rhumb("bench", suite, "--minutes", 2)
    assert done.exit_code == 2
    assert "is for `rhumb bench reference`" in done.stderr


@pytest.mark.parametrize(
    "words",
    [("--out", "r.jsonl"), ("--threads", 2), ("--device", "cpu"), ("--engine", "torch")],
    ids=lambda w: w[0],
)
def test_options_of_suites_are_refused_for_references(
    rhumb: Run, suite: Path, words: tuple[Any, ...]
) -> None:
    """Options without an effect are refused: with --out ignored, a user looks for a file
    in vain.
    """
    done = rhumb("bench", "reference", suite, *words)
    assert done.exit_code == 2
    assert "means nothing to `rhumb bench reference`" in " ".join(
        done.stderr.replace("│", " ").split()
    )


def test_a_closed_pipe_does_not_skip_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`rhumb report ... | head -2` closes the pipe early: the folder still gets its figures, and
    the exit code says so.
    """

    def print_to_closed_pipe(line: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(bench_run, "print_result", print_to_closed_pipe)
    lines = [json.loads(x) for x in GOLDEN.read_text().splitlines()[:2]]
    steps = [[16, 1.0, 8.5, 8.5], [32, 2.0, 8.0, 8.0]]
    (tmp_path / "r.jsonl").write_text(
        "".join(json.dumps(x | {"trace": steps}) + "\n" for x in lines)
    )
    with pytest.raises(BrokenPipeError):
        bench_run.print_report([tmp_path / "r.jsonl"], "md", tmp_path / "figures", None)
    assert [p.name for p in (tmp_path / "figures").iterdir()] == ["search-demo-one.png"]
    assert "-> " in capsys.readouterr().err


def test_progress_tells_the_time_left() -> None:
    """The line counts what is done, and estimates the rest while there is an estimate."""
    assert progress_text(RunProgress(3, 10, 150.0, ()), (), 150.0) == "3 of 10   about 2.5 min left"
    assert progress_text(RunProgress(10, 10, 0.0, ()), (), 0.0) == "10 of 10"


def test_progress_says_what_is_running() -> None:
    """The line names the set, the method and the effort so far instead of the last result."""
    (found, *_) = read_results(GOLDEN, print)
    current = CurrentWork("tsp200", "COMPASS", "640 of 1,600 attempts")
    progress = RunProgress(0, 8, 31.0, (), current)
    line = "0 of 8   tsp200   COMPASS   640 of 1,600 attempts   about 31.0 s left"
    assert progress_text(progress, (found,), 31.0) == line


def test_long_work_is_reported_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an update each second every fifth is printed, and none with --quiet."""
    now = [0.0]
    monkeypatch.setattr(bench_run.time, "monotonic", lambda: now[0])
    for quiet, lines in (
        (False, ["0 of 8   s   m   5", "0 of 8   s   m   10", "0 of 8   s   m   15"]),
        (True, []),
    ):
        printer = bench_run.ProgressPrinter(quiet, due=now[0] + 5.0)
        for second in range(1, 16):
            now[0] += 1.0
            printer.update(RunProgress(0, 8, None, (), CurrentWork("s", "m", str(second))))
        assert capsys.readouterr().err.splitlines() == lines


def test_an_interrupted_run_says_what_is_kept(
    rhumb: Run, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line counts the results in the file; the exit code is that of Ctrl-C."""
    solve, calls = baselines.BASELINES["nearest"].solvers["tsp"], list[Any]()

    def interrupted(work: Any) -> list[int]:
        calls.append(work)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return solve(work)

    monkeypatch.setitem(
        baselines.BASELINES,
        "nearest",
        baselines.Baseline("n", {"tsp": interrupted}, needs_seconds=False),
    )
    done = rhumb("bench", suite, "--device", "cpu", "--only", "nearest")
    assert done.exit_code == 130
    assert (
        "results/small.jsonl: 2 of 3 results are kept; the same command goes on from there"
        in done.stderr
    )
    assert len(Path("results/small.jsonl").read_text().splitlines()) == 2
    assert "3 of 3" in rhumb("bench", suite, "--device", "cpu", "--only", "nearest").stderr


def test_progress_says_what_is_missing() -> None:
    """A result without a cost has a reason instead, and does not count for the mean cost."""
    (found, *_) = read_results(GOLDEN, print)
    lost = replace(found, cost=None, missing="too many vehicles")
    assert (
        progress_text(RunProgress(1, 1, 0.0, ()), (lost,), 0.0)
        == "1 of 1   one   A   missing: too many vehicles"
    )
    assert "cost 7.7000" in progress_text(RunProgress(2, 2, 0.0, ()), (lost, found), 0.0)


@pytest.mark.slow
def test_the_quick_suite_runs_with_the_shipped_weights(rhumb: Run, tmp_path: Path) -> None:
    """One instance of each set, as CI can afford; the gaps are those of a trained policy."""
    out = tmp_path / "quick.jsonl"
    done = rhumb("bench", QUICK, "--device", "cpu", "--limit", 1, "--out", out, "--quiet")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = [json.loads(x) for x in out.read_text().splitlines()]
    ours = [x for x in lines if "policy" in x["solver"]]
    assert (len(lines), len(ours)) == (
        19,
        14,
    )  # four on each of three sets of tours, five on vehicles, two on shops
    assert all(x["cost"] >= x["reference"] * (1.0 - 1e-6) for x in lines)
    assert all(x["cost"] < x["reference"] * 1.1 for x in ours)
    assert rhumb("report", out).exit_code == 0


@pytest.mark.slow
def test_workers_measure_what_one_process_measures(rhumb: Run, suite: Path, tmp_path: Path) -> None:
    """The same costs; the machine of the lines says how many workers shared it."""
    files = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    assert rhumb("bench", suite, "--device", "cpu", "--out", files[0]).exit_code == 0
    words = ("bench", suite, "--device", "cpu", "--workers", 2, "--out", files[1])
    done = rhumb(*words)
    assert (done.exit_code, done.stdout) == (0, f"{files[1]}\n"), done.stderr
    costs: list[dict[Any, Any]] = []
    for file in files:
        results = read_results(file, print)
        costs.append({result.key: result.cost for result in results})
        assert len(results) == 6
    assert costs[0] == costs[1]
    assert "2 at a time" in read_results(files[1], print)[0].machine
    before = files[1].read_bytes()
    assert rhumb(*words).exit_code == 0
    assert files[1].read_bytes() == before
