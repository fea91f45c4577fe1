"""The path "-": an instance from standard input, in any format."""

import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from rhumbline.cli.app import app
from rhumbline.errors import InputError
from rhumbline.files import standard_input
from rhumbline.formats.dataset import write_arrays
from rhumbline.formats.safe_io import ReadLimits
from rhumbline.inputs import instances_from

TSP = "NAME : a280\nTYPE : TSP\nDIMENSION : 2\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n"
VRP = "NAME : v\nTYPE : CVRP\nDIMENSION : 2\nEDGE_WEIGHT_TYPE : EUC_2D\nCAPACITY : 5\n"
ROWS = "NODE_COORD_SECTION\n1 0 0\n2 3 4\nDEMAND_SECTION\n1 0\n2 1\nDEPOT_SECTION\n1\n-1\nEOF\n"


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes, terminal: bool = False) -> None:
    """Let standard input hold these bytes."""
    stream = SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: terminal)
    monkeypatch.setattr(sys, "stdin", stream)


@pytest.mark.parametrize(
    ("text", "problem", "name"),
    [
        (TSP + "1 0 0\n2 3 4\nEOF\n", "tsp", "a280"),
        (TSP.replace("NAME : a280\n", "") + "1 0 0\n2 3 4\n", "tsp", "stdin"),
        (VRP + ROWS, "cvrp", "v"),
        ("2 2\n0 3 1 2\n1 4 0 1\n", "jssp", "stdin"),
        ('{"durations": [[1, 2]], "machines": [[0, 1]], "name": "j"}', "jssp", "j"),
        ('\ufeff {"coordinates": [[0, 0], [3, 4]]}', "tsp", "stdin"),
        ('{"distances": [[0, 1], [1, 0]], "demands": [1], "capacity": 3}', "cvrp", "stdin"),
        ("# capacity: 9\n# name: monday\nx;y;demand\n0;0;0\n3;4;2\n", "cvrp", "monday"),
        ("x,y\n0,0\n3,4\n", "tsp", "stdin"),
    ],
)
def test_every_format(monkeypatch: pytest.MonkeyPatch, text: str, problem: str, name: str) -> None:
    """The content decides on the format."""
    pipe(monkeypatch, text.encode())
    (instance,) = instances_from("-")
    assert (instance.problem, instance.name) == (problem, name)


def test_a_dataset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Binary files can be piped too."""
    path = tmp_path / "three.safetensors"
    write_arrays(path, {"xy": np.random.default_rng(0).random((3, 5, 2), dtype=np.float32)}, {})
    pipe(monkeypatch, path.read_bytes())
    assert [instance.size for instance in instances_from("-")] == [5, 5, 5]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "standard input: is empty"),
        (" \n", "standard input: is empty"),
        (TSP + "1 0 0\n2 3 b\nEOF\n", "standard input:7: read 'b'"),
        ("x,y\n0,0\n3\n", "standard input:3: read 1 cells"),
        ("[1, 2]", "standard input: expected a JSON object"),
        ("{", "standard input:1: is not JSON"),
        ("nonsense", "standard input:1: NONSENSE is not supported here"),
    ],
)
def test_bad_input(monkeypatch: pytest.MonkeyPatch, text: str, words: str) -> None:
    """Messages say "standard input" and the line."""
    pipe(monkeypatch, text.encode())
    with pytest.raises(InputError, match=f"^{words}"):
        instances_from("-")


def test_limits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A stream without end is not read on; a terminal is told what is awaited."""
    monkeypatch.setattr(standard_input, "LIMITS", ReadLimits(max_text_bytes=1 << 20))
    pipe(monkeypatch, b"x" * (2 << 20))
    with pytest.raises(InputError, match="standard input: is larger than 1 MiB, the limit"):
        instances_from("-")
    assert not capsys.readouterr().err
    pipe(monkeypatch, b"x,y\n0,0\n1,1\n", terminal=True)
    instances_from("-")
    assert "reading an instance from standard input; end it with Ctrl-D" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input: is closed"):
        instances_from("-")


def test_the_command(policy: Path) -> None:
    """`cat FILE | rhumb solve - --json`."""
    words = ["solve", "-", "--policy", str(policy), "--attempts", "8", "--engine", "torch"]
    text = TSP.replace(": 2", ": 4") + "1 0 0\n2 3 4\n3 0 4\n4 3 0\nEOF\n"
    found = CliRunner().invoke(app, [*words, "--json", "--quiet"], input=text)
    result = json.loads(found.stdout)
    assert (result["name"], result["file"], result["cost"]) == ("a280", "-", 14)
    found = CliRunner().invoke(app, [*words, "-"], input=text)
    assert found.exit_code == 3
    assert "standard input: is empty, expected an instance (it can be read only" in found.stderr


def test_one_ctrl_d_is_enough() -> None:
    """On a terminal the first end of input ends the instance; the next read would wait again."""
    controller, terminal = os.openpty()
    os.write(controller, b"x,y\n0,0\n3,4\n\x04")
    with os.fdopen(terminal) as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", stream)
        (instance,) = instances_from("-")
    os.close(controller)
    assert instance.distances[0, 1] == 5
