"""REINFORCE targets: all starts with their advantage, or the best latents with theirs."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.training.objectives import Targets, find_winners


def pomo_weight(cost: Float[Tensor, "B S"]) -> Float[Tensor, "B S"]:
    """REINFORCE with the mean over starts as baseline (spec 3.2)."""
    return cost - cost.mean(1, keepdim=True)


def winner_weight(
    cost: Float[Tensor, "B K S"], winner: Int[Tensor, "B S"], alone: Bool[Tensor, "B S"]
) -> Float[Tensor, "B S"]:
    """REINFORCE on the winners; eq. 1 of the paper. The baseline is the winning latent's own mean
    over starts.

    With one start there is no baseline. Ties train nobody (appendix F).
    """
    own = cost.gather(1, winner[:, None])[:, 0]
    baseline = cost.mean(2).gather(1, winner) if cost.shape[2] > 1 else torch.zeros_like(own)
    return (own - baseline) * alone


def poppy_weight(cost: Float[Tensor, "B K S"]) -> Float[Tensor, "B S"]:
    """REINFORCE on the winners with the second best as baseline: Poppy's own (spec 3.3). A tie
    weighs nothing.
    """
    best = cost.topk(2, dim=1, largest=False).values
    return best[:, 0] - best[:, 1]


def pomo_targets(rolled: Rollouts, latents: Float[Tensor, "B K Z"]) -> Targets:
    """Single policy: every sampled sequence."""
    cost = rolled.cost.flatten(1)
    count = torch.full((), float(cost.numel()), device=cost.device)
    return Targets(latents, rolled.actions.flatten(1, 2), pomo_weight(cost), count)


def winner_targets(
    rolled: Rollouts,
    latents: Float[Tensor, "B K Z"],
    baseline: Literal["starts", "second"] = "starts",
) -> Targets:
    """Latent space and population, as published: the winner of each (instance, start) learns by
    REINFORCE.

    The baseline is the winner's own mean over starts, and ties train nobody; or the second best of
    the same start, and then every start counts in the mean.
    """
    winner, alone = find_winners(rolled.cost)
    steps = rolled.actions.shape[3]
    actions = rolled.actions.gather(1, winner[:, None, :, None].expand(-1, 1, -1, steps))[:, 0]
    chosen = latents.gather(1, winner[..., None].expand(-1, -1, latents.shape[2]))
    if baseline == "second":
        weight = poppy_weight(rolled.cost)
        return Targets(
            chosen, actions, weight, torch.full((), float(weight.numel()), device=weight.device)
        )
    return Targets(chosen, actions, winner_weight(rolled.cost, winner, alone), alone.sum().float())
