"""Sampling that learns from its best plans: what it learns, that it helps, and warm starts."""

from functools import partial

import numpy as np
import pytest
import torch

from rhumbline.checkpoint import find_checkpoint, load
from rhumbline.decoding import log_prob
from rhumbline.errors import InputError
from rhumbline.policies.jssp import JSSPArchitecture, JSSPPolicy
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.jssp import JSSP, JSSPInstance, jssp_from_arrays
from rhumbline.problems.tsp import TSP
from rhumbline.search.driver import Budget, search
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.strategies.cmaes_elite import CMAESElite
from rhumbline.search.strategies.cmaes_refine import CMAESRefine
from rhumbline.search.strategies.eas import score_chunks
from rhumbline.search.strategies.greedy_sampling import Sampling
from rhumbline.search.strategies.sampling_elite import SamplingElite
from rhumbline.search.strategies.sgbs import SGBS
from rhumbline.search.strategy import warm_up_run_of
from rhumbline.search.task import Task, make_task, set_warm_start


def shops(count: int, jobs: int, machines: int) -> list[JSSPInstance]:
    rng = np.random.default_rng(5)
    shape = (jobs, machines)
    return [
        jssp_from_arrays(rng.integers(1, 99, shape), rng.random(shape).argsort(1), f"{i}")
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def dispatcher() -> JSSPPolicy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return JSSPPolicy(
            JSSPArchitecture(width=32, heads=2, layers=1, hidden=16, latent=3)
        ).requires_grad_(False)


def costs(strategy: object, task: Task, attempts: int) -> list[float]:
    return [s.cost for s in search(strategy, task, Budget(attempts))[0]]


def test_the_best_schedules_become_likelier(dispatcher: JSSPPolicy) -> None:
    """One update raises the probability of the elite, in every instance."""
    task, strategy = (
        make_task(JSSP(), dispatcher, shops(3, 5, 4)),
        SamplingElite(elite=4, rate=1e-3, population=16),
    )
    task.account.limit = 100
    tables = task.memory.map(torch.clone)
    state, latents, _ = strategy.step(task, strategy.init(task))
    score = partial(
        log_prob, JSSP(), dispatcher, task.batch, latents[:, :1], state.elite_set.actions.long()
    )
    real = state.elite_set.cost.isfinite()
    with torch.no_grad():
        learnt = dispatcher.adjusted(task.memory, state.adaptation.parameters[0])
        gained = (score(memory=learnt) - score(memory=tables)).masked_fill(~real, 0.0)
    assert (gained.sum(1) > 0.0).all()


def test_the_best_of_earlier_generations_are_kept(dispatcher: JSSPPolicy) -> None:
    """The elite is of all generations: its costs are the lowest distinct ones so far, in order."""
    task, strategy = (
        make_task(JSSP(), dispatcher, shops(1, 6, 5)),
        SamplingElite(elite=5, rate=0.0, population=8),
    )
    task.account.limit = 100
    state, seen = strategy.init(task), set[float]()
    for _ in range(3):
        state, _, rolled = strategy.step(task, state)
        seen |= set(rolled.cost.flatten().tolist())
    assert state.elite_set.cost[0].tolist() == sorted(seen)[:5]


def test_the_samples_of_the_shipped_dispatcher_get_shorter() -> None:
    """The mean sample improves by a percent in four generations; without learning it does not."""
    policy = load(find_checkpoint("jssp", "jssp"), torch.device("cpu"))
    assert fall_of_means(policy, 0.02) > 0.01
    assert abs(fall_of_means(policy, 0.0)) < 0.005


def fall_of_means(policy: JSSPPolicy, rate: float) -> float:
    """Return by which share the mean sample of three instances falls in four generations."""
    task, strategy = (
        make_task(JSSP(), policy, shops(3, 10, 10)),
        SamplingElite(rate=rate, population=48),
    )
    task.account.limit = 1000
    state, means = strategy.init(task), list[float]()
    for _ in range(4):
        state, _, rolled = strategy.step(task, state)
        means.append(rolled.cost.mean().item())
    return 1.0 - means[-1] / means[0]


def test_a_policy_without_a_latent_space_learns_too(make_instances, make_policy) -> None:
    """A single, untrained policy finds clearly shorter tours than its samples."""
    single, given = make_policy(seed=1, latent=0), make_instances(3, 24)
    assert isinstance(single, TSPPolicy)
    learns = costs(SamplingElite(rate=0.01, population=4), make_task(TSP(), single, given), 320)
    samples = costs(Sampling(population=4), make_task(TSP(), single, given), 320)
    assert np.mean(learns) < 0.92 * np.mean(samples)


def test_without_a_rate_it_is_sampling(dispatcher: JSSPPolicy) -> None:
    """At rate 0 it finds what sampling finds."""
    given = shops(2, 5, 4)
    still = costs(SamplingElite(rate=0.0, population=8), make_task(JSSP(), dispatcher, given), 60)
    assert still == costs(Sampling(population=8), make_task(JSSP(), dispatcher, given), 60)


@pytest.mark.parametrize(
    "strategy", [SamplingElite(population=16), CMAESElite()], ids=["sampling", "cmaes"]
)
def test_a_schedule_that_was_given_is_not_learnt_from(
    dispatcher: JSSPPolicy, strategy: object
) -> None:
    """A given schedule changes no update, not even the best one.

    The policy may not be able to express it.
    """
    (shop,) = shops(1, 6, 5)
    best = search(Sampling(), make_task(JSSP(), dispatcher, [shop]), Budget(512))[0][0].plan
    learnt = list[torch.Tensor]()
    for given in (None, best):
        task = make_task(JSSP(), dispatcher, [shop])
        set_warm_start(task, [given])
        task.account.limit = 64
        state = strategy.init(task)
        for _ in range(2):
            state, *_ = strategy.step(task, state)
        learnt.append(state.adaptation.parameters[0].detach())
    assert torch.equal(*learnt)


def test_a_tour_that_was_given_is_learnt_from(make_instances, make_policy) -> None:
    """The best tour becomes likelier if it is given as a warm start."""
    policy, (city,) = make_policy(seed=1), make_instances(1, 16)
    best = search(SamplingElite(rate=0.01), make_task(TSP(), policy, [city]), Budget(640))[0][
        0
    ].plan
    likely = list[float]()
    for given in (None, best):
        task, strategy = (
            make_task(TSP(), policy, [city]),
            SamplingElite(rate=0.01, population=1, elite=2),
        )
        set_warm_start(task, [given])
        task.account.limit = 64
        state, latents, _ = strategy.step(task, strategy.init(task))
        with torch.no_grad():
            learnt = policy.adjusted(task.memory, state.adaptation.parameters[0])
            tour = torch.tensor([[best.order]])
            likely.append(
                log_prob(TSP(), policy, task.batch, latents[:, :1], tour, memory=learnt).item()
            )
    assert likely[1] > likely[0]


def test_scores_of_shops_come_in_small_chunks(dispatcher: JSSPPolicy) -> None:
    """A chunk of JSSP sequences is smaller than one of tours as long, but not too small.

    A decision keeps numbers for every job. Chunks do not depend on the number of latents: each
    goes through all steps once.
    """
    task = make_task(JSSP(), dispatcher, shops(1, 20, 15))
    room = 4 * 2**21 // (301 * dispatcher.footprint(20, 301))
    assert 1 < room < 64
    for shape in ((1, 64, 1, 301), (1, 1, 64, 301)):
        actions = torch.zeros(shape, dtype=torch.int16)
        sizes = [chunk.count(actions) for chunk in score_chunks(task, actions)]
        assert sizes == [room] * (64 // room) + [64 % room] * (64 % room > 0)


def test_a_warm_up_run_has_generations_of_both_sizes(dispatcher: JSSPPolicy, monkeypatch) -> None:
    """A warm-up run has both sizes of a generation, since a GPU's kernels differ by size."""
    task, sizes = make_task(JSSP(), dispatcher, shops(1, 3, 2)), set[int]()
    with monkeypatch.context() as patch:
        patch.setattr(Task, "device", property(lambda task: torch.device("cuda")))
        for limit in (1600, 100_000, None):
            task.account.limit = limit
            sizes.add(SamplingElite().generation(task))
        short, attempts = warm_up_run_of(SamplingElite(), task)
    task.account.limit = attempts
    state, *first = short.step(task, short.init(task))
    _, *second = short.step(task, state)
    assert {first[0].shape[1], second[0].shape[1]} == sizes == {64, 256}
    assert task.account.attempts == attempts


@pytest.mark.parametrize("copies", [1, 8])
@pytest.mark.parametrize(
    "strategy",
    [CMAES(), CMAESElite(), CMAESRefine(plans=2), SGBS(), SamplingElite()],
    ids=lambda s: type(s).__name__,
)
def test_what_a_gpu_builds_beyond_the_budget_is_thrown_away(
    strategy: object, copies: int, make_instances, make_policy, monkeypatch
) -> None:
    """Whole batches at the end of a budget give the plans and attempts of partial ones.

    A GPU builds whole batches.
    """
    policy, given = make_policy(seed=1), make_instances(2, 9)
    for attempts in (5, 21, 30):
        partial_batches, _ = search(
            strategy, make_task(TSP(), policy, given, augment=copies), Budget(attempts)
        )
        with monkeypatch.context() as patch:
            patch.setattr(Task, "_padded_count", lambda self, made, wanted: wanted)
            whole, _ = search(
                strategy, make_task(TSP(), policy, given, augment=copies), Budget(attempts)
            )
        assert [(s.plan, s.attempts) for s in whole] == [
            (s.plan, s.attempts) for s in partial_batches
        ]


@pytest.mark.parametrize(
    "settings", [{"elite": 0}, {"rate": -1.0}, {"population": 0}, {"temperature": -1.0}]
)
def test_wrong_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InputError):
        SamplingElite(**settings)
