"""Names come from one literal table and from packages; a broken package breaks nothing else."""

import sys
from pathlib import Path

import pytest

from rhumbline.errors import InputError
from rhumbline.registry import Registry

TABLE = {"path": "pathlib:Path", "join": "os.path:join"}


def install(folder: Path, name: str, points: dict[str, str], code: str = "") -> None:
    """What `pip install` leaves of a package with entry points for `rhumbline.parts`."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "".join(f"{key} = {value}\n" for key, value in points.items())
    (info / "entry_points.txt").write_text(f"[rhumbline.parts]\n{lines}")
    (folder / f"{name}.py").write_text(code)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def test_a_name_of_the_table_is_what_stands_there() -> None:
    """The object behind `module:attribute`."""
    parts = Registry[type]("parts", TABLE)
    assert parts["path"] is Path
    assert list(parts) == ["path", "join"]
    assert len(parts) == 2


def test_nothing_is_imported_before_it_is_used() -> None:
    """A table may name a module that does not exist, as long as it is not used."""
    parts = Registry[type]("parts", TABLE | {"missing": "no_such_module:thing"})
    assert parts["path"] is Path
    with pytest.raises(ModuleNotFoundError):
        _ = parts["missing"]


def test_an_installed_package_adds_a_name(site: Path) -> None:
    """An entry point is found and loaded, after our own names."""
    install(site, "outside_part", {"mine": "outside_part:Mine"}, "class Mine:\n    value = 3\n")
    parts = Registry[type]("parts", TABLE)
    assert list(parts) == ["path", "join", "mine"]
    assert parts["mine"].value == 3


def test_our_names_cannot_be_replaced(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A package that claims a name of ours is ignored, with a note."""
    install(site, "greedy_part", {"path": "greedy_part:Mine"}, "class Mine: pass\n")
    parts = Registry[type]("parts", TABLE)
    assert parts["path"] is Path
    assert len(parts) == 2
    assert "'path'" in capsys.readouterr().err


def test_a_broken_package_is_reported_by_name(site: Path) -> None:
    """What cannot be imported is refused in a sentence; every other name still works."""
    install(site, "broken_part", {"bad": "broken_part:Mine"}, "import no_such_module\n")
    parts = Registry[type]("parts", TABLE)
    assert parts["path"] is Path
    with pytest.raises(InputError, match=r"'bad' comes from .*broken_part:Mine.*no_such_module"):
        _ = parts["bad"]


def test_loops_leave_broken_packages_out(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A loop over all parts sees the working ones, and stderr names the other, once."""
    install(site, "broken_loop", {"worse": "broken_loop:Mine"}, "raise RuntimeError('no')\n")
    parts = Registry[type]("parts", TABLE)
    for _ in range(2):
        assert [name for name, _ in parts.working()] == ["path", "join"]
    assert capsys.readouterr().err.count("'worse'") == 1


def test_an_unknown_name_gets_a_suggestion() -> None:
    """The message has the closest name and all names."""
    parts = Registry[type]("parts", TABLE)
    with pytest.raises(
        InputError, match=r"part 'pth' is not known \(did you mean 'path'\?\); known: path, join"
    ):
        parts.find("pth", "part")
    assert "pth" not in parts
    with pytest.raises(KeyError):
        _ = parts["pth"]
