"""Edges of plans: the two neighbours of each node, which show how similar plans are."""

import torch
from jaxtyping import Int
from torch import Tensor


def neighbour_table(
    node: Int[Tensor, "B R T"],
    before: Int[Tensor, "B R T"],
    after: Int[Tensor, "B R T"],
    count: int,
) -> Int[Tensor, "B R C 2"]:
    """Sort the neighbours of each step by the node that the step visits."""
    rows, plans, _ = node.shape
    shape = (rows, plans, count, 2)
    dtype = node.dtype
    table = torch.zeros(shape, dtype=dtype, device=node.device)
    neighbours = torch.stack((before, after), -1)
    index = node[..., None]
    index = index.long()
    index = index.expand(-1, -1, -1, 2)
    return table.scatter_(2, index, neighbours)
