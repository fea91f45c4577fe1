"""Facts about rollouts and log-probabilities."""

import math
from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest
import torch

from rhumbline.decoding import choose, log_prob, rollout, unmark_actions
from rhumbline.errors import MissingExtra
from rhumbline.noise import to_unit_interval
from rhumbline.problems.tsp import TSP

LARGEST = to_unit_interval(torch.tensor([0x7FFFFFFF])).item()


def latents_for(policy, count: int, tried: int, seed: int = 0) -> torch.Tensor:
    return policy.space.sample((count, tried), torch.Generator().manual_seed(seed))


def tours_from(start: int, size: int) -> torch.Tensor:
    rest = [c for c in range(size) if c != start]
    return torch.tensor([[(start, *p) for p in permutations(rest)]])


def assert_same(one, other) -> None:
    assert torch.equal(one.actions, other.actions)
    assert torch.allclose(one.cost, other.cost, rtol=1e-6)


# --- choose


@pytest.mark.parametrize(
    ("uniform", "action"),
    [(0.0, 1), (0.09, 1), (0.11, 2), (0.39, 2), (0.41, 4), (0.999, 4), (LARGEST, 4)],
)
def test_uniform_selects_by_cumulative_weight(uniform: float, action: int) -> None:
    """With weights 0.1, 0.3 and 0.6 on actions 1, 2 and 4 the sums are 0.1, 0.4 and 1."""
    logits = torch.tensor([50.0, math.log(0.1), math.log(0.3), 50.0, math.log(0.6), 50.0])
    allowed = torch.tensor([False, True, True, False, True, False])
    assert choose(logits, allowed, torch.tensor(uniform), 1.0) == action


@pytest.mark.parametrize(("uniform", "action"), [(0.019, 0), (0.0235, 1), (0.21, 1), (0.22, 2)])
def test_temperature_sharpens_the_weights(uniform: float, action: int) -> None:
    """At temperature 0.5 weights are squared: 0.1, 0.3, 0.6 become 1/46, 9/46 and 36/46."""
    logits = torch.tensor([0.1, 0.3, 0.6]).log()
    assert choose(logits, torch.ones(3, dtype=torch.bool), torch.tensor(uniform), 0.5) == action


def test_temperature_zero_takes_the_best_that_is_allowed() -> None:
    """Greedy ignores the uniform and forbidden actions, however high they score, and takes the
    first of equals.
    """
    logits = torch.tensor([[9.0, 1.0, 3.0, 2.0], [1.0, 4.0, 4.0, 9.0]])
    allowed = torch.tensor([[False, True, True, True], [True, True, True, False]])
    for u in (0.0, LARGEST):
        assert choose(logits, allowed, torch.full((2,), u), 0.0).tolist() == [2, 1]


@pytest.mark.parametrize("temperature", [0.0, 1e-3, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("uniform", [0.0, 2.0**-31, 0.5, LARGEST])
def test_no_uniform_hits_a_forbidden_action(temperature: float, uniform: float) -> None:
    """Whatever the rounding of the sums, the chosen action is allowed: first, last, single and
    underflowing ones.
    """
    rng = torch.Generator().manual_seed(0)
    logits = 10 * torch.tanh(3 * torch.randn(4000, 101, generator=rng))
    allowed = torch.rand(4000, 101, generator=rng) < torch.rand(4000, 1, generator=rng) ** 3
    allowed[torch.arange(4000), torch.randint(101, (4000,), generator=rng)] = True
    action = choose(logits, allowed, torch.full((4000,), uniform), temperature)
    assert allowed.gather(1, action[:, None]).all()


# --- rollouts: what may not matter


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_chunk_size_changes_nothing(policy, make_batch, temperature: float) -> None:
    """Splitting the rollouts, between instances or between latents, gives the same solutions."""
    batch, latents = make_batch(3, 7), latents_for(policy, 3, 5)
    starts = TSP().starts(batch)
    whole, *split = (
        rollout(TSP(), policy, batch, latents, starts, seed=7, temperature=temperature, chunk=c)
        for c in (None, 1, 7, 14, 20, 35, 70)
    )
    for part in split:
        assert_same(part, whole)


def test_rest_of_the_batch_changes_nothing(policy, make_batch) -> None:
    """An instance gets the same solutions alone, in a batch and at another place."""
    batch, latents = make_batch(4, 7), latents_for(policy, 4, 3)
    starts = TSP().starts(batch)
    whole = rollout(TSP(), policy, batch, latents, starts, seed=7)
    for rows in ([2], [3, 0], [1, 2, 3]):
        part = rollout(TSP(), policy, batch[rows], latents[rows], starts[rows], seed=7)
        assert_same(part, whole[rows])


def test_attempts_continue_the_noise(policy, make_batch) -> None:
    """Six latents at once are two latents, and then four as attempts 2 to 5."""
    batch, latents = make_batch(2, 8), latents_for(policy, 2, 6)
    starts = TSP().starts(batch)
    whole = rollout(TSP(), policy, batch, latents, starts, seed=3)
    first = rollout(TSP(), policy, batch, latents[:, :2], starts, seed=3)
    rest = rollout(TSP(), policy, batch, latents[:, 2:], starts, seed=3, attempt=2)
    assert_same(first, whole[:, :2])
    assert_same(rest, whole[:, 2:])
    again = rollout(TSP(), policy, batch, latents[:, 2:], starts, seed=3)
    assert not torch.equal(again.actions, rest.actions)


def test_seed_and_memory(policy, make_batch) -> None:
    """Another seed gives other samples; passing the memory changes nothing."""
    batch, latents = make_batch(2, 8), latents_for(policy, 2, 2)
    starts = TSP().starts(batch)
    one = rollout(TSP(), policy, batch, latents, starts, seed=1)
    assert_same(
        rollout(TSP(), policy, batch, latents, starts, seed=1, memory=policy.encode(batch)), one
    )
    assert not torch.equal(
        rollout(TSP(), policy, batch, latents, starts, seed=2).actions, one.actions
    )


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_rollouts_are_tours_from_their_starts(policy, make_batch, size: int) -> None:
    """Every rollout is a permutation from its start, and its cost is the tour's."""
    batch, latents = make_batch(2, size), latents_for(policy, 2, 3)
    starts = TSP().starts(batch).flip(1)
    rolled = rollout(TSP(), policy, batch, latents, starts, seed=0)
    actions = rolled.actions.long()
    assert torch.equal(actions.sort(-1).values, torch.arange(size).expand_as(actions))
    assert torch.equal(actions[..., 0], starts[:, None].expand(-1, 3, -1))
    assert torch.allclose(rolled.cost.flatten(1), TSP().cost(batch, actions.flatten(1, 2)))


def test_greedy_cost_survives_renumbering(policy, make_batch) -> None:
    """Renumbering the cities leaves the best greedy cost of each instance equal."""
    batch = make_batch(5, 12)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(2))
    renumbered = replace(batch, xy=batch.xy[:, order])
    z = latents_for(policy, 5, 2)
    costs = [
        rollout(TSP(), policy, b, z, TSP().starts(b), seed=0, temperature=0.0).cost.amin(2)
        for b in (batch, renumbered)
    ]
    assert torch.allclose(*costs, rtol=1e-5)


def test_fused_engine_that_cannot_run_is_an_error(policy, make_batch) -> None:
    """There is no silent fallback: the reason and the remedy are in the message."""
    batch = make_batch(1, 4)
    with pytest.raises(
        MissingExtra, match=r"takes policies with 8 heads of width 16.*Use engine torch"
    ):
        rollout(
            TSP(),
            policy,
            batch,
            latents_for(policy, 1, 1),
            TSP().starts(batch),
            seed=0,
            engine="fused",
        )


# --- log-probabilities


@pytest.mark.parametrize("start", [0, 3])
def test_probabilities_of_all_tours_sum_to_one(policy, make_batch, start: int) -> None:
    """The 24 tours of five cities from one start share a probability of 1, for every latent."""
    batch, tours = make_batch(2, 5), tours_from(start, 5)
    latents = latents_for(policy, 2, 3)
    scores = log_prob(TSP(), policy, batch, latents, tours.repeat(2, 3, 1))
    mass = scores.double().exp().view(2, 3, 24).sum(-1)
    assert torch.allclose(mass, torch.ones_like(mass), atol=1e-5)
    assert scores.std() > 0.1


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_samples_follow_the_probabilities(policy, make_batch, temperature: float) -> None:
    """6000 sampled tours of five cities have the frequencies that log_prob states (chi-square,
    fixed seed).
    """
    batch, z, tours, count = make_batch(1, 5), latents_for(policy, 1, 1), tours_from(2, 5), 6000
    scores = log_prob(TSP(), policy, batch, z, tours, temperature=temperature)
    expected = scores.double().exp()[0] * count
    latents, start = z.expand(-1, count, -1), torch.tensor([[2]])
    rolled = rollout(TSP(), policy, batch, latents, start, seed=5, temperature=temperature)
    seen = Counter(map(tuple, rolled.actions[0, :, 0].tolist()))
    observed = torch.tensor([seen[tuple(t)] for t in tours[0].tolist()], dtype=torch.float64)
    assert observed.sum() == count
    assert expected.min() > 2
    statistic = ((observed - expected) ** 2 / expected).sum().item()
    assert statistic < 49.73  # 23 degrees of freedom, one in a thousand
    flat = ((observed - count / 24) ** 2 / (count / 24)).sum().item()
    assert flat > 200  # the test can tell this policy from a uniform one


def test_log_prob_is_the_sum_over_steps(policy, make_batch) -> None:
    """Teacher forcing all steps at once equals walking through the states one at a time."""
    problem, batch = TSP(), make_batch(2, 6)
    tours = torch.rand(2, 6, 6, generator=torch.Generator().manual_seed(0)).argsort(2)
    latents = latents_for(policy, 2, 3)  # two tours each
    memory = policy.encode(batch)
    shift = policy.condition(memory, latents.repeat_interleave(2, 1))
    state, walked = problem.reset(batch, tours[..., 0]), torch.zeros(2, 6)
    for t in range(1, 6):
        logits = policy.logits(memory, shift, state, problem.mask(state)).masked_fill(
            state.visited, -torch.inf
        )
        walked += logits.log_softmax(-1).gather(2, tours[..., t : t + 1])[..., 0]
        state = problem.step(state, tours[..., t])
    assert torch.allclose(log_prob(problem, policy, batch, latents, tours), walked, atol=1e-5)


def test_log_prob_of_sampled_actions_needs_no_conversion(policy, make_batch) -> None:
    """Rollouts store int16; scoring them equals scoring the same tours as int64."""
    batch, z = make_batch(2, 6), latents_for(policy, 2, 2)
    actions = rollout(TSP(), policy, batch, z, TSP().starts(batch), seed=0).actions.flatten(1, 2)
    assert actions.dtype == torch.int16
    scores = log_prob(TSP(), policy, batch, z, actions)
    assert torch.equal(scores, log_prob(TSP(), policy, batch, z, actions.long()))
    assert (scores < 0).all()


def test_certain_and_marked_decisions(make_policy, make_batch) -> None:
    """Likely decisions count without a gradient; marked ones do not count; the first action is
    never scored.
    """
    policy, batch = make_policy(2).requires_grad_(True), make_batch(1, 6)
    latents, tours = torch.zeros(1, 1, 2), torch.tensor([[[0, 3, 1, 5, 2, 4], [2, 1, 0, 3, 4, 5]]])
    whole = log_prob(TSP(), policy, batch, latents, tours)
    assert torch.equal(log_prob(TSP(), policy, batch, latents, tours, certain=0.5), whole)
    (gradient,) = torch.autograd.grad(
        log_prob(TSP(), policy, batch, latents, tours, certain=1e-9).sum(), policy.decoder.key
    )
    assert not gradient.any()
    marked = torch.tensor([[[0, ~3, ~1, ~5, ~2, ~4], [2, 1, 0, 3, 4, 5]]])
    scores = log_prob(TSP(), policy, batch, latents, marked, certain=0.99)
    assert scores[0, 0] == 0
    assert torch.equal(scores[0, 1], whole[0, 1])
    assert torch.equal(unmark_actions(marked)[0], tours)


def test_gradient_equals_finite_differences(make_policy, make_batch) -> None:
    """In float64, the gradient of log_prob for weights of every kind is the slope of log_prob."""
    policy = make_policy().double().requires_grad_(True)
    batch = make_batch(2, 6).map(lambda x: x.double() if x.is_floating_point() else x)
    tours = torch.rand(2, 4, 6, generator=torch.Generator().manual_seed(0)).argsort(2)
    latents = latents_for(policy, 2, 2).double()
    step = 1e-5

    def value() -> torch.Tensor:
        return log_prob(TSP(), policy, batch, latents, tours).sum()

    value().backward()
    names = dict(policy.named_parameters())
    checked = 0
    for name, weight in names.items():
        place = weight.grad.abs().argmax().item()  # the most telling number of each tensor
        with torch.no_grad():
            kept = weight.view(-1)[place].item()
            scale = step if "latent" not in name else step / 100
            ends = []
            for change in (scale, -scale):
                weight.view(-1)[place] = kept + change
                ends.append(value().item())
            weight.view(-1)[place] = kept
        slope, gradient = (ends[0] - ends[1]) / (2 * scale), weight.grad.view(-1)[place].item()
        assert slope == pytest.approx(gradient, rel=1e-5, abs=1e-7), name
        checked += 1
    assert checked > 15
