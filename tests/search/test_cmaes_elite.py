"""CMA-ES that learns from the best plans of every generation: targets, and that learning helps."""

import time
from functools import partial

import numpy as np
import pytest
import torch

from rhumbline.decoding import Rollouts, log_prob
from rhumbline.errors import InputError
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.problems.cvrp import CVRP, CVRPInstance
from rhumbline.problems.tsp import TSP, Tour
from rhumbline.search.driver import Budget, search
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.strategies.cmaes_elite import (
    TUNING,
    CMAESElite,
    default_learning_rate,
    generation_target,
    trim_padding,
)
from rhumbline.search.strategy import default_temperature
from rhumbline.search.task import Spent, make_task, set_warm_start


def test_the_elite_by_hand(policy, make_instances) -> None:
    """The target is the cheapest sequences, cheapest first, each with its own latent."""
    task = make_task(TSP(), policy, make_instances(1, 3))
    # The sequence of latent k and start s begins with 9k + 3s.
    rolled = Rollouts(
        torch.tensor([[[9.0, 4.0, 5.0], [1.0, 7.0, 6.0]]]),
        torch.arange(18, dtype=torch.int16).view(1, 2, 3, 3),
    )
    latents, sequences, weight = generation_target(task, torch.tensor([[[0.4], [0.1]]]), rolled, 3)
    assert latents[0, :, 0].tolist() == pytest.approx([0.1, 0.4, 0.4])
    assert sequences[0, :, 0].tolist() == [[9, 10, 11], [3, 4, 5], [6, 7, 8]]
    assert torch.allclose(weight, torch.full((1, 3, 1), -1 / 3))


def test_a_plan_that_was_given_is_learnt_from(policy, make_instances) -> None:
    """A given plan takes the last place of the elite if a generation has nothing as good.

    Other instances of the batch keep theirs.
    """
    rolled = Rollouts(torch.full((2, 1, 3), 9.0), torch.zeros(2, 1, 3, 3, dtype=torch.int16))
    task = make_task(TSP(), policy, make_instances(2, 3))
    set_warm_start(task, [Tour((1, 2, 0)), None])
    task.account.best = torch.tensor([8.0, 8.0])
    _, sequences, weight = generation_target(task, torch.zeros(2, 1, 1), rolled, 2)
    assert sequences[:, :, 0].tolist() == [[[0, 0, 0], [1, 2, 0]], [[0, 0, 0], [0, 0, 0]]]
    assert torch.allclose(weight, torch.tensor(-0.5))
    # It was found in this generation, so it is in the elite already.
    task.account.best = torch.tensor([9.0, 9.0])
    assert generation_target(task, torch.zeros(2, 1, 1), rolled, 2)[1].sum() == 0


def test_an_elite_of_more_than_there_are_is_everybody(policy, make_instances) -> None:
    """Tiny instances have few sequences; their weights still sum to one."""
    task = make_task(TSP(), policy, make_instances(2, 3), augment=2)
    rolled = Rollouts(torch.rand(2, 2, 3), torch.zeros(2, 2, 3, 3, dtype=torch.int16))
    latents, sequences, weight = generation_target(task, torch.zeros(2, 2, 1), rolled, 50)
    # A target for both copies of both instances.
    assert latents.shape[:2] == sequences.shape[:2] == (4, 6)
    assert torch.allclose(weight.sum(1), torch.tensor(-1.0))


def test_the_elite_becomes_likelier(policy, make_instances) -> None:
    """One update raises the probability of the elite, for every instance."""
    task, strategy = make_task(TSP(), policy, make_instances(3, 8)), CMAESElite(elite=4, rate=1e-3)
    task.account.limit = 100
    before = strategy.init(task)
    tables = task.memory.map(torch.clone)
    after, latents, rolled = strategy.step(task, before)
    source, sequences, _ = generation_target(task, latents, rolled, 4)

    def likelihood(memory) -> torch.Tensor:
        return log_prob(TSP(), policy, task.batch, source, sequences[:, :, 0], memory=memory).sum(1)

    with torch.no_grad():
        learnt = strategy.learning.tables(task, task.memory, after.adaptation.parameters)
        assert (likelihood(learnt) > likelihood(tables)).all()


def vehicles(count: int, customers: int) -> list[CVRPInstance]:
    """Return random instances whose vehicles hold about five customers."""
    xy = np.random.default_rng(3).random((count, customers + 1, 2))
    return [
        CVRPInstance(f"{i}", "EXACT_2D", (0, *[1 + j % 3 for j in range(customers)]), 10, xy=x)
        for i, x in enumerate(xy)
    ]


def test_steps_after_the_last_customer_teach_nothing() -> None:
    """Trimming them changes no likelihood and no update; tours lose nothing."""
    torch.manual_seed(0)
    policy, batch = (
        CVRPPolicy(Architecture(16, 2, 1, 16, 2)).requires_grad_(False),
        CVRP().collate(vehicles(2, 7)),
    )
    routes = [
        [1, 2, 3, 0, 4, 5, 6, 0, 7, 0, 0, 0, 0, 0],
        [2, 1, 0, 7, 6, 5, 4, 3, 0, 0, 0, 0, 0, 0],
    ]
    actions = torch.tensor([routes, routes[::-1]], dtype=torch.int16)
    short = trim_padding(actions)
    # One step more than it takes to reach the last customer: the return.
    assert short.shape[2] == 10
    score = partial(log_prob, CVRP(), policy, batch, torch.zeros(2, 1, 2))
    assert torch.allclose(score(short), score(actions), atol=1e-6)
    tours = torch.tensor([[[2, 1, 0], [1, 2, 0]]])
    assert torch.equal(trim_padding(tours), tours)


def test_every_copy_learns() -> None:
    """With symmetric copies, one update makes the common elite likelier in each copy."""
    torch.manual_seed(0)
    policy = CVRPPolicy(Architecture(16, 2, 1, 16, 2)).requires_grad_(False)
    task, strategy = (
        make_task(CVRP(), policy, vehicles(2, 7), augment=4),
        CMAESElite(elite=3, rate=1e-3),
    )
    task.account.limit = 1000
    tables = task.memory.map(torch.clone)
    state, latents, rolled = strategy.step(task, strategy.init(task))
    source, sequences, _ = generation_target(task, latents, rolled, 3)
    score = partial(log_prob, CVRP(), policy, task.batch, source, sequences[:, :, 0])
    with torch.no_grad():
        learnt = strategy.learning.tables(task, task.memory, state.adaptation.parameters)
        assert (score(memory=learnt).sum(1) > score(memory=tables).sum(1)).all()


def test_a_weak_policy_learns(make_instances, make_policy) -> None:
    """From an untrained policy it finds clearly shorter tours than CMA-ES in as many attempts."""
    policy, instances = make_policy(seed=1), make_instances(3, 24)
    learns, searches = CMAESElite(rate=0.01, population=4), CMAES(population=4, temperature=1.0)
    mean = {
        kind: np.mean(
            [s.cost for s in search(kind, make_task(TSP(), policy, instances), Budget(320))[0]]
        )
        for kind in (learns, searches)
    }
    assert mean[learns] < 0.92 * mean[searches]


def test_without_a_rate_it_is_cmaes(policy, make_instances) -> None:
    """At rate 0 it finds what CMA-ES finds, also with symmetric copies."""
    for copies in (1, 2):
        costs = [
            [
                s.cost
                for s in search(
                    kind, make_task(TSP(), policy, make_instances(2, 9), augment=copies), Budget(64)
                )[0]
            ]
            for kind in (CMAESElite(rate=0.0), CMAES(temperature=1.0))
        ]
        assert costs[0] == costs[1]


def test_the_more_updates_the_slower(policy, make_instances) -> None:
    """The rate falls with the root of the number of expected updates, and has a maximum."""
    task = make_task(TSP(), policy, make_instances(1, 5))
    # Without a budget, as if it ended now.
    assert default_learning_rate(task, 100) == pytest.approx(TUNING.rate_numerator / 10)
    task.account.limit, task.account.attempts = 1600, 400
    assert default_learning_rate(task, 100) == pytest.approx(TUNING.rate_numerator / 20)
    assert default_learning_rate(task, 1) == task.domain.search.max_learning_rate


def test_temperatures_of_its_own(policy, make_instances) -> None:
    """Larger instances have lower temperatures, which are above those without learning."""
    for cities, wanted in ((200, 1.0), (240, 0.7), (300, 0.5)):
        task = make_task(TSP(), policy, make_instances(1, cities))
        assert CMAESElite().search_for_task(task).temperature == wanted > default_temperature(task)
    assert CMAESElite(temperature=0.4).search_for_task(task).temperature == 0.4


def test_large_instances_are_only_searched(policy, make_instances) -> None:
    """Beyond 300 nodes it is CMA-ES at that size's temperature, unless a rate is given."""
    task = make_task(TSP(), policy, make_instances(1, 302))
    task.account.limit = 100
    search_only, learns = CMAESElite(population=2), CMAESElite(population=2, rate=0.01)
    for strategy, moved in ((search_only, False), (learns, True)):
        state, _, _ = strategy.step(task, strategy.init(task))
        assert torch.equal(state.adaptation.parameters[0], task.memory.embedding) is not moved
    assert search_only.search_for_task(task).temperature is None
    assert learns.search_for_task(task).temperature == 0.5


def test_learning_stops_when_time_is_up(policy, make_instances) -> None:
    """An update after the deadline is left out: scoring checks the clock itself."""
    task, strategy = make_task(TSP(), policy, make_instances(2, 6)), CMAESElite()
    state = strategy.init(task)
    state, latents, rolled = strategy.step(task, state)
    task.account.deadline = time.monotonic()
    with pytest.raises(Spent):
        strategy.learning.update(
            task, state.adaptation, [generation_target(task, latents, rolled, 2)]
        )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"elite": 0}, "an elite of at least 1"),
        ({"rate": -1.0}, "a rate of at least 0"),
        ({"components": 0}, "components"),
    ],
)
def test_impossible_settings_are_refused(settings, words: str) -> None:
    """Settings that cannot work are refused at construction."""
    with pytest.raises(InputError, match=words):
        CMAESElite(**settings)
