"""Compilation of the CPU kernel in another process: when it starts, and what it stores."""

import ast
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

from rhumbline.cli.app import app
from rhumbline.kernels.numba.rollout import precompile

pytest.importorskip("numba")


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Provide a spare core, an empty cache and no compiler at work."""
    monkeypatch.setattr(precompile, "_waiting", {})
    monkeypatch.setattr(precompile, "has_spare_core", lambda: True)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))


def refuse(*words: object, **options: object) -> None:
    raise AssertionError("a process was started")


def modules(source: Path) -> set[Path]:
    """Return the files of ours that a module imports."""
    found = set[Path]()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rhumbline"):
            place = precompile.HERE.parents[3] / str(node.module).replace(".", "/")
            found |= {place.with_suffix(".py"), place / "__init__.py"}
            found |= {place / f"{alias.name}.py" for alias in node.names}
    return {path.resolve() for path in found if path.is_file()}


@pytest.mark.parametrize("kernel", precompile.KERNELS)
def test_name_covers_all_sources(kernel: str) -> None:
    """All that the kernel's source imports of ours is in the checksum, except the module that
    computes it.
    """
    sources = precompile.KERNELS[kernel].sources
    covered = {(precompile.HERE / name).resolve() for name in sources}
    folders = (
        precompile.HERE,
        precompile.HERE.parent,
        precompile.HERE.parents[1],
        precompile.HERE.parents[2],
    )
    package = {precompile.HERE / "precompile.py", *(folder / "__init__.py" for folder in folders)}
    module = import_module(precompile.KERNELS[kernel].module)
    assert Path(module.__file__ or "") in covered
    for source in covered - {precompile.HERE.parents[1] / "__init__.py"}:
        assert modules(source) <= covered | package


def test_another_source_is_another_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A changed line in any of the files is a new name, so an older kernel is not found."""
    monkeypatch.setattr(precompile, "HERE", tmp_path / "kernels" / "numba" / "rollout")
    precompile.HERE.mkdir(parents=True)
    files = [precompile.HERE / name for name in precompile.KERNELS["tours"].sources]
    for file in files:
        file.write_text("x = 1\n")
    names = [precompile.cache_name.__wrapped__("tours")]
    for file in files:
        file.write_text("x = 2\n")
        names.append(precompile.cache_name.__wrapped__("tours"))
    assert len(set(names)) == len(files) + 1


def test_another_process_stores_the_kernel(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel is there after the wait and not before.

    The process prints nothing, and no second one starts.
    """
    assert not precompile.is_stored("tours")
    precompile.start_compiling("tours")
    precompile.wait_for_kernel("tours")
    assert precompile.is_stored("tours")
    assert not precompile.is_stored("routes")
    assert not precompile._waiting["tours"].is_alive()
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(precompile, "_waiting", {})
    monkeypatch.setattr(precompile, "Popen", refuse)
    precompile.start_compiling("tours")
    assert not precompile._waiting


@pytest.mark.parametrize("why", ["no core", "no numba"])
def test_no_useless_process(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """Without a spare core it would only be slower, and without numba there is no compiler."""
    monkeypatch.setattr(precompile, "Popen", refuse)
    if why == "no core":
        monkeypatch.setattr(precompile, "has_spare_core", lambda: False)
    else:
        monkeypatch.setitem(sys.modules, "numba", None)
    precompile.start_compiling("routes")
    assert not precompile._waiting


@pytest.mark.parametrize(
    ("load", "cores", "expected"),
    [
        ("0.20 0.18 0.12 1/80 11206", 2, True),
        ("0.20 0.18 0.12 2/80 11206", 2, False),
        ("9.00 9.00 9.00 9/80 11206", 16, True),
        ("", 2, True),
        ("", 1, False),
        (None, 2, True),
        (None, None, False),
    ],
)
def test_spare_core(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    load: str | None,
    cores: int | None,
    expected: bool,
) -> None:
    """There is one if fewer processes run than there are cores; if the load is unknown, this
    process counts alone.
    """
    monkeypatch.undo()
    if load is not None:
        (tmp_path / "loadavg").write_text(load)
    tuning = replace(precompile.TUNING, load_file=tmp_path / "loadavg")
    monkeypatch.setattr(precompile, "TUNING", tuning)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert precompile.has_spare_core() is expected


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false"])
def test_failed_process_is_not_awaited(monkeypatch: pytest.MonkeyPatch, python: str) -> None:
    """If it cannot be started, or dies, the wait is over at once and nothing is stored."""
    monkeypatch.setattr(sys, "executable", python)
    began = time.monotonic()
    precompile.start_compiling("tours")
    precompile.wait_for_kernel("tours")
    assert time.monotonic() - began < precompile.TUNING.max_wait_seconds / 2
    assert not precompile.is_stored("tours")


def test_the_process_does_not_outlive_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a command ends first, the process is killed and waited for."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    waiting = Thread(target=process.wait, daemon=True)
    waiting.start()
    monkeypatch.setattr(precompile, "_processes", [process])
    monkeypatch.setattr(precompile, "_waiting", {"tours": waiting})
    precompile.stop_compiling()
    assert process.returncode == -9


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a.tsp"], ["tours"]),
        (["a.VRP", "b.tsp"], ["routes"]),
        (["a.tsp", "--engine", "torch"], []),
        (["a.tsp", "--device", "cuda"], []),
        (["a.jsp"], ["schedules"]),
        (["a.txt"], ["schedules"]),
        (["a.json"], []),
    ],
)
def test_kernels_that_the_command_compiles(
    monkeypatch: pytest.MonkeyPatch, words: list[str], expected: list[str]
) -> None:
    """`rhumb solve` compiles the first file's kernel before it reads the file."""
    asked: list[str] = []
    monkeypatch.setattr(precompile, "start_compiling", asked.append)
    assert CliRunner().invoke(app, ["solve", *words]).exit_code != 0
    assert asked == expected
