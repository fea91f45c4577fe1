"""`rhumb solve --results` loses and repeats nothing, whatever interrupts it; `rhumb merge`."""

import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rhumbline.cli.commands.merge import ranges_text
from rhumbline.cli.many import run as many_run
from rhumbline.formats.dataset import save_dataset

Run = Callable[..., Any]
COUNT = 30
TIMES = ("seconds", "file")  # what differs between two runs


@pytest.fixture
def cities(tmp_path: Path) -> Path:
    """Write a dataset of random cities; the last instance is equal to the first."""
    xy = np.random.default_rng(5).random((COUNT, 6, 2)).astype(np.float32)
    xy[-1] = xy[0]
    path = tmp_path / "cities.safetensors"
    save_dataset(path, xy, {})
    return path


@pytest.fixture
def solve(rhumb: Run, policy: Path, cities: Path) -> Run:
    """Return a function that solves the dataset in chunks of 4 with more options."""

    def run(*words: object) -> Any:
        budget = ("--attempts", 4, "--search", "sampling", "--chunk", 4)
        return rhumb("solve", cities, "--policy", policy, "--device", "cpu", *budget, *words)

    return run


def read_lines(path: Path) -> dict[int, dict[str, Any]]:
    """Return the lines of a results file by place, without times; each is there once."""
    found: dict[int, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        facts = json.loads(line)
        assert facts["place"] not in found
        found[facts["place"]] = {name: facts[name] for name in facts if name not in TIMES}
    return found


def test_a_line_for_each_instance(solve: Run, tmp_path: Path) -> None:
    """Verified, with what `--json` says; equal instances have keys of their own."""
    out = tmp_path / "out.jsonl"
    done = solve("--results", out)
    assert (done.exit_code, done.stdout) == (0, ""), done.stderr
    assert "30 instances solved   mean cost" in done.stderr
    lines = read_lines(out)
    assert sorted(lines) == list(range(COUNT))
    assert all(line["verified"] and line["search"] == "sampling" for line in lines.values())
    assert sorted(lines[0]["plan"]) == [1, 2, 3, 4, 5, 6]
    assert lines[0]["name"] == "cities-0001"
    keys = {line["instance"] for line in lines.values()}
    assert len(keys) == COUNT
    assert lines[COUNT - 1]["instance"] == f"{lines[0]['instance']}-2"


def test_started_again_it_skips_what_is_there(solve: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    solve("--results", out)
    before = out.read_bytes()
    done = solve("--results", out)
    assert done.exit_code == 0
    assert "0 instances solved   30 were there already" in done.stderr
    assert out.read_bytes() == before


@pytest.mark.parametrize("kept", [0, 1, 150, 2000, 5000])
def test_a_file_that_was_cut_off_is_completed(solve: Run, tmp_path: Path, kept: int) -> None:
    """At any byte: the plans are those of a run that was never interrupted."""
    whole = tmp_path / "whole.jsonl"
    solve("--results", whole)
    part = tmp_path / "part.jsonl"
    part.write_bytes(whole.read_bytes()[:kept])
    assert solve("--results", part).exit_code == 0
    assert read_lines(part) == read_lines(whole)


def test_shards_together_are_the_whole(rhumb: Run, solve: Run, tmp_path: Path) -> None:
    """Every chunk belongs to one of them, and `rhumb merge` puts them into order."""
    whole = tmp_path / "whole.jsonl"
    solve("--results", whole)
    for index in (1, 2, 3):
        part = tmp_path / f"part-{index}.jsonl"
        assert solve("--results", part, "--shard", f"{index}/3").exit_code == 0
    merged = tmp_path / "merged.jsonl"
    parts = sorted(tmp_path.glob("part-*"))
    done = rhumb("merge", *parts, "--out", merged, "--count", COUNT)
    assert (done.exit_code, done.stdout) == (0, f"{merged}\n")
    assert list(read_lines(merged)) == list(range(COUNT))
    assert read_lines(merged) == read_lines(whole)


def test_merge_says_what_is_missing(rhumb: Run, solve: Run, tmp_path: Path) -> None:
    part = tmp_path / "part.jsonl"
    solve("--results", part, "--shard", "2/3")
    merged = tmp_path / "merged.jsonl"
    done = rhumb("merge", part, part, "--out", merged, "--count", COUNT)
    assert done.exit_code == 5
    assert "were there twice" in done.stderr
    assert "20 instances are missing, at places 0-3, 8-15, 20-27" in done.stderr
    assert rhumb("merge", part, "--out", merged).exit_code == 3  # it exists
    assert rhumb("merge", tmp_path / "none", "--out", tmp_path / "m").exit_code == 3


def test_shard_auto_reads_the_environment(
    solve: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is shared out without `--shard`, not even inside a job array."""
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    solve("--results", tmp_path / "all.jsonl")
    solve("--results", tmp_path / "auto.jsonl", "--shard", "auto", "--shards", 3)
    solve("--results", tmp_path / "two.jsonl", "--shard", "2/3")
    assert len(read_lines(tmp_path / "all.jsonl")) == COUNT
    assert read_lines(tmp_path / "auto.jsonl") == read_lines(tmp_path / "two.jsonl")


def test_without_a_file_results_go_to_standard_output(solve: Run) -> None:
    """As people read them, or as JSON."""
    done = solve("--shard", "1/4", "--quiet")
    assert done.exit_code == 0
    assert done.stdout.startswith("cities-0001  cost ")
    lines = solve("--shard", "1/4", "--json", "--quiet").stdout.splitlines()
    assert [json.loads(line)["place"] for line in lines] == [0, 1, 2, 3, 16, 17, 18, 19]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--seed", 7), 3, ":1: holds results of other options; choose another file, or repeat"),
        (("--chunk", 5), 3, "holds results of other options"),
        (("--shard", "4/3"), 3, "expected 1/3 to 3/3"),
        (("--shard", "auto"), 3, "finds neither SLURM_ARRAY_TASK_ID"),
        (("--shards", 3), 3, "--shards is for --shard auto"),
        (("--workers", "all"), 2, "expected a number of processes, auto or ray"),
        (("--workers", "0"), 2, "expected a number of processes, auto or ray"),
        (("--output", "plans"), 2, "is not for --results"),
        (("--plot",), 2, "is not for --results"),
        (("--trace", "t"), 2, "is not for --results"),
        (("--total-seconds", 3), 2, "is not for --results"),
        (("--warm-start", "x.tour"), 2, "is not for --results"),
        (("--json",), 2, "is not for --results"),
        (("--search", "smapling"), 2, "did you mean"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(
    solve: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[Any, ...],
    code: int,
    message: str,
) -> None:
    out = tmp_path / "out.jsonl"
    solve("--results", out, "--shard", "1/8")
    before = out.read_bytes()
    monkeypatch.setattr(many_run, "solve_with_workers", never)
    done = solve("--results", out, *words)
    assert done.exit_code == code
    assert message in " ".join(done.stderr.split())
    assert out.read_bytes() == before


def never(*words: Any) -> Any:
    """Stand for work that must not begin."""
    raise AssertionError(words)


def test_an_interruption_keeps_what_is_done(
    solve: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks that were solved are in the file, and the same command goes on from there."""
    out = tmp_path / "out.jsonl"
    real = many_run.solve_with_workers

    def interrupted(*words: Any) -> Iterator[Any]:
        results = real(*words)
        yield next(results)
        yield next(results)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(many_run, "solve_with_workers", interrupted)
    done = solve("--results", out)
    assert done.exit_code == 130
    assert "8 results are kept in" in done.stderr
    assert "the same command goes on from there" in done.stderr
    monkeypatch.setattr(many_run, "solve_with_workers", real)
    assert solve("--results", out).exit_code == 0
    assert sorted(read_lines(out)) == list(range(COUNT))


def test_bad_files_are_skipped_on_request(
    rhumb: Run, tsp: Run, policy: Path, tmp_path: Path
) -> None:
    """The others are solved; without --skip-bad the run ends there and keeps what is done."""
    good = tsp("good")
    bad = tmp_path / "bad.tsp"
    bad.write_text("DIMENSION : x\n")
    words = ("--policy", policy, "--device", "cpu", "--attempts", 2, "--search", "sampling")
    out = tmp_path / "out.jsonl"
    done = rhumb("solve", bad, good, *words, "--results", out, "--skip-bad")
    assert done.exit_code == 3
    assert "bad.tsp:1: " in done.stderr
    assert [line["name"] for line in read_lines(out).values()] == ["good"]
    assert json.loads(out.read_text())["file"] == str(good)
    assert rhumb("solve", bad, good, *words, "--results", tmp_path / "x").exit_code == 3


def test_an_instance_that_cannot_be_solved_has_a_line_with_the_reason(
    solve: Run, rhumb: Run, policy: Path, cities: Path, tmp_path: Path
) -> None:
    """The policy is one for tours; the job shop fails alone, and is not tried again."""
    out = tmp_path / "out.jsonl"
    words = ("--policy", policy, "--device", "cpu", "--attempts", 2, "--search", "sampling")
    files = (cities, "examples/workshop12.jsp")
    done = rhumb("solve", *files, *words, "--results", out)
    assert done.exit_code == 5
    assert "trained for 'tsp'" in read_lines(out)[COUNT]["error"]
    assert "31 were there already" in rhumb("solve", *files, *words, "--results", out).stderr


def test_a_full_disk_leaves_whole_lines(
    solve: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 6, as for every output that cannot be written; with room again it goes on."""
    out = tmp_path / "out.jsonl"
    solve("--results", out, "--shard", "1/3")
    before = out.read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        done = solve("--results", out)
    assert done.exit_code == 6
    assert "out.jsonl: cannot be written: No space left on device; make room" in done.stderr
    assert out.read_bytes() == before
    assert solve("--results", out).exit_code == 0
    assert len(read_lines(out)) == COUNT


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("my notes", "does not end with a result"),
        ("my notes\n", ":1: is no JSON; expected a file of `rhumb solve --results`"),
        ('{"cost": 1}\n', "expected a result with the fields instance and options"),
    ],
)
def test_a_file_of_something_else_is_left_alone(
    solve: Run, tmp_path: Path, content: str, message: str
) -> None:
    """Not even its last line, which has no end, is cut off."""
    file = tmp_path / "notes.txt"
    file.write_text(content)
    done = solve("--results", file)
    assert done.exit_code == 3
    assert message in done.stderr
    assert file.read_text() == content
    assert "is no regular file" in solve("--results", "/dev/null").stderr


def test_places_are_named_as_ranges() -> None:
    assert ranges_text([3, 7, 8, 9, 12]) == "3, 7-9, 12"
    assert ranges_text(list(range(0, 40, 2))).endswith("14, ...")


# --- processes


@pytest.fixture
def command(policy: Path, tmp_path: Path) -> tuple[object, ...]:
    """Return the words of a run over 400 instances with two workers."""
    xy = np.random.default_rng(6).random((400, 8, 2)).astype(np.float32)
    path = tmp_path / "many.safetensors"
    save_dataset(path, xy, {})
    words = ("solve", path, "--policy", policy, "--device", "cpu", "--attempts", 8)
    return (*words, "--search", "sampling", "--chunk", 4, "--threads", 1)


def wait_for_lines(path: Path, count: int, process: subprocess.Popen[str]) -> bytes:
    """Wait until a running command has written some lines, and return all of them."""
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        content = path.read_bytes() if path.exists() else b""
        if content.count(b"\n") >= count:
            return content
        time.sleep(0.01)
    raise AssertionError(f"no {count} lines: {process.poll()}")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_driver_loses_nothing_and_repeats_nothing(
    start: Run, command: tuple[object, ...], tmp_path: Path, number: signal.Signals
) -> None:
    """`kill -9` too: started again, the file is that of a run that was never interrupted."""
    whole = tmp_path / "whole.jsonl"
    assert start(*command, "--results", whole).wait(timeout=300) == 0
    out = tmp_path / "out.jsonl"
    process = start(*command, "--results", out, "--workers", 2)
    before = wait_for_lines(out, 20, process)
    process.send_signal(number)
    code = process.wait(timeout=60)
    assert code == (-9 if number == signal.SIGKILL else 130)
    kept = out.read_bytes()
    assert kept.startswith(before)
    again = start(*command, "--results", out, "--workers", 2)
    assert again.wait(timeout=300) == 0, again.stderr.read()
    assert out.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    assert read_lines(out) == read_lines(whole)


@pytest.mark.slow
def test_control_c_reaches_the_driver_alone(
    start: Run, command: tuple[object, ...], tmp_path: Path
) -> None:
    """A terminal sends it to all processes, at any time; no worker dies of it with a traceback."""
    out = tmp_path / "out.jsonl"
    process = start(*command, "--results", out, "--workers", 2, start_new_session=True)
    while len(children_of(process)) < 3:  # the workers begin to import torch
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, notes = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in notes, notes
    assert "the same command goes on from there" in notes


def children_of(process: subprocess.Popen[str]) -> list[str]:
    """Return the processes that a process has started: its workers and their tracker."""
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()


@pytest.mark.slow
def test_workers_end_with_a_killed_driver(
    start: Run, command: tuple[object, ...], tmp_path: Path
) -> None:
    """`kill -9` leaves no process behind."""
    out = tmp_path / "out.jsonl"
    process = start(*command, "--results", out, "--workers", 2)
    wait_for_lines(out, 8, process)
    children = children_of(process)
    assert len(children) >= 2
    process.kill()
    process.wait()
    end = time.monotonic() + 20
    while time.monotonic() < end and any(is_running(child) for child in children):
        time.sleep(0.05)
    assert not any(is_running(child) for child in children)


def is_running(process: str) -> bool:
    """Return whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
