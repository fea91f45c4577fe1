"""Active search: it moves what it should, nothing else, and in the right direction."""

from dataclasses import fields, replace
from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch

from rhumbline import kernels
from rhumbline.decoding import Rollouts, log_prob
from rhumbline.errors import InputError, MissingExtra, note_once
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.problems.cvrp import CVRP, CVRPInstance
from rhumbline.problems.tsp import TSP
from rhumbline.search.driver import Budget, search, stream
from rhumbline.search.strategies import eas
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.strategies.cmaes_eas import CMAESEAS, CMAESEASState, update_best_latents
from rhumbline.search.strategies.eas import Adam, EASEmb, EASLay, advantages
from rhumbline.search.strategies.greedy_sampling import Sampling
from rhumbline.search.strategy import engine_for
from rhumbline.search.task import make_task


@pytest.mark.parametrize("strategy", [EASEmb(rate=0.05), EASLay(rate=0.003)], ids=["emb", "lay"])
def test_a_weak_policy_learns(strategy, make_instances, make_policy) -> None:
    """From an untrained policy, 80 attempts with learning beat 80 samples clearly."""
    policy, instances = make_policy(latent=0, seed=1), make_instances(3, 24)
    mean = {
        kind: np.mean(
            [s.cost for s in search(kind, make_task(TSP(), policy, instances), Budget(80))[0]]
        )
        for kind in (strategy, Sampling())
    }
    assert mean[strategy] < 0.95 * mean[Sampling()]


def changed_tables(strategy, policy, instances, steps: int) -> tuple[object, object]:
    """Return the tables before and after some updates."""
    task = make_task(TSP(), policy, instances)
    task.account.limit = 1000
    state, before = strategy.init(task), task.memory.map(torch.clone)
    for _ in range(steps):
        state, _, _ = strategy.step(task, state)
    assert all(
        torch.equal(getattr(before, f.name), getattr(task.memory, f.name))
        for f in fields(before)[:7]
    )
    return before, strategy.tables(task, task.memory, state.parameters)


def test_embeddings_change_in_the_final_product_only(make_instances, make_policy) -> None:
    """Keys, values and queries stay those of the encoder; no weight gets a gradient."""
    policy = make_policy().requires_grad_(True)
    before, after = changed_tables(EASEmb(), policy, make_instances(2, 6), 3)
    for field in fields(before):
        one, two = getattr(before, field.name), getattr(after, field.name)
        if isinstance(one, torch.Tensor):
            assert torch.equal(one, two) == (field.name not in ("pointer", "bias", "embedding")), (
                field.name
            )
    assert all(p.grad is None for p in policy.parameters())


def test_a_layer_changes_nothing_but_itself(make_instances, make_policy) -> None:
    """All tables stay; at first the layer is the identity, and after an update it is not."""
    policy, glimpse = (
        make_policy(),
        torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0)),
    )
    _, fresh = changed_tables(EASLay(), policy, make_instances(2, 6), 0)
    assert torch.equal(fresh.layer(glimpse), glimpse)
    before, after = changed_tables(EASLay(), policy, make_instances(2, 6), 1)
    assert torch.equal(before.pointer, after.pointer)
    assert (after.layer(glimpse) - glimpse).abs().max() > 1e-4


@pytest.mark.parametrize(
    "strategy", [EASEmb(rate=1e-3, imitation=10.0), EASLay(rate=1e-4, imitation=10.0)]
)
def test_imitation_makes_the_incumbent_likelier(strategy, policy, make_instances) -> None:
    """With a heavy imitation term, one update raises the probability of the incumbents."""
    task = make_task(TSP(), policy, make_instances(3, 8))
    task.account.limit = 100
    state = strategy.init(task)
    strategy.step(task, state)

    def likelihood(memory) -> torch.Tensor:
        incumbents = task.incumbents[:, None]
        return log_prob(TSP(), policy, task.batch, torch.zeros(3, 1, 4), incumbents, memory=memory)

    with torch.no_grad():
        assert (
            likelihood(strategy.tables(task, task.memory, state.parameters))
            > likelihood(task.memory)
        ).all()


def test_a_full_gpu_halves_what_is_scored(policy, make_instances, monkeypatch, capsys) -> None:
    """Scores that memory cannot hold are halved; the update is the same, with a note."""
    moved, asked = [], []
    note_once.cache_clear()
    for most in (1000, 5):
        task = make_task(TSP(), policy, make_instances(3, 6))
        task.account.limit = 100
        score = type(task).score

        def limited(task, rows, latents, sequences, memory, most=most, score=score):
            asked.append(len(sequences) * sequences.shape[1])
            if asked[-1] > most:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return score(task, rows, latents, sequences, memory)

        with monkeypatch.context() as patch:
            patch.setattr(type(task), "score", limited)
            state = EASEmb(passes=2).init(task)
            EASEmb(passes=2).step(task, state)
        moved.append(state.parameters[0].detach() - task.memory.embedding)
    # 3 instances x 2 latents x (6 starts and the incumbent): cut by instances, latents and starts.
    # Later chunks are as small at once.
    assert asked == [42, 42, 14, 7, *[3, 4] * 6]
    assert torch.allclose(*moved, atol=1e-6)
    assert moved[0].abs().max() > 1e-3
    assert "chunks of scores; they are halved" in capsys.readouterr().err


def test_no_memory_for_a_single_score_is_an_error(policy, make_instances, monkeypatch) -> None:
    """If one sequence is too large, the error says what to do."""
    task = make_task(TSP(), policy, make_instances(1, 5))
    task.account.limit = 100

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(type(task), "score", full)
    with pytest.raises(InputError, match="more memory than the GPU has left; use --search cmaes"):
        EASEmb().step(task, EASEmb().init(task))


def test_without_a_rate_it_is_sampling(policy, make_instances) -> None:
    """At rate 0, active search finds what sampling finds with the same attempts."""
    instances = make_instances(2, 9)
    costs = [
        [s.cost for s in search(kind, make_task(TSP(), policy, instances), Budget(40))[0]]
        for kind in (EASEmb(rate=0.0), EASLay(rate=0.0), Sampling(population=8))
    ]
    assert costs[0] == costs[2]
    assert costs[1] == costs[2]


def test_advantages_by_hand(policy, make_instances) -> None:
    """The advantage is the cost above the mean over starts, over the number of rollouts."""
    task = make_task(TSP(), policy, make_instances(1, 3))
    cost = torch.tensor([[[1.0, 2.0, 6.0], [5.0, 5.0, 5.0]]])
    weight = advantages(task, Rollouts(cost, torch.zeros(1, 2, 3, 3, dtype=torch.int16)))
    assert torch.allclose(weight, torch.tensor([[[-2.0, -1.0, 3.0], [0.0, 0.0, 0.0]]]) / 6)


def test_advantages_of_single_rollouts_by_hand(policy, make_instances) -> None:
    """With one start, the samples of a step are compared with their mean."""
    task = make_task(TSP(), policy, make_instances(1, 3))
    cost = torch.tensor([[[1.0], [2.0], [6.0]]])
    weight = advantages(task, Rollouts(cost, torch.zeros(1, 3, 1, 3, dtype=torch.int16)))
    assert torch.allclose(weight, torch.tensor([[[-2.0], [-1.0], [3.0]]]) / 3)


def test_advantages_know_no_fleet() -> None:
    """Surplus routes weigh nothing: weights are those without a fleet, in either metric."""
    torch.manual_seed(0)
    policy = CVRPPolicy(Architecture(16, 2, 1, 16, 0)).requires_grad_(False)
    xy = np.random.default_rng(0).random((7, 2)) * 100
    for metric in ("EXACT_2D", "EUC_2D"):
        free = CVRPInstance("six", metric, (0, 3, 4, 5, 2, 4, 6), 9, xy=xy)
        tasks = [make_task(CVRP(), policy, [replace(free, vehicles=most)]) for most in (None, 3)]
        rolled = [task.rollout_each_copy(torch.zeros(1, 2, 0), 1.0) for task in tasks]
        assert (rolled[1].cost > 2 * rolled[0].cost).any()
        one, other = (advantages(*both) for both in zip(tasks, rolled, strict=True))
        assert torch.allclose(one.float(), other.float(), atol=1e-5)


def test_advantages_know_no_units(policy, make_instances) -> None:
    """A file whose metric is 1000 times the unit square's teaches with the same weights."""
    plain = make_task(TSP(), policy, make_instances(2, 7))
    rolled = plain.rollout_each_copy(torch.zeros(2, 2, 4), 1.0)
    large = replace(plain.batch, distance=1000.0 * torch.cdist(plain.batch.xy, plain.batch.xy))
    dear = Rollouts(1000.0 * rolled.cost, rolled.actions)
    assert torch.allclose(
        advantages(replace(plain, batch=large), dear), advantages(plain, rolled), atol=1e-6
    )


def test_small_memory_learns_the_same(policy, make_instances, monkeypatch) -> None:
    """Scoring row by row, or three sequences at a time, gives the same gradients."""
    found = []
    for elements in (1 << 21, 5 * 8 * 7 * 7 // 4, 3 * 7 * 7 // 4 + 1):
        monkeypatch.setitem(eas.ROLLOUT_TUNING.chunk_elements, "cpu", elements)
        task = make_task(TSP(), policy, make_instances(2, 7))
        task.account.limit, strategy = 100, EASEmb(passes=5)
        state = strategy.init(task)
        strategy.step(task, state)
        found.append(state.parameters[0].grad)
    assert found[0].abs().max() > 1e-4
    assert torch.allclose(found[0], found[1], atol=1e-6)
    assert torch.allclose(found[0], found[2], atol=1e-6)


def test_adam_is_adam() -> None:
    """Five steps move two parameters to where torch's own Adam moves them."""
    rng = torch.Generator().manual_seed(0)
    own = tuple(torch.randn(3, 4, generator=rng, requires_grad=True) for _ in range(2))
    theirs = tuple(p.detach().clone().requires_grad_(True) for p in own)
    ours, peer = Adam(own, 0.01), torch.optim.Adam(theirs, lr=0.01)
    for _ in range(5):
        for one, other in zip(own, theirs, strict=True):
            one.grad = other.grad = torch.randn(3, 4, generator=rng)
        ours.step()
        peer.step()
    assert all(
        torch.allclose(*pair, rtol=1e-6, atol=1e-7) for pair in zip(own, theirs, strict=True)
    )


@pytest.mark.parametrize(("used", "tried"), [(1, 1), (1, 3), (2, 3), (3, 2)])
def test_an_update_follows_its_formula(policy, make_instances, used: int, tried: int) -> None:
    """The gradient is that of the weighted samples and of the incumbent under each latent."""
    task = make_task(TSP(), policy, make_instances(2, 7))
    task.account.limit, strategy = 100, EASEmb(passes=tried, imitation=0.3)
    latents = torch.rand(2, used, 4, generator=torch.Generator().manual_seed(0))
    state, own = (
        strategy.init_from_latents(task, latents),
        task.memory.embedding.clone().requires_grad_(True),
    )
    sampled, rolled = strategy.sample_and_update(task, state)
    assert torch.equal(sampled, torch.cat([latents] * 3, 1)[:, :tried])
    score = partial(
        log_prob, TSP(), policy, task.batch, memory=strategy.tables(task, task.memory, (own,))
    )
    samples = advantages(task, rolled).flatten(1) * score(sampled, rolled.actions.flatten(1, 2))
    incumbent = 0.3 / used * score(latents, task.incumbents[:, None].expand(-1, used, -1))
    (expected,) = torch.autograd.grad(samples.sum() - incumbent.sum(), own)
    assert expected.abs().max() > 1e-4
    assert torch.allclose(state.parameters[0].grad, expected, atol=1e-6)


@pytest.mark.parametrize("copies", [1, 8])
def test_a_step_waits_for_nothing(policy, make_instances, forbid_host_sync, copies: int) -> None:
    """A step reads nothing back from the device, so that the host can run ahead."""
    task = make_task(TSP(), policy, make_instances(2, 6), augment=copies)
    steps = stream(EASEmb(), task, Budget(100))
    with forbid_host_sync:
        assert [p.attempts for p in islice(steps, 3)] == [8, 16, 24]


def test_copies_share_the_passes(policy, make_instances) -> None:
    """Eight attempts between updates are one on each of eight copies, or two on each of four."""
    for copies, passes in ((1, 8), (4, 2), (8, 1)):
        task = make_task(TSP(), policy, make_instances(1, 5), augment=copies)
        task.account.limit = 100
        strategy = EASEmb()
        _, latents, _ = strategy.step(task, strategy.init(task))
        assert (latents.shape[1], task.account.attempts) == (passes, 8)


def test_a_layer_needs_plain_torch_on_a_cpu() -> None:
    """On a CPU `auto` takes torch for a layer, and `fused` is an error with the reason.

    A GPU has kernels with layers.
    """
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert engine_for(EASLay(), "auto", cpu, 5) == "torch"
    assert engine_for(EASEmb(), "auto", cpu, 5) == "auto"
    with pytest.raises(MissingExtra, match="not linear"):
        engine_for(EASLay(), "fused", cpu, 5)
    assert engine_for(EASLay(), "fused", gpu, 256) == "fused"
    assert engine_for(EASLay(), "auto", gpu, 257) == "torch"
    assert engine_for(EASEmb(), "auto", gpu, 257) == "auto"


@pytest.mark.parametrize("copies", [1, 3])
def test_adapted_tables_run_fused(make_policy, make_instances, copies: int) -> None:
    """Rollouts from adapted tables are the same on both engines of a CPU."""
    policy = make_policy(latent=2, width=128, heads=8)
    costs = []
    for engine in ("torch", "fused"):
        task = make_task(TSP(), policy, make_instances(2, 10), engine=engine, augment=copies)
        task.account.limit, strategy = 100, EASEmb(passes=3, rate=0.05)
        state = strategy.init(task)
        for _ in range(3):
            state, _, rolled = strategy.step(task, state)
        costs.append(rolled.cost)
    assert torch.allclose(*costs, atol=1e-4)


def test_search_first_then_adapt(policy, make_instances) -> None:
    """Half of 64 attempts are two generations of CMA-ES; then the best latents take turns."""
    task, strategy = make_task(TSP(), policy, make_instances(2, 6)), CMAESEAS(kept=3)
    task.account.limit = 64
    state, tried = strategy.init(task), []
    for _ in range(2):
        assert state.adaptation is None
        state, latents, rolled = strategy.step(task, state)
        tried.append((latents, rolled.cost.amin(2)))
    state, latents, _ = strategy.step(task, state)
    assert state.adaptation is not None
    cost, every = torch.cat([c for _, c in tried], 1), torch.cat([z for z, _ in tried], 1)
    best = every.gather(1, cost.argsort(dim=1, stable=True)[:, :3][..., None].expand(-1, -1, 4))
    assert torch.equal(latents, torch.cat([best, best, best], 1)[:, :8])


def test_best_latents_by_hand(policy, make_instances) -> None:
    """The best latents are the cheapest of the known and the new ones, best first."""
    search = CMAES().init(make_task(TSP(), policy, make_instances(1, 3)))
    known = CMAESEASState(search, torch.tensor([[3.0, 5.0]]), torch.tensor([[[0.3], [0.5]]]))
    rolled = Rollouts(
        torch.tensor([[[9.0, 4.0], [1.0, 7.0]]]), torch.zeros(1, 2, 2, 3, dtype=torch.int16)
    )
    cost, latents = update_best_latents(known, torch.tensor([[[0.4], [0.1]]]), rolled, 3)
    assert cost.tolist() == [[1.0, 3.0, 4.0]]
    assert latents[0, :, 0].tolist() == pytest.approx([0.1, 0.3, 0.4])


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        (EASEmb, {"passes": 0}, "passes of at least 1"),
        (EASLay, {"rate": -1.0}, "a rate of at least 0"),
        (EASEmb, {"imitation": -0.1}, "imitation must be at least 0"),
        (CMAESEAS, {"share": 1.5}, "a share from 0 to 1"),
        (CMAESEAS, {"population": 1}, "population of at least 2"),
    ],
)
def test_impossible_settings_are_refused(kind, settings, words: str) -> None:
    """Settings that cannot work are refused at construction."""
    with pytest.raises(InputError, match=words):
        kind(**settings)


def test_a_search_settles_its_engine_by_the_size_of_the_task(
    monkeypatch, policy, make_instances
) -> None:
    """A search resolves its engine by the task's size: kernels have layers up to a limit."""
    monkeypatch.setattr(
        kernels, "why_not_layer", lambda _, nodes: "too many" if nodes > 5 else None
    )
    for nodes, engine in ((5, "auto"), (6, "torch")):
        task = make_task(TSP(), policy, make_instances(1, nodes))
        list(stream(EASLay(), task, Budget(1)))
        assert task.engine == engine
