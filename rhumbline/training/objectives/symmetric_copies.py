"""Symmetric copies of an instance: the best plan found on any copy is a target for all of them."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts, unmark_actions
from rhumbline.problems.symmetry import is_mirrored, rotated_copies, symmetric_copies
from rhumbline.record import Record


@dataclass(frozen=True)
class CopySettings:
    """How the best plan of any copy becomes an imitation target for all copies."""

    copies: int
    samples: int  # consecutive rollouts of each latent that share their start
    weight: float  # of imitating the best plan
    only_finder: bool  # whether only the latent that found the plan learns it


@dataclass(frozen=True)
class SymmetricTarget(Record):
    """For each start, the best plan found on any copy of the instance.

    It is imitated instead of compared. The policy itself would hardly ever sample this plan, so a
    comparison would mostly make the policy's own samples less likely.
    """

    cost: Float[Tensor, "B S 1"]
    actions: Int[Tensor, "B S 1 T"]
    weight: float
    # The latent that found the plan and learns it. None: the winner of the start learns it.
    learner: Int[Tensor, "B S"] | None = None


@torch.no_grad()
def find_symmetric_target(
    rollouts: Rollouts, starts: Int[Tensor, "B R"], settings: CopySettings, start_anywhere: bool
) -> SymmetricTarget | None:
    """Return the best plan of all copies of each instance, for each start of each copy.

    Copies of an instance are neighbours in the batch. A TSP tour can `start_anywhere`: its target
    is the best tour from any start, in the direction of the copy. A CVRP plan can begin with few of
    the customers, so the target of a start is the best plan that was found from it.
    """
    copies = settings.copies
    samples = settings.samples
    if copies == 1:
        return None
    latents = rollouts.cost.shape[1]
    by_copy = rollouts.cost.unflatten(0, (-1, copies))
    by_start = by_copy.unflatten(3, (-1, samples))
    cost = by_start.movedim(3, 1)  # [I, S, C, K, samples]
    candidates = cost.flatten(1)[:, None] if start_anywhere else cost.flatten(2)
    best, place = candidates.min(2)
    per_copy = latents * samples
    per_start = copies * per_copy
    if start_anywhere:
        start = place // per_start
    else:
        starts_in_order = torch.arange(place.shape[1], device=place.device)
        start = starts_in_order.expand_as(place)
    finder = place % per_start // per_copy  # the copy that found the plan
    instance = torch.arange(len(place), device=place.device)
    row = instance[:, None] * copies + finder
    latent = place // samples % latents
    rollout = start * samples + place % samples
    plan, _ = unmark_actions(rollouts.actions[row, latent, rollout])
    best = best.repeat_interleave(copies, 0)
    plan = plan.repeat_interleave(copies, 0)
    latent = latent.repeat_interleave(copies, 0)
    if start_anywhere:
        first = starts[:, ::samples]
        tour = match_orientation(plan[:, 0], finder, copies)
        plan = rotate_to_starts(tour, first)
        best = best.expand_as(first)
        latent = latent.expand_as(first)
    return SymmetricTarget(
        best[..., None],
        plan[:, :, None],
        settings.weight,
        latent if settings.only_finder else None,
    )


def match_orientation(
    tour: Int[Tensor, "B T"], finder: Int[Tensor, "I 1"], copies: int
) -> Int[Tensor, "B T"]:
    """Reverse tours whose finder is mirrored with respect to the copy that is to learn them."""
    own = torch.arange(copies, device=tour.device)
    is_opposite = is_mirrored(finder) != is_mirrored(own)
    row = is_opposite.flatten()
    reverse = tour.flip(1)
    return torch.where(row[:, None], reverse, tour)


def rotate_to_starts(tour: Int[Tensor, "B T"], starts: Int[Tensor, "B S"]) -> Int[Tensor, "B S T"]:
    """Return the same tour, beginning with each of the given cities."""
    cities = tour.shape[1]
    row = tour[:, None]
    is_start = row == starts[..., None]
    first = is_start.int().argmax(2, keepdim=True)
    offset = torch.arange(cities, device=tour.device)
    place = (first + offset) % cities
    count = starts.shape[1]
    tours = row.expand(-1, count, -1)
    return tours.gather(2, place)


def make_symmetric_copies(batch: Any, copies: int, start_anywhere: bool) -> Any:
    """Return a routing batch in which each instance is followed by its symmetric copies.

    Every copy has an instance key, and so random numbers, of its own. Instances are mirrored only
    if plans can `start_anywhere`. A policy builds tours in one direction, so the other copies learn
    the plan of a mirrored copy in reverse. A reversed tour can still begin at any city. A reversed
    route begins with its last customer, so it is no target for the start that found it.
    """
    if copies == 1:
        return batch
    make_views = symmetric_copies if start_anywhere else rotated_copies
    views = make_views(batch, copies)
    number = torch.arange(copies, device=batch.key.device)
    first = batch.key[:, None] * copies
    key = first + number
    key = key.flatten()
    return replace(views, key=key)
