"""The sampling temperature that strategies take by default."""

import numpy as np
import pytest

from rhumbline.decoding import Rollouts
from rhumbline.problems.tsp import TSP, TSPInstance
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.strategy import default_temperature
from rhumbline.search.task import Task, make_task


def task_of(policy, size: int) -> Task:
    """Return a task of one TSP instance."""
    points = np.random.default_rng(size).random((size, 2))
    return make_task(TSP(), policy, [TSPInstance("t", "EXACT_2D", xy=points)], engine="torch")


@pytest.mark.parametrize(
    ("size", "expected"), [(5, 1.0), (100, 1.0), (125, 0.5), (150, 0.5), (200, 0.3), (400, 0.2)]
)
def test_it_falls_with_size(policy, size: int, expected: float) -> None:
    """1 up to 100 nodes, 0.5 up to 150, 0.3 up to 250, 0.2 beyond."""
    assert default_temperature(task_of(policy, size)) == expected


@pytest.mark.parametrize(("given", "used"), [(None, 0.5), (0.0, 0.0), (0.7, 0.7)])
def test_a_given_temperature_wins(policy, monkeypatch, given: float | None, used: float) -> None:
    """A temperature of 0, which is greedy decoding, is a given one too."""
    seen: list[float] = []
    task, plain = task_of(policy, 120), Task.rollout

    def spy(self: Task, latents, temperature: float, *others: None) -> Rollouts:
        seen.append(temperature)
        return plain(self, latents, temperature)

    monkeypatch.setattr(Task, "rollout", spy)
    strategy = CMAES(temperature=given, population=2)
    strategy.step(task, strategy.init(task))
    assert seen == [used]
