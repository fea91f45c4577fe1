"""Objectives compare costs of either sign: a profit to maximise is a negative cost."""

import torch

from rhumbline.decoding import Rollouts
from rhumbline.training.objectives.prefer import compare_rollouts
from rhumbline.training.objectives.symmetric_copies import SymmetricTarget
from rhumbline.training.objectives.targets import TIE_TOLERANCE, find_winners


def test_ties_of_negative_costs() -> None:
    """Costs tie up to rounding, and a clear winner stays alone."""
    costs = [[-4.0, -4.0, -1.0], [-4.0 * (1 - 5e-7), -3.9, 0.0], [-2.0, -3.0, -1.0 - 1e-5]]
    winner, is_unique = find_winners(torch.tensor([costs]))
    assert winner.tolist() == [[0, 0, 2]]
    assert is_unique.tolist() == [[False, True, True]]


def test_only_better_targets_are_imitated() -> None:
    """A target that equals the best sample up to rounding is left out; a better one is kept."""
    own = Rollouts(torch.full((1, 2, 2), -2.0), torch.zeros(1, 2, 2, 4, dtype=torch.long))
    costs = torch.tensor([[[-2.1], [-2.0 * (1 + TIE_TOLERANCE / 2)]]])
    target = SymmetricTarget(costs, torch.ones(1, 2, 1, 4, dtype=torch.long), 0.3)
    is_unique = torch.tensor([[False, False]])
    targets = compare_rollouts(torch.zeros(1, 2, 0), is_unique, own, target)
    assert targets.weight_or_cost.isfinite()[0].tolist() == [
        False,
        False,
        True,
        False,
        False,
        False,
    ]
