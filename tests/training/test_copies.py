"""Symmetric copies: their imitation target against loops, who learns it, and a whole step."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from small import small_config

from rhumbline.decoding import Rollouts, log_prob, rollout
from rhumbline.domains import find_policy_family
from rhumbline.pipeline import load_policy
from rhumbline.problems.symmetry import is_mirrored
from rhumbline.problems.tsp import TSP
from rhumbline.training.config import Objective
from rhumbline.training.objectives.prefer import Prefer, compare_rollouts, preference_targets
from rhumbline.training.objectives.symmetric_copies import (
    CopySettings,
    SymmetricTarget,
    find_symmetric_target,
    make_symmetric_copies,
)
from rhumbline.training.objectives.targets import TIE_TOLERANCE
from rhumbline.training.trainer import Trainer

CPU = torch.device("cpu")
PREFER = Objective(loss="prefer", latents=3, starts=2, samples=2, copies=4, lesson=0.5)


def copy_settings(o: Objective) -> CopySettings:
    objective = o.build()
    assert isinstance(objective, Prefer)
    return objective.copy_settings


def random_rollouts(o: Objective, seed: int) -> tuple[Rollouts, torch.Tensor]:
    """Return tours of seven cities with random costs, and their starts, sample by sample.

    There are two instances in their copies.
    """
    rng = torch.Generator().manual_seed(seed)
    samples = o.samples if o.trial == "all" else 1
    starts = (
        torch.randint(7, (2, o.starts), generator=rng)
        .repeat_interleave(samples, 1)
        .repeat_interleave(o.copies, 0)
    )
    shape = (2 * o.copies, o.latents, o.starts * samples)
    actions = torch.rand(*shape, 7, generator=rng).argsort(3)
    first = starts[:, None, :, None].expand(*shape, 1)
    order = torch.where(actions == first, -1.0, torch.rand(*shape, 7, generator=rng)).argsort(3)
    actions = actions.gather(3, order)
    assert torch.equal(actions[..., :1], first)
    marked = torch.where(torch.rand(actions.shape, generator=rng) < 0.5, ~actions, actions)
    return Rollouts(torch.rand(shape, generator=rng) + 1.0, marked), starts


@pytest.mark.parametrize("trial", ["all", "sample"])
@pytest.mark.parametrize("anywhere", [True, False])
def test_symmetric_target_is_the_best_of_all_copies(trial: str, anywhere: bool) -> None:
    """It comes from the same start, or for tours from any start, rotated and oriented for the copy.

    Its actions have no marks.
    """
    o = replace(PREFER, trial=trial)  # pyright: ignore[reportArgumentType]
    rolled, starts = random_rollouts(o, 0)
    symmetric, samples = (
        find_symmetric_target(rolled, starts, copy_settings(o), anywhere),
        2 if trial == "all" else 1,
    )
    hands = [False, True, True, False]  # mirrored
    assert symmetric is not None
    for row in range(8):
        mates = range(row // 4 * 4, row // 4 * 4 + 4)
        for s in range(2):
            places = [
                (rolled.cost[b, k, r].item(), b, k, r)
                for b in mates
                for k in range(3)
                for r in (range(2 * samples) if anywhere else range(s * samples, (s + 1) * samples))
            ]
            cost, *place = min(places)
            plan = [a if a >= 0 else ~a for a in rolled.actions[tuple(place)].tolist()]
            if anywhere and hands[row % 4] != hands[place[0] % 4]:
                plan = plan[::-1]
            at = plan.index(starts[row, s * samples].item())
            assert symmetric.cost[row, s].tolist() == [cost]
            assert symmetric.actions[row, s, 0].tolist() == (
                plan[at:] + plan[:at] if anywhere else plan
            )
            assert symmetric.actions[row, s, 0, 0] == starts[row, s * samples]
            assert symmetric.learner is None
            finders = copy_settings(replace(o, shared=True))
            shared = find_symmetric_target(rolled, starts, finders, anywhere)
            assert shared is not None
            assert shared.learner is not None
            assert shared.learner[row, s] == place[1]


def test_without_copies_there_is_no_symmetric_target() -> None:
    o = replace(PREFER, copies=1)
    assert find_symmetric_target(*random_rollouts(o, 1), copy_settings(o), True) is None


def test_only_better_plans_are_imitated() -> None:
    """A plan that a copy has found itself, up to rounding, is not imitated.

    A start with tied latents learns nothing but the imitation target. The target does not change
    what samples learn from each other.
    """
    own = Rollouts(
        torch.tensor([[[3.0, 2.0], [3.0, 2.0], [3.0, 2.0]]]),
        torch.zeros(1, 3, 2, 4, dtype=torch.long),
    )
    costs = torch.tensor([[[1.9], [2.0 * (1 - TIE_TOLERANCE / 2)], [2.5]]])
    symmetric = SymmetricTarget(costs, torch.ones(1, 3, 1, 4, dtype=torch.long), 0.3)
    targets = compare_rollouts(
        torch.zeros(1, 3, 0), torch.tensor([[False, False, True]]), own, symmetric
    )
    assert targets.group_size == 2
    assert targets.count == 2 + 1
    assert targets.actions[0].sum(1).tolist() == [0, 0, 4] * 3
    weight = targets.loss_weights(torch.zeros(1, 9), 1.0)[0]
    assert weight.tolist() == pytest.approx([0, 0, -0.3, 0, 0, 0, 0.5, -0.5, 0])
    plain = compare_rollouts(torch.zeros(1, 3, 0), torch.tensor([[False, False, True]]), own)
    assert plain.loss_weights(torch.zeros(1, 6), 1.0)[0].tolist() == pytest.approx(
        [0, 0, 0, 0, 0.5, -0.5]
    )


def test_each_start_has_one_more_sequence() -> None:
    """The winner of each start gets one more sequence, the symmetric target."""
    rolled, starts = random_rollouts(PREFER, 2)
    latents = torch.rand(8, 3, 4)
    symmetric = find_symmetric_target(rolled, starts, copy_settings(PREFER), True)
    targets = preference_targets(rolled, latents, 2, symmetric)
    plain = preference_targets(rolled, latents, 2)
    assert targets.actions.shape == (8, 6, 7)
    assert torch.equal(targets.latents, plain.latents)
    assert (
        targets.weight_or_cost.view(8, 2, 3)[..., :2].flatten(1).tolist()
        == plain.weight_or_cost.tolist()
    )


@pytest.mark.parametrize("trial", ["all", "sample", "greedy"])
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_the_finder_learns_the_symmetric_target(problem: str, trial: str) -> None:
    """With shared latents, the latent that found the best plan of all copies learns it in each."""
    objective = replace(PREFER, trial=trial, shared=True)  # pyright: ignore[reportArgumentType]
    config = replace(small_config(), problem=problem, batch=8, objective=objective)
    trainer = Trainer(config, CPU)
    rolled, targets, _ = trainer.gradient(0)
    latents = Trainer(config, CPU).sample()[1]
    assert torch.equal(latents[::4].repeat_interleave(4, 0), latents)
    assert not torch.equal(latents[0], latents[4])
    samples = 2 if trial == "all" else 1
    for instance in range(2):
        mates = slice(4 * instance, 4 * instance + 4)
        cost = rolled.cost[mates].unflatten(2, (2, samples)).movedim(1, 0)  # latents first
        for s in range(2):
            finder = (
                (cost if problem == "tsp" else cost[:, :, s : s + 1]).flatten(1).amin(1).argmin()
            )
            assert torch.equal(targets.latents[mates, s], latents[mates, finder])
    assert not targets.weight_or_cost.view(8, 2, 3)[..., :2].isnan().any()


def test_one_of_several_finders_learns() -> None:
    """If all latents find plans of equal cost in all copies, one of the shared latents learns."""
    rolled, starts = random_rollouts(PREFER, 3)
    rolled = replace(
        rolled, cost=torch.tensor([1.0, 2.0]).repeat(8, 3, 2)
    )  # the second sample is worse
    latents = torch.rand(2, 3, 4).repeat_interleave(4, 0)
    for shared in (False, True):
        settings = copy_settings(replace(PREFER, shared=shared))
        symmetric = find_symmetric_target(rolled, starts, settings, False)
        targets = preference_targets(rolled, latents, 2, symmetric)
        assert targets.weight_or_cost.view(8, 2, 3)[..., :2].isnan().all() == (not shared)
        assert targets.count == (32 if shared else 0)


@pytest.mark.parametrize(("copies", "anywhere"), [(2, True), (8, True), (2, False), (4, False)])
def test_copies_are_the_same_instance_with_other_random_numbers(
    copies: int, anywhere: bool
) -> None:
    """A tour has the same length in each copy, and the opposite direction if it is mirrored.

    No two copies are equal.
    """
    batch = TSP().sample(2, 7, torch.Generator().manual_seed(0))
    many, tour = make_symmetric_copies(batch, copies, anywhere), torch.randperm(7)
    cost = TSP().cost(many, tour.expand(2 * copies, 1, 7)).view(2, copies)
    torch.testing.assert_close(cost, cost[:, :1].expand(2, copies))
    (x, y), (u, v) = many.xy[:, tour].unbind(-1), many.xy[:, tour.roll(-1)].unbind(-1)
    area = (x * v - u * y).sum(1).view(2, copies)  # the sign of the area is the direction
    hand = 1.0 - 2.0 * is_mirrored(torch.arange(copies)) if anywhere else torch.ones(copies)
    torch.testing.assert_close(area, area[:, :1] * hand, atol=1e-5, rtol=0)
    assert many.key.unique().numel() == 2 * copies
    assert many.xy.flatten(1).unique(dim=0).shape[0] == 2 * copies
    assert make_symmetric_copies(batch, 1, anywhere) is batch


def test_symmetric_target_is_about_as_likely_as_samples() -> None:
    """This holds for policies that build tours in one direction, as the shipped ones do.

    A reversed tour would never be sampled.
    """
    o, policy = replace(PREFER, latents=4, starts=3, copies=8), load_policy("tsp100", "tsp")
    batch = make_symmetric_copies(TSP().sample(2, 30, torch.Generator().manual_seed(1)), 8, True)
    starts = torch.tensor([3, 3, 9, 9, 20, 20]).expand(16, -1)
    latents = policy.space.sample((16, 4), torch.Generator().manual_seed(2))
    rolled = rollout(TSP(), policy, batch, latents, starts, seed=0, engine="torch")
    symmetric = find_symmetric_target(rolled, starts, copy_settings(o), True)
    assert symmetric is not None
    centre = policy.space.centre((16, 1), CPU)
    score = partial(log_prob, TSP(), policy, batch, centre, engine="torch")
    plans = symmetric.actions.flatten(1, 2)
    ahead, back = score(plans), score(torch.cat([plans[..., :1], plans[..., 1:].flip(-1)], 2))
    assert ahead.quantile(0.2) > rolled_scores(score, rolled).median() - 15
    assert back.quantile(0.8) < ahead.median() - 20


def rolled_scores(score, rolled: Rollouts) -> torch.Tensor:
    """Return the log-probabilities of the sampled sequences."""
    return score(rolled.actions.flatten(1, 2))


def test_mini_steps_of_other_sizes_have_whole_copies() -> None:
    """Mini-steps of larger instances have fewer of them, but always all copies."""
    config = replace(
        small_config(), size=7, sizes=(7, 19), batch=8, objective=replace(PREFER, starts=2)
    )
    trainer = Trainer(config, CPU)
    assert [config.batch_for(size) for size in (7, 19)] == [8, 1]
    assert [len(trainer.sample(mini)[0].key) for mini in range(2)] == [8, 4]


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
@pytest.mark.parametrize("trial", ["all", "sample", "greedy"])
def test_a_step_imitates_symmetric_targets(problem: str, trial: str) -> None:
    """Copies have the same starts. A target has the stated cost and becomes likelier."""
    objective = replace(PREFER, trial=trial)  # pyright: ignore[reportArgumentType]
    config = replace(small_config(), problem=problem, batch=8, objective=objective)
    _, targets, _ = Trainer(config, CPU).gradient(0)
    assert (targets.group_size, targets.imitation_weight) == (2, 0.5)
    taught_here = ~targets.weight_or_cost.view(8, -1, 3)[..., 2].isnan()
    assert taught_here.any()
    trainer = Trainer(config, CPU)
    batch, latents, starts = trainer.sample()  # the same as the gradient was of
    assert torch.equal(starts[::4].repeat_interleave(4, 0), starts)
    assert len(batch.key) == len(latents) == 8
    rules = find_policy_family(problem)[1].rules
    scores = log_prob(rules, trainer.policy, batch, targets.latents, targets.actions)
    assert scores.isfinite().all()  # plans of a copy are feasible in all of them
    weight = targets.loss_weights(scores, objective.sharpness).view(8, -1, 3)[..., 2]
    assert (weight[taught_here] == -0.5).all()
    assert (weight[~taught_here] == 0).all()
    plans = targets.actions.view(8, -1, 3, targets.actions.shape[2])[:, :, 2]
    cost = rules.cost(batch, plans.long())
    torch.testing.assert_close(
        targets.weight_or_cost.view(8, -1, 3)[..., 2][taught_here], cost[taught_here]
    )
