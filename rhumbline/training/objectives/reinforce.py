"""REINFORCE targets: all rollouts of a single policy, or the winning latents of each start."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError, shorten
from rhumbline.training.config import TrainConfig
from rhumbline.training.objectives.objective import TrainingObjective, TrainingStep
from rhumbline.training.objectives.targets import (
    Targets,
    find_winners,
    select_latents,
    select_winner_rows,
    sequence_count,
)


@dataclass(frozen=True)
class Reinforce(TrainingObjective):
    """REINFORCE: all rollouts of a single policy, or the winner of each start among latents."""

    baseline: Literal["starts", "second", "critic"]
    temperature: float
    contrast: float
    rivals: int

    refusals: ClassVar[Mapping[str, str]] = {
        "baseline": "'second' and 'critic' are for loss 'reinforce', not '{loss}'",
        "contrast": "is for loss 'reinforce', not '{loss}'",
        "rivals": "is for loss 'reinforce', not '{loss}'",
    }

    def __post_init__(self) -> None:
        # Kernels subtract the bound of the logits, 10 / temperature, which must not exceed 40.
        min_temperature = 0.25
        if not self.temperature >= min_temperature:
            raise InputError(
                f"objective.temperature is {shorten(self.temperature)}; expected at least "
                f"{min_temperature} with loss 'reinforce'"
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
        if self.contrast and self.rivals >= self.latents:
            raise InputError(
                f"objective.contrast with rivals={self.rivals} needs more latents than rivals; "
                f"objective.latents is {self.latents}"
            )
        if self.contrast and self.certain < 1.0:
            raise InputError(
                "objective.certain leaves out decisions that rivals are not sure of; with "
                "objective.contrast it must be 1"
            )

        if self.has_critic and (self.contrast or self.certain < 1.0 or self.temperature != 1.0):
            raise InputError(
                "objective.baseline 'critic' scores every decision at temperature 1: leave out "
                "contrast, certain and temperature"
            )

    @property
    def has_critic(self) -> bool:
        """Whether a critic is the baseline of each decision."""
        return self.baseline == "critic"

    def check_recipe(self, config: TrainConfig) -> None:
        """Refuse a critic for policies that have none."""
        super().check_recipe(config)
        if not self.has_critic or config.family.critic is not None:
            return
        able = list[str]()
        for _, domain in DOMAINS.working():
            able += [name for name, family in domain.policies.items() if family.critic]
        raise InputError(
            f"objective.baseline 'critic' is for {' and '.join(able)}; "
            f"the policy of {config.problem} has no critic"
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
        rollouts = step.rollouts
        latents = step.latents
        if self.has_critic:
            return priced_targets(rollouts, latents)
        if self.latents == 1:
            return pomo_targets(rollouts, latents)
        targets = winner_targets(rollouts, latents, self.baseline)
        if not self.contrast:
            return targets
        winner, _ = find_winners(rollouts.cost)
        return add_rivals(targets, latents, winner, self.rivals)

    def loss_weights(self, targets: Targets, scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        """Return the weights of REINFORCE, with those of the contrast if there is one."""
        weight = targets.weight_or_cost
        if not self.contrast:
            return weight
        group = 1 + self.rivals
        contrast = contrast_weight(weight, scores.detach(), group)
        return weight + self.contrast * contrast


def pomo_weight(cost: Float[Tensor, "B S"]) -> Float[Tensor, "B S"]:
    """Return cost minus its mean over starts: the shared baseline of POMO (Kwon et al. 2020)."""
    baseline = cost.mean(1, keepdim=True)
    return cost - baseline


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


def priced_targets(rollouts: Rollouts, latents: Float[Tensor, "B K Z"]) -> Targets:
    """Return the winner of each (instance, start) with its cost; nan for ties of latents.

    A single latent wins every start.
    """
    winner, is_unique = find_winners(rollouts.cost)
    cost = select_winner_rows(rollouts.cost, winner)
    cost = cost.masked_fill(~is_unique, torch.nan)
    is_single = latents.shape[1] == 1
    chosen = latents if is_single else select_latents(latents, winner)
    actions = select_winner_rows(rollouts.actions, winner)
    count = is_unique.sum().float()
    return Targets(chosen, actions, cost, count)


def winner_targets(
    rollouts: Rollouts,
    latents: Float[Tensor, "B K Z"],
    baseline: Literal["starts", "second", "critic"] = "starts",
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


def add_rivals(
    targets: Targets, latents: Float[Tensor, "B K Z"], winner: Int[Tensor, "B S"], count: int
) -> Targets:
    """Let each winner's sequence be followed by copies of it under other latents, with weight 0.

    Latents are independent draws, so those at equal distances after the winner are as good as
    random ones.
    """
    total = latents.shape[1]
    steps = torch.arange(1, count + 1, device=winner.device) * total // (count + 1)
    rivals = (winner[..., None] + steps) % total
    rival_latents = select_latents(latents, rivals.flatten(1)).unflatten(1, rivals.shape[1:])
    grouped_latents = torch.cat([targets.latents[:, :, None], rival_latents], 2)
    weight = targets.weight_or_cost[..., None]
    no_weight = torch.zeros_like(rivals, dtype=weight.dtype)
    grouped_weight = torch.cat([weight, no_weight], 2)
    return replace(
        targets,
        latents=grouped_latents.flatten(1, 2),
        actions=targets.actions.repeat_interleave(count + 1, 1),
        weight_or_cost=grouped_weight.flatten(1),
    )


def contrast_weight(
    weight: Float[Tensor, "B V"], scores: Float[Tensor, "B V"], group: int
) -> Float[Tensor, "B V"]:
    """Return the gradient of -log softmax of the winner's score among those of its group.

    The first sequence of a group is the winner. It counts if REINFORCE makes it likelier. A winner
    that is already much likelier under its own latent contributes almost nothing.
    """
    groups = scores.unflatten(1, (-1, group))
    share = groups.softmax(2)
    own = torch.zeros_like(share)
    own[..., 0] = 1.0
    is_reinforced = weight.unflatten(1, (-1, group))[..., :1] < 0.0
    contrast = (share - own) * is_reinforced
    return contrast.flatten(1)
