"""Preference targets: winners against their rivals."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.training.config import Objective
from rhumbline.training.objectives import TIE_TOLERANCE, Targets, find_winners, repeat_starts
from rhumbline.training.objectives.symmetric_copies import SymmetricTarget


def preference_targets(
    rolled: Rollouts,
    latents: Float[Tensor, "B K Z"],
    samples: int,
    lesson: SymmetricTarget | None = None,
) -> Targets:
    """Sequences that are compared: for each start, the rollouts of the latent that found the best
    of them.

    Rollouts `samples` after one another share their start. With one sample of each start, all
    starts are compared: the published form for a single policy. It gives up on starts that lose to
    others (docs/training.md).
    """
    _, width, total = rolled.cost.shape
    if samples == 1:  # nobody competes
        actions = rolled.actions.flatten(1, 2)
        cost = rolled.cost.flatten(1)
        return Targets(
            latents, actions, cost, torch.full((), float(cost.numel()), device=cost.device), total
        )
    own, chosen, alone = select_winner_rollouts(rolled, latents, samples, lesson)
    return compare_rollouts(chosen if width > 1 else latents, alone, own, lesson)


def select_winner_rollouts(
    rolled: Rollouts,
    latents: Float[Tensor, "B K Z"],
    samples: int,
    lesson: SymmetricTarget | None = None,
) -> tuple[Rollouts, Float[Tensor, "B S Z"], Bool[Tensor, "B S"]]:
    """For each start the rollouts [B, S, samples] of the latent that found the best, it, and
    whether no other ties.

    If a lesson has learners, these have won. Of all copies together the best is often found by
    several; which of them comes first is chance, and does no harm.
    """
    # Actions are a strided view on a GPU: cut, not viewed anew.
    cost, actions = (x.unflatten(2, (-1, samples)) for x in (rolled.cost, rolled.actions))
    winner, alone = find_winners(cost.amin(3))
    if lesson is not None and lesson.learner is not None:
        winner = lesson.learner
        alone = torch.ones_like(alone)
    at = winner[:, None, :, None]
    own = cost.gather(1, at.expand(-1, 1, -1, samples))[:, 0]
    plans = actions.gather(1, at[..., None].expand(-1, 1, -1, *actions.shape[3:]))[:, 0]
    return (
        Rollouts(own, plans),
        latents.gather(1, winner[..., None].expand(-1, -1, latents.shape[2])),
        alone,
    )


def resample_winners(
    roll: Callable[..., Rollouts],
    rolled: Rollouts,
    latents: Float[Tensor, "B K Z"],
    starts: Int[Tensor, "B S"],
    o: Objective,
    lesson: SymmetricTarget | None = None,
) -> Targets:
    """Of many latents that were tried once, the winner of each start is sampled again, and learns
    from that.

    Its winning rollout counts among them, unless it was greedy; then ties do no harm either: which
    of the latents with one and the same solution comes first is chance.
    """
    first, chosen, alone = select_winner_rollouts(rolled, latents, 1, lesson)
    more = o.samples if o.trial == "greedy" else o.samples - 1
    found = select_own_starts(
        roll(chosen, repeat_starts(starts, more), temperature=o.temperature, attempt=o.latents),
        more,
    )
    if o.trial == "greedy":
        return compare_rollouts(chosen, torch.ones_like(alone), found, lesson)
    both = (torch.cat(x, 2) for x in ((first.cost, found.cost), (first.actions, found.actions)))
    return compare_rollouts(chosen, alone, Rollouts(*both), lesson)


def select_own_starts(again: Rollouts, samples: int) -> Rollouts:
    """Of the winners of S starts, tried again from all of them, `samples` times each: those of
    their own start.
    """
    starts = again.cost.shape[1]
    cost, actions = (
        x.unflatten(2, (starts, samples)).diagonal(0, 1, 2) for x in (again.cost, again.actions)
    )
    return Rollouts(cost.movedim(-1, 1), actions.movedim(-1, 1))


def compare_rollouts(
    latents: Float[Tensor, "B K Z"],
    alone: Bool[Tensor, "B S"],
    rolled: Rollouts,
    lesson: SymmetricTarget | None = None,
) -> Targets:
    """Rollouts [B, S, samples] of the winner of each start, or of the only latent; they are
    compared but for ties.

    A lesson is learnt where it is better than all of them, ties or not.
    """
    cost, samples = rolled.cost.masked_fill(~alone[..., None], torch.nan), rolled.cost.shape[2]
    count = alone.sum() * float(samples)
    if lesson is None:
        return Targets(latents, rolled.actions.flatten(1, 2), cost.flatten(1), count, samples)
    better = lesson.cost < rolled.cost.amin(2, keepdim=True) * (1.0 - TIE_TOLERANCE)
    cost = torch.cat([cost, lesson.cost.masked_fill(~better, torch.nan)], 2)
    actions = torch.cat([rolled.actions, lesson.actions], 2)
    return Targets(
        latents,
        actions.flatten(1, 2),
        cost.flatten(1),
        count + better.sum(),
        samples,
        lesson.weight,
    )
