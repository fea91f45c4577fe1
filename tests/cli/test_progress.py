"""The numbers of the progress line, computed by hand."""

from types import SimpleNamespace

import numpy as np
import torch

from rhumbline.cli.output import progress
from rhumbline.problems.tsp import TSPInstance
from rhumbline.search.driver import Budget, Progress

SQUARE = np.array([[0.0, 0.0], [30.0, 0.0], [30.0, 40.0]])
WHOLE = TSPInstance("w", "EUC_2D", SQUARE, best_known=1000.0)
EXACT = TSPInstance("e", "EXACT_2D", SQUARE)


def after(attempts: int, seconds: float) -> Progress:
    return Progress(attempts, seconds, torch.zeros(1), torch.zeros(1), None)


def test_the_bar_follows_the_budget_that_ends_first() -> None:
    """The fraction is the larger of time and attempts, at most 1, and needs only one of them."""
    assert progress.budget_fraction(after(50, 1.0), Budget(100, 10.0)) == 0.5
    assert progress.budget_fraction(after(50, 9.0), Budget(100, 10.0)) == 0.9
    assert progress.budget_fraction(after(50, 9.0), Budget(attempts=200)) == 0.25
    assert progress.budget_fraction(after(50, 11.0), Budget(seconds=10.0)) == 1.0


def test_the_line_for_one_instance() -> None:
    """The line has the best cost, the latest, and the gap to the best known cost."""
    line = progress.search_status([WHOLE], 1344, np.array([1010.0]), np.array([1234.0]))
    assert line == "  attempts 1,344   best 1,010   latest 1,234   gap 1.00%"


def test_the_line_of_a_phase_has_the_costs_before_and_now() -> None:
    """A phase shows the cost that it began with and the cost now; a search does not."""
    shown = []
    bar = SimpleNamespace(update=lambda line, completed, text: shown.append(text))
    watch = progress.make_bar_updater(bar, 0, [WHOLE], Budget(100, 10.0))
    for cost, phase in (
        (1200, "search"),
        (1100, "polish"),
        (1050, "polish"),
        (1050, "ils"),
        (1010, "ils"),
    ):
        watch(
            Progress(16, 5.0, torch.tensor([float(cost)]), torch.tensor([float(cost)]), None, phase)
        )
    assert shown == [
        "  attempts 16   best 1,200   latest 1,200   gap 20.00%",
        "  attempts 16   polish 1,100 -> 1,100   gap 10.00%",
        "  attempts 16   polish 1,100 -> 1,050   gap 5.00%",
        "  attempts 16   ils 1,050 -> 1,050   gap 5.00%",
        "  attempts 16   ils 1,050 -> 1,010   gap 1.00%",
    ]


def test_the_line_of_a_phase_for_several_instances() -> None:
    """Costs before and after are means."""
    line = progress.phase_status([WHOLE, EXACT], 16, "polish", 2.0, np.array([1.0, 2.0]))
    assert line == "  attempts 16   polish mean 2.0000 -> 1.5000"


def test_the_line_for_several_instances() -> None:
    """Costs are means; there is no gap unless all best known costs are known."""
    line = progress.search_status([WHOLE, EXACT], 16, np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    assert line == "  attempts 16   mean best 1.5000   latest 3.0000"
