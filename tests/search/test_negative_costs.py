"""Searches minimise costs of either sign: a profit to maximise is a negative cost."""

from types import SimpleNamespace

import pytest
import torch

from rhumbline.problems.tsp import Tour
from rhumbline.search.after_search import Candidates
from rhumbline.search.plan_sets.elite import select_distinct
from rhumbline.search.solution import Candidate, Solution


def test_negative_costs_are_distinct_by_their_size() -> None:
    """Costs that are equal up to the last bits are one plan; gaps fill the elite set."""
    cost = torch.tensor([[-7.0, -3.0, -3.0 * (1 + 5e-7), -5.0, -3.0]])
    found = select_distinct(cost, cost.to(torch.int16)[..., None], 4)
    assert found.actions[0, :3, 0].tolist() == [-7, -5, -3]
    assert found.cost[0, 3].isinf()


@pytest.mark.parametrize("cost", [-5.0, -5, 0.0, 0, 5.0, 5])
def test_the_earlier_of_equal_plans_stays(cost: float) -> None:
    """Rounding is no improvement, whatever the sign. A lower cost is."""
    plans = [Candidate(Tour((0, 1, 2)), cost, phase) for phase in ("search", "x")]
    assert Candidates(None, plans).best.phase == "search"
    rounded = Candidate(Tour((0, 2, 1)), cost - abs(cost) * 1e-15, "y")
    assert Candidates(None, [*plans, rounded]).best.phase == "search"
    better = Candidate(Tour((0, 2, 1)), cost - 1e-6, "z")
    assert Candidates(None, [*plans, better]).best.phase == "z"


def test_the_gap_is_relative_to_the_size_of_costs() -> None:
    """A plan that costs more has a positive gap, also if the best known cost is negative."""
    instance = SimpleNamespace(best_known=-5.0)
    assert Solution(instance, Tour((0, 1)), -4.0, 1, 0.0).gap == pytest.approx(0.2)
