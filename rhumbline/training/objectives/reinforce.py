"""REINFORCE targets: all rollouts of a single policy, or the winning latents of each start."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.training.objectives import Targets, find_winners


def pomo_weight(cost: Float[Tensor, "B S"]) -> Float[Tensor, "B S"]:
    """Return cost minus its mean over starts: the shared baseline of POMO (Kwon et al. 2020)."""
    return cost - cost.mean(1, keepdim=True)


def winner_weight(
    cost: Float[Tensor, "B K S"], winner: Int[Tensor, "B S"], is_unique: Bool[Tensor, "B S"]
) -> Float[Tensor, "B S"]:
    """Return the winners' REINFORCE weights (Chalumeau et al. 2023, eq. 1).

    The baseline is the winning latent's own mean over starts; with one start there is none. Starts
    where latents tie get weight 0 (appendix F).
    """
    own = cost.gather(1, winner[:, None])[:, 0]
    baseline = cost.mean(2).gather(1, winner) if cost.shape[2] > 1 else torch.zeros_like(own)
    return (own - baseline) * is_unique


def poppy_weight(cost: Float[Tensor, "B K S"]) -> Float[Tensor, "B S"]:
    """Return the winners' lead over the second best, as in Poppy (Grinsztajn et al. 2023).

    The second best is the baseline. A tie has no lead, so its weight is 0.
    """
    best = cost.topk(2, dim=1, largest=False).values
    return best[:, 0] - best[:, 1]


def pomo_targets(rollouts: Rollouts, latents: Float[Tensor, "B K Z"]) -> Targets:
    """Return every sampled sequence as a target: the objective of a single policy."""
    cost = rollouts.cost.flatten(1)
    count = torch.full((), float(cost.numel()), device=cost.device)
    return Targets(latents, rollouts.actions.flatten(1, 2), pomo_weight(cost), count)


def winner_targets(
    rollouts: Rollouts,
    latents: Float[Tensor, "B K Z"],
    baseline: Literal["starts", "second"] = "starts",
) -> Targets:
    """Return the winner of each (instance, start) as a target.

    This is the published objective of latent spaces and populations. With the baseline "starts",
    the winner's own mean over starts, ties count for nothing. With "second", the second best of the
    same start, every start counts in the mean.
    """
    winner, is_unique = find_winners(rollouts.cost)
    steps = rollouts.actions.shape[3]
    winner_rows = winner[:, None, :, None].expand(-1, 1, -1, steps)
    actions = rollouts.actions.gather(1, winner_rows)[:, 0]
    chosen = latents.gather(1, winner[..., None].expand(-1, -1, latents.shape[2]))
    if baseline == "second":
        weight = poppy_weight(rollouts.cost)
        count = torch.full((), float(weight.numel()), device=weight.device)
    else:
        weight = winner_weight(rollouts.cost, winner, is_unique)
        count = is_unique.sum().float()
    return Targets(chosen, actions, weight, count)
