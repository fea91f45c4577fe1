"""Targets of a training step: sequences, and the weight of each one's log-probability in the loss.

Every objective has the form `sum(weight * log_prob) / count` over chosen sequences. Objectives
differ in the sequences and in the weights. Weights carry no gradient, and a positive weight makes
its sequence less likely. Most weights follow from costs alone. Weights of preferences also depend
on the current log-probabilities, so their targets hold costs until the sequences are scored.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from rhumbline.decoding import unmark_actions
from rhumbline.problems.costs import shift_cost
from rhumbline.record import Record

# Relative difference up to which two costs, of either sign, tie. The cost of a tour and of its
# reverse may differ in the last bit.
TIE_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Targets(Record):
    """Sequences that a step scores with gradient, and the numbers that give their weights."""

    # K divides V: sequence v belongs to latent v // (V / K).
    latents: Float[Tensor, "B K Z"]
    actions: Int[Tensor, "B V T"]
    # Without groups: the weight of each sequence in the loss. With groups: its cost, from which
    # `loss_weights` computes the weight; a sequence whose cost is nan takes part in no comparison.
    weight_or_cost: Float[Tensor, "B V"]
    # Divisor of the weighted sum, over all processes.
    count: Float[Tensor, ""]
    # Consecutive sequences that form a group and are compared with one another. 0: no groups.
    group_size: int = 0
    # If positive, every group ends with one more sequence, which is imitated with this weight.
    imitation_weight: float = 0.0

    def loss_weights(self, scores: Float[Tensor, "B V"], sharpness: float) -> Float[Tensor, "B V"]:
        """Return the weight of each sequence in the loss, given the log-probabilities `scores`."""
        if not self.group_size:
            return self.weight_or_cost
        size = self.group_size
        has_imitated = self.imitation_weight > 0.0
        groups = (len(scores), -1, size + has_imitated)
        cost = self.weight_or_cost.view(groups)
        scores = scores.detach().view(groups)
        compared = preference_weight(
            cost[..., :size],
            scores[..., :size],
            sharpness,
        )
        is_imitated = ~cost[..., size:].isnan()
        imitated = -self.imitation_weight * is_imitated.float()
        weights = torch.cat([compared, imitated], 2)
        return weights.flatten(1)


def preference_weight(
    cost: Float[Tensor, "... S"], scores: Float[Tensor, "... S"], sharpness: float
) -> Float[Tensor, "... S"]:
    """Return the gradient of the pairwise preference loss with respect to the scores.

    The loss of a pair is -log sigmoid(sharpness * (score of the cheaper - score of the other)). The
    sum over pairs is divided by the sharpness and by the number of other sequences. The size of a
    cost difference does not matter, so a rare bad rollout does not dominate. A pair that is already
    ordered with a large margin contributes almost nothing.
    """
    own = scores.unsqueeze(-1)
    other = scores.unsqueeze(-2)
    lead = sharpness * (own - other)
    own_cost = cost.unsqueeze(-1)
    other_cost = cost.unsqueeze(-2)
    is_cheaper = own_cost < other_cost
    pull = is_cheaper * torch.sigmoid(-lead)
    lost = pull.sum(-2)
    won = pull.sum(-1)
    others = max(1, cost.shape[-1] - 1)
    return (lost - won) / others


def find_winners(cost: Float[Tensor, "B K S"]) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """Return the cheapest latent of each (instance, start), and whether no other latent ties.

    See Chalumeau et al. 2023, eq. 1 and appendix F (ties). A single latent never ties.
    """
    best, winner = cost.min(1)
    limit = shift_cost(best[:, None], TIE_TOLERANCE)
    is_best = cost <= limit
    is_tied = is_best.sum(1) > 1
    if cost.shape[1] == 1:
        return winner, torch.ones_like(is_tied)
    return winner, ~is_tied


def select_winner_rows(
    values: Shaped[Tensor, "B K S *more"], winner: Int[Tensor, "B S"]
) -> Shaped[Tensor, "B S *more"]:
    """Return the values of each start's winning latent."""
    more = values.shape[3:]
    rows = winner.unsqueeze(1)
    for _ in more:
        rows = rows.unsqueeze(-1)
    rows = rows.expand(-1, 1, -1, *more)
    chosen = values.gather(1, rows)
    return chosen[:, 0]


def select_latents(
    latents: Float[Tensor, "B K Z"], index: Int[Tensor, "B S"]
) -> Float[Tensor, "B S Z"]:
    """Return the latents with these numbers."""
    size = latents.shape[2]
    rows = index[..., None]
    rows = rows.expand(-1, -1, size)
    return latents.gather(1, rows)


def sequence_count(weight: Float[Tensor, "B V"]) -> Float[Tensor, ""]:
    """Return the number of sequences as a tensor on their device."""
    count = float(weight.numel())
    return torch.full((), count, device=weight.device)


def random_subset(
    starts: Int[Tensor, "B S"], count: int, rng: torch.Generator
) -> Int[Tensor, "B C"]:
    """Draw `count` distinct starts of each instance, or all of them if there are no more."""
    uniforms = torch.rand(starts.shape, generator=rng, device=starts.device)
    order = uniforms.argsort(1)
    chosen = order[:, :count]
    return starts.gather(1, chosen)


def repeat_starts(starts: Int[Tensor, "B S"], times: int) -> Int[Tensor, "B R"]:
    """Repeat each start `times` times in a row."""
    copies = starts[..., None]
    copies = copies.expand(-1, -1, times)
    return copies.flatten(1)


def truncate_targets(targets: Targets, longest: int) -> Targets:
    """Cut sequences to `longest` actions; a sequence that needs more actions gets no weight.

    Shorter sequences cost less to score. CVRP allows 2n actions, but plans that return to the depot
    after every customer are rare: those of 100 customers take about 112 actions. The actions after
    the end of a plan are the depot, 0.
    """
    rest, _ = unmark_actions(targets.actions[:, :, longest:])
    is_too_long = rest.ne(0).any(-1)
    no_weight = torch.nan if targets.group_size else 0.0
    weight_or_cost = targets.weight_or_cost.masked_fill(is_too_long, no_weight)
    return replace(
        targets,
        actions=targets.actions[:, :, :longest],
        weight_or_cost=weight_or_cost,
    )
