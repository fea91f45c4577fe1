"""Costs of routing in lengths of the unit square, whatever the metric of the file.

Rates of strategies that learn on the instance were chosen for such costs.
"""

from dataclasses import replace
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.problems.cvrp import CVRPBatch
from rhumbline.problems.tsp import TSPBatch


def rescale_lengths(
    rules: Any,
    batch: TSPBatch | CVRPBatch,
    cost: Float[Tensor, "R K S"],
    actions: Int[Tensor, "R K S T"],
) -> Float[Tensor, "R K S"]:
    """Return costs times one factor for each row, that of its first sequence."""
    if batch.distance is None:
        return cost
    first = actions[:, 0, :1].long()
    straight_batch = replace(batch, distance=None)
    straight = rules.cost(straight_batch, first)
    given = cost[:, 0, :1].clamp(min=1e-9)
    return cost * (straight / given)[..., None]


def rescale_route_lengths(
    rules: Any,
    batch: CVRPBatch,
    cost: Float[Tensor, "R K S"],
    actions: Int[Tensor, "R K S T"],
) -> Float[Tensor, "R K S"]:
    """Return CVRP costs times one factor for each row, as `rescale_lengths` does.

    They are without surcharges for vehicles, which would dwarf the lengths.
    """
    cost = batch.without_surcharge(cost)
    free = replace(batch, vehicles=None, surcharge=None)
    return rescale_lengths(rules, free, cost, actions)
