"""Datasets of job shops."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from rhumbline.errors import InputError
from rhumbline.files import read_many
from rhumbline.formats.dataset import load_dataset, save_batch, save_job_shops
from rhumbline.problems.jssp import JSSP, JSSPInstance

DURATION = np.array([[[3, 2], [4, 0]], [[1, 1], [1, 1]]])
MACHINE = np.array([[[0, 2], [2, 0]], [[0, 1], [1, 0]]])


def test_a_dataset_comes_back_as_it_went(tmp_path: Path) -> None:
    """Named after the file, with as many machines as any of the instances uses."""
    save_job_shops(tmp_path / "two.safetensors", DURATION, MACHINE, {})
    assert read_many(tmp_path / "two.safetensors") == [
        JSSPInstance("two-0001", ((3, 2), (4, 0)), ((0, 2), (2, 0)), 3),
        JSSPInstance("two-0002", ((1, 1), (1, 1)), ((0, 1), (1, 0)), 3),
    ]


def test_a_sampled_batch_is_written_without_its_margin(tmp_path: Path) -> None:
    """What a policy trains on and what the file gives collate to the same tables."""
    batch = JSSP().sample(3, "4x5", torch.Generator().manual_seed(1))
    save_batch(tmp_path / "s.safetensors", batch, {"seed": "1"})
    again = JSSP().collate(
        [i for i in load_dataset(tmp_path / "s.safetensors") if isinstance(i, JSSPInstance)]
    )
    assert torch.equal(again.duration, batch.duration)
    assert torch.equal(again.machine, batch.machine)
    assert (again.steps, again.max_per_machine) == (batch.steps, batch.max_per_machine)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"machine": MACHINE[:1]}, "expected whole numbers [instances, jobs, operations]"),
        (
            {"duration": DURATION[0], "machine": MACHINE[0]},
            "expected whole numbers [instances, jobs, operations]",
        ),
        (
            {"duration": DURATION.astype(np.float32)},
            "are float32 [2, 2, 2] and int64 [2, 2, 2], expected whole numbers",
        ),
        ({"duration": DURATION[:0], "machine": MACHINE[:0]}, "expected whole numbers"),
        ({"duration": -DURATION}, "bad-0001: operation 1 of job 1 takes -3"),
        ({"machine": MACHINE - 1}, "bad-0001: operation 1 of job 1 is on machine -1"),
        ({"machine": MACHINE + 100}, "has 103 machines; 1 to 100 are supported"),
        ({"duration": DURATION + 2**31}, "all durations together are"),
    ],
)
def test_tables_that_are_no_shops_are_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    """When they are read, and before they are written."""
    path = tmp_path / "bad.safetensors"
    tables = {"duration": DURATION, "machine": MACHINE} | change
    save_file(tables, path)
    with pytest.raises(InputError) as caught:
        load_dataset(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)
    path.unlink()
    with pytest.raises(InputError):
        save_job_shops(path, tables["duration"], tables["machine"], {})
    assert not path.exists()


def test_half_a_dataset_is_refused(tmp_path: Path) -> None:
    """Durations without machines."""
    save_file({"duration": DURATION}, tmp_path / "half.safetensors")
    with pytest.raises(InputError, match="read duration; is it a checkpoint"):
        load_dataset(tmp_path / "half.safetensors")
