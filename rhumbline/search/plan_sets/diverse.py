"""The best different plans of a search, kept on its device.

Two plans are near if they share more than 1 - `APART` of their links (edges). The cheapest plan is
kept, then the cheapest that is not near to it, then the cheapest that is near to neither, and so on
while there is room. A search goes in steps, so what was near to a plan that is given up later does
not come back. All is done in batched tensor operations on the cheapest new plans, without waiting
for the device.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.search.plan_sets.similarity import PlanTools, edge_similarity

APART = 0.05  # different plans differ in at least one link of twenty
COMPARED = 1 << 26  # links that are looked at together
# new plans of an instance that are looked at: nearly all of the cheapest may be one and the same
# tour
GLANCE = 2048
CONSIDERED = (
    128,
    2,
)  # different ones of them at least, and for each place: most of the cheapest are near to each other


@dataclass
class DiverseSet:
    """Up to `size` plans of each instance, cheapest first; places that are still empty cost
    infinity.
    """

    craft: PlanTools
    size: int
    batch: Any  # of the instances
    cost: Float[Tensor, "B P"] = field(default_factory=lambda: torch.empty(0, 0))
    actions: Int[Tensor, "B P T"] = field(
        default_factory=lambda: torch.empty(0, 0, 0, dtype=torch.int16)
    )
    links: Int[Tensor, "B P N 2"] = field(
        default_factory=lambda: torch.empty(0, 0, 0, 2, dtype=torch.int16)
    )

    def enter(self, rolled: Rollouts) -> None:
        """Take in what is good and different among new plans."""
        cost, where = (
            found[:, :GLANCE] for found in rolled.cost.flatten(1).sort(dim=1, stable=True)
        )
        count = cost.shape[1]
        actions = gather_per_instance(rolled.actions.flatten(1, 2), where)
        some = max(
            1, COMPARED // (count * actions.shape[2] * 8)
        )  # instances at a time: bounded memory
        parts = (slice(at, at + some) for at in range(0, len(cost), some))
        found = [self._different(rows, cost[rows], actions[rows]) for rows in parts]
        self._merge(*(torch.cat(part) for part in zip(*found, strict=True)))

    def _different(
        self, rows: slice, cost: Tensor, actions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The cheapest new plans of some instances, each once."""
        links = self.craft.links(None if self.batch is None else self.batch[rows], actions)
        cost, kept = cost.masked_fill(mark_duplicates(links), torch.inf).sort(dim=1, stable=True)
        most = max(CONSIDERED[0], CONSIDERED[1] * self.size)
        return (
            cost[:, :most],
            gather_per_instance(actions, kept[:, :most]),
            gather_per_instance(links, kept[:, :most]),
        )

    def _merge(self, cost: Tensor, actions: Tensor, links: Tensor) -> None:
        if len(self.cost):
            cost = torch.cat([self.cost, cost], 1)
            actions = torch.cat([self.actions, actions], 1)
            links = torch.cat([self.links, links], 1)
        self.cost, best = select_diverse(cost, links, min(self.size, cost.shape[1]))
        self.actions, self.links = (
            gather_per_instance(actions, best),
            gather_per_instance(links, best),
        )

    def plans(self) -> list[list[list[int]]]:
        """The action sequences of each instance, cheapest first."""
        known = self.cost.isfinite().tolist()
        return [
            [a for a, ok in zip(some, there, strict=True) if ok]
            for some, there in zip(self.actions.tolist(), known, strict=True)
        ]


def gather_per_instance(table: Tensor, index: Int[Tensor, "B P"]) -> Tensor:
    """Entries of each instance's table."""
    return table[torch.arange(len(index), device=index.device)[:, None], index]


def mark_duplicates(links: Int[Tensor, "B M N 2"]) -> Bool[Tensor, "B M"]:
    """Plans that are the same as one before them, by a hash of their links (which cannot err on
    equal plans).
    """
    one, other = links.long().unbind(-1)
    rng = torch.Generator().manual_seed(0)
    weight = torch.randint(1, 2**62, links.shape[2:3], generator=rng).to(links.device)
    links = torch.minimum(one, other) * 65_537 + torch.maximum(one, other) + 1
    return mark_repeats((links * weight).sum(-1))  # wraps round


def mark_repeats(codes: Int[Tensor, "B C"]) -> Bool[Tensor, "B C"]:
    """Which are the same as one before them."""
    ordered, order = codes.sort(dim=1, stable=True)  # the first of equal ones stays in front
    again = torch.nn.functional.pad(ordered[:, 1:] == ordered[:, :-1], (1, 0))
    return torch.empty_like(again).scatter_(1, order, again)


def select_diverse(
    cost: Float[Tensor, "B M"], links: Int[Tensor, "B M N 2"], count: int
) -> tuple[Float[Tensor, "B P"], Int[Tensor, "B P"]]:
    """The cheapest plan of each instance, the cheapest that is not near to it, and so on;
    infinity if there is none.
    """
    costs = list[Tensor]()
    places = list[Tensor]()
    for _ in range(count):
        least, best = cost.min(1)
        costs.append(least)
        places.append(best)
        cost = cost.masked_fill(similar_plans(links, best), torch.inf)
    return torch.stack(costs, 1), torch.stack(places, 1)


def similar_plans(links: Int[Tensor, "B M N 2"], best: Int[Tensor, "B"]) -> Bool[Tensor, "B M"]:
    """Plans of each instance that share too much with one of them, which is among them itself."""
    (_, plans, nodes, _), chosen = links.shape, gather_per_instance(links, best[:, None])
    some = max(1, COMPARED // (plans * nodes))
    parts = zip(links.split(some), chosen.split(some), strict=True)
    return torch.cat([edge_similarity(one, other) > 1.0 - APART for one, other in parts])
