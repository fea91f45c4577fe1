"""Beam search guided by greedy completions: what it tries, what it counts, and what it finds."""

from itertools import permutations

import pytest
import torch

from rhumbline.decoding import (
    CompletionRequest,
    Engine,
    Prefixes,
    Rollouts,
    complete,
    next_logits,
    rollout,
)
from rhumbline.errors import InputError, MissingExtra
from rhumbline.problems.tsp import TSP, Tour
from rhumbline.search.driver import Budget, search
from rhumbline.search.strategies.greedy_sampling import Greedy
from rhumbline.search.strategies.sgbs import SGBS, SGBSEAS, Beam, select_nodes
from rhumbline.search.strategy import engine_for
from rhumbline.search.task import make_task
from rhumbline.search.task import task as tasks


def test_a_greedy_tour_goes_on_as_it_was(policy, make_batch) -> None:
    """The greedy completion of any prefix of a greedy tour is that tour."""
    batch, latents = make_batch(2, 8), torch.zeros(2, 1, 4)
    memory, starts = policy.encode(batch), TSP().starts(batch)
    whole = rollout(TSP(), policy, batch, latents, starts, seed=0, temperature=0.0, engine="torch")
    for imposed in (1, 3, 7, 8):
        prefix = torch.where(torch.arange(8) < imposed, whole.actions[:, 0].long(), -1)
        length = torch.full_like(prefix[..., 0], imposed)
        given = Prefixes(prefix, length)
        carried = complete(CompletionRequest(TSP(), policy, batch, latents, given, memory))
        assert torch.equal(carried.actions, whole.actions), imposed
        assert torch.allclose(carried.cost, whole.cost)


def test_next_scores_forbid_what_was_visited(policy, make_batch) -> None:
    """After a prefix exactly the other cities have scores; the best one is the greedy choice."""
    batch, latents = make_batch(1, 6), torch.zeros(1, 1, 4)
    memory = policy.encode(batch)
    state = TSP().reset(batch, torch.tensor([[2]]))
    for city in (5, 0):
        state = TSP().step(state, torch.tensor([[city]]))
    scores = next_logits(TSP(), policy, latents, state, memory)[0, 0]
    assert scores.isfinite().tolist() == [False, True, False, True, True, False]
    given = Prefixes(torch.tensor([[[2, 5, 0, 0, 0, 0]]]), torch.tensor([[3]]))
    carried = complete(CompletionRequest(TSP(), policy, batch, latents, given, memory))
    assert carried.actions[0, 0, 0, 3] == scores.argmax()


def test_a_wide_beam_is_exhaustive(policy, make_instances) -> None:
    """A beam that holds all nodes completes every tour and finds the optimum of 6 cities."""
    instances = make_instances(3, 6)
    solutions, _ = search(
        SGBS(width=1000, branch=6), make_task(TSP(), policy, instances), Budget(400)
    )
    best = [min(Tour((0, *rest)).cost(i) for rest in permutations(range(1, 6))) for i in instances]
    assert [s.cost for s in solutions] == pytest.approx(best, rel=1e-9)


def test_completions_are_counted_one_by_one(policy, make_instances, monkeypatch) -> None:
    """Six cities take 6 greedy rollouts, then 4, 4, 4 and 2 completions: 4 attempts.

    The beam has two nodes, and two other actions of each are tried.
    """
    made, real = [], tasks.complete

    def counting(request: CompletionRequest, engine: Engine) -> Rollouts:
        made.append(request.prefixes.length.shape[1])
        return real(request, engine)

    monkeypatch.setattr(tasks, "complete", counting)
    task, strategy = make_task(TSP(), policy, make_instances(1, 6)), SGBS(width=2, branch=3)
    task.account.limit = 100
    state, _, _ = strategy.step(task, strategy.init(task))
    assert task.account.attempts == 1
    paid = []
    for _ in range(4):
        state, _, _ = strategy.step(task, state)
        paid.append(task.account.attempts)
    assert made == [4, 4, 4, 2]
    assert paid == [2, 3, 3, 4]
    again, _, _ = strategy.step(task, state)
    assert (again.depth, again.width) == (1, 4)  # the second beam is twice as wide


def test_the_cheapest_known_ends_go_on(policy, make_instances) -> None:
    """Nodes and children are ranked by the cost of their completions, gaps last.

    The states follow the nodes.
    """
    actions = torch.tensor([[[0, 1, 2], [1, 0, 2]]])
    task = make_task(TSP(), policy, make_instances(1, 3))
    state = TSP().reset(task.batch, actions[..., 0])
    beam = Beam(torch.tensor([[5.0, 7.0]]), actions, state, torch.zeros(1, 1, 4), task.memory, 2)
    completed = torch.tensor([[[0, 2, 1], [0, 0, 0], [1, 2, 0], [0, 0, 0]]])
    after = select_nodes(task, beam, torch.tensor([[6.0, torch.inf, 4.0, torch.inf]]), completed)
    assert after.cost.tolist() == [[4.0, 5.0]]
    assert after.actions.tolist() == [[[1, 2, 0], [0, 1, 2]]]
    assert after.depth == 2
    assert after.state.last.tolist() == [[2, 1]]
    assert after.state.visited.tolist() == [[[False, True, True], [True, True, False]]]


def test_never_worse_than_greedy(policy, make_instances) -> None:
    """No tour is longer than the greedy one it starts with; on ten cities most are shorter."""
    instances = make_instances(6, 10)
    greedy, _ = search(Greedy(), make_task(TSP(), policy, instances), Budget(1))
    guided, _ = search(SGBS(), make_task(TSP(), policy, instances), Budget(60))
    assert all(g.cost <= s.cost for g, s in zip(guided, greedy, strict=True))
    assert sum(g.cost < s.cost - 1e-6 for g, s in zip(guided, greedy, strict=True)) >= 3


def test_adapting_and_searching_take_turns(policy, make_instances) -> None:
    """An update is one attempt; then a beam starts at the best samples under the changed layer."""
    task, strategy = make_task(TSP(), policy, make_instances(2, 6)), SGBSEAS(width=2, branch=2)
    task.account.limit = 100
    state = strategy.init(task)
    state, _, rolled = strategy.step(task, state)
    assert task.account.attempts == 1
    assert torch.allclose(state.beam.cost, rolled.cost[:, 0].sort(1).values[:, :2])
    assert state.beam.memory.layer.out.any()
    first = state.beam
    while state.beam.depth >= first.depth and task.account.attempts < 50:
        first, (state, _, _) = state.beam, strategy.step(task, state)
    assert state.beam.depth == 1  # a new beam, after another update


@pytest.mark.parametrize(
    ("kind", "settings"), [(SGBS, {"width": 0}), (SGBS, {"branch": 1}), (SGBSEAS, {"rate": -1.0})]
)
def test_impossible_settings_are_refused(kind, settings) -> None:
    """A beam without nodes or choices, or a negative rate, is refused at construction."""
    with pytest.raises(InputError, match="at least"):
        kind(**settings)


def test_kernels_carry_on_what_has_begun() -> None:
    """Kernels complete prefixes; on a CPU with a layer, `fused` is an error with the reason."""
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert engine_for(SGBS(), "auto", cpu, 5) == "auto"
    assert engine_for(SGBS(), "fused", cpu, 5) == "fused"
    assert engine_for(SGBSEAS(), "fused", gpu, 5) == "fused"
    assert engine_for(SGBSEAS(), "auto", cpu, 5) == "torch"
    with pytest.raises(MissingExtra, match="a layer on the glimpse is not linear"):
        engine_for(SGBSEAS(), "fused", cpu, 5)
