"""Targets from neighbourhoods of good plans."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts, unmark_actions
from rhumbline.training.objectives import Targets


def select_best_plans(
    rolled: Rollouts, latents: Float[Tensor, "B K Z"]
) -> tuple[Int[Tensor, "B T"], Float[Tensor, "B 1 Z"]]:
    """The cheapest rollout of each instance, and the latent that found it."""
    row = torch.arange(len(latents), device=latents.device)
    at = rolled.cost.flatten(1).argmin(1)
    latent = at // rolled.cost.shape[2]
    start = at % rolled.cost.shape[2]
    return unmark_actions(rolled.actions[row, latent, start])[0], latents[row, latent][:, None]


def append_neighbourhoods(
    targets: Targets, latent: Float[Tensor, "B 1 Z"], length: Int[Tensor, "B A"], built: Rollouts
) -> Targets:
    """Targets that are compared, and beside them parts of plans, [B, A, samples], of which a
    `length` was given.

    What was given is marked like what is certain: nobody decided it. So are depots behind the end,
    which are forced. Where others have lessons, parts have none: a sequence of nothing but marks
    takes the place.
    """
    cost = built.cost
    steps = torch.arange(built.actions.shape[3], device=length.device)
    last = torch.where(built.actions != 0, steps, 0).amax(3, keepdim=True)
    decided = (steps >= length[..., None, None]) & (steps <= last)
    actions = torch.where(decided, built.actions, ~built.actions)
    if targets.lesson:
        cost = torch.nn.functional.pad(cost, (0, 1), value=torch.nan)
        actions = torch.cat([actions, ~built.actions[:, :, :1]], 2)
    groups = targets.actions.shape[1] // actions.shape[2]
    own = targets.latents.expand(-1, groups, -1)  # one for each, or one for all
    return replace(
        targets,
        latents=torch.cat([own, latent.expand(-1, length.shape[1], -1)], 1),
        actions=torch.cat([targets.actions, actions.flatten(1, 2).to(targets.actions.dtype)], 1),
        weight=torch.cat([targets.weight, cost.flatten(1)], 1),
        count=targets.count + float(built.cost.numel()),
    )
