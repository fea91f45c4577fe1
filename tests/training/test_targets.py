"""Targets of a step: cases by hand, and gradients against the loss written out in full."""

import itertools
from dataclasses import replace

import pytest
import torch

from rhumbline.decoding import Rollouts, log_prob, rollout
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.problems.cvrp import CVRP
from rhumbline.problems.tsp import TSP
from rhumbline.training import trainer as training
from rhumbline.training.config import Objective, TrainConfig
from rhumbline.training.objectives.imitate import select_cheapest
from rhumbline.training.objectives.prefer import (
    compare_rollouts,
    preference_targets,
    select_own_starts,
    select_winner_rollouts,
)
from rhumbline.training.objectives.reinforce import (
    pomo_targets,
    pomo_weight,
    poppy_weight,
    winner_targets,
    winner_weight,
)
from rhumbline.training.objectives.targets import (
    Targets,
    find_winners,
    preference_weight,
    truncate_targets,
)
from rhumbline.training.trainer import MiniStep, Trainer

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("cost", "winner", "weight", "kept"),
    [
        # [K][S]; the winner's weight is its cost minus its own latent's mean over starts
        ([[1, 4], [3, 2]], [0, 1], [1 - 2.5, 2 - 2.5], 2),
        ([[1, 2], [3, 9]], [0, 0], [1 - 1.5, 2 - 1.5], 2),  # one latent wins everywhere
        ([[1, 4], [1, 2]], [0, 1], [0, 2 - 1.5], 1),  # a tie has no weight
        ([[2, 2], [2, 2]], [0, 0], [0, 0], 0),
        ([[1, 4], [1 + 5e-7, 2]], [0, 1], [0, 2 - 1.5], 1),  # a tie up to rounding is one
        ([[1, 4], [1 + 1e-5, 2]], [0, 1], [1 - 2.5, 2 - 1.5], 2),  # this is no tie
        ([[5, 4], [5, 2], [1, 2]], [2, 1], [1 - 1.5, 0], 1),  # ties of other latents do not matter
        ([[3], [2], [4]], [1], [2], 1),  # one start: no baseline
        ([[1, 4]], [0, 0], [1 - 2.5, 4 - 2.5], 2),  # one latent wins, and does not tie with itself
    ],
)
def test_winners_by_hand(cost, winner, weight, kept) -> None:
    """Winner, weight and count of trained pairs of small tables."""
    table = torch.tensor([cost], dtype=torch.float32)
    found, alone = find_winners(table)
    assert alone.sum() == kept
    assert [w for w, a in zip(found[0].tolist(), alone[0].tolist(), strict=True) if a] == [
        w for w, a in zip(winner, alone[0].tolist(), strict=True) if a
    ]
    assert winner_weight(table, found, alone)[0].tolist() == pytest.approx(weight, abs=2e-5)


def test_instances_do_not_mix() -> None:
    """Winners and baselines of an instance come from its own rows."""
    one, two = torch.tensor([[1.0, 4], [3, 2]]), torch.tensor([[7.0, 8], [6, 9]])
    both = torch.stack([one, two])
    winner, alone = find_winners(both)
    assert winner.tolist() == [[0, 1], [1, 0]]
    assert winner_weight(both, winner, alone).tolist() == [[-1.5, -0.5], [6 - 7.5, 8 - 7.5]]


def test_pomo_weights_by_hand() -> None:
    """Cost minus the mean over starts of the same instance."""
    assert pomo_weight(torch.tensor([[1.0, 2, 6], [5, 5, 5]])).tolist() == [[-2, -1, 3], [0, 0, 0]]


@pytest.mark.parametrize(
    ("cost", "weight"),
    [
        ([[1.0, 4.0], [3.0, 2.0]], [1 - 3, 2 - 4]),
        ([[5.0, 4.0], [5.0, 2.0], [1.0, 2.0]], [1 - 5, 0]),  # a tie has no weight
    ],
)
def test_the_lead_over_the_second_best(cost, weight) -> None:
    """Poppy's weight is the winner's cost minus the second best's of the same start.

    Every start counts in the mean.
    """
    table = torch.tensor([cost])
    assert poppy_weight(table)[0].tolist() == pytest.approx(weight)
    members = torch.arange(float(len(cost)))[None, :, None]
    targets = winner_targets(
        Rollouts(table, torch.zeros(1, len(cost), 2, 3, dtype=torch.int16)), members, "second"
    )
    assert targets.count == 2
    assert targets.latents[0, :, 0].tolist() == table[0].argmin(0).tolist()


def test_population_gradient_is_poppys(make_config) -> None:
    """The gradient is that of -mean over (instance, start) of (R winner - R second) log pi winner.

    It is compared over all members.
    """
    policy = {"width": 32, "heads": 2, "layers": 1, "hidden": 32, "latent": 0, "members": 3}
    config = make_config("poppy", policy=policy)
    _, gradient = stepped(config)
    trainer = Trainer(config, CPU)
    batch, latents, starts = trainer.sample()
    assert latents[0, :, 0].tolist() == [0.0, 1.0, 2.0]
    rolled = rollout(TSP(), trainer.policy, batch, latents, starts, seed=config.seed << 32)
    scores = log_prob(TSP(), trainer.policy, batch, latents, rolled.actions.flatten(1, 2)).view(
        rolled.cost.shape
    )
    best = (-rolled.cost).topk(2, dim=1)
    lead = best.values[:, 0] - best.values[:, 1]
    (-(lead * scores.gather(1, best.indices[:, :1])[:, 0]).mean()).backward()
    for name, parameter in trainer.parameters.items():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert torch.allclose(gradient[name], expected, rtol=1e-4, atol=1e-6), name
    assert max(g.abs().max() for g in gradient.values() if g.numel()) > 1e-3


def test_winner_targets_pair_sequences_with_their_latents() -> None:
    """The chosen sequence of a start is the winner's from that start, under the winner's latent."""
    cost = torch.tensor([[[1.0, 4], [3, 2]]])
    actions = torch.arange(2 * 2 * 3).view(1, 2, 2, 3)
    latents = torch.tensor([[[0.1], [0.2]]])
    targets = winner_targets(Rollouts(cost, actions), latents)
    assert targets.actions.tolist() == [
        [[0, 1, 2], [9, 10, 11]]
    ]  # latent 0 from start 0, latent 1 from start 1
    assert targets.latents[0, :, 0].tolist() == pytest.approx([0.1, 0.2])
    assert targets.count == 2


def test_pomo_targets_count_everything() -> None:
    """A single policy learns from every rollout of every instance."""
    targets = pomo_targets(
        Rollouts(torch.rand(3, 1, 4), torch.zeros(3, 1, 4, 6, dtype=torch.int16)),
        torch.zeros(3, 1, 2),
    )
    assert targets.count == 12
    assert targets.actions.shape == (3, 4, 6)


def test_preference_weights_are_the_gradient_of_the_pairwise_loss() -> None:
    """Written out pair by pair; equal costs and nan make no pair."""
    rng = torch.Generator().manual_seed(2)
    cost, scores = (
        torch.rand(2, 5, generator=rng),
        (torch.randn(2, 5, generator=rng) * 20).requires_grad_(),
    )
    cost[0, 1], cost[1, 2] = cost[0, 0], torch.nan
    loss = torch.zeros(())
    for b, i, j in itertools.product(range(2), range(5), range(5)):
        if cost[b, i] < cost[b, j]:
            loss = loss - torch.nn.functional.logsigmoid(0.05 * (scores[b, i] - scores[b, j]))
    (gradient,) = torch.autograd.grad(loss, scores)
    weight = preference_weight(cost, scores.detach(), 0.05)
    torch.testing.assert_close(weight, gradient / 0.05 / 4)
    assert weight[1, 2] == 0
    assert weight[0].sum().abs() < 1e-6


def test_compared_samples_are_the_winners_own() -> None:
    """Two latents, three starts with two samples each; the third start is a tie."""
    cost = torch.tensor([[[5.0, 3.0, 9.0, 8.0, 4.0, 6.0], [4.0, 4.0, 7.0, 11.0, 5.0, 4.0]]])
    actions = (
        torch.arange(12).view(1, 2, 6, 1).expand(-1, -1, -1, 3)
    )  # strided, as a fused rollout's are
    targets = preference_targets(Rollouts(cost, actions), torch.tensor([[[0.1], [0.2]]]), 2)
    assert targets.actions[0, :4, 0].tolist() == [0, 1, 8, 9]
    assert targets.latents[0, :2, 0].tolist() == pytest.approx([0.1, 0.2])
    assert targets.weight_or_cost[0, :4].tolist() == [5.0, 3.0, 7.0, 11.0]
    assert targets.weight_or_cost[0, 4:].isnan().all()
    assert targets.count == 4
    weight = targets.loss_weights(
        torch.zeros(1, 6), 0.05
    )  # equally likely: the cheaper has a weight of a half
    assert weight.tolist() == [[0.5, -0.5, -0.5, 0.5, 0.0, 0.0]]


def test_preferences_of_a_single_policy() -> None:
    """With one sample of each start, all starts are compared; with several, those of the same
    start.
    """
    rolled = Rollouts(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]), torch.arange(4).view(1, 1, 4, 1))
    across, within = (
        preference_targets(rolled, torch.zeros(1, 1, 0), samples) for samples in (1, 2)
    )
    torch.testing.assert_close(
        across.loss_weights(torch.zeros(1, 4), 1.0), torch.tensor([[-0.5, -1 / 6, 1 / 6, 0.5]])
    )
    torch.testing.assert_close(
        within.loss_weights(torch.zeros(1, 4), 1.0), torch.tensor([[-0.5, 0.5, -0.5, 0.5]])
    )
    assert across.count == within.count == 4


def test_the_winner_of_one_rollout_each() -> None:
    """Three latents, two starts: the cheapest rollout of each start, its latent, and uniqueness."""
    cost = torch.tensor([[[5.0, 2.0], [3.0, 2.0], [4.0, 9.0]]])
    first, chosen, alone = select_winner_rollouts(
        Rollouts(cost, torch.arange(6).view(1, 3, 2, 1)), torch.tensor([[[0.1], [0.2], [0.3]]]), 1
    )
    assert (first.cost.tolist(), first.actions.tolist()) == ([[[3.0], [2.0]]], [[[[2]], [[1]]]])
    assert chosen[0, :, 0].tolist() == pytest.approx([0.2, 0.1])
    assert alone.tolist() == [[True, False]]


def test_winners_keep_the_samples_of_their_own_start() -> None:
    """Each of two winners was sampled again from both starts, three times each."""
    place = torch.arange(12).view(1, 2, 6)
    own = select_own_starts(Rollouts(place.float(), place[..., None]), 3)
    assert own.cost.tolist() == [[[0, 1, 2], [9, 10, 11]]]
    assert own.actions[..., 0].tolist() == own.cost.tolist()
    targets = compare_rollouts(torch.zeros(1, 2, 1), torch.tensor([[True, False]]), own)
    assert targets.actions[0, :, 0].tolist() == [0, 1, 2, 9, 10, 11]
    assert targets.weight_or_cost[0, :3].tolist() == [0, 1, 2]
    assert targets.weight_or_cost[0, 3:].isnan().all()
    assert (targets.count, targets.group_size) == (3, 3)


@pytest.mark.parametrize("trial", ["sample", "greedy"])
def test_latents_compete_by_one_rollout_each(trial: str) -> None:
    """The targets are samples of the latent that won the start, from that start."""
    objective = Objective(loss="prefer", latents=6, starts=2, samples=3, trial=trial)  # pyright: ignore[reportArgumentType]
    policy = {"width": 16, "heads": 2, "layers": 1, "hidden": 16, "latent": 4}
    trainer, rolls = (
        Trainer(TrainConfig(size=9, batch=4, policy=policy, objective=objective), CPU),
        [],
    )
    for p in (trainer.policy.decoder.query_latent, trainer.policy.decoder.value_latent):
        torch.nn.init.normal_(p, std=0.05, generator=torch.Generator().manual_seed(1))
    real = trainer.sample_rollouts
    trainer.sample_rollouts = lambda *given, **more: (
        rolls.append((given[1:], more, real(*given, **more))) or rolls[-1][2]
    )
    _, targets, _ = trainer.gradient(0)
    ((latents, starts), asked, first), ((chosen, more), again, second) = rolls
    assert (starts.shape, asked["temperature"], again["attempt"]) == (
        (4, 2),
        0.0 if trial == "greedy" else 1.0,
        6,
    )
    assert more.tolist() == [
        [s for s in row for _ in range(3 if trial == "greedy" else 2)] for row in starts.tolist()
    ]
    best, winner = first.cost.min(1)
    assert torch.equal(chosen, latents.gather(1, winner[..., None].expand(-1, -1, 4)))
    assert torch.equal(targets.latents, chosen)
    assert torch.equal(targets.actions[..., 0], starts.repeat_interleave(3, 1))
    cost = targets.weight_or_cost.unflatten(1, (2, 3))
    if trial == "sample":
        kept = ~cost[..., 0].isnan()
        assert torch.equal(cost[..., 0][kept], best[kept])
        assert kept.any()
    else:
        assert torch.equal(cost[:, 1], second.cost[:, 1, 3:])
    assert not torch.equal(cost[..., 1], cost[..., 2])  # samples with random numbers of their own


def test_select_cheapest_by_hand() -> None:
    """The cheapest rollouts come in order, with the latents they belong to."""
    index, latent, value = select_cheapest(torch.tensor([[[5.0, 1, 7], [2, 9, 0.5]]]), 3)
    assert (index.tolist(), latent.tolist(), value.tolist()) == (
        [[5, 1, 3]],
        [[1, 0, 1]],
        [[0.5, 1.0, 2.0]],
    )


# --- gradients


def stepped(config) -> tuple[Trainer, dict[str, torch.Tensor]]:
    trainer = Trainer(config, CPU)
    trainer.gradient(0)
    return trainer, {
        n: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for n, p in trainer.parameters.items()
    }


def naive(config) -> dict[str, torch.Tensor]:
    """The same gradient from a loss over all B x K x S rollouts, as docs/internals/method.md has
    it.
    """
    trainer = Trainer(config, CPU)
    problem, policy = TSP(), trainer.policy
    batch, latents, starts = trainer.sample()
    rolled = rollout(problem, policy, batch, latents, starts, seed=config.seed << 32)
    count, tried, per = rolled.cost.shape
    scores = log_prob(problem, policy, batch, latents, rolled.actions.flatten(1, 2)).view(
        count, tried, per
    )
    returns = -rolled.cost
    advantage = returns - returns.mean(2, keepdim=True)
    terms, kept = torch.zeros(()), 0
    for i in range(count):
        for m in range(per):
            best = returns[i, :, m].max()
            holders = (returns[i, :, m] >= best - best.abs() * 1e-6).nonzero()[:, 0]
            if len(holders) == 1:
                terms, kept = (
                    terms + advantage[i, holders[0], m] * scores[i, holders[0], m],
                    kept + 1,
                )
    loss = -terms / kept
    assert 0 < kept <= count * per
    loss.backward()
    return {n: p.grad for n, p in trainer.parameters.items()}


@pytest.mark.parametrize("objective", ["pomo", "winner"])
def test_gradient_is_that_of_the_loss_over_all_rollouts(make_config, objective: str) -> None:
    """Differentiating only the chosen sequences gives the gradient of the full loss."""
    config = make_config(objective)
    _, gradient = stepped(config)
    for name, expected in naive(config).items():
        if (
            name != "decoder.key"
        ):  # its gradient is small by design; compared on the common scale below
            assert torch.allclose(gradient[name], expected, rtol=1e-4, atol=1e-6), name
        assert (gradient[name] - expected).abs().max() <= 1e-5 * max(
            g.abs().max() for g in gradient.values()
        ), name
    assert max(g.abs().max() for g in gradient.values()) > 1e-3


@pytest.mark.parametrize("objective", ["pomo", "winner"])
def test_no_advantage_no_gradient(make_config, monkeypatch, objective: str) -> None:
    """When all rollouts cost the same, every gradient is exactly 0."""
    real = training.rollout

    def alike(*arguments, **options):
        rolled = real(*arguments, **options)
        return Rollouts(torch.full_like(rolled.cost, 3.0), rolled.actions)

    monkeypatch.setattr(training, "rollout", alike)
    _, gradient = stepped(make_config(objective))
    assert not any(g.any() for g in gradient.values())


def test_a_step_against_the_gradient_makes_cheap_tours_likelier(make_config) -> None:
    """The sign is right: a step against the gradient makes tours below the mean cost likelier."""
    trainer, gradient = stepped(make_config("pomo"))
    fresh = Trainer(make_config("pomo"), CPU)
    batch, latents, starts = fresh.sample()
    rolled = rollout(TSP(), fresh.policy, batch, latents, starts, seed=0)
    targets = pomo_targets(rolled, latents)
    before = log_prob(TSP(), fresh.policy, batch, latents, targets.actions).detach()
    with torch.no_grad():
        for name, p in fresh.policy.named_parameters():
            p -= 1e-3 * gradient[name]
    change = log_prob(TSP(), fresh.policy, batch, latents, targets.actions).detach() - before
    assert (change * targets.weight_or_cost).sum() < 0
    assert trainer.update == 0


# --- imitation


def test_imitation_learns_improved_views_of_the_best(make_config) -> None:
    """Targets are views of one tour per instance, no longer than its best rollout.

    They belong to a latent that was tried.
    """
    trainer = Trainer(make_config("imitate"), CPU)
    batch, latents, starts = trainer.sample()
    rolled = rollout(TSP(), trainer.policy, batch, latents, starts, seed=0)
    targets = trainer.choose_targets(MiniStep(batch, None), latents, starts, rolled)
    cost = TSP().cost(batch, targets.actions)
    assert torch.allclose(cost, cost[:, :1].expand_as(cost), atol=1e-5)
    assert (cost[:, 0] <= rolled.cost.flatten(1).amin(1) + 1e-6).all()
    assert (cost[:, 0] < rolled.cost.flatten(1).amin(1) - 1e-4).any()
    assert torch.equal(targets.actions.sort(-1).values, torch.arange(7).expand_as(targets.actions))
    for row in range(4):
        assert any(torch.equal(targets.latents[row, 0], z) for z in latents[row])


def test_imitation_weights_by_hand(make_config) -> None:
    """Each view weighs -1/T; an instance whose best plan two latents share has no weight."""
    trainer = Trainer(make_config("imitate"), CPU)
    batch, latents, starts = trainer.sample()
    rolled = rollout(TSP(), trainer.policy, batch, latents, starts, seed=0)
    cost = rolled.cost.clone()
    cost[:] = 5.0 + torch.arange(4)[:, None]  # latent 0 is the only winner ...
    cost[1, :2] = 4.0  # ... but not in instance 1
    priced = Rollouts(cost, rolled.actions)
    targets = trainer.choose_targets(MiniStep(batch, None), latents, starts, priced)
    weight = torch.full((4, 2), -1 / 7)
    weight[1] = 0
    assert torch.allclose(targets.weight_or_cost, weight)
    assert targets.count == 3 * 2


def test_long_sequences_lose_their_weight_and_short_ones_only_their_padding() -> None:
    """A sequence that ends in time keeps its weight and score; a longer one has no weight."""
    problem, batch = CVRP(), CVRP().sample(1, 3, torch.Generator().manual_seed(0))
    actions = torch.tensor([[[1, 2, 3, 0, 0, 0], [1, 0, 2, 0, 3, 0]]])
    targets = Targets(torch.zeros(1, 1, 0), actions, torch.tensor([[0.5, -0.5]]), torch.tensor(2.0))
    cut = truncate_targets(targets, 4)
    assert cut.weight_or_cost.tolist() == [[0.5, 0.0]]
    assert truncate_targets(replace(targets, group_size=2), 4).weight_or_cost.isnan().tolist() == [
        [False, True]
    ]
    assert cut.actions.tolist() == [[[1, 2, 3, 0], [1, 0, 2, 0]]]
    policy = CVRPPolicy(Architecture(width=16, heads=2, layers=1, hidden=16, latent=0))
    whole, part = (
        log_prob(problem, policy, batch, x.latents, x.actions[:, :1], engine="torch")
        for x in (targets, cut)
    )
    assert torch.allclose(whole, part)
