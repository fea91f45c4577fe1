"""Every strategy keeps the contracts of `rhumbline.testing` on every problem, or refuses it."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from problem_cases import CASES, Case

from rhumbline.decoding import Rollouts
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.tsp import TSP
from rhumbline.search.strategies import STRATEGIES
from rhumbline.search.strategies.greedy_sampling import Sampling
from rhumbline.search.strategies.population import Population
from rhumbline.search.task import Task
from rhumbline.testing import check_strategy

TOURS = CASES[0]


def cases_and_names() -> Iterator[Any]:
    """Yield all pairs; networks that run at each decision have no kernel and take seconds each."""
    for case in CASES:
        for name in sorted(STRATEGIES):
            has_kernel = str(case) not in ("jssp-machines", "jssp-l2d")
            is_slow = not has_kernel and name != "sampling"
            yield pytest.param(case, name, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize(("case", "name"), list(cases_and_names()))
def test_strategies(case: Case, name: str) -> None:
    """A search keeps its budget, belongs to its seed and to each instance alone."""
    refusal = check_strategy(STRATEGIES[name](), case.rules, case.policy, case.instances())
    if case is TOURS:
        assert (refusal is not None) == (name == "population")


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - {"population"}))
def test_strategies_with_symmetric_copies(name: str) -> None:
    """The same with copies of each instance."""
    instances = TOURS.instances()
    assert check_strategy(STRATEGIES[name](), TSP(), TOURS.policy, instances, augment=4) is None


def test_populations() -> None:
    """The search over the members of a population keeps the contracts too."""
    torch.manual_seed(0)
    policy = TSPPolicy(Architecture(16, 2, 1, 16, latent=0, members=3))
    assert check_strategy(Population(), TSP(), policy, TOURS.instances()) is None


# --- broken contracts are named


class Random(Sampling):
    """Draws latents from nowhere."""

    def step(self, task: Task, state: Any) -> tuple[Any, torch.Tensor, Rollouts]:
        latents = 2.0 * torch.rand(task.count, 4, task.policy.space.size) - 1.0
        return state, latents, task.rollout(latents, 1.0)


class Sociable(Sampling):
    """Tries on each instance what was best on the first."""

    def init(self, task: Task) -> Any:
        return torch.zeros(1, 1, task.policy.space.size)

    def step(self, task: Task, state: Any) -> tuple[Any, torch.Tensor, Rollouts]:
        drawn = 2.0 * task.uniforms(4)[..., 0] - 1.0
        latents = (drawn + state).clamp(-1.0, 1.0)
        rolled = task.rollout(latents, 1.0)
        best = rolled.cost[:1].amin(2).argmin(1)
        return latents[:1, best], latents, rolled


class Boasting(Sampling):
    """Reports costs that no plan has."""

    def step(self, task: Task, state: Any) -> tuple[Any, torch.Tensor, Rollouts]:
        state, latents, rolled = super().step(task, state)
        return state, latents, Rollouts(0.5 * rolled.cost, rolled.actions)


class Mute(Sampling):
    """Refuses without a reason."""

    def init(self, task: Task) -> Any:
        from rhumbline.errors import InputError

        raise InputError("no")


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (Random(), "the same seed gives the same search"),
        (Sociable(), "does not depend on the others"),
        (Boasting(), "the best cost"),
        (Mute(), "a refusal is a sentence"),
    ],
    ids=lambda x: type(x).__name__ if not isinstance(x, str) else "",
)
def test_broken_strategies_are_named(strategy: Any, words: str) -> None:
    """Each broken contract is an error whose sentence states it."""
    with pytest.raises(AssertionError, match=words):
        check_strategy(strategy, TSP(), TOURS.policy, TOURS.instances())
