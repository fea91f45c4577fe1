"""Edges of plans: the two neighbours of each node, which show how similar plans are."""

from typing import Any

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


def trip_edges(batch: Any, actions: Int[Tensor, "B R T"]) -> Int[Tensor, "B R C 2"]:
    """Return the nodes before and after each of the nodes 1..C of a batch with coordinates.

    Trips begin and end at node 0, and sequences are padded with it. A node that is not visited has
    node 0 on both sides.
    """
    walk = torch.nn.functional.pad(actions, (1, 1))
    is_node = actions > 0
    before = walk[..., :-2] * is_node
    after = walk[..., 2:] * is_node
    nodes = batch.xy.shape[1]
    table = neighbour_table(actions, before, after, nodes)
    return table[:, :, 1:]
