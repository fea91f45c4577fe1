"""Releases: links of the README and metadata with the address of the repository."""

import re
import shutil
import tomllib
from pathlib import Path

import pytest

from tools.name_repository import name_links, name_repository

ROOT = Path(__file__).parents[1]
ADDRESS = "https://code.example/team/rhumbline"


def test_links_and_pictures_get_whole_addresses() -> None:
    """Pictures lead to the bytes of a file, links to its page; others stay as they are."""
    text = "![A tour](docs/a.png) [Solve](docs/guide/solve.md#csv) [top](#top) [DOI](https://d.org)"
    assert name_links(text, ADDRESS, "v1.0") == (
        f"![A tour]({ADDRESS}/raw/v1.0/docs/a.png) "
        f"[Solve]({ADDRESS}/blob/v1.0/docs/guide/solve.md#csv) [top](#top) [DOI](https://d.org)"
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with what a release changes."""
    for name in ("README.md", "pyproject.toml", "packages/research-weights/pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_a_release_names_the_repository(checkout: Path) -> None:
    """Every link of our README leads to an existing file, and both packages state the address."""
    name_repository(checkout, ADDRESS, "v9.9")
    text = (checkout / "README.md").read_text(encoding="utf-8")
    assert not re.search(r"\]\((?!https://|#)", text)
    paths = re.findall(rf"{ADDRESS}/(?:blob|raw)/v9\.9/([^)#]+)", text)
    assert len(paths) > 20
    assert all((ROOT / path).is_file() for path in paths)
    for folder in (checkout, checkout / "packages" / "research-weights"):
        metadata = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        assert metadata["project"]["urls"]["Repository"] == ADDRESS
    with pytest.raises(SystemExit, match="states addresses already"):
        name_repository(checkout, ADDRESS, "v9.9")
