"""Elite set: the cheapest distinct plans of each instance, for searches that improve several plans.

Plans of a `DiverseSet` differ in many edges, for a user to choose from. Here two edges are enough.
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

# Costs within this factor count as one plan. A tour that begins elsewhere or runs the other way
# round differs by half of the margin.
EQUAL_COST = 1.0 + 3e-6


@dataclass(frozen=True)
class EliteSet(Record):
    """Plans of each instance. One of infinite cost is a gap: there were no more distinct plans."""

    cost: Float[Tensor, "B M"]
    actions: Int[Tensor, "B M T"]

    def joined(self, other: "EliteSet", most: int) -> "EliteSet":
        """Return the cheapest distinct plans of both sets, the very cheapest first."""
        both = concatenate_sets([self, other])
        return cheapest_distinct(both.cost, both.actions, most)

    def improved_by(
        self, cost: Float[Tensor, "B M C"], actions: Int[Tensor, "B M C T"]
    ) -> "EliteSet":
        """Replace each plan by the best of the plans that were made of it, if that is cheaper.

        Each plan keeps its place, so different plans are improved independently.
        """
        child_cost, best = cost.min(2)
        index = best[..., None, None].expand(-1, -1, 1, actions.shape[3])
        child = actions.gather(2, index)[:, :, 0]
        is_better = child_cost < self.cost
        return EliteSet(
            torch.where(is_better, child_cost, self.cost),
            torch.where(is_better[..., None], child, self.actions),
        )


def concatenate_sets(sets: Sequence[EliteSet]) -> EliteSet:
    """Return all plans of several sets, distinct or not."""
    cost = torch.cat([s.cost for s in sets], 1)
    actions = torch.cat([s.actions for s in sets], 1)
    return EliteSet(cost, actions)


def cheapest_distinct(
    cost: Float[Tensor, "B C"], actions: Int[Tensor, "B C T"], most: int
) -> EliteSet:
    """Return the cheapest plans of different cost, at most `most` for each instance."""
    cost, order = cost.sort(dim=1, stable=True)
    is_repeat = cost[:, 1:] <= cost[:, :-1] * EQUAL_COST
    others = cost[:, 1:].masked_fill(is_repeat, torch.inf)
    cost, place = torch.cat([cost[:, :1], others], 1).sort(dim=1, stable=True)
    index = order.gather(1, place[:, :most])
    return EliteSet(cost[:, :most], gather_per_instance(actions, index))


def cheapest_rollouts(rolled: Rollouts, most: int) -> EliteSet:
    """Return the cheapest distinct plans of a generation, from whatever latent and start."""
    return cheapest_distinct(rolled.cost.flatten(1), rolled.actions.flatten(1, 2), most)


def incumbent_set(task: Task) -> EliteSet:
    """Return the best plan of each instance so far, which may be the warm start."""
    assert task.account.best is not None
    return EliteSet(task.account.best[:, None], task.incumbents[:, None])
