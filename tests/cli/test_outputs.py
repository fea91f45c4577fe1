"""Outputs that cannot be written: whatever fails, the result reaches every other output."""

import io
import json
import os
import resource
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rhumbline import cli, pipeline, plots
from rhumbline.errors import note_once
from rhumbline.files import read
from rhumbline.formats.tsplib import read_tour

Run = Callable[..., Any]
FULL = Path("/dev/full")  # takes nothing: no space left on device


@pytest.fixture
def solve(rhumb: Run, policy: Path) -> Run:
    """Return a function that runs a short search."""
    words = ("--policy", policy, "--search", "greedy", "--device", "cpu", "--attempts", 1)
    return lambda *more: rhumb("solve", *words, *more)


@contextmanager
def limited_files(size: int) -> Generator[None]:
    """Let every write beyond so many bytes of a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_plan_that_cannot_be_written_is_printed(solve: Run, tsp: Run, tmp_path: Path) -> None:
    """All results are printed, each failed file is named, no part of a file stays, and the exit
    code is 6.
    """
    files = [tsp("a", 6), tsp("b", 7)]
    with limited_files(20):
        done = solve(*files, "--json", "--quiet", "--output", tmp_path / "out")
    assert done.exit_code == 6
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == ["a", "b"]
    reason = "cannot be written: File too large; choose another place"
    expected = [f"error: {tmp_path / 'out' / name}: {reason}" for name in ("a.tour", "b.tour")]
    assert done.stderr.splitlines() == expected
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_that_vanishes_during_the_search(
    solve: Run, square: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could be written before the search and cannot be now loses no result."""
    folder = tmp_path / "out"
    solve_task = pipeline.solve_task

    def solve_and_remove(*words: Any) -> Any:
        folder.rmdir()
        return solve_task(*words)

    monkeypatch.setattr(pipeline, "solve_task", solve_and_remove)
    done = solve(square, "--quiet", "--plot", "--output", folder)
    assert (done.exit_code, done.stdout.count("\n")) == (6, 1)
    first, second = done.stderr.splitlines()
    assert first.startswith(f"error: {folder / 'square.tour'}: cannot be written: No such file")
    assert second.startswith(f"warning: {folder / 'square.png'}: cannot be written: No such file")


def test_a_picture_that_cannot_be_written_is_a_warning(
    solve: Run, square: Path, tmp_path: Path
) -> None:
    """The plan, which is smaller than its picture, is there, and the result is printed."""
    with limited_files(1000):
        done = solve(square, "--quiet", "--plot", "--output", tmp_path / "out")
    assert (done.exit_code, done.stdout.count("\n")) == (6, 1)
    picture = tmp_path / "out" / "square.png"
    assert done.stderr.startswith(f"warning: {picture}: cannot be written: File too large")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["square.tour"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no such color"), "cannot be drawn: ValueError: no such color"),
        (OSError(28, "No space left on device"), "cannot be written: No space left on device"),
    ],
)
def test_an_error_in_drawing_ends_nothing(
    solve: Run, tsp: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    """Whatever goes wrong in a picture, the next group is solved."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.chdir(tsp("a", 6).parent)
    monkeypatch.setattr(plots, "save_plan", fail)
    done = solve("a.tsp", tsp("b", 7), "--quiet", "--plot")
    assert (done.exit_code, done.stdout.count("\n")) == (6, 2)
    expected = [f"warning: {name}.png: {reason}" for name in ("a", "b")]
    assert done.stderr.splitlines() == expected


def test_a_trace_on_a_full_disk_ends_with_a_warning(solve: Run, tsp: Run) -> None:
    """There is one warning for all groups; the results are those without a trace."""
    files = [tsp("a", 6), tsp("b", 7)]
    without = solve(*files, "--json", "--quiet")
    done = solve(*files, "--json", "--quiet", "--trace", FULL)
    assert done.exit_code == 6
    reason = "the trace ends here, it cannot be written: No space left on device"
    assert done.stderr == f"warning: /dev/full: {reason}\n"
    plans = [[json.loads(line)["plan"] for line in x.stdout.splitlines()] for x in (without, done)]
    assert plans[0] == plans[1]


@pytest.fixture
def run_main(monkeypatch: pytest.MonkeyPatch, policy: Path) -> Run:
    """Return a function that runs `main` on two streams of this process; it returns the code."""

    def run(stdout: Any, stderr: Any, *words: object) -> int:
        more = ("--policy", policy, "--search", "greedy", "--device", "cpu", "--attempts", 1)
        monkeypatch.setattr(cli, "install_signal_handlers", lambda: None)
        monkeypatch.setattr(sys, "argv", ["rhumb", *map(str, (*words, *more))])
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "stderr", stderr)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        for stream in (sys.stdout, sys.stderr):
            close(stream)
        monkeypatch.undo()
        return int(ended.value.code or 0)

    return run


class OpenBuffer(io.BytesIO):
    """Bytes in memory that can be read after the stream on it is gone."""

    def close(self) -> None:
        """Stay open."""


def memory_stream() -> tuple[io.BytesIO, io.TextIOWrapper]:
    """Return a buffer and a text stream into it."""
    buffer = OpenBuffer()
    return buffer, io.TextIOWrapper(buffer, "utf-8")


def close(stream: Any) -> None:
    """Close a stream, whose buffer holds what a full device has not taken."""
    if stream is None:
        return
    with suppress(io.UnsupportedOperation):  # in memory
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    stream.close()


@pytest.mark.parametrize("place", [None, FULL], ids=["closed", "full"])
def test_results_come_without_stderr(run_main: Run, tsp: Run, place: Path | None) -> None:
    """A stderr that is closed or full changes neither the results nor the exit code."""
    stderr = place.open("w") if place else None
    printed, stdout = memory_stream()
    assert run_main(stdout, stderr, "solve", tsp("a", 6), tsp("b", 7)) == 0
    lines = printed.getvalue().decode().splitlines()
    assert [line.split()[0] for line in lines] == ["a", "b"]


@pytest.mark.parametrize("place", [None, FULL], ids=["closed", "full"])
def test_wrong_usage_without_stderr(run_main: Run, place: Path | None) -> None:
    """The exit code is that of wrong usage, and nothing is printed on stdout instead."""
    stderr = place.open("w") if place else None
    printed, stdout = memory_stream()
    assert run_main(stdout, stderr, "solve", "--nonsense") == 2
    assert printed.getvalue() == b""


@pytest.mark.parametrize("place", [None, FULL], ids=["closed", "full"])
def test_plans_are_written_without_stdout(
    run_main: Run, tsp: Run, tmp_path: Path, place: Path | None
) -> None:
    """With --output all groups are solved and written; the exit code is 6, with one error."""
    stdout = place.open("w") if place else None
    noted, stderr = memory_stream()
    files = [tsp("a", 6), tsp("b", 7)]
    words = ("--quiet", "--output", tmp_path / "out")
    assert run_main(stdout, stderr, "solve", *files, *words) == 6
    reason = "No space left on device" if place else "it is closed"
    assert noted.getvalue().decode() == f"error: standard output: cannot be written ({reason})\n"
    for file in files:
        read_tour(tmp_path / "out" / f"{file.stem}.tour", read(file))


@pytest.mark.parametrize(("words", "groups"), [((), 1), (("--output", "out"), 2)])
def test_a_closed_pipe_ends_what_has_no_other_output(
    run_main: Run,
    tsp: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    groups: int,
) -> None:
    """`rhumb solve ... | head -0` ends after a group; with --output all plans are written."""
    files = [tsp("a", 6), tsp("b", 7)]
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.chdir(tmp_path)
    noted, stderr = memory_stream()
    assert run_main(os.fdopen(writer, "w"), stderr, "solve", *files, *words) == 141
    headers = [line for line in noted.getvalue().decode().splitlines() if "  tsp, " in line]
    assert len(headers) == groups
    assert len(list(tmp_path.glob("out/*.tour"))) == (2 if words else 0)


def test_help_on_a_full_disk(run_main: Run) -> None:
    """Parsers print by themselves; a failure is an error without a traceback."""
    noted, stderr = memory_stream()
    assert run_main(FULL.open("w"), stderr, "solve", "--help") == 6
    expected = "error: standard output: cannot be written (No space left on device)\n"
    assert noted.getvalue().decode() == expected


@pytest.mark.parametrize("stream", [None, FULL], ids=["closed", "full"])
def test_notes_of_the_library_end_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stream: Path | None
) -> None:
    """Python prints to stdout what is meant for a closed stderr; notes do not."""
    monkeypatch.setattr(sys, "stderr", stream.open("w") if stream else None)
    note_once.cache_clear()
    note_once("a note")
    note_once.cache_clear()
    close(sys.stderr)
    assert capsys.readouterr().out == ""
