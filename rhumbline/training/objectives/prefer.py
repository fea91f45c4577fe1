"""Preference targets: groups of rollouts of the same start that are compared with one another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError, shorten
from rhumbline.problems.costs import shift_cost
from rhumbline.training.config import TrainConfig, names_with
from rhumbline.training.objectives.neighbourhoods import resample_neighbourhoods
from rhumbline.training.objectives.objective import TrainingObjective, TrainingStep
from rhumbline.training.objectives.symmetric_copies import (
    CopySettings,
    SymmetricTarget,
    find_symmetric_target,
)
from rhumbline.training.objectives.targets import (
    TIE_TOLERANCE,
    Targets,
    find_winners,
    repeat_starts,
    select_latents,
    select_winner_rows,
    sequence_count,
)


@dataclass(frozen=True)
class Prefer(TrainingObjective):
    """Comparison of rollouts of the same start: cheaper ones become likelier than others."""

    samples: int
    trial: Literal["all", "sample", "greedy"]
    copies: int
    shared: bool
    parts: int
    lesson: float
    sharpness: float

    refusals: ClassVar[Mapping[str, str]] = {
        "copies": "is for loss 'prefer' with samples of 2 or more, which are compared",
        "shared": "is for several latents and several copies: set latents and copies",
        "parts": "is for loss 'prefer' with samples of 2 or more, which are compared",
        "samples": "is for loss 'prefer', which compares them, not '{loss}'",
        "trial": "is for loss 'prefer', not '{loss}'",
    }

    def __post_init__(self) -> None:
        self.check_copies()
        self.check_parts()
        self.check_samples()

    def check_copies(self) -> None:
        """Refuse symmetric copies whose best plan no group of samples could learn."""
        if self.copies > 1 and self.samples == 1:
            why = self.refusals["copies"]
            raise InputError(f"objective.copies {why}")
        if self.shared and (self.copies == 1 or self.latents == 1):
            why = self.refusals["shared"]
            raise InputError(f"objective.shared {why}")

    def check_parts(self) -> None:
        """Refuse re-sampled regions without comparison, or whose given actions would be scored."""
        if self.parts and self.samples == 1:
            why = self.refusals["parts"]
            raise InputError(f"objective.parts {why}")
        if self.parts and self.certain == 1.0:
            raise InputError(
                "objective.parts needs objective.certain below 1: what is given counts as certain"
            )

    def check_samples(self) -> None:
        """Refuse competitions without latents, and comparisons of a single sample."""
        if self.trial != "all" and self.latents < 2:
            raise InputError(
                f"objective.trial '{self.trial}' is a competition among latents; "
                "set latents to 2 or more"
            )
        if self.samples == 1 and (self.latents > 1 or self.starts == 1):
            raise InputError(
                "objective.samples is 1, but loss 'prefer' compares several rollouts of a latent "
                "and start"
            )

    def check_recipe(self, config: TrainConfig) -> None:
        """Refuse copies and regions that the problem does not have, or copies of half a batch."""
        super().check_recipe(config)
        traits = config.traits
        if self.copies > traits.symmetric_copies:
            raise InputError(
                "objective.copies is for tsp and, up to 4, for cvrp, which has rotated copies only"
            )
        if self.parts and not traits.has_neighbourhoods:
            able = " and ".join(names_with(lambda traits: traits.has_neighbourhoods))
            raise InputError(f"objective.parts is for {able}, whose plans have neighbourhoods")
        if config.batch % self.copies:
            raise InputError(
                f"objective.copies is {shorten(self.copies)}, which has to divide the batch "
                f"of {shorten(config.batch)}"
            )

    def check_policy(self, policy: Any) -> None:
        """Refuse to re-sample neighbourhoods with a population."""
        if self.parts and policy.architecture.members:
            raise InputError(
                "objective.parts is for a single decoder, and this policy is a population; "
                "set parts to 0"
            )

    @property
    def copies_per_instance(self) -> int:
        """Symmetric copies of each instance in a batch, side by side."""
        return self.copies

    @property
    def shares_latents(self) -> bool:
        """Whether the copies of an instance have the same latents."""
        return self.shared

    @property
    def rollouts_per_start(self) -> int:
        """Consecutive rollouts of each latent that begin with the same start."""
        return self.samples if self.trial == "all" else 1

    @property
    def rollout_temperature(self) -> float:
        """Temperature of the step's rollouts."""
        return 0.0 if self.trial == "greedy" else 1.0

    @property
    def copy_settings(self) -> CopySettings:
        """How the best plan of any copy becomes an imitation target for all copies."""
        return CopySettings(self.copies, self.rollouts_per_start, self.lesson, self.shared)

    def targets(self, step: TrainingStep) -> Targets:
        """Return groups of rollouts to compare, and what copies and neighbourhoods add to them."""
        symmetric = find_symmetric_target(
            step.rollouts, step.starts, self.copy_settings, step.domain.training.is_reversible
        )
        if self.trial == "all":
            targets = preference_targets(step.rollouts, step.latents, self.samples, symmetric)
        else:
            targets = resample_winners(step, self, symmetric)
        if not self.parts:
            return targets
        return resample_neighbourhoods(step, targets, self.parts, self.samples)

    def loss_weights(self, targets: Targets, scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        """Return the weight of each sequence, which depends on the scores of its whole group."""
        return targets.loss_weights(scores, self.sharpness)


def preference_targets(
    rollouts: Rollouts,
    latents: Float[Tensor, "B K Z"],
    samples: int,
    symmetric: SymmetricTarget | None = None,
) -> Targets:
    """Return, for each start, the compared rollouts of the latent that found the best of them.

    Consecutive groups of `samples` rollouts share their start. With one sample of each start, the
    rollouts of all starts are compared instead, the published form for a single policy. That form
    gives up on starts whose plans are worse than those of others
    (research/notebooks/training.md).
    """
    _, latent_count, rollout_count = rollouts.cost.shape
    if samples == 1:
        actions = rollouts.actions.flatten(1, 2)
        cost = rollouts.cost.flatten(1)
        return Targets(latents, actions, cost, sequence_count(cost), rollout_count)
    own, chosen, is_unique = select_winner_rollouts(rollouts, latents, samples, symmetric)
    if latent_count == 1:
        chosen = latents
    return compare_rollouts(chosen, is_unique, own, symmetric)


def select_winner_rollouts(
    rollouts: Rollouts,
    latents: Float[Tensor, "B K Z"],
    samples: int,
    symmetric: SymmetricTarget | None = None,
) -> tuple[Rollouts, Float[Tensor, "B S Z"], Bool[Tensor, "B S"]]:
    """Return each start's winning latent, its rollouts [B, S, samples], and whether it is unique.

    If the symmetric targets name learners, these are the winners. Several latents often find the
    best plan of all copies. Which of them comes first is random and does no harm.
    """
    # On a GPU, actions are a strided view, so they are split with `unflatten` instead of `view`.
    cost = rollouts.cost.unflatten(2, (-1, samples))
    actions = rollouts.actions.unflatten(2, (-1, samples))
    best_sample = cost.amin(3)
    winner, is_unique = find_winners(best_sample)
    if symmetric is not None and symmetric.learner is not None:
        winner = symmetric.learner
        is_unique = torch.ones_like(is_unique)
    own = Rollouts(
        select_winner_rows(cost, winner),
        select_winner_rows(actions, winner),
    )
    chosen = select_latents(latents, winner)
    return own, chosen, is_unique


def resample_winners(
    step: TrainingStep, objective: Prefer, symmetric: SymmetricTarget | None = None
) -> Targets:
    """Sample the winner of each start again, after one rollout per latent, and compare its samples.

    A winning rollout that was sampled belongs to the compared group. A greedy one does not, so ties
    between latents do no harm: which of the latents with the same solution comes first is random.
    """
    first, chosen, is_unique = select_winner_rollouts(step.rollouts, step.latents, 1, symmetric)
    is_greedy = objective.trial == "greedy"
    more = objective.samples if is_greedy else objective.samples - 1
    again = step.roll_out(
        chosen,
        repeat_starts(step.starts, more),
        temperature=1.0,
        attempt=objective.latents,
    )
    own = select_own_starts(again, more)
    if is_greedy:
        return compare_rollouts(chosen, torch.ones_like(is_unique), own, symmetric)
    cost = torch.cat((first.cost, own.cost), 2)
    actions = torch.cat((first.actions, own.actions), 2)
    group = Rollouts(cost, actions)
    return compare_rollouts(chosen, is_unique, group, symmetric)


def select_own_starts(again: Rollouts, samples: int) -> Rollouts:
    """Keep, of the rollouts of each winner from all starts, those from the start that it has won.

    The winners of S starts were sampled `samples` times from each of the S starts. Returns rollouts
    [B, S, samples].
    """
    starts = again.cost.shape[1]
    groups = (starts, samples)
    cost = again.cost.unflatten(2, groups)
    actions = again.actions.unflatten(2, groups)
    own_cost = cost.diagonal(0, 1, 2)
    own_actions = actions.diagonal(0, 1, 2)
    return Rollouts(
        own_cost.movedim(-1, 1),
        own_actions.movedim(-1, 1),
    )


def compare_rollouts(
    latents: Float[Tensor, "B K Z"],
    is_unique: Bool[Tensor, "B S"],
    rollouts: Rollouts,
    symmetric: SymmetricTarget | None = None,
) -> Targets:
    """Return targets that compare the rollouts [B, S, samples] of each start's winner.

    Starts without a unique winner are left out. A symmetric target is imitated wherever it is
    better than all rollouts of its start, with or without a unique winner.
    """
    cost = rollouts.cost.masked_fill(~is_unique[..., None], torch.nan)
    samples = rollouts.cost.shape[2]
    count = is_unique.sum() * float(samples)
    if symmetric is None:
        return Targets(latents, rollouts.actions.flatten(1, 2), cost.flatten(1), count, samples)
    best = rollouts.cost.amin(2, keepdim=True)
    is_better = symmetric.cost < shift_cost(best, -TIE_TOLERANCE)
    imitated_cost = symmetric.cost.masked_fill(~is_better, torch.nan)
    cost = torch.cat([cost, imitated_cost], 2)
    actions = torch.cat([rollouts.actions, symmetric.actions], 2)
    return Targets(
        latents,
        actions.flatten(1, 2),
        cost.flatten(1),
        count + is_better.sum(),
        samples,
        symmetric.weight,
    )
