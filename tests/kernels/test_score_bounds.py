"""Bounds of attention scores by a kernel in Triton's interpreter, against plain torch."""

import pytest
import torch

from rhumbline import kernels
from rhumbline.kernels import HEADS
from rhumbline.kernels.triton.rollout import score_bounds
from rhumbline.kernels.triton.rollout import tables as rollout_tables

pytestmark = pytest.mark.filterwarnings(
    "ignore:Conversion of an array with ndim > 0:DeprecationWarning"
)


@pytest.mark.parametrize(("rows", "nodes"), [(1, 10), (70, 30), (128, 140)])
def test_kernel_bounds_as_torch_does(rows: int, nodes: int) -> None:
    """For one row, for a tile that is not full, and for keys in several parts; padding has scores
    of 0.
    """
    rng = torch.Generator().manual_seed(rows)
    query, key = torch.randn(2, rows, 128, generator=rng), torch.randn(2, nodes, 128, generator=rng)
    key = rollout_tables.pad_rows(key)
    found = score_bounds.launch_bound_scores(
        query, key, HEADS, rollout_tables.part_width(key.shape[1])
    )
    assert found.shape == (2, HEADS, 2, key.shape[1])
    assert torch.allclose(found, rollout_tables.bound_scores(query, key), atol=1e-5)


def test_tables_call_the_kernel_on_a_gpu(monkeypatch) -> None:
    """With the heads and parts of these keys, the result is that of tensor operations."""
    rng = torch.Generator().manual_seed(9)
    query, key = torch.randn(1, 5, 128, generator=rng), torch.randn(1, 192, 128, generator=rng)
    expected = rollout_tables.bound_scores(query, key)
    monkeypatch.setattr(kernels, "on_gpu", lambda _: True)
    assert torch.allclose(rollout_tables.bound_scores(query, key), expected, atol=1e-5)


def test_single_score_bounds_both_sides() -> None:
    """By hand: one query of ones in head 2, one key of 0.5 there: 8 above 0, and -8 below."""
    query, key = torch.zeros(1, 1, 128), torch.zeros(1, 16, 128)
    query[..., 32:48], key[:, 3, 32:48] = 1.0, 0.5
    found = score_bounds.launch_bound_scores(query, key, HEADS, 16)
    assert found[0, 2, :, 3].tolist() == [8.0, -8.0]
    assert found.abs().sum() == 16.0
