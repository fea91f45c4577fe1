"""Settings of CMA-ES beyond the published search, and the search with a population."""

import numpy as np
import pytest
import torch

from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.problems.tsp import TSP, TSPInstance
from rhumbline.search import cma_es
from rhumbline.search.driver import Budget, search
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.strategies.cmaes_eas import CMAESEAS
from rhumbline.search.strategies.eas import EASEmb, EASLay
from rhumbline.search.strategies.greedy_sampling import Fixed, Uniform
from rhumbline.search.strategies.population import Population, best_pairs
from rhumbline.search.strategies.sgbs import SGBS, SGBSEAS
from rhumbline.search.strategies.start_bandit import StartBandit
from rhumbline.search.task import make_task
from rhumbline.search.task import task as tasks


def rollouts_of_cost(cost: list) -> Rollouts:
    """Return rollouts of these costs."""
    table = torch.tensor(cost)
    return Rollouts(table, torch.zeros(*table.shape, 2, dtype=torch.int16))


def test_ranking_by_several_starts() -> None:
    """The fitness of a latent is the mean over its best starts, or over all if there are fewer."""
    rolled = rollouts_of_cost([[[1.0, 9.0, 5.0], [2.0, 3.0, 7.0]]])
    assert CMAES().fitness(rolled).tolist() == [[1.0, 2.0]]
    assert CMAES(top=2).fitness(rolled).tolist() == [[3.0, 2.5]]
    assert CMAES(top=9).fitness(rolled).tolist() == [[5.0, 4.0]]


def test_parallel_components_all_move(policy, make_instances) -> None:
    """A step is a generation of all components: 3 x 4 attempts, each near its own centroid."""
    task, strategy = (
        make_task(TSP(), policy, make_instances(2, 6)),
        CMAES(population=4, parallel=True, sigma=0.01),
    )
    task.account.limit = 100
    before = strategy.init(task)
    after, latents, _ = strategy.step(task, before)
    assert task.account.attempts == 12
    assert (after.components.mean != before.components.mean).any(-1).all()
    centroids = cma_es.centroids(3, 4).float()
    assert (latents.unflatten(1, (3, 4)).mean(2) - centroids).abs().max() < 0.05


def test_narrow_components_restart(policy, make_instances) -> None:
    """A component below the limit is replaced by one at a spare centroid; a wide one stays."""
    state = cma_es.initial_state(torch.zeros(1, 2, 4), 1.0)
    state = cma_es.State(**vars(state) | {"sigma": torch.tensor([[0.01, 0.5]])})
    restart_narrow = CMAES(restart=0.1).restart_narrow(state, 18)
    assert restart_narrow.sigma.tolist() == [[1.0, 0.5]]
    assert torch.equal(restart_narrow.mean[0, 0], cma_es.centroids(16, 4)[2].float())
    assert not restart_narrow.mean[0, 1].any()


def test_start_bandit_by_hand() -> None:
    """The lowest mean minus the spread over the root of the trials, in the order of the starts."""
    arms = StartBandit.make(1, 4, torch.device("cpu")).record(
        None, torch.tensor([[4.0, 1.0, 3.0, 2.0]])
    )
    assert arms.best(2).tolist() == [[1, 3]]
    for _ in range(8):
        arms = arms.record(torch.tensor([[1, 3]]), torch.tensor([[3.0, 3.4]]))
    # means 4, 25/9, 3, 29.2/9; a spread of about 0.46 counts in full for starts 0 and 2 and a third
    # for 1 and 3
    assert arms.best(2).tolist() == [[1, 2]]


def test_fewer_starts_buy_more_latents(policy, make_instances) -> None:
    """With half of 6 starts 16 latents cost 8 attempts after the first generation, exactly."""
    seen = []
    task = make_task(TSP(), policy, make_instances(2, 6))
    search(CMAES(starts=0.5), task, Budget(37), lambda p: seen.append((p.attempts, p.latents)))
    assert [n for n, _ in seen] == [16, 24, 32, 37]
    assert (
        task.tried_count == 16 + 16 + 16 + 10
    )  # 5 attempts are 30 trajectories; each latent has a number of its own


def test_25_starts_are_the_default_on_a_cpu(policy, make_instances) -> None:
    """After the first generation; all of them if there are no more or if asked for."""
    attempts = {}
    for nodes, settings in ((50, {}), (50, {"starts": 1.0}), (20, {})):
        seen = attempts[nodes, *settings] = []
        search(
            CMAES(population=4, **settings),
            make_task(TSP(), policy, make_instances(1, nodes)),
            Budget(8),
            lambda p, seen=seen: seen.append(p.attempts),
        )
    assert attempts == {(50,): [4, 6, 8], (50, "starts"): [4, 8], (20,): [4, 8]}


def test_large_instances_begin_with_a_few_starts(policy, make_instances) -> None:
    """From all 100 starts a first generation of 1,000 cities takes 20 s.

    Each start is tried before any is repeated. At 300 cities all of them come first, as in smaller
    instances.
    """
    attempts, firsts = dict[int, list[int]](), list[int]()
    for nodes in (300, 302):
        task, strategy = make_task(TSP(), policy, make_instances(1, nodes)), CMAES(population=2)
        task.account.limit, state, attempts[nodes] = 100, strategy.init(task), []
        for _ in range(4):
            state, _, rolled = strategy.step(task, state)
            attempts[nodes].append(rolled.cost.shape[2])
            firsts += rolled.actions[0, 0, :, 0].tolist() if nodes > 300 else []
    assert attempts == {300: [100, 25, 25, 25], 302: [25, 25, 25, 25]}
    assert len(set(firsts)) == 100
    task, asked = make_task(TSP(), policy, make_instances(1, 302)), CMAES(population=2, starts=0.4)
    assert asked.step(task, asked.init(task))[2].cost.shape[2] == 40


def test_large_files_with_integer_distances(policy) -> None:
    """Integer distances are summed in double precision from the first start on."""
    xy = np.random.default_rng(0).integers(0, 1000, (310, 2)).astype(float)
    task = make_task(TSP(), policy, [TSPInstance("large", "EUC_2D", xy=xy)])
    (found,), _ = search(CMAES(population=2), task, Budget(3))
    found.plan.check(found.instance)
    assert found.cost == found.plan.cost(found.instance)
    assert isinstance(found.cost, int)


def test_a_generation_has_starts_for_an_eighth_of_the_time_left(
    policy, make_instances, monkeypatch
) -> None:
    """Large instances on a CPU: one start before the first timing, and never more than 25."""
    task = make_task(TSP(), policy, make_instances(3, 302))
    monkeypatch.setattr(tasks.time, "monotonic", lambda: 100.0)
    assert CMAES().default_start_count(task, 16) == 25  # there is no time limit
    task.account.deadline = 180.0
    assert task.rollouts_within(1 / 8) == 0
    assert CMAES().default_start_count(task, 16) == 1
    kept = list[int]()
    for each in (0.01, 0.1, 1.0, 100.0):  # seconds of one rollout of each of the three
        task.pacer.record(3, each)
        assert task.rollouts_within(1 / 8) == pytest.approx(10.0 / each)
        kept.append(CMAES().default_start_count(task, 16))
    assert kept == [25, 6, 1, 1]
    task.account.deadline = 99.0
    assert CMAES().default_start_count(task, 16) == 1
    small = make_task(TSP(), policy, make_instances(3, 50))
    small.account.deadline = 101.0
    assert CMAES().default_start_count(small, 16) == 25


@pytest.mark.parametrize(
    "settings", [{"starts": 0.0}, {"starts": 1.1}, {"top": 0}, {"restart": -1.0}]
)
def test_impossible_variants_are_refused(settings) -> None:
    """Impossible settings are refused by the constructor."""
    with pytest.raises(InputError, match="starts above 0 up to 1, a top of at least 1"):
        CMAES(**settings)


def test_fixed_latents_stay_and_uniform_ones_do_not(policy, make_instances) -> None:
    """`fixed` repeats its first latents, with which `uniform` begins."""
    tried_count = {}
    for strategy in (Fixed(4), Uniform(4)):
        seen = []
        search(strategy, make_task(TSP(), policy, make_instances(2, 6)), Budget(8), seen.append)
        tried_count[type(strategy)] = [p.latents for p in seen]
    assert torch.equal(tried_count[Fixed][0], tried_count[Fixed][1])
    assert torch.equal(tried_count[Fixed][0], tried_count[Uniform][0])
    assert not torch.equal(tried_count[Uniform][0], tried_count[Uniform][1])


# --- populations


def test_the_best_pairs_by_hand(make_instances, make_policy) -> None:
    """There are as many pairs as members, each with one start for all its trajectories."""
    task = make_task(TSP(), make_policy(latent=0, members=2), make_instances(1, 3))
    turns = best_pairs(task, rollouts_of_cost([[[5.0, 1.0, 4.0], [2.0, 9.0, 8.0]]]))
    assert turns.latents.tolist() == [[[0.0], [1.0]]]
    assert turns.starts.tolist() == [[[1, 1, 1], [0, 0, 0]]]


def test_pairs_cost_the_same(make_instances, make_policy) -> None:
    """Both variants try every member in each pass. With pairs, later tours use a kept start."""
    policy, instances = make_policy(latent=0, members=3), make_instances(2, 6)
    task = make_task(TSP(), policy, instances)
    task.account.limit = 100
    strategy = Population(pairs=True)
    state, _, first = strategy.step(task, strategy.init(task))
    state, latents, second = strategy.step(task, state)
    assert task.account.attempts == 6
    starts, members = second.actions[:, :, 0, 0].long(), latents[..., 0].long()
    assert torch.equal(second.actions[..., 0].long(), starts[..., None].expand(-1, -1, 6))
    cheapest = first.cost.flatten(1).sort(1).values[:, :3]  # the same tour from several starts ties
    assert torch.allclose(
        first.cost.flatten(1).gather(1, members * 6 + starts), cheapest, rtol=1e-5
    )
    assert (
        len({tuple(a) for a in second.actions[0, 0].tolist()}) > 1
    )  # noise differs between the repetitions


def test_populations_and_latent_spaces_do_not_mix(policy, make_instances, make_policy) -> None:
    """Searches of a latent space refuse populations; the search of a population other policies."""
    many, instances = make_policy(latent=0, members=2), make_instances(1, 5)
    with pytest.raises(InputError, match="not a population"):
        search(Population(), make_task(TSP(), policy, instances), Budget(1))
    for strategy in (CMAES(), EASEmb(), EASLay(), SGBS(), SGBSEAS(), CMAESEAS(), Fixed()):
        with pytest.raises(InputError, match="use --search population"):
            search(strategy, make_task(TSP(), many, instances), Budget(1))
