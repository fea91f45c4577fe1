"""The driver of a GPU node: what a plan means, and that nothing in it can stop the rest."""

import os
import runpy
import sys
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "node.py"), run_name="node")
Node, missing, read_plan = SCRIPT["Node"], SCRIPT["missing"], SCRIPT["read_plan"]


@pytest.fixture
def plan(tmp_path: Path):
    def write(*lines: str):
        path = tmp_path / "plan.txt"
        path.write_text("\n".join(lines), encoding="utf-8")
        return read_plan(path)

    return write


def logged(tmp_path: Path, lines, limit: float = 20.0) -> list[str]:
    """What is in the log after a run, without the clock."""
    with closing(Node(tmp_path / "out", limit)) as node:
        node.run(lines)
    text = (tmp_path / "out" / "log.txt").read_text(encoding="utf-8")
    return [line.split("s: ", 1)[-1] for line in text.splitlines()]


def test_a_plan_is_read(plan) -> None:
    """Comments and empty lines are nothing; kinds and limits come first; `python` is this one."""
    together, beside, plain = plan("# why", "", "& python a.py", "~ echo 'two words'", "@2.5 sleep 1  # how long")
    assert (together.kind, together.words, together.most) == ("&", (sys.executable, "a.py"), None)
    assert (beside.kind, beside.words) == ("~", ("echo", "two words"))
    assert (plain.kind, plain.words, plain.most) == ("", ("sleep", "1"), 2.5)


def test_failures_and_limits_stop_nothing_else(tmp_path: Path, plan) -> None:
    """A command that fails is named with its code, one that takes too long is ended with all it started."""
    log = logged(tmp_path, plan("python -c 'raise SystemExit(3)'", "@0.3 sh -c 'sleep 50 & sleep 50'", "echo $OUT"))
    assert [line for line in log if line.startswith(("exit", "cut"))] == ["exit 3", "cut off", "exit 0"]
    assert str(tmp_path / "out") in log


def test_side_by_side_comes_first(tmp_path: Path, plan) -> None:
    """Two that wait for each other both end; nothing of them is in the log but how they ended."""
    wait = "touch {}; while [ ! -e {} ]; do sleep 0.02; done; echo noise; exit {}"
    one, two = tmp_path / "one", tmp_path / "two"
    lines = plan("echo later", f"& sh -c '{wait.format(one, two, 0)}'", f"& sh -c '{wait.format(two, one, 4)}'")
    log = logged(tmp_path, lines)
    assert log[0] == "2 commands side by side"
    assert [line[:6] for line in log[1:3]] == ["exit 0", "exit 4"]
    assert log[-2:] == ["later", "exit 0"]
    assert "noise" not in log


def test_what_is_beside_is_waited_for(tmp_path: Path, plan) -> None:
    """It runs while the others do, and is interrupted as by Ctrl-C when the limit is reached."""
    slow = "import time\ntry: time.sleep(50)\nexcept KeyboardInterrupt: print('kept', flush=True)"
    script = tmp_path / "slow.py"
    script.write_text(slow, encoding="utf-8")
    log = logged(tmp_path, plan(f"~ python {script}", "echo done", "sleep 50", "echo never"), limit=1.5)
    assert "kept" in log
    assert any(line.startswith("no time for") for line in log)
    assert "never" not in log


def test_files_that_are_not_there_are_named(plan) -> None:
    """Before anything is run: a plan that is wrong costs nothing."""
    assert missing(plan("python benchmarks/node.py", "& python benchmarks/nowhere.py suites/quick.toml")) == [
        "benchmarks/nowhere.py"
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "plans").glob("*.txt")), ids=os.path.basename)
def test_our_plans_name_files_that_are_there(path: Path) -> None:
    """They are run where every minute counts."""
    lines = read_plan(path)
    assert len(lines) > 5
    assert missing(lines) == []
