"""Imitation targets: the best plan of each instance, locally improved, in several views."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.problems import Problem
from rhumbline.training import parallel
from rhumbline.training.config import Objective
from rhumbline.training.objectives import Targets, find_winners, select_latents


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
    all_actions = rollouts.actions.flatten(1, 2)
    actions = select_sequences(all_actions, index)
    actions = actions.long()
    if objective.improve:
        actions = problem.improve(batch, actions, objective.improve)
        cost = problem.cost(batch, actions)
    best = cost.argmin(1, keepdim=True)  # [B, 1]
    plan = select_sequences(actions, best)[:, 0]
    finder = latent.gather(1, best)
    chosen = select_latents(latents, finder)
    # The uniforms of the joint batch: several processes do what one process would have done.
    joint = len(plan) * parallel.world_size()
    count = objective.views
    shape = (joint, count, 2)
    uniforms = torch.rand(shape, generator=rng, device=plan.device)
    views = problem.views(plan, parallel.share(uniforms))
    best_costs = rollouts.cost.amin(2, keepdim=True)
    _, is_unique = find_winners(best_costs)
    steps = rollouts.actions.shape[3]
    weight = -is_unique.float() / steps
    sequences = is_unique.sum() * float(count)
    return Targets(chosen, views, weight.expand(-1, count), sequences)


def select_sequences(
    actions: Int[Tensor, "B R T"], index: Int[Tensor, "B V"]
) -> Int[Tensor, "B V T"]:
    """Return the sequences with these numbers."""
    steps = actions.shape[2]
    rows = index[..., None]
    rows = rows.expand(-1, -1, steps)
    return actions.gather(1, rows)


def select_cheapest(
    cost: Float[Tensor, "B K S"], count: int
) -> tuple[Int[Tensor, "B V"], Int[Tensor, "B V"], Float[Tensor, "B V"]]:
    """Return rollout index, latent index and cost of each instance's `count` cheapest rollouts."""
    rollout_costs = cost.flatten(1)
    values, index = rollout_costs.topk(count, dim=1, largest=False)
    starts = cost.shape[2]
    return index, index // starts, values
