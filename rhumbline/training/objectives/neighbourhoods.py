"""Targets from neighbourhoods of good plans, which the policy re-samples as an LNS would."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts, unmark_actions
from rhumbline.training.objectives import Targets


def select_best_plans(
    rollouts: Rollouts, latents: Float[Tensor, "B K Z"]
) -> tuple[Int[Tensor, "B T"], Float[Tensor, "B 1 Z"]]:
    """Return the cheapest rollout of each instance, and the latent that found it."""
    row = torch.arange(len(latents), device=latents.device)
    place = rollouts.cost.flatten(1).argmin(1)
    starts = rollouts.cost.shape[2]
    latent = place // starts
    start = place % starts
    plan, _ = unmark_actions(rollouts.actions[row, latent, start])
    return plan, latents[row, latent][:, None]


def append_neighbourhoods(
    targets: Targets,
    latent: Float[Tensor, "B 1 Z"],
    length: Int[Tensor, "B A"],
    completed: Rollouts,
) -> Targets:
    """Append groups of completed neighbourhoods [B, A, samples] to targets that are compared.

    The first `length` actions of a neighbourhood were given. Like near-deterministic decisions they
    are marked, and so are the forced depots after the end: they get no gradient. If the other
    groups end with a symmetric target, these groups end with a sequence of marks only.
    """
    cost = completed.cost
    steps = torch.arange(completed.actions.shape[3], device=length.device)
    last = torch.where(completed.actions != 0, steps, 0).amax(3, keepdim=True)
    is_decided = (steps >= length[..., None, None]) & (steps <= last)
    actions = torch.where(is_decided, completed.actions, ~completed.actions)
    if targets.imitation_weight:
        cost = torch.nn.functional.pad(cost, (0, 1), value=torch.nan)
        actions = torch.cat([actions, ~completed.actions[:, :, :1]], 2)
    groups = targets.actions.shape[1] // actions.shape[2]
    own = targets.latents.expand(-1, groups, -1)  # one for each group, or one for all of them
    flat_actions = actions.flatten(1, 2).to(targets.actions.dtype)
    return replace(
        targets,
        latents=torch.cat([own, latent.expand(-1, length.shape[1], -1)], 1),
        actions=torch.cat([targets.actions, flat_actions], 1),
        weight=torch.cat([targets.weight, cost.flatten(1)], 1),
        count=targets.count + float(completed.cost.numel()),
    )
