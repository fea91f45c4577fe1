"""What a training step learns from: sequences, and the weight of each one's log-probability in the loss.

Every objective is `sum(weight * log_prob) / count` over chosen sequences; they differ in which and with what weight.
The weights come from costs alone and carry no gradient. A positive weight makes a sequence less likely.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.record import Record

TIE = 1e-6  # relative; the same tour the other way round may differ in the last bit (spec 9.2)


@dataclass(frozen=True)
class Targets(Record):
    """Sequences to score with gradient. `count` is what the weighted sum is divided by, over all processes."""

    latents: Float[Tensor, "B K Z"]  # K divides V: sequence v belongs to latent v // (V / K)
    actions: Int[Tensor, "B V T"]
    weight: Float[Tensor, "B V"]
    count: Float[Tensor, ""]


def pomo_weight(cost: Float[Tensor, "B S"]) -> Float[Tensor, "B S"]:
    """REINFORCE with the mean over starts as baseline (spec 3.2)."""
    return cost - cost.mean(1, keepdim=True)


@lru_cache(maxsize=4)
def best_of_shares(count: int, among: int, device: torch.device) -> Float[Tensor, "N N"]:
    """[i, j]: the share of sample j's cost in what sample i answers for, both in order from the dearest.

    The mean of the best of `among` samples, over all such groups of `count` sorted samples, is a weighted sum of their
    costs; sample i answers for the groups it is in. In each the best counts: i itself, or some j after it.
    """
    groups = math.comb(count, among)
    own = [math.comb(i, among - 1) / groups for i in range(count)]
    beside = [math.comb(j - 1, among - 2) / groups if among > 1 and j else 0.0 for j in range(count)]
    after = torch.tensor(beside, dtype=torch.float64).expand(count, count).triu(1)
    return (torch.diag(torch.tensor(own, dtype=torch.float64)) + after).float().to(device)


def best_of_weight(cost: Float[Tensor, "B S"], among: int) -> Float[Tensor, "B S"]:
    """REINFORCE for the expected best of `among` samples instead of their mean; with 1 it is `pomo_weight`."""
    if among == 1:
        return pomo_weight(cost)
    order = cost.argsort(1, descending=True)
    shares = best_of_shares(cost.shape[1], among, cost.device)  # made before any step is recorded as a graph
    # Costs relative to their mean: the shares cancel large common parts badly in float32.
    answered = pomo_weight(cost).gather(1, order) @ shares.T * cost.shape[1]
    return pomo_weight(torch.empty_like(cost).scatter_(1, order, answered))


def preference_weight(
    cost: Float[Tensor, "B S"], scores: Float[Tensor, "B S"], sharpness: float
) -> Float[Tensor, "B S"]:
    """The gradient of -log sigmoid(sharpness * (score of the cheaper - score of the dearer)), mean over all pairs.

    Divided by the sharpness. A pair that the policy orders rightly by far pulls no longer; by how much one is cheaper
    does not count.
    """
    lead = sharpness * (scores[:, :, None] - scores[:, None, :])
    pull = (cost[:, :, None] < cost[:, None, :]) * torch.sigmoid(-lead)
    return (pull.sum(1) - pull.sum(2)) / max(1, cost.shape[1] - 1)


def winners(cost: Float[Tensor, "B K S"]) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """The cheapest latent of each (instance, start), and whether no other latent ties with it (spec 3.4)."""
    best, winner = cost.min(1)
    tied = (cost <= best[:, None] * (1.0 + TIE)).sum(1) > 1
    alone = ~tied if cost.shape[1] > 1 else torch.ones_like(tied)
    return winner, alone


def winner_weight(
    cost: Float[Tensor, "B K S"], winner: Int[Tensor, "B S"], alone: Bool[Tensor, "B S"]
) -> Float[Tensor, "B S"]:
    """REINFORCE on the winners; eq. 1 of the paper. The baseline is the winning latent's own mean over starts.

    With one start there is no baseline. Ties train nobody (appendix F).
    """
    own = cost.gather(1, winner[:, None])[:, 0]
    baseline = cost.mean(2).gather(1, winner) if cost.shape[2] > 1 else torch.zeros_like(own)
    return (own - baseline) * alone


def lead_weight(cost: Float[Tensor, "B K S"]) -> Float[Tensor, "B S"]:
    """REINFORCE on the winners with the second best as baseline: Poppy's own (spec 3.3). A tie weighs nothing."""
    best = cost.topk(2, dim=1, largest=False).values
    return best[:, 0] - best[:, 1]


def all_starts(rolled: Rollouts, latents: Float[Tensor, "B K Z"], among: int = 1, scored: int = 0) -> Targets:
    """Single policy: every sampled sequence, or those that weigh most."""
    weight, actions = best_of_weight(rolled.cost.flatten(1), among), rolled.actions.flatten(1, 2)
    if scored:
        index = weight.abs().topk(scored, dim=1).indices
        weight = weight.gather(1, index)
        actions = actions.gather(1, index[..., None].expand(-1, -1, actions.shape[2]))
    return Targets(latents, actions, weight, torch.full((), float(weight.numel()), device=weight.device))


def best_latents(
    rolled: Rollouts, latents: Float[Tensor, "B K Z"], baseline: Literal["starts", "second"] = "starts"
) -> Targets:
    """Latent space and population, as published: the winner of each (instance, start) learns by REINFORCE.

    The baseline is the winner's own mean over starts, and ties train nobody; or the second best of the same start, and
    then every start counts in the mean.
    """
    winner, alone = winners(rolled.cost)
    steps = rolled.actions.shape[3]
    actions = rolled.actions.gather(1, winner[:, None, :, None].expand(-1, 1, -1, steps))[:, 0]
    chosen = latents.gather(1, winner[..., None].expand(-1, -1, latents.shape[2]))
    if baseline == "second":
        weight = lead_weight(rolled.cost)
        return Targets(chosen, actions, weight, torch.full((), float(weight.numel()), device=weight.device))
    return Targets(chosen, actions, winner_weight(rolled.cost, winner, alone), alone.sum().float())


def shortened(targets: Targets, longest: int) -> Targets:
    """Sequences cut to some length, which is less to score; one that goes on beyond it gets no weight.

    Vehicle routing allows 2n actions, but plans that return to the depot after every customer are rare: those of 100
    customers take about 112. What is over after the end is the depot, 0.
    """
    over = targets.actions[:, :, longest:].ne(0).any(-1)
    return replace(targets, actions=targets.actions[:, :, :longest], weight=targets.weight * ~over)


def cheapest(
    cost: Float[Tensor, "B K S"], count: int
) -> tuple[Int[Tensor, "B V"], Int[Tensor, "B V"], Float[Tensor, "B V"]]:
    """Rollout index, latent index and cost of the `count` cheapest rollouts of each instance."""
    values, index = cost.flatten(1).topk(count, dim=1, largest=False)
    return index, index // cost.shape[2], values
