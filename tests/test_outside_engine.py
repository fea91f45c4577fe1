"""An engine of an installed package, as `rhumb` finds it: by its entry point."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples/harbour100.tsp"
CODE = '''
"""An engine that counts nothing and rolls out in plain torch."""

from rhumbline.decoding.engines import ENGINES


class Counting:
    name = "counting"
    fused = False

    def why_not(self, ask):
        return None

    def rollout(self, request):
        return ENGINES["torch"].rollout(request)


COUNTING = Counting()
'''
POINTS = """[rhumbline.engines]
counting = counting_engine:COUNTING
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Install a package as `pip install` does."""
    info = tmp_path / "counting_engine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting_engine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    (tmp_path / "counting_engine.py").write_text(CODE)
    return tmp_path


def solve(site: Path, engine: str) -> subprocess.CompletedProcess[str]:
    """Run `rhumb solve` in a process that sees the installed package."""
    command = [sys.executable, "-m", "rhumbline", "solve", str(EXAMPLE), "--engine", engine]
    options = ("--device", "cpu", "--attempts", "2", "--search", "sampling", "--json", "--quiet")
    path = os.pathsep.join([str(site), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "COLUMNS": "200"}
    return subprocess.run(
        [*command, *options], env=environment, capture_output=True, text=True, check=False
    )


def test_rhumb_solve_takes_the_engine_of_a_package(site: Path) -> None:
    """The engine is taken by its name, and builds the plans of the one behind it."""
    done = solve(site, "counting")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["engine"] == "counting"
    plain = json.loads(solve(site, "torch").stdout)
    assert found["cost"] == plain["cost"]


def test_a_mistyped_engine_gets_a_suggestion(site: Path) -> None:
    """Engines of packages are among the known ones."""
    done = solve(site, "countin")
    assert done.returncode == 2
    assert "did you mean 'counting'" in done.stderr
