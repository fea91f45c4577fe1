"""A machine without numba, or with one that does not work: which engine runs, and what the user
reads.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from asking import chosen
from typer.testing import CliRunner

from rhumbline import kernels
from rhumbline.cli.app import app
from rhumbline.errors import MissingExtra, note_once

CPU, ROOT = torch.device("cpu"), Path(__file__).parents[2]
MISSING = (
    "the fused engine needs numba on a CPU; "
    "get it with: pip install 'rhumbline[cpu]' (or numba alone)"
)
BROKEN = (
    "the fused engine needs numba, which fails (Numba needs NumPy 2.3 or less. Got NumPy 9.9.); "
    "mend it with: pip install --upgrade numba"
)
NOTE = "note: engine auto takes plain torch, which is several times slower: "


@pytest.fixture(autouse=True)
def forget_answers() -> Iterator[None]:
    """Look for numba again and print the note again, in the test and after it."""
    for remembered in (kernels.why_not_numba, note_once):
        remembered.cache_clear()
    yield
    for remembered in (kernels.why_not_numba, note_once):
        remembered.cache_clear()


@pytest.fixture
def no_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make Python find no numba."""
    monkeypatch.setitem(sys.modules, "numba", None)


@pytest.fixture
def square(tmp_path: Path) -> Path:
    """Write a file of four cities."""
    file = tmp_path / "square.tsp"
    rows = "".join(
        f"{i + 1} {x} {y}\n" for i, (x, y) in enumerate([(0, 0), (0, 9), (9, 9), (9, 0)])
    )
    file.write_text(
        f"NAME: square\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n{rows}EOF\n"
    )
    return file


@pytest.mark.usefixtures("no_numba")
def test_auto_says_once_that_it_takes_torch(capsys: pytest.CaptureFixture[str]) -> None:
    """One line names the reason and the remedy, for all calls together; torch by name needs no
    note.
    """
    taken = [
        chosen(e, p, CPU, 10) for e in ("torch", "auto", "auto") for p in ("tsp", "cvrp", "jssp")
    ]
    assert taken == ["torch"] * 9
    assert capsys.readouterr().err == f"{NOTE}{MISSING}\n"


@pytest.mark.usefixtures("no_numba")
def test_fused_fails_with_the_reason() -> None:
    """An engine that was asked for by name and cannot run is an error."""
    with pytest.raises(MissingExtra) as caught:
        chosen("fused", "cvrp", CPU, 10)
    assert str(caught.value) == f"{MISSING}. Use engine torch (or auto)"


@pytest.mark.usefixtures("no_numba")
def test_other_reasons_come_first(capsys: pytest.CaptureFixture[str], policy) -> None:
    """If numba would not help, no note advises to install it."""
    assert chosen("auto", "tsp", CPU, 10, policy.architecture) == "torch"
    assert chosen("auto", "jssp-machines", CPU, 10) == "torch"
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for the CPU's engine")
@pytest.mark.usefixtures("no_numba")
def test_the_command_without_numba(square: Path) -> None:
    """`solve` runs and names its engine, `--engine fused` is exit 4, `info` names the remedy."""
    runner = CliRunner()
    auto, fused, info = (
        runner.invoke(app, words)
        for words in (
            ["solve", str(square), "--attempts", "2"],
            ["solve", str(square), "--attempts", "2", "--engine", "fused"],
            ["info"],
        )
    )
    assert (auto.exit_code, auto.stderr.count(NOTE + MISSING)) == (0, 1)
    assert "cost 36" in auto.stdout
    assert (fused.exit_code, fused.stderr, fused.stdout) == (
        4,
        f"error: {MISSING}. Use engine torch (or auto)\n",
        "",
    )
    assert f"engine       fused: not available: {MISSING}" in info.stdout


def test_a_numba_that_fails(square: Path, tmp_path: Path) -> None:
    """If numba is installed but cannot be imported, there is a plan, and one line with numba's own
    words.
    """
    (tmp_path / "numba.py").write_text(
        "raise ImportError('Numba needs NumPy 2.3 or less. Got NumPy 9.9.\\nmore')\n"
    )
    environment = os.environ | {
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
        "OMP_NUM_THREADS": "1",
    }
    command = [
        sys.executable,
        "-m",
        "rhumbline",
        "solve",
        str(square),
        "--attempts",
        "2",
        "--device",
        "cpu",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert [line for line in done.stderr.splitlines() if line.startswith("note")] == [NOTE + BROKEN]
    assert "cost 36" in done.stdout
