"""Diverse set: the best plans of a search that differ enough from one another, kept on its device.

Two plans are similar if they share more than 95 % of their edges. The cheapest plan is kept, then
the cheapest that is not similar to it, and so on while there is room. A search proceeds in steps,
so plans similar to one that is dropped later do not come back. Everything is done with batched
tensor operations on the cheapest new plans, without waiting for the device.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.search.plan_sets.similarity import PlanTools, edge_similarity


@dataclass(frozen=True)
class DiverseTuning:
    """What counts as different, and how many plans are compared."""

    min_edge_difference: float = 0.05  # different plans differ in one edge of twenty
    max_elements: int = 1 << 26  # edges that are compared at once
    candidates_considered: int = 2048  # new plans per instance: most of the cheapest may be equal
    min_distinct: int = 128  # distinct new plans that are kept for the comparison ...
    distinct_per_place: int = 2  # ... or so many for each place: most of them are similar


TUNING = DiverseTuning()


@dataclass
class DiverseSet:
    """Up to `size` plans of each instance, cheapest first; empty places have infinite cost."""

    tools: PlanTools
    size: int
    batch: Any  # of the instances
    cost: Float[Tensor, "B P"] = field(default_factory=lambda: torch.empty(0, 0))
    actions: Int[Tensor, "B P T"] = field(
        default_factory=lambda: torch.empty(0, 0, 0, dtype=torch.int16)
    )
    edges: Int[Tensor, "B P N 2"] = field(
        default_factory=lambda: torch.empty(0, 0, 0, 2, dtype=torch.int16)
    )

    def enter(self, rolled: Rollouts) -> None:
        """Add the new plans that are good and different enough."""
        cost, order = rolled.cost.flatten(1).sort(dim=1, stable=True)
        cost = cost[:, : TUNING.candidates_considered]
        order = order[:, : TUNING.candidates_considered]
        actions = gather_per_instance(rolled.actions.flatten(1, 2), order)
        elements = 8 * actions[0].numel()
        at_once = max(1, TUNING.max_elements // elements)  # instances; bounds the memory
        found = list[tuple[Tensor, Tensor, Tensor]]()
        for first in range(0, len(cost), at_once):
            rows = slice(first, first + at_once)
            found.append(self._distinct_plans(rows, cost[rows], actions[rows]))
        cost, actions, edges = (torch.cat(parts) for parts in zip(*found, strict=True))
        self._merge(cost, actions, edges)

    def _distinct_plans(
        self, rows: slice, cost: Tensor, actions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the cheapest new plans of some instances, each of them once."""
        batch = None if self.batch is None else self.batch[rows]
        edges = self.tools.edges(batch, actions)
        cost, order = cost.masked_fill(mark_duplicates(edges), torch.inf).sort(dim=1, stable=True)
        most = max(TUNING.min_distinct, TUNING.distinct_per_place * self.size)
        order = order[:, :most]
        actions = gather_per_instance(actions, order)
        return cost[:, :most], actions, gather_per_instance(edges, order)

    def _merge(self, cost: Tensor, actions: Tensor, edges: Tensor) -> None:
        """Select from the plans that are kept and the new ones."""
        if len(self.cost):
            cost = torch.cat([self.cost, cost], 1)
            actions = torch.cat([self.actions, actions], 1)
            edges = torch.cat([self.edges, edges], 1)
        count = min(self.size, cost.shape[1])
        self.cost, best = select_diverse(cost, edges, count)
        self.actions = gather_per_instance(actions, best)
        self.edges = gather_per_instance(edges, best)

    def plans(self) -> list[list[list[int]]]:
        """Return the action sequences of each instance, cheapest first."""
        is_plan = self.cost.isfinite().tolist()
        kept = list[list[list[int]]]()
        for sequences, present in zip(self.actions.tolist(), is_plan, strict=True):
            pairs = zip(sequences, present, strict=True)
            kept.append([actions for actions, there in pairs if there])
        return kept


def gather_per_instance(table: Tensor, index: Int[Tensor, "B P"]) -> Tensor:
    """Return `table[b, index[b, p]]` for every instance b."""
    rows = torch.arange(len(index), device=index.device)
    return table[rows[:, None], index]


def mark_duplicates(edges: Int[Tensor, "B M N 2"]) -> Bool[Tensor, "B M"]:
    """Mark plans that are equal to an earlier one, by a hash of their edges.

    Equal plans always have equal hashes. The sum of the hash wraps round.
    """
    one, other = edges.long().unbind(-1)
    rng = torch.Generator().manual_seed(0)
    weight = torch.randint(1, 2**62, edges.shape[2:3], generator=rng).to(edges.device)
    edge = torch.minimum(one, other) * 65_537 + torch.maximum(one, other) + 1
    return mark_repeats((edge * weight).sum(-1))


def mark_repeats(codes: Int[Tensor, "B C"]) -> Bool[Tensor, "B C"]:
    """Mark the codes that occur earlier in their row."""
    ordered, order = codes.sort(dim=1, stable=True)  # the first of equal codes stays in front
    is_repeat = ordered[:, 1:] == ordered[:, :-1]
    is_repeat = torch.nn.functional.pad(is_repeat, (1, 0))
    return torch.empty_like(is_repeat).scatter_(1, order, is_repeat)


def select_diverse(
    cost: Float[Tensor, "B M"], edges: Int[Tensor, "B M N 2"], count: int
) -> tuple[Float[Tensor, "B P"], Int[Tensor, "B P"]]:
    """Select the cheapest plan, the cheapest that is not similar to it, and so on.

    Returns costs and indices. A cost is infinite if no plan was left.
    """
    costs = list[Tensor]()
    indices = list[Tensor]()
    for _ in range(count):
        least, best = cost.min(1)
        costs.append(least)
        indices.append(best)
        cost = cost.masked_fill(similar_plans(edges, best), torch.inf)
    return torch.stack(costs, 1), torch.stack(indices, 1)


def similar_plans(edges: Int[Tensor, "B M N 2"], best: Int[Tensor, "B"]) -> Bool[Tensor, "B M"]:
    """Mark the plans of each instance that are similar to one of them, that one included."""
    _, plans, nodes, _ = edges.shape
    chosen = gather_per_instance(edges, best[:, None])
    at_once = max(1, TUNING.max_elements // (plans * nodes))
    limit = 1.0 - TUNING.min_edge_difference
    pairs = zip(edges.split(at_once), chosen.split(at_once), strict=True)
    return torch.cat([edge_similarity(one, other) > limit for one, other in pairs])
