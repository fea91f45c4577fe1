"""How similar two plans are: the share of edges that they have in common."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.domain import PlanTools


def edge_similarity(
    one: Int[Tensor, "*#b N 2"], other: Int[Tensor, "*#b N 2"]
) -> Float[Tensor, "*c"]:
    """Return the share of edges that two plans have in common, 0 to 1.

    The direction of tours and the order of routes do not matter.
    """
    a, b = one.unbind(-1)
    c, d = other.unbind(-1)
    ac = a == c
    bd = b == d
    ad = a == d
    bc = b == c
    any_shared = ac | bd | ad | bc
    both_shared = (ac & bd) | (ad & bc)
    shared = any_shared.sum(-1) + both_shared.sum(-1)
    nodes = one.shape[-2]
    return shared / (2.0 * nodes)


def plan_edges(tools: PlanTools, batch: Any, sequence: Sequence[int]) -> Int[Tensor, "N 2"]:
    """Return the edges of one plan of the only instance of a batch."""
    actions = torch.tensor(sequence)
    actions = actions[None, None]
    edges = tools.edges(batch, actions)
    return edges[0, 0]


def pad_actions(actions: Sequence[int], horizon: int) -> list[int]:
    """Pad a sequence to the length of rollouts; those that have ended stay at node 0."""
    missing = horizon - len(actions)
    return [*actions, *[0] * missing]
