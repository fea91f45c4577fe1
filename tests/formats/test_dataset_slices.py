"""Datasets in slices: the same instances as all at once, with little memory."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save

import rhumbline
from rhumbline.errors import InputError
from rhumbline.files import count_instances, read_many, stream_many
from rhumbline.formats import dataset
from rhumbline.formats.dataset import save_batch, save_dataset, slice_bounds
from rhumbline.inputs import stream_instances
from rhumbline.problems import Problem
from rhumbline.problems.cvrp import CVRP
from rhumbline.problems.jssp import JSSP
from rhumbline.problems.tsp import TSP


@pytest.mark.parametrize(("rules", "size"), [(TSP(), 7), (CVRP(), 7), (JSSP(), 12)])
@pytest.mark.parametrize("rows", [1, 4, 10, 100])
def test_slices_hold_the_same_instances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: Problem, size: int, rows: int
) -> None:
    """Names, coordinates, loads and numbers of machines, whatever the length of a slice."""
    path = tmp_path / "set.safetensors"
    batch = rules.sample(10, size, torch.Generator().manual_seed(1))
    save_batch(path, batch, {})
    widest = 14 if rules.name != "jssp" else batch.duration[0, :, :-1].numel()
    monkeypatch.setattr(dataset, "TUNING", dataset.SliceTuning(max_numbers=rows * widest))
    assert count_instances(path) == 10
    for streamed, read in zip(stream_many(path), read_many(path), strict=True):
        np.testing.assert_equal(vars(streamed), vars(read))


def test_machines_are_counted_over_all_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last row alone uses machine 4, so that all instances have five machines."""
    path = tmp_path / "shops.safetensors"
    machine = np.tile(np.arange(2), (6, 3, 1))
    machine[5, 0] = [4, 0]
    path.write_bytes(save({"duration": np.ones_like(machine), "machine": machine}))
    monkeypatch.setattr(dataset, "TUNING", dataset.SliceTuning(max_numbers=6))
    assert [shop.machine_count for shop in stream_many(path)] == [5] * 6


def test_the_rest_of_a_dataset_stays_on_the_disk(tmp_path: Path) -> None:
    """Of 40 MB a slice and its instances are in memory."""
    path = tmp_path / "large.safetensors"
    save_dataset(path, np.zeros((100_000, 50, 2), np.float32), {})
    small = dataset.SliceTuning(max_numbers=1 << 16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "TUNING", small)
        tracemalloc.start()
        assert sum(1 for _ in stream_many(path)) == 100_000
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 10e6


def test_what_is_wrong_is_raised_when_its_slice_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instances before it are usable."""
    path = tmp_path / "set.safetensors"
    xy = np.zeros((4, 5, 2), np.float32)
    xy[3, 0, 0] = np.nan
    path.write_bytes(save({"xy": xy}))
    monkeypatch.setattr(dataset, "TUNING", dataset.SliceTuning(max_numbers=20))
    stream = stream_many(path)
    assert [next(stream).name, next(stream).name] == ["set-0001", "set-0002"]
    with pytest.raises(InputError, match="NaN or infinite"):
        next(stream)


@pytest.mark.parametrize(
    "tensors", [{"xy": np.zeros((0, 5, 2), np.float32)}, {"weights": np.zeros(3)}]
)
def test_what_is_no_dataset_is_refused_as_by_reading_it(
    tmp_path: Path, tensors: dict[str, np.ndarray]
) -> None:
    path = tmp_path / "set.safetensors"
    path.write_bytes(save(tensors))
    with pytest.raises(InputError) as read:
        read_many(path)
    with pytest.raises(InputError) as streamed:
        list(stream_many(path))
    assert str(streamed.value) == str(read.value)


def test_options_reach_streamed_instances(tmp_path: Path) -> None:
    """Vehicles and capacity replace those of the file; a folder has one file after the other."""
    batch = CVRP().sample(3, 6, torch.Generator().manual_seed(1))
    save_batch(tmp_path / "a.safetensors", batch, {})
    save_batch(tmp_path / "b.safetensors", batch, {})
    found = list(stream_instances(tmp_path, vehicles=4, capacity=100))
    assert [instance.name for instance in found[2:4]] == ["a-0003", "b-0001"]
    assert {(instance.vehicles, instance.capacity) for instance in found} == {(4, 100)}


def test_slices_cover_all_rows() -> None:
    small = dataset.SliceTuning(max_numbers=12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "TUNING", small)
        assert list(slice_bounds([5, 3, 2])) == [(0, 2), (2, 4), (4, 5)]
        assert list(slice_bounds([2, 100])) == [(0, 1), (1, 2)]


def test_solve_many_takes_a_path(tmp_path: Path) -> None:
    path = tmp_path / "set.safetensors"
    save_dataset(path, np.random.default_rng(1).random((5, 6, 2)), {})
    options = {"attempts": 2, "strategy": "sampling", "device": "cpu"}
    results = list(rhumbline.solve_many(path, **options))
    assert sorted(result.place for result in results) == [0, 1, 2, 3, 4]
