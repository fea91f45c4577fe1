"""The best different plans of each instance, for searches that work on more than the very best one.

Not a `Pool`, whose plans differ in many links, for a user to choose from: here the next best may differ in two.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.record import Record
from rhumbline.search.plan_sets.diverse import pick
from rhumbline.search.task import Task

SAME = 3e-6  # relative: a tour from elsewhere or the other way round differs by half of it; one cost is one plan


@dataclass(frozen=True)
class Herd(Record):
    """Plans of each instance. One of infinite cost is a gap: there were no more that differ."""

    cost: Float[Tensor, "B M"]
    actions: Int[Tensor, "B M T"]

    def joined(self, other: "Herd", most: int) -> "Herd":
        """The cheapest different plans of both, the very cheapest first."""
        both = together([self, other])
        return cheapest(both.cost, both.actions, most)

    def followed(self, cost: Float[Tensor, "B M C"], actions: Int[Tensor, "B M C T"]) -> "Herd":
        """Every plan, or the cheapest of those that were made of it: each has a line of its own."""
        least, best = cost.min(2)
        child = actions.gather(2, best[..., None, None].expand(-1, -1, 1, actions.shape[3]))[:, :, 0]
        better = least < self.cost
        return Herd(torch.where(better, least, self.cost), torch.where(better[..., None], child, self.actions))


def together(herds: Sequence[Herd]) -> Herd:
    """All plans of several, whether they differ or not."""
    return Herd(torch.cat([herd.cost for herd in herds], 1), torch.cat([herd.actions for herd in herds], 1))


def cheapest(cost: Float[Tensor, "B C"], actions: Int[Tensor, "B C T"], most: int) -> Herd:
    """The cheapest different ones of some plans."""
    cost, order = cost.sort(dim=1, stable=True)
    again = cost[:, 1:] <= cost[:, :-1] * (1.0 + SAME)
    cost = torch.cat([cost[:, :1], cost[:, 1:].masked_fill(again, torch.inf)], 1)
    cost, place = (x[:, :most] for x in cost.sort(dim=1, stable=True))
    return Herd(cost, pick(actions, order.gather(1, place)))


def cheapest_of(rolled: Rollouts, most: int) -> Herd:
    """The cheapest different ones of a generation."""
    return cheapest(rolled.cost.flatten(1), rolled.actions.flatten(1, 2), most)


def incumbents(task: Task) -> Herd:
    """The best plan of each instance, alone; it may have been given."""
    assert task.ledger.best is not None
    return Herd(task.ledger.best[:, None], task.incumbents[:, None])
