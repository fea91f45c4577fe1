"""REINFORCE targets: all rollouts of a single policy, or the winning latents of each start."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError, shorten
from rhumbline.training.objectives.objective import TrainingObjective, TrainingStep
from rhumbline.training.objectives.targets import (
    Targets,
    find_winners,
    select_latents,
    select_winner_rows,
    sequence_count,
)

# Kernels subtract the bound of the logits, 10 / temperature, which must not exceed 40.
MIN_TEMPERATURE = 0.25


@dataclass(frozen=True)
class Reinforce(TrainingObjective):
    """REINFORCE: all rollouts of a single policy, or the winner of each start among latents."""

    baseline: Literal["starts", "second"]
    temperature: float

    refusals: ClassVar[Mapping[str, str]] = {
        "baseline": "'second' is for loss 'reinforce', not '{loss}'",
    }

    def __post_init__(self) -> None:
        if not self.temperature >= MIN_TEMPERATURE:
            raise InputError(
                f"objective.temperature is {shorten(self.temperature)}; expected at least "
                f"{MIN_TEMPERATURE} with loss 'reinforce'"
            )
        if self.temperature != 1.0 and self.certain < 1.0:
            raise InputError(
                "objective.certain is for temperature 1: near-deterministic decisions are most of "
                "those at lower ones; leave one of the two out"
            )
        if self.baseline == "second" and self.latents < 2:
            raise InputError(
                "objective.baseline 'second' needs latents of at least 2: "
                "a single latent has no second best"
            )

    @property
    def rollout_temperature(self) -> float:
        """Temperature of the step's rollouts, and of the policy that learns: on-policy."""
        return self.temperature

    @property
    def scored_temperature(self) -> float:
        """Temperature of the policy that learns."""
        return self.temperature

    def targets(self, step: TrainingStep) -> Targets:
        """Return all sequences of a single policy, and of several latents the winners."""
        if self.latents == 1:
            return pomo_targets(step.rollouts, step.latents)
        return winner_targets(step.rollouts, step.latents, self.baseline)


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
    row = winner[:, None]
    own = cost.gather(1, row)[:, 0]
    if cost.shape[2] > 1:
        means = cost.mean(2)
        baseline = means.gather(1, winner)
    else:
        baseline = torch.zeros_like(own)
    advantage = own - baseline
    return advantage * is_unique


def poppy_weight(cost: Float[Tensor, "B K S"]) -> Float[Tensor, "B S"]:
    """Return the winners' lead over the second best, as in Poppy (Grinsztajn et al. 2023).

    The second best is the baseline. A tie has no lead, so its weight is 0.
    """
    two_best = cost.topk(2, dim=1, largest=False).values
    best, second = two_best.unbind(1)
    return best - second


def pomo_targets(rollouts: Rollouts, latents: Float[Tensor, "B K Z"]) -> Targets:
    """Return every sampled sequence as a target: the objective of a single policy."""
    actions = rollouts.actions.flatten(1, 2)
    cost = rollouts.cost.flatten(1)
    weight = pomo_weight(cost)
    return Targets(latents, actions, weight, sequence_count(weight))


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
    actions = select_winner_rows(rollouts.actions, winner)
    chosen = select_latents(latents, winner)
    if baseline == "second":
        weight = poppy_weight(rollouts.cost)
        count = sequence_count(weight)
    else:
        weight = winner_weight(rollouts.cost, winner, is_unique)
        count = is_unique.sum().float()
    return Targets(chosen, actions, weight, count)
