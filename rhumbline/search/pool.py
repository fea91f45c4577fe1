"""The best different plans of a search, kept on its device.

Two plans are near if they share more than 1 - `APART` of their links (edges). A plan stays as long as no cheaper one
near to it is known and there is room: each is the best of its own neighbourhood. All is done in a handful of batched
tensor operations on the few cheapest new plans, without waiting for the device.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.search.crafts import Craft, likeness

APART = 0.05  # different plans differ in at least one link of twenty
COMPARED = 1 << 26  # links of two plans that are compared at once
GLANCE = 4  # new plans looked at for each place in the pool: most of the cheapest are copies of each other


@dataclass
class Pool:
    """Up to `size` plans of each instance, cheapest first; places that are still empty cost infinity."""

    craft: Craft
    size: int
    batch: Any  # of the instances
    cost: Float[Tensor, "B P"] = field(default_factory=lambda: torch.empty(0, 0))
    actions: Int[Tensor, "B P T"] = field(default_factory=lambda: torch.empty(0, 0, 0, dtype=torch.int16))
    links: Int[Tensor, "B P N 2"] = field(default_factory=lambda: torch.empty(0, 0, 0, 2, dtype=torch.int16))

    def enter(self, rolled: Rollouts) -> None:
        """Take in what is good and different among new plans."""
        every = rolled.cost.flatten(1)
        cost, where = every.topk(min(GLANCE * self.size, every.shape[1]), largest=False)
        actions = pick(rolled.actions.flatten(1, 2), where)
        links = self.craft.links(self.batch, actions)
        kept = cost.masked_fill(copies(links), torch.inf).topk(min(self.size, cost.shape[1]), largest=False).indices
        self._merge(cost.gather(1, kept), pick(actions, kept), pick(links, kept))

    def _merge(self, cost: Tensor, actions: Tensor, links: Tensor) -> None:
        if len(self.cost):
            cost = torch.cat([self.cost, cost], 1)
            actions, links = torch.cat([self.actions, actions], 1), torch.cat([self.links, links], 1)
        cost = cost.masked_fill(outdone(cost, links), torch.inf)
        self.cost, best = cost.topk(min(self.size, cost.shape[1]), largest=False)
        self.actions, self.links = pick(actions, best), pick(links, best)

    def plans(self) -> list[list[list[int]]]:
        """The action sequences of each instance, cheapest first."""
        known = self.cost.isfinite().tolist()
        return [
            [a for a, ok in zip(some, there, strict=True) if ok]
            for some, there in zip(self.actions.tolist(), known, strict=True)
        ]


def pick(table: Tensor, index: Int[Tensor, "B P"]) -> Tensor:
    """Entries of each instance's table."""
    return table[torch.arange(len(index), device=index.device)[:, None], index]


def copies(links: Int[Tensor, "B M N 2"]) -> Bool[Tensor, "B M"]:
    """Plans that are the same as one before them, by a hash of their links (which cannot err on equal plans)."""
    one, other = links.long().unbind(-1)
    rng = torch.Generator().manual_seed(0)
    weight = torch.randint(1, 2**62, links.shape[2:3], generator=rng).to(links.device)
    code = ((torch.minimum(one, other) * 65_537 + torch.maximum(one, other) + 1) * weight).sum(-1)  # wraps round
    return (code[:, :, None] == code[:, None]).tril(-1).any(-1)


def outdone(cost: Float[Tensor, "B M"], links: Int[Tensor, "B M N 2"]) -> Bool[Tensor, "B M"]:
    """Plans near to a cheaper one, or to an earlier one that costs the same."""
    (_, plans, nodes, _), parts = links.shape, list[Tensor]()
    for some in links.split(max(1, COMPARED // (plans * plans * nodes))):  # some instances at a time: bounded memory
        parts.append(likeness(some[:, :, None], some[:, None]) > 1.0 - APART)
    near = torch.cat(parts)
    cheaper = cost[:, None, :] < cost[:, :, None]
    earlier = (cost[:, None, :] == cost[:, :, None]).tril(-1)
    return (near & (cheaper | earlier)).any(-1)
