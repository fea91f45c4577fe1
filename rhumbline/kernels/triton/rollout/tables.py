"""What the GPU's rollout kernels read: a policy's tables, padded and scaled, and who needs no
maximum.
"""

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rhumbline import kernels
from rhumbline.kernels import HEAD_WIDTH, HEADS
from rhumbline.kernels.triton.rollout import score_bounds

LOG2E = math.log2(math.e)
PROCESSORS = 132  # of an H100 or H200
# exponents of two: sums of 256 such weights, times values up to 4,000, are far within float32
SAFE = 105.0
WHOLE, PART = 128, 64  # columns up to which all are worked on at once; beyond, those of a part
QUERY_SCALE = LOG2E / HEAD_WIDTH**0.5  # attention's exp as exp2
POINTER_SCALE = 2.0 * LOG2E  # tanh's exp(2x)


@dataclass(frozen=True)
class NodeTables:
    """What the kernels read of instances. Nodes are `padded`; queries and pointers scaled for
    exp2.
    """

    key: Tensor  # [B, NP, E]
    value: Tensor  # [B, NP, E]
    pointer: Tensor  # [B, NP, E]
    query_last: Tensor  # [B, NP, E]
    # float32: [B, N, E] of the first node (TSP), or [B, E] per unit of capacity left (CVRP)
    query_context: Tensor
    bias: Tensor  # [B, NP] float32
    # [B, heads, 2, keys] float32: how far above and below 0 `query_last` scores with each key
    reach: Tensor


class LayerTables(NamedTuple):
    """A residual layer on the glimpse, as `gpu_layer` reads it."""

    into: Tensor  # [B, E, E]
    # [B, K, E] float32, less what the latent adds to the glimpse: the layer does not see that
    into_bias: Tensor
    out: Tensor  # [B, NP, E]: its second half times the pointers
    out_bias: Tensor  # [B, NP] float32, likewise


@dataclass(frozen=True)
class TritonTables:
    """The same and what latents add."""

    nodes: NodeTables
    query_shift: Tensor  # [B, K, E] float32
    glimpse_shift: Tensor  # [B, K, E]
    layer: LayerTables | None = None


@torch.no_grad()
def build_triton_tables(
    memory: Any, shift: Any, dtype: torch.dtype = torch.bfloat16
) -> TritonTables:
    """Kernel tables from a policy's memory and the shifts of its latents."""
    query = (shift.query * QUERY_SCALE).float()
    nodes = TABLE_CACHE.nodes(memory, dtype)
    layer = (
        None
        if memory.layer is None
        else build_layer_tables(memory.layer, memory.pointer, shift.glimpse, dtype)
    )
    return TritonTables(nodes, query, shift.glimpse.to(dtype).contiguous(), layer)


def build_layer_tables(
    layer: Any, pointer: Tensor, glimpse: Tensor, dtype: torch.dtype
) -> LayerTables:
    """Tables of a layer, given the pointers [B, N, E] and what latents add to the glimpse, [B, K,
    E].

    Kernels add the latter first. It is rounded there, so what is taken back is made of the rounded
    one.
    """
    into = layer.into.to(dtype).contiguous()
    pointer = pointer.float() * POINTER_SCALE
    back = glimpse.to(dtype).float() @ into.float()
    out, bias = (pad_rows(pointer @ x.transpose(1, 2)) for x in (layer.out, layer.out_bias))
    return LayerTables(
        into,
        (layer.into_bias - back).float().contiguous(),
        out.to(dtype),
        bias[..., 0].contiguous(),
    )


def pad_rows(rows: Tensor) -> Tensor:
    """A table [B, N, E] with zeros for the columns of a tile that no node has."""
    return torch.nn.functional.pad(rows, (0, 0, 0, padded_columns(rows.shape[1]) - rows.shape[1]))


def padded_columns(nodes: int) -> int:
    """Columns of a tile: a power of two, or as many parts as are needed."""
    return max(16, 1 << (nodes - 1).bit_length()) if nodes <= WHOLE else -(-nodes // PART) * PART


def part_width(columns: int) -> int:
    """How many columns of a tile are worked on at a time."""
    return columns if columns <= WHOLE else PART


def build_node_tables(memory: Any, dtype: torch.dtype) -> NodeTables:
    """Tables of a policy's memory."""
    context = memory.query_first if memory.query_load is None else memory.query_load[:, 0]
    scaled = (
        (memory.key, 1.0),
        (memory.value, 1.0),
        (memory.pointer, POINTER_SCALE),
        (memory.query_last, QUERY_SCALE),
    )
    key, value, pointer, last = scale_and_pad(scaled, dtype)
    return NodeTables(
        key=key,
        value=value,
        pointer=pointer,
        query_last=last,
        query_context=(context * QUERY_SCALE).float(),
        bias=pad_rows(memory.bias.transpose(1, 2) * POINTER_SCALE)[..., 0].float().contiguous(),
        reach=bound_scores(last, key),
    )


def scale_and_pad(scaled: Sequence[tuple[Tensor, float]], dtype: torch.dtype) -> Tensor:
    """Tables [B, N, E], each times its factor and `filled`, in one buffer: that is one launch
    each, and one for all.
    """
    count, nodes, width = scaled[0][0].shape
    buffer = torch.zeros(
        len(scaled), count, padded_columns(nodes), width, dtype=dtype, device=scaled[0][0].device
    )
    for place, (table, factor) in zip(buffer, scaled, strict=True):
        torch.mul(table, factor, out=place[:, :nodes])
    return buffer


class TableCache:
    """The tables of the last memory: a search asks for those of the same one at every step.

    They cost two dozen launches, which count where there are few instances. Nobody writes into a
    memory, so tables of the same object are the same tables. While a graph is recorded nothing is
    kept: it has not been computed yet.
    """

    last: "tuple[weakref.ref[Any], NodeTables] | None" = (
        None  # one value, replaced whole: searches may run in threads
    )

    def nodes(self, memory: Any, dtype: torch.dtype) -> NodeTables:
        """Those of `memory`, made now or the last time."""
        last = self.last
        if last is not None and last[0]() is memory and last[1].key.dtype == dtype:
            return last[1]
        made = build_node_tables(memory, dtype)
        if not (made.key.is_cuda and torch.cuda.is_current_stream_capturing()):
            self.last = weakref.ref(memory, self.forget), made
        return made

    def forget(self, gone: "weakref.ref[Any]") -> None:
        """Let the tables go with their memory."""
        if self.last is not None and self.last[0] is gone:
            self.last = None


TABLE_CACHE = TableCache()


def by_head(x: Tensor) -> Tensor:
    """A table's rows cut into heads, [B, heads, rows, width]."""
    return x.unflatten(-1, (HEADS, HEAD_WIDTH)).transpose(1, 2)


def bound_scores(query: Tensor, key: Tensor) -> Tensor:
    """How far above and below 0 any row of a part of the query scores with each key: [B, heads,
    2, keys].
    """
    if kernels.on_gpu(key):
        return score_bounds.launch_bound_scores(query, key, HEADS, part_width(key.shape[1]))
    products = by_head(query.to(key.dtype)) @ by_head(key).transpose(2, 3)
    return torch.stack([products.amax(2), -products.amin(2)], dim=2).float()


def find_bounded_instances(nodes: NodeTables, *parts: Tensor) -> Tensor:
    """Instances whose attention scores provably stay below SAFE, so that no maximum need be
    subtracted: [B] int32.

    A query is the sum of a row of `query_last` and one of each part [B, rows, E], so what each of
    them scores at most with a key adds up to a bound for it, and so does what it scores at least.
    Whatever the key and the sign, the bound would be a fifth larger for trained policies, and one
    by lengths two to four times as large.
    """
    most = nodes.reach + sum(bound_scores(part, nodes.key) for part in parts)
    return (most < SAFE).flatten(1).all(1).to(torch.int32)


def empty_and_full_queries(query: Tensor, load: Tensor, capacity: Tensor) -> Tensor:
    """Queries [B, 2 K, E] of vehicles with nothing and with everything left: of all loads one of
    them scores most.
    """
    return torch.cat([query, query + (load * capacity[:, None])[:, None]], dim=1)
