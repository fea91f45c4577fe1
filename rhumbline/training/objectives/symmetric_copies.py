"""Symmetric copies of an instance: the best plan found on any copy is a target for all of them."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts, unmark_actions
from rhumbline.problems.symmetry import is_mirrored, rotated_copies, symmetric_copies
from rhumbline.record import Record
from rhumbline.training.config import Objective


@dataclass(frozen=True)
class SymmetricTarget(Record):
    """A plan for each start that is worth learning, wherever it comes from.

    It is made likelier by itself, not compared: the policy would hardly ever have drawn it, and to
    put it before its own samples would first of all make these unlikely, and nothing else likelier.
    """

    cost: Float[Tensor, "B S 1"]
    actions: Int[Tensor, "B S 1 T"]
    weight: float
    learner: Int[Tensor, "B S"] | None = (
        None  # the latent that found it, if that is to learn; else whoever wins
    )


@torch.no_grad()
def find_symmetric_target(
    rolled: Rollouts, starts: Int[Tensor, "B R"], o: Objective, anywhere: bool
) -> SymmetricTarget | None:
    """The best plan of all copies of an instance, which lie next to one another, for each start of
    each: [B, S, 1].

    A tour can be begun `anywhere`, so it is the best from any start, the way round that the policy
    goes; routes cannot, so for each start it is the best of those that begin with it.
    """
    if o.copies == 1:
        return None
    samples = o.samples if o.trial == "all" else 1
    latents = rolled.cost.shape[1]
    cost = (
        rolled.cost.unflatten(0, (-1, o.copies)).unflatten(3, (-1, samples)).movedim(3, 1)
    )  # [I, S, C, K, samples]
    least, at = (cost.flatten(1)[:, None] if anywhere else cost.flatten(2)).min(2)
    each = o.copies * latents * samples  # of one start
    start = at // each if anywhere else torch.arange(at.shape[1], device=at.device).expand_as(at)
    finder = at % each // (latents * samples)
    row = torch.arange(len(at), device=at.device)[:, None] * o.copies + finder
    latent = at // samples % latents
    plan, _ = unmark_actions(rolled.actions[row, latent, start * samples + at % samples])
    least, plan, latent = (x.repeat_interleave(o.copies, 0) for x in (least, plan, latent))
    if anywhere:
        first = starts[:, ::samples]
        plan = rotate_to_starts(match_orientation(plan[:, 0], finder, o.copies), first)
        least = least.expand_as(first)
        latent = latent.expand_as(first)
    return SymmetricTarget(
        least[..., None], plan[:, :, None], o.lesson, latent if o.shared else None
    )


def match_orientation(
    tour: Int[Tensor, "B T"], finder: Int[Tensor, "I 1"], copies: int
) -> Int[Tensor, "B T"]:
    """Tours that another copy has found, the other way round where one of both is mirrored."""
    own = torch.arange(copies, device=tour.device)
    other_hand = (is_mirrored(finder) != is_mirrored(own)).flatten()[:, None]
    return torch.where(other_hand, tour.flip(1), tour)


def rotate_to_starts(tour: Int[Tensor, "B T"], starts: Int[Tensor, "B S"]) -> Int[Tensor, "B S T"]:
    """The same tour from other cities on."""
    where = (tour[:, None] == starts[..., None]).int().argmax(2, keepdim=True)
    place = (where + torch.arange(tour.shape[1], device=tour.device)) % tour.shape[1]
    return tour[:, None].expand(-1, starts.shape[1], -1).gather(2, place)


def make_symmetric_copies(batch: Any, copies: int, anywhere: bool) -> Any:
    """Instances of a routing problem seen from several sides, each next to its copies; rollouts of
    all differ.

    They are mirrored only if plans can be begun `anywhere`: a policy goes round one way, so that
    plans of a mirrored copy have to be reversed, which a tour can be and routes from a given
    customer on cannot.
    """
    if copies == 1:
        return batch
    own = torch.arange(copies, device=batch.key.device)
    views = symmetric_copies(batch, copies) if anywhere else rotated_copies(batch, copies)
    return replace(views, key=(batch.key[:, None] * copies + own).flatten())
