"""The best different plans of each instance, for searches that work on more than the very best one.

Not a `DiverseSet`, whose plans differ in many links, for a user to choose from: here the next best
may differ in two.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.record import Record
from rhumbline.search.plan_sets.diverse import gather_per_instance
from rhumbline.search.task import Task

# relative: a tour from elsewhere or the other way round differs by half of it; one cost is one plan
SAME = 3e-6


@dataclass(frozen=True)
class EliteSet(Record):
    """Plans of each instance. One of infinite cost is a gap: there were no more that differ."""

    cost: Float[Tensor, "B M"]
    actions: Int[Tensor, "B M T"]

    def joined(self, other: "EliteSet", most: int) -> "EliteSet":
        """The cheapest different plans of both, the very cheapest first."""
        both = concatenate_sets([self, other])
        return cheapest_distinct(both.cost, both.actions, most)

    def improved_by(
        self, cost: Float[Tensor, "B M C"], actions: Int[Tensor, "B M C T"]
    ) -> "EliteSet":
        """Every plan, or the cheapest of those that were made of it: each has a line of its own."""
        least, best = cost.min(2)
        child = actions.gather(2, best[..., None, None].expand(-1, -1, 1, actions.shape[3]))[
            :, :, 0
        ]
        better = least < self.cost
        return EliteSet(
            torch.where(better, least, self.cost),
            torch.where(better[..., None], child, self.actions),
        )


def concatenate_sets(herds: Sequence[EliteSet]) -> EliteSet:
    """All plans of several, whether they differ or not."""
    return EliteSet(
        torch.cat([elite_set.cost for elite_set in herds], 1),
        torch.cat([elite_set.actions for elite_set in herds], 1),
    )


def cheapest_distinct(
    cost: Float[Tensor, "B C"], actions: Int[Tensor, "B C T"], most: int
) -> EliteSet:
    """The cheapest different ones of some plans."""
    cost, order = cost.sort(dim=1, stable=True)
    again = cost[:, 1:] <= cost[:, :-1] * (1.0 + SAME)
    cost = torch.cat([cost[:, :1], cost[:, 1:].masked_fill(again, torch.inf)], 1)
    cost, place = (x[:, :most] for x in cost.sort(dim=1, stable=True))
    return EliteSet(cost, gather_per_instance(actions, order.gather(1, place)))


def cheapest_rollouts(rolled: Rollouts, most: int) -> EliteSet:
    """The cheapest different ones of a generation."""
    return cheapest_distinct(rolled.cost.flatten(1), rolled.actions.flatten(1, 2), most)


def incumbent_set(task: Task) -> EliteSet:
    """The best plan of each instance, alone; it may have been given."""
    assert task.account.best is not None
    return EliteSet(task.account.best[:, None], task.incumbents[:, None])
