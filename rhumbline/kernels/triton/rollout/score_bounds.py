"""Triton: bounds of attention scores, without a table of all scores in memory.

A training step needs them three times at every update. Tensor operations would write three tables
of all products.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

QUERY_TILE_ROWS = 64  # queries of a tile


@triton.jit(do_not_specialize=["rows"])
def score_bounds_kernel(
    QUERY, KEY, REACH, rows,
    NP: tl.constexpr, W: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Store the largest score of a head's queries with each of W keys, and minus the least."""
    DT: tl.constexpr = KEY.dtype.element_ty
    b, h = tl.program_id(0).to(tl.int64) // H, tl.program_id(0) % H
    node = tl.program_id(1) * W + tl.arange(0, W)
    e = h * D + tl.arange(0, D)
    key = tl.load(KEY + (b * NP + node[None, :]) * (H * D) + e[:, None])
    most = tl.full([W], float("-inf"), tl.float32)
    least = tl.full([W], float("inf"), tl.float32)
    for first in range(0, rows, M):
        row = tl.minimum(first + tl.arange(0, M), rows - 1)  # past the end the last query repeats
        query = tl.load(QUERY + (b * rows + row[:, None]) * (H * D) + e[None, :]).to(DT)
        score = tl.dot(query, key, input_precision="ieee")
        most = tl.maximum(most, tl.max(score, 0))
        least = tl.minimum(least, tl.min(score, 0))
    REACH += tl.program_id(0).to(tl.int64) * 2 * NP
    tl.store(REACH + node, most)
    tl.store(REACH + NP + node, -least)


def launch_bound_scores(query: Tensor, key: Tensor, heads: int, part: int) -> Tensor:
    """Bound how far above and below 0 any query [B, rows, E] scores with each key [B, NP, E].

    Returns [B, heads, 2, NP]. Keys are worked on in parts of a power of two.
    """
    count, columns, width = key.shape
    rows = query.shape[1]
    found = torch.empty(count, heads, 2, columns, device=key.device)
    score_bounds_kernel[count * heads, columns // part](
        query.contiguous(),
        key,
        found,
        rows,
        NP=columns,
        W=part,
        M=QUERY_TILE_ROWS,
        H=heads,
        D=width // heads,
        num_warps=4,
    )
    return found
