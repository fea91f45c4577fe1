"""A strategy that another package brings works by its name, without a change here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rhumbline.errors import InputError
from rhumbline.search.strategies import STRATEGIES, build_strategy

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "harbour100.tsp"
CODE = '''
from dataclasses import dataclass
from typing import ClassVar

from rhumbline.search.strategy import Needs, Step, Strategy


@dataclass(frozen=True)
class Wander(Strategy[int]):
    """Sample latents around the centre."""

    needs: ClassVar[Needs] = Needs(latent_space=True)

    population: int = 8
    radius: float = 0.5

    def init(self, task):
        return 0

    def step(self, task, state):
        latents = self.radius * (2.0 * task.uniforms(self.population)[..., 0] - 1.0)
        return Step(state + 1, latents, task.rollout(latents, 0.3))


@dataclass(frozen=True)
class Plain:
    """The least that a strategy can be."""

    width: int = 3

    def init(self, task):
        return "nothing"

    def step(self, task, state):
        latents = task.policy.space.centre((task.count, self.width), task.device)
        return state, latents, task.rollout(latents, 1.0)


class NoDataclass(Plain):
    def __init__(self, other):
        self.other = other


no_dataclass = NoDataclass.__init__
'''
POINTS = """[rhumbline.strategies]
wander = wander_search:Wander
plain = wander_search:Plain
odd = wander_search:no_dataclass
broken = no_such_package:Thing
greedy = wander_search:Plain
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Install a package as `pip install` does."""
    info = tmp_path / "wander_search-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wander_search\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    (tmp_path / "wander_search.py").write_text(CODE)
    return tmp_path


def solve(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `rhumb solve` in a process that sees the installed package."""
    command = [sys.executable, "-m", "rhumbline", "solve", str(EXAMPLE), *words]
    options = ("--device", "cpu", "--engine", "torch", "--attempts", "4", "--json")
    path = os.pathsep.join([str(site), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "COLUMNS": "200"}
    return subprocess.run(
        [*command, *options], env=environment, capture_output=True, text=True, check=False
    )


def test_rhumb_solve_finds_it(site: Path) -> None:
    """It is found by its name, takes settings, and its plans are ours."""
    done = solve(site, "--search", "wander", "--set", "population=2", "--set", "radius=0.1")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["search"], found["attempts"]) == ("wander", 4)
    # Our own names cannot be taken.
    assert "note: entry point 'greedy' of rhumbline.strategies is ignored" in done.stderr


def test_wrong_settings_are_refused(site: Path) -> None:
    """The message knows its fields."""
    done = solve(site, "--search", "wander", "--set", "radios=0.1")
    assert done.returncode == 2
    assert "unknown key 'radios' (did you mean 'radius'?)" in done.stderr


def test_an_unknown_name_gets_a_suggestion(site: Path) -> None:
    """Names of packages are among the known ones."""
    done = solve(site, "--search", "wonder")
    assert done.returncode == 2
    assert "strategy 'wonder' is not known (did you mean 'wander'?)" in done.stderr


def test_a_broken_package_is_named(site: Path) -> None:
    """Its own name is refused with the reason; other names work."""
    done = solve(site, "--search", "broken")
    assert done.returncode == 2
    assert "'broken' comes from the entry point no_such_package:Thing" in done.stderr
    assert solve(site, "--search", "greedy").returncode == 0


def test_plain_classes_serve(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataclass with `init` and `step` needs no base class; other objects are refused."""
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    monkeypatch.delitem(vars(STRATEGIES), "outside", raising=False)
    monkeypatch.setattr(STRATEGIES, "loaded", dict(STRATEGIES.loaded))
    try:
        assert not build_strategy("plain", ["width=5"]).finite
        with pytest.raises(InputError, match="'odd' has to be a dataclass"):
            build_strategy("odd")
        working = dict(STRATEGIES.working())
        assert {"wander", "plain"} <= set(working)
        assert "broken" not in working
    finally:
        vars(STRATEGIES).pop("outside", None)
        sys.modules.pop("wander_search", None)
