"""Tolerances of costs of either sign."""

import pytest
import torch

from rhumbline.problems.costs import shift_cost

EPS = 3e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_positive_costs_are_multiplied(dtype: torch.dtype) -> None:
    """Bit for bit, in either direction; an infinite cost stays infinite."""
    cost = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=dtype)
    cost = torch.cat([cost, torch.tensor([0.0, torch.inf], dtype=dtype)])
    assert torch.equal(shift_cost(cost, EPS), cost * (1.0 + EPS))
    assert torch.equal(shift_cost(cost, -EPS), cost * (1.0 - EPS))


def test_negative_costs_move_the_same_way() -> None:
    """Up means a higher cost, whatever its sign."""
    cost = torch.tensor([-5.0, -1e-3, -1e6])
    assert (shift_cost(cost, EPS) > cost).all()
    assert (shift_cost(cost, -EPS) < cost).all()
    assert torch.equal(shift_cost(cost, EPS), -shift_cost(-cost, -EPS))
