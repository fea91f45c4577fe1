"""Datasets: many random instances in one file, and the choice between the kinds of files."""

import contextlib
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save

from rhumbline.errors import InputError
from rhumbline.files import read, read_many, write_plan
from rhumbline.formats.dataset import load_dataset, save_dataset
from rhumbline.problems.tsp import Tour

TRIANGLE = "DIMENSION: 3\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n1 0 0\n2 3 0\n3 3 4\n"


def points(count: int = 3, size: int = 7) -> np.ndarray:
    return np.random.default_rng(5).random((count, size, 2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_dataset_survives_writing(tmp_path: Path, dtype: type) -> None:
    """Instances come back in order, bit for bit, named after the file and counted from 1."""
    xy = points(12).astype(dtype)
    save_dataset(tmp_path / "tsp7.safetensors", xy, {"seed": "5"})
    instances = load_dataset(tmp_path / "tsp7.safetensors")
    assert [i.name for i in instances][::11] == ["tsp7-0001", "tsp7-0012"]
    assert {i.metric for i in instances} == {"EXACT_2D"}
    np.testing.assert_array_equal(np.stack([i.planar_xy for i in instances]), xy.astype(np.float64))


def test_equal_datasets_are_equal_bytes(tmp_path: Path) -> None:
    """The order of the notes does not change the file; a view is written like its copy."""
    xy = points(6)
    save_dataset(tmp_path / "a", xy[::2], {"seed": "5", "made by": "test"})
    save_dataset(tmp_path / "b", xy[::2].copy(), {"made by": "test", "seed": "5"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_note_is_kept(tmp_path: Path) -> None:
    """What the file is about can be read without its numbers."""
    save_dataset(tmp_path / "a.safetensors", points(), {"seed": "5"})
    with safe_open(tmp_path / "a.safetensors", framework="numpy") as file:
        assert file.metadata() == {"about": '{"seed": "5"}'}


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (
            {"weight": points()},
            "expected a tensor 'xy' of coordinates, read weight; is it a checkpoint?",
        ),
        (
            {"xy": points()[0]},
            "'xy' is float64 [7, 2], expected floating-point coordinates [instances, cities, 2]",
        ),
        ({"xy": np.zeros((2, 7, 3))}, "'xy' is float64 [2, 7, 3], expected"),
        ({"xy": np.zeros((0, 7, 2))}, "'xy' is float64 [0, 7, 2], expected"),
        (
            {"xy": np.zeros((2, 7, 2), dtype=np.int64)},
            "'xy' is int64 [2, 7, 2], expected floating-point",
        ),
        ({"xy": np.zeros((1, 0, 2))}, "'xy' has 0 nodes, expected 1 to 1000"),
        ({"xy": np.zeros((1, 1001, 2))}, "'xy' has 1001 nodes, expected 1 to 1000"),
        ({"xy": np.full((1, 3, 2), np.nan)}, "'xy' has NaN or infinite coordinates"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(
    tmp_path: Path, tensors: dict[str, np.ndarray], words: str
) -> None:
    """The error names the file, what it holds and what was expected."""
    path = tmp_path / "odd.safetensors"
    path.write_bytes(save(tensors))
    with pytest.raises(InputError) as caught:
        load_dataset(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)


def test_arrays_that_are_no_dataset_are_not_written(tmp_path: Path) -> None:
    """Coordinates that could not be read back are refused, and no file appears."""
    with pytest.raises(InputError, match="NaN or infinite"):
        save_dataset(tmp_path / "a.safetensors", np.full((1, 3, 2), np.inf), {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no such file"),
        (b"", "the file is empty"),
        (TRIANGLE.encode(), "is not a dataset in safetensors format"),
        (
            b'\x40\0\0\0\0\0\0\0{"xy":{"dtype":"BF16","shape":[1,1,2],'
            b'"data_offsets":[0,4]}}    \0\0\0\0',
            "is not a dataset",
        ),
    ],
)
def test_what_is_no_dataset_is_refused(tmp_path: Path, content: bytes | None, words: str) -> None:
    """Missing, empty and foreign files are named as such."""
    path = tmp_path / "odd.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_many(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)


def test_a_failed_write_leaves_the_old_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk leaves the old file and no temporary one."""
    path = tmp_path / "a.safetensors"
    save_dataset(path, points(1), {})

    def fail(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(
        InputError, match=r"a\.safetensors: cannot be written: No space left on device"
    ):
        save_dataset(path, points(2), {})
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]
    assert len(load_dataset(path)) == 1


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """Writing through a symbolic link replaces the file behind it."""
    (tmp_path / "link").symlink_to(tmp_path / "real")
    save_dataset(tmp_path / "link", points(), {})
    assert (tmp_path / "link").is_symlink()
    assert len(load_dataset(tmp_path / "real")) == 3


def test_read_many_takes_files_of_both_kinds(tmp_path: Path) -> None:
    """A text file gives one instance, a dataset all of its own; strings serve as paths."""
    (tmp_path / "three.tsp").write_text(TRIANGLE)
    save_dataset(tmp_path / "seven.safetensors", points(), {})
    assert [i.size for i in read_many(str(tmp_path / "three.tsp"))] == [3]
    assert [i.size for i in read_many(str(tmp_path / "seven.safetensors"))] == [7, 7, 7]


@pytest.mark.parametrize("name", ["a.tsp", "a.TSP", "a.txt", "a"])
def test_other_endings_are_read_by_content(tmp_path: Path, name: str) -> None:
    """A TSPLIB file may have any ending."""
    (tmp_path / name).write_text(TRIANGLE)
    assert read(str(tmp_path / name)).size == 3


def test_one_instance_cannot_be_read_from_a_dataset(tmp_path: Path) -> None:
    """`read` refuses datasets and names `read_many`."""
    with pytest.raises(
        InputError, match=r"a\.safetensors: is a dataset of many instances.*read_many"
    ):
        read(tmp_path / "a.safetensors")


def test_write_plan_writes_a_tour(tmp_path: Path) -> None:
    """A tour is written as a TSPLIB tour file."""
    (tmp_path / "three.tsp").write_text(TRIANGLE)
    write_plan(
        str(tmp_path / "three.tour"), Tour((2, 0, 1)), read(tmp_path / "three.tsp"), "cost 12"
    )
    assert "TOUR_SECTION\n3\n1\n2\n-1\nEOF\n" in (tmp_path / "three.tour").read_text()


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 300),
)
def test_damaged_datasets_give_instances_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], cut: int
) -> None:
    """Whatever bytes are flipped or cut off, nothing but `InputError` escapes."""
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    save_dataset(path, points(2, 3), {"seed": "5"})
    content = bytearray(path.read_bytes())
    for place, byte in changes:
        content[place] = byte
    path.write_bytes(content[:cut])
    with contextlib.suppress(InputError):
        assert all(np.isfinite(i.planar_xy).all() for i in load_dataset(path))
