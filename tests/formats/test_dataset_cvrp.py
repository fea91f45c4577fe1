"""Datasets of vehicle-routing instances."""

from pathlib import Path

import numpy as np
import pytest

from rhumbline.errors import InputError
from rhumbline.files import read_many
from rhumbline.formats.dataset import save_dataset

XY = np.array([[[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]], [[1.0, 1.0], [2.0, 2.0], [5.0, 5.0]]])
DEMAND, CAPACITY = np.array([[0, 2, 3], [0, 1, 4]]), np.array([5, 4])


def test_a_dataset_comes_back_as_it_went(tmp_path: Path) -> None:
    """Positions, demands and each instance's capacity survive, and names count from 1."""
    save_dataset(tmp_path / "two.safetensors", XY, {}, demand=DEMAND, capacity=CAPACITY)
    first, second = read_many(tmp_path / "two.safetensors")
    assert (first.name, second.name) == ("two-0001", "two-0002")
    assert (first.demands, first.capacity, second.demands, second.capacity) == (
        (0, 2, 3),
        5,
        (0, 1, 4),
        4,
    )
    assert np.array_equal(second.xy, XY[1])


@pytest.mark.parametrize(
    ("demand", "capacity", "words"),
    [
        (DEMAND[:1], CAPACITY, "expected whole numbers"),
        (DEMAND.astype(float), CAPACITY, "expected whole numbers"),
        (DEMAND, None, "expected whole numbers"),
        (DEMAND, np.array([5, 3]), "two-0002: customer 2 demands 4, more than the capacity 3"),
    ],
)
def test_loads_that_do_not_fit_are_refused(
    tmp_path: Path, demand: np.ndarray, capacity: np.ndarray, words: str
) -> None:
    """Wrong shapes, wrong types and overloads are refused."""
    save_dataset(tmp_path / "two.safetensors", XY, {}, demand=demand, capacity=capacity)
    with pytest.raises(InputError, match=words):
        read_many(tmp_path / "two.safetensors")
