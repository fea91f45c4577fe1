"""Preference targets: groups of rollouts of the same start that are compared with one another."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.problems.costs import shift_cost
from rhumbline.training.config import Objective
from rhumbline.training.objectives import (
    TIE_TOLERANCE,
    Targets,
    find_winners,
    repeat_starts,
    select_latents,
    select_winner_rows,
    sequence_count,
)
from rhumbline.training.objectives.symmetric_copies import SymmetricTarget


def preference_targets(
    rollouts: Rollouts,
    latents: Float[Tensor, "B K Z"],
    samples: int,
    symmetric: SymmetricTarget | None = None,
) -> Targets:
    """Return, for each start, the compared rollouts of the latent that found the best of them.

    Consecutive groups of `samples` rollouts share their start. With one sample of each start, the
    rollouts of all starts are compared instead, the published form for a single policy. That form
    gives up on starts whose plans are worse than those of others
    (research/notebooks/training.md).
    """
    _, latent_count, rollout_count = rollouts.cost.shape
    if samples == 1:
        actions = rollouts.actions.flatten(1, 2)
        cost = rollouts.cost.flatten(1)
        return Targets(latents, actions, cost, sequence_count(cost), rollout_count)
    own, chosen, is_unique = select_winner_rollouts(rollouts, latents, samples, symmetric)
    if latent_count == 1:
        chosen = latents
    return compare_rollouts(chosen, is_unique, own, symmetric)


def select_winner_rollouts(
    rollouts: Rollouts,
    latents: Float[Tensor, "B K Z"],
    samples: int,
    symmetric: SymmetricTarget | None = None,
) -> tuple[Rollouts, Float[Tensor, "B S Z"], Bool[Tensor, "B S"]]:
    """Return each start's winning latent, its rollouts [B, S, samples], and whether it is unique.

    If the symmetric targets name learners, these are the winners. Several latents often find the
    best plan of all copies. Which of them comes first is random and does no harm.
    """
    # On a GPU, actions are a strided view, so they are split with `unflatten` instead of `view`.
    cost = rollouts.cost.unflatten(2, (-1, samples))
    actions = rollouts.actions.unflatten(2, (-1, samples))
    winner, is_unique = find_winners(cost.amin(3))
    if symmetric is not None and symmetric.learner is not None:
        winner = symmetric.learner
        is_unique = torch.ones_like(is_unique)
    own = Rollouts(
        select_winner_rows(cost, winner),
        select_winner_rows(actions, winner),
    )
    chosen = select_latents(latents, winner)
    return own, chosen, is_unique


def resample_winners(
    roll: Callable[..., Rollouts],
    rollouts: Rollouts,
    latents: Float[Tensor, "B K Z"],
    starts: Int[Tensor, "B S"],
    objective: Objective,
    symmetric: SymmetricTarget | None = None,
) -> Targets:
    """Sample the winner of each start again, after one rollout per latent, and compare its samples.

    `roll` makes rollouts for given latents and starts. A winning rollout that was sampled belongs
    to the compared group. A greedy one does not, so ties between latents do no harm: which of the
    latents with the same solution comes first is random.
    """
    first, chosen, is_unique = select_winner_rollouts(rollouts, latents, 1, symmetric)
    is_greedy = objective.trial == "greedy"
    more = objective.samples if is_greedy else objective.samples - 1
    again = roll(
        chosen,
        repeat_starts(starts, more),
        temperature=objective.temperature,
        attempt=objective.latents,
    )
    own = select_own_starts(again, more)
    if is_greedy:
        return compare_rollouts(chosen, torch.ones_like(is_unique), own, symmetric)
    cost = torch.cat((first.cost, own.cost), 2)
    actions = torch.cat((first.actions, own.actions), 2)
    return compare_rollouts(chosen, is_unique, Rollouts(cost, actions), symmetric)


def select_own_starts(again: Rollouts, samples: int) -> Rollouts:
    """Keep, of the rollouts of each winner from all starts, those from the start that it has won.

    The winners of S starts were sampled `samples` times from each of the S starts. Returns rollouts
    [B, S, samples].
    """
    starts = again.cost.shape[1]
    groups = (starts, samples)
    cost = again.cost.unflatten(2, groups)
    actions = again.actions.unflatten(2, groups)
    own_cost = cost.diagonal(0, 1, 2)
    own_actions = actions.diagonal(0, 1, 2)
    return Rollouts(
        own_cost.movedim(-1, 1),
        own_actions.movedim(-1, 1),
    )


def compare_rollouts(
    latents: Float[Tensor, "B K Z"],
    is_unique: Bool[Tensor, "B S"],
    rollouts: Rollouts,
    symmetric: SymmetricTarget | None = None,
) -> Targets:
    """Return targets that compare the rollouts [B, S, samples] of each start's winner.

    Starts without a unique winner are left out. A symmetric target is imitated wherever it is
    better than all rollouts of its start, with or without a unique winner.
    """
    cost = rollouts.cost.masked_fill(~is_unique[..., None], torch.nan)
    samples = rollouts.cost.shape[2]
    count = is_unique.sum() * float(samples)
    if symmetric is None:
        return Targets(latents, rollouts.actions.flatten(1, 2), cost.flatten(1), count, samples)
    best = rollouts.cost.amin(2, keepdim=True)
    is_better = symmetric.cost < shift_cost(best, -TIE_TOLERANCE)
    cost = torch.cat([cost, symmetric.cost.masked_fill(~is_better, torch.nan)], 2)
    actions = torch.cat([rollouts.actions, symmetric.actions], 2)
    return Targets(
        latents,
        actions.flatten(1, 2),
        cost.flatten(1),
        count + is_better.sum(),
        samples,
        symmetric.weight,
    )
