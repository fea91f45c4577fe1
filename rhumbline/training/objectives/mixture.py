"""Mixture: an instance's best plans become likelier under the latents that explain them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from rhumbline.errors import InputError, shorten
from rhumbline.training.objectives.objective import TrainingObjective, TrainingStep
from rhumbline.training.objectives.reinforce import add_rivals, check_temperature
from rhumbline.training.objectives.targets import (
    Targets,
    find_winners,
    select_latents,
    select_winner_rows,
)


@dataclass(frozen=True)
class Mixture(TrainingObjective):
    """Maximum likelihood of good plans under a mixture of latents.

    REINFORCE of the winner gives all credit to the latent that happened to sample the best plan.
    If sampling is noisy, that latent is little better than a random one. Here the plan is scored
    under several latents of its instance, and each gets the share of the credit that its likelihood
    has among them. This is the gradient of the log-likelihood of the plan under their mixture.
    """

    temperature: float
    top: int
    rivals: int

    refusals: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        check_temperature(self.temperature, "mixture")
        if self.certain < 1.0:
            raise InputError(
                "objective.certain leaves out decisions that rivals are not sure of; with loss "
                "'mixture' it must be 1"
            )
        if self.rivals >= self.latents:
            raise InputError(
                f"loss 'mixture' with rivals={self.rivals} needs more latents than rivals; "
                f"objective.latents is {self.latents}"
            )
        if self.top > self.starts:
            raise InputError(
                f"objective.top is {shorten(self.top)}, but loss 'mixture' has one plan for each "
                f"of {self.starts} starts"
            )

    @property
    def rollout_temperature(self) -> float:
        """Temperature of the step's rollouts, and of the policy that learns."""
        return self.temperature

    @property
    def scored_temperature(self) -> float:
        """Temperature of the policy that learns."""
        return self.temperature

    def targets(self, step: TrainingStep) -> Targets:
        """Return the plans of the `top` best starts, each under its winner and its rivals.

        A start counts only if its winner is unique.
        """
        cost = step.rollouts.cost
        best_costs = cost.amin(1)
        starts = best_costs.topk(self.top, dim=1, largest=False).indices
        rows = starts[:, None].expand(-1, cost.shape[1], -1)
        winner, is_unique = find_winners(cost.gather(2, rows))
        plans = step.rollouts.actions
        index = rows[..., None].expand(-1, -1, -1, plans.shape[3])
        chosen = Targets(
            latents=select_latents(step.latents, winner),
            actions=select_winner_rows(plans.gather(2, index), winner),
            weight_or_cost=-is_unique.float(),
            count=is_unique.sum().float(),
        )
        return add_rivals(chosen, step.latents, winner, self.rivals)

    def loss_weights(self, targets: Targets, scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        """Return each latent's share of the credit for its plan, as a negative weight."""
        return mixture_weight(targets.weight_or_cost, scores.detach(), 1 + self.rivals)


def mixture_weight(
    weight: Float[Tensor, "B V"], scores: Float[Tensor, "B V"], group: int
) -> Float[Tensor, "B V"]:
    """Distribute the weight of each group's first sequence by likelihood.

    Under the first sequence's weight of -1, this is the gradient of minus the log-sum-exp of the
    scores of the group.
    """
    shares = scores.unflatten(1, (-1, group)).softmax(2)
    own = weight.unflatten(1, (-1, group))[..., :1]
    shared = own * shares
    return shared.flatten(1)
