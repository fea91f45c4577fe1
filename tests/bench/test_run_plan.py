"""The driver of a GPU node: what a plan means, and that nothing in it can stop the rest."""

import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rhumbline.bench.compare import Comparison
from rhumbline.bench.compare.sets import TEST_SETS, parse_set_name
from rhumbline.bench.suite import read_suite
from rhumbline.checkpoint import find_checkpoint
from rhumbline.cli.commands.compare import make_parser
from rhumbline.search.strategies import build_strategy
from rhumbline.training.config import read_recipe

ROOT = Path(__file__).parents[2]
NODE = ROOT / "tools" / "run_plan.py"
SCRIPT = runpy.run_path(str(NODE), run_name="node")
Node, missing, read_plan = SCRIPT["Node"], SCRIPT["missing"], SCRIPT["read_plan"]
PLANS = sorted((ROOT / "tools" / "plans").glob("*.txt"))


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: str) -> Path:
        path = tmp_path / "plan.txt"
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    return write


def logged(tmp_path: Path, plan: Path, limit: float = 20.0, done: Path | None = None) -> list[str]:
    """What is in the log after a run, without the clock."""
    with closing(Node(tmp_path / "out", limit, done)) as node:
        node.run(read_plan(plan))
    text = (tmp_path / "out" / "log.txt").read_text(encoding="utf-8")
    return [line.split("s: ", 1)[-1] for line in text.splitlines()]


def gone(pid: int) -> bool:
    """Whether a process has ended; somebody else may still have to take note of it."""
    try:
        return (
            "Z"
            in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
        )
    except FileNotFoundError:
        return True


def test_a_plan_is_read(written) -> None:
    """Comments and empty lines are nothing; kinds and limits come first; `python` is this one."""
    plan = written("# why", "", "& python a.py", "~ echo 'two words'", "@2.5 sleep 1  # how long")
    together, beside, plain = read_plan(plan)
    assert (together.kind, together.words) == ("&", (sys.executable, "a.py"))
    assert (beside.kind, beside.words) == ("~", ("echo", "two words"))
    assert (plain.kind, plain.words, plain.most) == ("", ("sleep", "1"), 2.5)


@pytest.mark.parametrize("line", ["&", "@0 echo", "@x echo", "& @3 echo", "echo 'open"])
def test_a_wrong_line_is_named(written, line: str) -> None:
    """With its number, before anything is run."""
    with pytest.raises(SystemExit, match=r"plan.txt, line 2: "):
        read_plan(written("echo fine", line))


def test_failures_stop_nothing_else(tmp_path: Path, written) -> None:
    """Neither an exit code, nor a program that is not there, nor too little time."""
    log = logged(
        tmp_path,
        written("python -c 'raise SystemExit(3)'", "no-such-thing", "@0.3 sleep 50", "echo $OUT"),
    )
    ends = [line for line in log if line.startswith(("exit", "cut", "not started"))]
    assert ends == ["exit 3", "not started: no such program", "cut off", "exit 0"]
    assert str(tmp_path / "out") in log


def test_a_plan_goes_on_in_the_next_call(tmp_path: Path, written) -> None:
    """Without what ended well or had its share of seconds; with what failed or was cut off by
    the limit.
    """
    plan = written("& echo a", "echo b", "sh -c 'exit 3'", "@0.2 sleep 50", "sleep 60", "echo c")
    done = tmp_path / "done.txt"
    assert "no time for echo c" in logged(tmp_path, plan, 6.0, done)
    (tmp_path / "out" / "log.txt").unlink()
    again = logged(tmp_path, plan, 6.0, done)
    assert [line for line in again if line.startswith(("sh", "sleep"))] == [
        "sh -c 'exit 3'",
        "sleep 60",
    ]
    assert "exit 0: echo a" in again
    assert done.read_text(encoding="utf-8").splitlines() == ["echo b", "@0.2 sleep 50"]


@pytest.mark.parametrize("ends", ["sleep 50", "exit 0"])
def test_what_a_command_started_ends_with_it(tmp_path: Path, written, ends: str) -> None:
    """Also what a shell has put into the background, where it ignores interruptions."""
    log = logged(tmp_path, written(f"@0.5 sh -c 'sleep 50 & echo pid $!; {ends}'"))
    pid = next(int(line.split()[1]) for line in log if line.startswith("pid "))
    patience = time.monotonic() + 20.0  # the signal was sent; a busy machine may take its time
    while not gone(pid):
        assert time.monotonic() < patience, "it is still running"
        time.sleep(0.01)


def test_side_by_side_comes_first(tmp_path: Path, written) -> None:
    """Two that wait for each other both end; nothing of them is in the log but how they ended."""
    wait = "touch {}; while [ ! -e {} ]; do sleep 0.02; done; echo noise; exit {}"
    one, two = tmp_path / "one", tmp_path / "two"
    plan = written(
        "echo later",
        f"& sh -c '{wait.format(one, two, 0)}'",
        f"& sh -c '{wait.format(two, one, 4)}'",
    )
    log = logged(tmp_path, plan)
    assert log[0] == "2 commands side by side"
    assert [line[:6] for line in log[1:3]] == ["exit 0", "exit 4"]
    assert log[-2:] == ["later", "exit 0"]
    assert "noise" not in log


def test_what_is_beside_is_interrupted_at_the_end(tmp_path: Path, written) -> None:
    """It runs while the others do; at the limit it is interrupted as by Ctrl-C; the rest of the
    plan is named.
    """
    ready, slow = tmp_path / "ready", tmp_path / "slow.py"
    slow.write_text(
        "import pathlib, sys, time\n"
        "try:\n    pathlib.Path(sys.argv[1]).touch()\n    time.sleep(50)\n"
        "except KeyboardInterrupt:\n    print('kept', flush=True)\n",
        encoding="utf-8",
    )
    plan = written(
        f"~ python {slow} {ready}",
        f"sh -c 'while [ ! -e {ready} ]; do sleep 0.02; done'",
        "sleep 50",
        "echo never",
    )
    command = [sys.executable, str(NODE), str(plan), "--limit", "8", "--out", str(tmp_path / "out")]
    subprocess.run(command, check=True, capture_output=True)
    text = (tmp_path / "out" / "log.txt").read_text(encoding="utf-8")
    assert "\nkept\n" in text
    assert "no time for echo never" in text


def test_kernels_are_brought_along(tmp_path: Path, written) -> None:
    """To the next call: what a machine runs, not the stages on the way there. The first call has
    none.
    """
    cache = "$TRITON_CACHE_DIR/A"
    make = f"mkdir -p {cache} && echo code > {cache}/k.cubin && touch {cache}/k.ptx"
    for number, line in enumerate((f"sh -c '{make}'", "sh -c 'cat $TRITON_CACHE_DIR/A/k.cubin'")):
        out, cache = tmp_path / f"out{number}", tmp_path / f"cache{number}"
        command = [
            sys.executable,
            str(NODE),
            str(written(line)),
            "--limit",
            "20",
            "--out",
            str(out),
        ]
        command += ["--kernels", str(tmp_path / "out0" / "kernels.tgz")]
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            env=os.environ | {"TRITON_CACHE_DIR": str(cache)},
        )
    assert "\ncode\n" in (out / "log.txt").read_text(encoding="utf-8")
    assert [path.name for path in (cache / "A").iterdir()] == ["k.cubin"]


def test_kernels_that_are_none_are_refused(tmp_path: Path, written) -> None:
    """In words, before anything is run."""
    (tmp_path / "half.tgz").write_bytes(b"not an archive")
    command = [
        sys.executable,
        str(NODE),
        str(written("echo never")),
        "--out",
        str(tmp_path / "out"),
    ]
    command += ["--kernels", str(tmp_path / "half.tgz")]
    ended = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"TRITON_CACHE_DIR": str(tmp_path / "c")},
    )
    assert ended.returncode == 1
    assert "half.tgz: is no archive of kernels" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "out").exists()


def test_files_that_are_not_there_are_named(written) -> None:
    """Before anything is run: a plan that is wrong costs nothing."""
    plan = written(
        "python tools/run_plan.py $OUT/new.toml",
        "& nothing benchmarks/nowhere.py suites/quick.toml",
    )
    assert missing(read_plan(plan)) == ["benchmarks/nowhere.py", "nothing"]


def option(words: tuple[str, ...], name: str) -> list[str]:
    """The values of an option that may be repeated."""
    return [value for key, value in pairwise(words) if key == name]


def check_compare(words: tuple[str, ...]) -> None:
    """Sets, strategies and settings of a line are known, and its policies are there."""
    given = make_parser().parse_args(words[words.index("compare") + 1 :])
    Comparison(given.search, given.policy, given.attempts, given.seconds)
    for place in given.sets:
        problem = parse_set_name(place)[0] if given.validation else TEST_SETS[place][0]
        for policy in given.policy:
            if policy.startswith("$OUT/"):  # an earlier line trains it
                continue
            assert find_checkpoint(policy, problem).is_file()
    for text in given.search:
        name, *settings = text.split("+")
        build_strategy(name, settings)


def check_training(words: tuple[str, ...]) -> None:
    """The recipe and its changes are read."""
    read_recipe(ROOT / words[4], option(words, "--set"))


def check_command(words: tuple[str, ...]) -> None:
    """Check a line of `rhumb train` or of `rhumb bench compare`."""
    if words[3] == "train":
        check_training(words)
    else:
        check_compare(words)


def check_suite(words: tuple[str, ...]) -> None:
    """Every pattern of a line fits a set or a method of its suite."""
    suite = read_suite(ROOT / words[2])
    names = [x.name for x in (*suite.sets, *suite.methods)]
    for pattern in option(words, "--only"):
        assert any(fnmatch(name, pattern) for name in names), pattern


CHECKS: dict[str, Callable[[Any], None]] = {
    "-m": check_command,
    "tools/run_suite.py": check_suite,
}


@pytest.mark.parametrize("path", PLANS, ids=os.path.basename)
def test_our_plans_name_what_is_there(path: Path) -> None:
    """They are run where every minute counts: files, sets, methods and strategies."""
    lines = read_plan(path)
    assert len(lines) > 5
    assert missing(lines) == []
    checked = [line for line in lines if line.words[1] in CHECKS]
    assert checked
    for line in checked:
        CHECKS[line.words[1]](line.words)
