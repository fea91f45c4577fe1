"""Targets from neighbourhoods of good plans, which the policy re-samples as an LNS would."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from rhumbline.decoding import Rollouts, unmark_actions
from rhumbline.decoding.neighbourhoods import neighbourhood_prefixes
from rhumbline.training import parallel
from rhumbline.training.objectives.objective import TrainingStep
from rhumbline.training.objectives.targets import Targets


def resample_neighbourhoods(
    step: TrainingStep, targets: Targets, count: int, samples: int
) -> Targets:
    """Add `count` re-sampled neighbourhoods of each instance's best plan to compared targets.

    Each is completed `samples` times, under the latent that found the plan.
    """
    plan, latent = select_best_plans(step.rollouts, step.latents)
    # The uniforms of the joint batch: several processes do what one process would have done.
    joint = len(plan) * parallel.world_size()
    shape = (joint, count, 2)
    uniforms = torch.rand(shape, generator=step.rng, device=plan.device)
    own_uniforms = parallel.share(uniforms)
    make_prefixes = step.domain.require("neighbourhoods", "objective.parts")
    prefixes = neighbourhood_prefixes(
        make_prefixes,
        step.batch.xy,
        plan.long(),
        own_uniforms,
        both=False,
    )
    completed = step.complete(latent, prefixes, samples)
    by_neighbourhood = completed.map(lambda x: x[:, 0].unflatten(1, (-1, samples)))
    return append_neighbourhoods(targets, latent, prefixes.length, by_neighbourhood)


def select_best_plans(
    rollouts: Rollouts, latents: Float[Tensor, "B K Z"]
) -> tuple[Int[Tensor, "B T"], Float[Tensor, "B 1 Z"]]:
    """Return the cheapest rollout of each instance, and the latent that found it."""
    row = torch.arange(len(latents), device=latents.device)
    place = rollouts.cost.flatten(1).argmin(1)
    starts = rollouts.cost.shape[2]
    latent = place // starts
    start = place % starts
    actions = rollouts.actions[row, latent, start]
    plan, _ = unmark_actions(actions)
    chosen = latents[row, latent]
    return plan, chosen[:, None]


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
    count = float(cost.numel())
    actions = mark_given_actions(completed.actions, length)
    if targets.imitation_weight:
        cost = pad(cost, (0, 1), value=torch.nan)
        marks = ~completed.actions[:, :, :1]
        actions = torch.cat([actions, marks], 2)
    groups = targets.actions.shape[1] // actions.shape[2]
    # One latent for each group, or one for all of them.
    own = targets.latents.expand(-1, groups, -1)
    finders = latent.expand(-1, length.shape[1], -1)
    flat_actions = actions.flatten(1, 2)
    flat_actions = flat_actions.to(targets.actions.dtype)
    return replace(
        targets,
        latents=torch.cat([own, finders], 1),
        actions=torch.cat([targets.actions, flat_actions], 1),
        weight_or_cost=torch.cat([targets.weight_or_cost, cost.flatten(1)], 1),
        count=targets.count + count,
    )


def mark_given_actions(
    actions: Int[Tensor, "B A samples T"], length: Int[Tensor, "B A"]
) -> Int[Tensor, "B A samples T"]:
    """Mark the first `length` actions of each sequence, and the depots after its end."""
    steps = torch.arange(actions.shape[3], device=length.device)
    visited = torch.where(actions != 0, steps, 0)
    last = visited.amax(3, keepdim=True)
    is_own = steps >= length[..., None, None]
    is_before_end = steps <= last
    is_decided = is_own & is_before_end
    return torch.where(is_decided, actions, ~actions)
