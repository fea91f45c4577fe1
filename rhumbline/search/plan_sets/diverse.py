"""Diverse set: the best plans of a search that differ enough from one another, kept on its device.

Two plans are similar if they share more than 95 % of their edges. The cheapest plan is kept, then
the cheapest that is not similar to it, and so on while there is room. A search proceeds in steps,
so plans similar to one that is dropped later do not come back. Everything is done with batched
tensor operations on the cheapest new plans, without waiting for the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.domain import PlanTools
from rhumbline.problems import Problem
from rhumbline.search.plan_sets.similarity import edge_similarity, pad_actions, plan_edges
from rhumbline.search.solution import Candidate


@dataclass(frozen=True)
class DiverseTuning:
    """What counts as different, and how many plans are compared."""

    min_edge_difference: float = 0.05  # different plans differ in one edge of twenty
    max_elements: int = 1 << 26  # edges that are compared at once
    candidates_considered: int = 2048  # new plans per instance: most of the cheapest may be equal
    min_distinct: int = 128  # distinct new plans that are kept for the comparison ...
    distinct_per_place: int = 2  # ... or this for each place: most of them are similar


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
        considered = TUNING.candidates_considered
        cost = rolled.cost.flatten(1)
        actions = rolled.actions.flatten(1, 2)
        cost, order = cost.sort(dim=1, stable=True)
        cost = cost[:, :considered]
        order = order[:, :considered]
        actions = gather_per_instance(actions, order)
        elements = 8 * actions[0].numel()
        at_once = max(1, TUNING.max_elements // elements)  # instances; bounds the memory
        costs = list[Tensor]()
        sequences = list[Tensor]()
        edges = list[Tensor]()
        for first in range(0, len(cost), at_once):
            rows = slice(first, first + at_once)
            found = self._distinct_plans(rows, cost[rows], actions[rows])
            costs.append(found[0])
            sequences.append(found[1])
            edges.append(found[2])
        self._merge(torch.cat(costs), torch.cat(sequences), torch.cat(edges))

    def _distinct_plans(
        self, rows: slice, cost: Tensor, actions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the cheapest new plans of some instances, each of them once."""
        batch = None if self.batch is None else self.batch[rows]
        edges = self.tools.edges(batch, actions)
        is_duplicate = mark_duplicates(edges)
        cost = cost.masked_fill(is_duplicate, torch.inf)
        cost, order = cost.sort(dim=1, stable=True)
        most = max(TUNING.min_distinct, TUNING.distinct_per_place * self.size)
        cost = cost[:, :most]
        order = order[:, :most]
        actions = gather_per_instance(actions, order)
        edges = gather_per_instance(edges, order)
        return cost, actions, edges

    def _merge(self, cost: Tensor, actions: Tensor, edges: Tensor) -> None:
        """Select from the plans that are kept and the new ones."""
        if len(self.cost):
            cost = torch.cat([self.cost, cost], 1)
            actions = torch.cat([self.actions, actions], 1)
            edges = torch.cat([self.edges, edges], 1)
        plans = cost.shape[1]
        count = min(self.size, plans)
        self.cost, best = select_diverse(cost, edges, count)
        self.actions = gather_per_instance(actions, best)
        self.edges = gather_per_instance(edges, best)

    def plans(self) -> list[list[list[int]]]:
        """Return the action sequences of each instance, cheapest first."""
        is_plan = self.cost.isfinite().tolist()
        kept = list[list[list[int]]]()
        sequences = self.actions.tolist()
        for row, present in zip(sequences, is_plan, strict=True):
            pairs = zip(row, present, strict=True)
            plans = [actions for actions, there in pairs if there]
            kept.append(plans)
        return kept


def different_plans(
    problem: Problem[Any, Any],
    tools: PlanTools,
    instance: Any,
    plans: Sequence[Candidate],
    count: int,
) -> list[Candidate]:
    """Return the `count` cheapest plans of an instance, without those similar to a cheaper one."""
    ranked = sorted(plans, key=lambda c: c.cost)
    batch = problem.collate([instance])
    horizon = problem.horizon(batch)
    limit = 1.0 - TUNING.min_edge_difference
    kept = list[Candidate]()
    kept_edges = list[Tensor]()
    for candidate in ranked:
        if len(kept) == count:
            break
        actions = tools.encode_plan(instance, candidate.plan)
        edges = plan_edges(tools, batch, pad_actions(actions, horizon))
        if all(edge_similarity(edges, other) <= limit for other in kept_edges):
            kept.append(candidate)
            kept_edges.append(edges)
    return kept


def gather_per_instance(table: Tensor, index: Int[Tensor, "B P"]) -> Tensor:
    """Return `table[b, index[b, p]]` for every instance b."""
    count = len(index)
    rows = torch.arange(count, device=index.device)
    column = rows[:, None]
    return table[column, index]


def mark_duplicates(edges: Int[Tensor, "B M N 2"]) -> Bool[Tensor, "B M"]:
    """Mark plans that are equal to an earlier one, by a hash of their edges.

    Equal plans always have equal hashes. The sum of the hash wraps round.
    """
    one, other = edges.long().unbind(-1)
    low = torch.minimum(one, other)
    high = torch.maximum(one, other)
    edge = low * 65_537 + high + 1
    nodes = edges.shape[2:3]
    rng = torch.Generator()
    rng.manual_seed(0)
    weight = torch.randint(1, 2**62, nodes, generator=rng)
    weight = weight.to(edges.device)
    codes = (edge * weight).sum(-1)
    return mark_repeats(codes)


def mark_repeats(codes: Int[Tensor, "B C"]) -> Bool[Tensor, "B C"]:
    """Mark the codes that occur earlier in their row."""
    ordered, order = codes.sort(dim=1, stable=True)  # the first of equal codes stays in front
    later = ordered[:, 1:]
    before = ordered[:, :-1]
    is_repeat = later == before
    is_repeat = torch.nn.functional.pad(is_repeat, (1, 0))
    unordered = torch.empty_like(is_repeat)
    return unordered.scatter_(1, order, is_repeat)


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
    elements = plans * nodes
    at_once = max(1, TUNING.max_elements // elements)
    limit = 1.0 - TUNING.min_edge_difference
    all_parts = edges.split(at_once)
    chosen_parts = chosen.split(at_once)
    is_similar = list[Tensor]()
    for one, other in zip(all_parts, chosen_parts, strict=True):
        similarity = edge_similarity(one, other)
        is_similar.append(similarity > limit)
    return torch.cat(is_similar)
