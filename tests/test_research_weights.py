"""Research weights are a package of their own: found in a clone and when installed, else named."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from rhumbline import checkpoint
from rhumbline.checkpoint import find_checkpoint, shipped
from rhumbline.checkpoint.shipped import RESEARCH_FOLDER, RESEARCH_WEIGHTS, shipped_checkpoints
from rhumbline.domains import DOMAINS
from rhumbline.errors import MissingExtra
from rhumbline.registry import Registry
from rhumbline.serve.policies import policies_by_problem

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "packages" / "research-weights"


@pytest.fixture
def no_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """rhumbline as the wheel installs it: without the folder `packages`."""
    monkeypatch.setattr(shipped, "RESEARCH_FOLDER", tmp_path / "nowhere")
    monkeypatch.setattr(shipped, "WEIGHT_FOLDERS", Registry("weights", {}))


def test_a_clone_has_all() -> None:
    """Those for research are found without being installed, beside those of the package."""
    names = {path.stem for path in RESEARCH_FOLDER.glob("*.safetensors")}
    assert names == set(RESEARCH_WEIGHTS)
    known = shipped_checkpoints()
    assert names < set(known)
    assert list(known) == sorted(known)


def test_the_package_has_what_it_needs_by_default() -> None:
    """No problem's default policy is one for research."""
    for _, domain in DOMAINS.working():
        assert domain.weights not in RESEARCH_WEIGHTS


@pytest.mark.usefixtures("no_clone")
@pytest.mark.parametrize("name", RESEARCH_WEIGHTS)
def test_a_missing_one_names_the_command(name: str) -> None:
    """The message has the line that installs it, whose extra and package exist."""
    assert name not in shipped_checkpoints()
    with pytest.raises(MissingExtra, match=rf"'{name}' .* pip install 'rhumbline\[research\]'"):
        find_checkpoint(name, "tsp")
    with pytest.raises(MissingExtra, match="research weights"):
        policies_by_problem([name])


@pytest.mark.usefixtures("no_clone")
def test_other_names_are_refused_as_before() -> None:
    """Only the research weights are promised by an extra."""
    with pytest.raises(checkpoint.CheckpointError, match=r"no checkpoint 'tsp100-singl'"):
        find_checkpoint("tsp100-singl", "tsp")


@pytest.mark.usefixtures("no_clone")
def test_an_installed_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entry point, as pip writes it from its pyproject.toml, leads to its checkpoints."""
    site = tmp_path / "site"
    shutil.copytree(PACKAGE / "rhumbline_research_weights", site / "rhumbline_research_weights")
    info = site / "rhumbline_research_weights-0.2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: x\nVersion: 0.2.0\n")
    text = (PACKAGE / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'entry-points\."(.*?)"\]\n(\w+) = "(.*?)"', text)
    assert found
    group, name, value = found.groups()
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    monkeypatch.delitem(sys.modules, "rhumbline_research_weights", raising=False)
    path = find_checkpoint("tsp100-poppy", "tsp")
    monkeypatch.delitem(sys.modules, "rhumbline_research_weights")
    assert path == site / "rhumbline_research_weights" / "tsp100-poppy.safetensors"
