"""Which files hold instances."""

from pathlib import Path

import pytest

from rhumbline.errors import InputError
from rhumbline.files.discovery import find_instance_files

TSP = (
    "NAME: a\nTYPE: TSP\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: EUC_2D\n"
    "NODE_COORD_SECTION\n1 0 0\n2 3 0\n3 0 4\nEOF\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.tsp", "a.tsp", "c.VRP", "d.safetensors", "e.jsp"):
        (tmp_path / name).write_text(TSP)
    # Meant as a job shop; its reader says what is wrong.
    (tmp_path / "f.json").write_text('{"durations": [[1, 2')
    (tmp_path / "results.json").write_text("")
    (tmp_path / "map.json").write_text('{"type": "FeatureCollection"}')
    (tmp_path / "g.txt").write_text("# a job shop\n2 2\n0 3 1 2\n1 2 0 4\n")
    (tmp_path / "notes.txt").write_text("call the depot\n")
    (tmp_path / "binary.txt").write_bytes(b"\0\1\2")
    for name in ("optima.json", "best_known.json", ".hidden.tsp", "a.tour", "picture.png"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "more.tsp").mkdir()
    (tmp_path / "more.tsp" / "i.tsp").write_text(TSP)
    return tmp_path


def test_a_folder_stands_for_its_instances(folder: Path) -> None:
    """By name; neither plans nor costs nor notes, and not what lies in folders below."""
    names = [file.name for file in find_instance_files(folder)]
    assert names == ["a.tsp", "b.tsp", "c.VRP", "d.safetensors", "e.jsp", "f.json", "g.txt"]


def test_a_file_stands_for_itself(folder: Path) -> None:
    """A single file is returned in any case; its reader complains."""
    assert find_instance_files(folder / "notes.txt") == [folder / "notes.txt"]
    assert find_instance_files("nowhere.tsp") == [Path("nowhere.tsp")]


def test_patterns(folder: Path) -> None:
    """For use without a shell, or with too many files for one."""
    assert find_instance_files(f"{folder}/?.tsp") == [folder / "a.tsp", folder / "b.tsp"]
    assert [f.name for f in find_instance_files(f"{folder}/*")][:3] == ["a.tsp", "b.tsp", "c.VRP"]
    with pytest.raises(InputError, match=r"x\*\.tsp: no file that holds instances has such a name"):
        find_instance_files(f"{folder}/x*.tsp")


def test_a_pattern_may_name_folders(folder: Path) -> None:
    """They stand for their files, and what holds no instances is passed over."""
    other = folder / "north-1.24"
    other.mkdir()
    (other / "h.tsp").write_text(TSP)
    (folder / "north-2.24").mkdir()
    assert [f.name for f in find_instance_files(f"{folder}/nort*")] == ["h.tsp"]
    assert [f.name for f in find_instance_files(f"{folder}/nort*.24")] == ["h.tsp"]
    assert [f.name for f in find_instance_files(f"{folder}/*.tsp")] == [
        "a.tsp",
        "b.tsp",
        "i.tsp",
    ]  # the last in more.tsp


def test_what_cannot_be_looked_at_is_an_error_in_a_line(tmp_path: Path) -> None:
    """Not a traceback."""
    with pytest.raises(InputError, match="cannot be read"):
        find_instance_files("x" * 300 + ".tsp")


def test_a_file_whose_name_looks_like_a_pattern(folder: Path) -> None:
    (folder / "a[1].tsp").write_text(TSP)
    assert find_instance_files(folder / "a[1].tsp") == [folder / "a[1].tsp"]


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file in this folder holds instances"):
        find_instance_files(tmp_path)
