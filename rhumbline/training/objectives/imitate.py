"""Imitation targets: the best plan of each instance, locally improved, in several views."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.errors import InputError, shorten
from rhumbline.training import parallel
from rhumbline.training.objectives.objective import TrainingObjective, TrainingStep
from rhumbline.training.objectives.targets import Targets, find_winners, select_latents


@dataclass(frozen=True)
class Imitate(TrainingObjective):
    """Imitation of each instance's best plan, by the latent that found it."""

    temperature: float
    top: int
    improve: int
    views: int

    refusals: ClassVar[Mapping[str, str]] = {
        "temperature": "must be 1 with loss '{loss}'",
    }
    reads_back: ClassVar[bool] = True
    can_truncate: ClassVar[bool] = False
    marks_rollouts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        sampled = self.latents * self.starts
        if self.top > sampled:
            raise InputError(
                f"objective.top is {shorten(self.top)}, but a step samples {sampled} per instance"
            )

    @property
    def rollout_temperature(self) -> float:
        """Temperature of the step's rollouts: imitation is off-policy anyway."""
        return self.temperature

    def targets(self, step: TrainingStep) -> Targets:
        """Return equivalent sequences of each instance's best plan, under the finder's latent.

        The `top` cheapest rollouts are improved by local search before the best is chosen. An
        instance whose best cost is found by several latents gets no weight.
        """
        problem = step.problem
        rollouts = step.rollouts
        index, latent, cost = select_cheapest(rollouts.cost, self.top)
        all_actions = rollouts.actions.flatten(1, 2)
        actions = select_sequences(all_actions, index)
        actions = actions.long()
        if self.improve:
            actions = problem.improve(step.batch, actions, self.improve)
            cost = problem.cost(step.batch, actions)
        best = cost.argmin(1, keepdim=True)  # [B, 1]
        plan = select_sequences(actions, best)[:, 0]
        finder = latent.gather(1, best)
        chosen = select_latents(step.latents, finder)
        # The uniforms of the joint batch: several processes do what one process would have done.
        joint = len(plan) * parallel.world_size()
        shape = (joint, self.views, 2)
        uniforms = torch.rand(shape, generator=step.rng, device=plan.device)
        views = problem.views(plan, parallel.share(uniforms))
        best_costs = rollouts.cost.amin(2, keepdim=True)
        _, is_unique = find_winners(best_costs)
        length = rollouts.actions.shape[3]
        weight = -is_unique.float() / length
        sequences = is_unique.sum() * float(self.views)
        return Targets(chosen, views, weight.expand(-1, self.views), sequences)


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
