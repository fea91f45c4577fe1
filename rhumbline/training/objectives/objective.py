"""The base class of objectives, and what a mini-step offers them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import Prefixes, Rollouts
from rhumbline.domain import Domain
from rhumbline.errors import InputError
from rhumbline.problems import Problem
from rhumbline.training.config import TrainConfig, names_with
from rhumbline.training.objectives.targets import Targets


@dataclass(frozen=True)
class TrainingStep:
    """A mini-step as an objective sees it: its rollouts, and ways to make more of them."""

    domain: Domain
    problem: Problem[Any, Any]
    batch: Any
    latents: Float[Tensor, "B K Z"]
    starts: Int[Tensor, "B R"]  # of the rollouts of each latent
    rollouts: Rollouts
    rng: torch.Generator  # the same in all processes
    # Rolls out the batch from given latents and starts; takes options of `decoding.rollout`.
    roll_out: Callable[..., Rollouts]
    # Completes prefixes [B, A, T] under one latent for each instance. The number is of completions
    # of each prefix.
    complete: Callable[[Tensor, Prefixes, int], Rollouts]


@dataclass(frozen=True)
class TrainingObjective:
    """What a step samples, and the sequences that it learns from.

    Fields have the names of the settings in a recipe's table `objective`, which documents them
    (`training.config.Objective`) and checks the range of each. An objective checks whether its
    settings fit together, when it is built, and whether they fit the recipe, in `check_recipe`.
    """

    latents: int
    starts: int
    certain: float

    # Why settings that only this objective has are refused with another `{loss}`.
    refusals: ClassVar[Mapping[str, str]] = {}
    # Whether `targets` reads results back from the device, which a recorded graph cannot do.
    reads_back: ClassVar[bool] = False
    # Whether sequences may be cut to `objective.longest` actions.
    can_truncate: ClassVar[bool] = True
    # Whether rollouts mark near-deterministic decisions, which saves the work of scoring them.
    # Plans that are priced and improved cannot have marks.
    marks_rollouts: ClassVar[bool] = True

    @property
    def has_critic(self) -> bool:
        """Whether a critic is trained, whose values are the baseline of each decision.

        Then `targets` returns the cost of each sequence instead of its weight, nan for none.
        """
        return False

    @property
    def copies_per_instance(self) -> int:
        """Symmetric copies of each instance in a batch, side by side."""
        return 1

    @property
    def shares_latents(self) -> bool:
        """Whether the copies of an instance have the same latents."""
        return False

    @property
    def rollouts_per_start(self) -> int:
        """Consecutive rollouts of each latent that begin with the same start."""
        return 1

    @property
    def rollout_temperature(self) -> float:
        """Temperature of the step's rollouts. Other values than 1 make gradients off-policy."""
        return 1.0

    @property
    def scored_temperature(self) -> float:
        """Temperature of the policy whose log-probabilities are learnt."""
        return 1.0

    def check_recipe(self, config: TrainConfig) -> None:
        """Refuse a recipe whose problem or batch does not suit the objective."""
        is_cut = config.objective.longest > 0
        if is_cut and not (self.can_truncate and config.traits.pads_plans):
            able = " and ".join(names_with(lambda traits: traits.pads_plans))
            raise InputError(
                "objective.longest cuts vehicle routes after their end: "
                f"for {able}, and not loss 'imitate'"
            )

    def check_policy(self, policy: Any) -> None:
        """Refuse a policy that the objective cannot train."""

    def targets(self, step: TrainingStep) -> Targets:
        """Choose the sequences that a step learns from, before truncation; without gradient."""
        raise NotImplementedError

    def loss_weights(self, targets: Targets, scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        """Return the weight of each sequence in the loss, given the log-probabilities `scores`."""
        return targets.weight_or_cost
