"""Imitation targets: the best plan of each instance, locally improved, in several views."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.problems import Problem
from rhumbline.training import parallel
from rhumbline.training.config import Objective
from rhumbline.training.objectives import Targets, find_winners


def imitation_targets(
    problem: Problem[Any, Any],
    objective: Objective,
    batch: Any,
    rollouts: Rollouts,
    latents: Float[Tensor, "B K Z"],
    rng: torch.Generator,
) -> Targets:
    """Return equivalent sequences of each instance's best plan, under the latent that found it.

    The `objective.top` cheapest rollouts are improved by local search before the best is chosen.
    An instance whose best cost is found by several latents gets no weight.
    """
    index, latent, cost = select_cheapest(rollouts.cost, objective.top)
    steps = rollouts.actions.shape[3]
    rows = index[..., None].expand(-1, -1, steps)
    actions = rollouts.actions.flatten(1, 2).gather(1, rows).long()
    if objective.improve:
        actions = problem.improve(batch, actions, objective.improve)
        cost = problem.cost(batch, actions)
    best = cost.argmin(1, keepdim=True)  # [B, 1]
    plan = actions.gather(1, best[..., None].expand(-1, -1, steps))[:, 0]
    best_latent = latent.gather(1, best)[..., None].expand(-1, -1, latents.shape[2])
    chosen = latents.gather(1, best_latent)
    # The uniforms of the joint batch: several processes do what one process would have done.
    joint = len(plan) * parallel.world_size()
    uniforms = torch.rand(joint, objective.views, 2, generator=rng, device=plan.device)
    views = problem.views(plan, parallel.share(uniforms))
    _, is_unique = find_winners(rollouts.cost.amin(2, keepdim=True))
    weight = -is_unique.float().expand(-1, objective.views) / steps
    return Targets(chosen, views, weight, is_unique.sum() * float(objective.views))


def select_cheapest(
    cost: Float[Tensor, "B K S"], count: int
) -> tuple[Int[Tensor, "B V"], Int[Tensor, "B V"], Float[Tensor, "B V"]]:
    """Return rollout index, latent index and cost of each instance's `count` cheapest rollouts."""
    values, index = cost.flatten(1).topk(count, dim=1, largest=False)
    return index, index // cost.shape[2], values
