"""What a training step learns from: sequences, and the weight of each one's log-probability in the
loss.

Every objective is `sum(weight * log_prob) / count` over chosen sequences; they differ in which and
with what weight. The weights carry no gradient; a positive one makes a sequence less likely. Most
come from costs alone; those of preferences (`compared`) also from the present log-probabilities, so
such targets carry costs until they are scored.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import unmark_actions
from rhumbline.record import Record

TIE_TOLERANCE = (
    1e-6  # relative; the same tour the other way round may differ in the last bit (spec 9.2)
)


@dataclass(frozen=True)
class Targets(Record):
    """Sequences to score with gradient. `count` is what the weighted sum is divided by, over all
    processes.
    """

    latents: Float[Tensor, "B K Z"]  # K divides V: sequence v belongs to latent v // (V / K)
    actions: Int[Tensor, "B V T"]
    weight: Float[Tensor, "B V"]  # or costs to be compared; nan is compared with nobody
    count: Float[Tensor, ""]
    group_size: int = (
        0  # this many sequences after one another are compared, and get their weights by that
    )
    lesson: float = (
        0.0  # above 0: after them comes a lesson, which is to become likelier by so much
    )

    def weights(self, scores: Float[Tensor, "B V"], sharpness: float) -> Float[Tensor, "B V"]:
        """The weight of each sequence in the loss, given their log-probabilities."""
        if not self.group_size:
            return self.weight
        groups = (len(scores), -1, self.group_size + (self.lesson > 0.0))
        cost = self.weight.view(groups)
        scores = scores.detach().view(groups)
        own = preference_weight(
            cost[..., : self.group_size], scores[..., : self.group_size], sharpness
        )
        return torch.cat(
            [own, -self.lesson * (~cost[..., self.group_size :].isnan()).float()], 2
        ).flatten(1)


def preference_weight(
    cost: Float[Tensor, "... S"], scores: Float[Tensor, "... S"], sharpness: float
) -> Float[Tensor, "... S"]:
    """The gradient of -log sigmoid(sharpness * (score of the cheaper - score of the dearer)),
    summed over pairs.

    Divided by the sharpness and by the number of others. By how much one is cheaper does not count,
    so a rare disaster does not drown the rest; and a pair that is ordered rightly by far no longer
    pulls.
    """
    lead = sharpness * (scores[..., :, None] - scores[..., None, :])
    pull = (cost[..., :, None] < cost[..., None, :]) * torch.sigmoid(-lead)
    return (pull.sum(-2) - pull.sum(-1)) / max(1, cost.shape[-1] - 1)


def find_winners(cost: Float[Tensor, "B K S"]) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """The cheapest latent of each (instance, start), and whether no other latent ties with it
    (spec 3.4).
    """
    best, winner = cost.min(1)
    tied = (cost <= best[:, None] * (1.0 + TIE_TOLERANCE)).sum(1) > 1
    alone = ~tied if cost.shape[1] > 1 else torch.ones_like(tied)
    return winner, alone


def random_subset(
    starts: Int[Tensor, "B S"], count: int, rng: torch.Generator
) -> Int[Tensor, "B C"]:
    """`count` different starts of each instance, all of them if there are no more."""
    order = torch.rand(starts.shape, generator=rng, device=starts.device).argsort(1)[:, :count]
    return starts.gather(1, order)


def repeat_starts(starts: Int[Tensor, "B S"], times: int) -> Int[Tensor, "B R"]:
    """Each start so many times after one another."""
    return starts[..., None].expand(-1, -1, times).flatten(1)


def truncate_targets(targets: Targets, longest: int) -> Targets:
    """Sequences cut to some length, which is less to score; one that goes on beyond it teaches
    nothing.

    Vehicle routing allows 2n actions, but plans that return to the depot after every customer are
    rare: those of 100 customers take about 112. What is over after the end is the depot, 0.
    """
    over = unmark_actions(targets.actions[:, :, longest:])[0].ne(0).any(-1)
    nothing = torch.nan if targets.group_size else 0.0
    return replace(
        targets,
        actions=targets.actions[:, :, :longest],
        weight=targets.weight.masked_fill(over, nothing),
    )
