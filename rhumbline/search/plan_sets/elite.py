"""Elite set: the cheapest distinct plans of each instance, for searches that improve several plans.

Plans of a `DiverseSet` differ in many edges, for a user to choose from. Here two edges are enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.problems.costs import shift_cost
from rhumbline.record import Record
from rhumbline.search.plan_sets.diverse import gather_per_instance
from rhumbline.search.task import Task

# Costs within this share count as one plan. A tour that begins elsewhere or runs the other way
# round differs by half of it.
EQUAL_COST_SHARE = 3e-6


@dataclass(frozen=True)
class EliteSet(Record):
    """Plans of each instance. One of infinite cost is a gap: there were no more distinct plans."""

    cost: Float[Tensor, "B M"]
    actions: Int[Tensor, "B M T"]

    def merge(self, other: "EliteSet", most: int) -> "EliteSet":
        """Return the cheapest distinct plans of both sets, the very cheapest first."""
        both = concatenate_sets([self, other])
        return select_distinct(both.cost, both.actions, most)

    def improve_with(
        self, cost: Float[Tensor, "B M C"], actions: Int[Tensor, "B M C T"]
    ) -> "EliteSet":
        """Replace each plan by the best of the plans that were made of it, if that is cheaper.

        Each plan keeps its place, so different plans are improved independently.
        """
        child_cost, best = cost.min(2)
        steps = actions.shape[3]
        index = best[..., None, None]
        index = index.expand(-1, -1, 1, steps)
        children = actions.gather(2, index)
        child = children[:, :, 0]
        is_better = child_cost < self.cost
        new_cost = torch.where(is_better, child_cost, self.cost)
        is_better = is_better[..., None]
        new_actions = torch.where(is_better, child, self.actions)
        return EliteSet(new_cost, new_actions)


def concatenate_sets(sets: Sequence[EliteSet]) -> EliteSet:
    """Return all plans of several sets, distinct or not."""
    costs = [plans.cost for plans in sets]
    actions = [plans.actions for plans in sets]
    cost = torch.cat(costs, 1)
    return EliteSet(cost, torch.cat(actions, 1))


def select_distinct(
    cost: Float[Tensor, "B C"], actions: Int[Tensor, "B C T"], most: int
) -> EliteSet:
    """Return the cheapest plans of different cost, at most `most` for each instance."""
    cost, order = cost.sort(dim=1, stable=True)
    first = cost[:, :1]
    others = cost[:, 1:]
    before = cost[:, :-1]
    limit = shift_cost(before, EQUAL_COST_SHARE)
    is_repeat = others <= limit
    others = others.masked_fill(is_repeat, torch.inf)
    cost = torch.cat([first, others], 1)
    cost, place = cost.sort(dim=1, stable=True)
    cost = cost[:, :most]
    index = order.gather(1, place[:, :most])
    actions = gather_per_instance(actions, index)
    return EliteSet(cost, actions)


def cheapest_rollouts(rolled: Rollouts, most: int) -> EliteSet:
    """Return the cheapest distinct plans of a generation, from whatever latent and start."""
    cost = rolled.cost.flatten(1)
    actions = rolled.actions.flatten(1, 2)
    return select_distinct(cost, actions, most)


def incumbent_set(task: Task) -> EliteSet:
    """Return the best plan of each instance so far, which may be the warm start."""
    cost = task.account.best
    assert cost is not None
    actions = task.incumbents
    return EliteSet(cost[:, None], actions[:, None])
