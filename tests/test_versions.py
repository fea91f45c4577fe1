"""Each place that states the version states the same one."""

import re
import tomllib
from pathlib import Path

import pytest

import rhumbline

ROOT = Path(__file__).parents[1]
PROJECTS = ("pyproject.toml", "packages/research-weights/pyproject.toml")


@pytest.mark.parametrize("path", PROJECTS)
def test_packages_have_one_version(path: str) -> None:
    """The research weights are released together with the package."""
    project = tomllib.loads((ROOT / path).read_text(encoding="utf-8"))["project"]
    assert project["version"] == rhumbline.__version__


def test_the_citation_has_the_version() -> None:
    """`CITATION.cff` names the release, and its date is that of the changelog."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {rhumbline.__version__}\n" in text
    date = re.search(r"\ndate-released: (\S+)\n", text)
    assert date
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d.*?)\] - (\S+)$", changelog, re.MULTILINE)
    assert newest
    assert newest.groups() == (rhumbline.__version__, date[1])


def test_the_extra_takes_this_version_of_the_research_weights() -> None:
    """`rhumbline[research]` accepts the package of the same release."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    (requirement,) = extras["research"]
    major, minor, _ = rhumbline.__version__.split(".")
    assert requirement == f"rhumbline-research-weights>={major}.{minor}"


def test_the_page_on_installation_names_the_wheel() -> None:
    """The file that its command installs is the one that is built today."""
    text = (ROOT / "docs" / "start" / "install.md").read_text(encoding="utf-8")
    assert f"rhumbline-{rhumbline.__version__}-py3-none-any.whl" in text
