"""What the GPU's rollout kernels read: a policy's tables, padded and scaled, and score bounds."""

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from rhumbline import kernels
from rhumbline.kernels import HEAD_WIDTH, HEADS
from rhumbline.kernels.triton.rollout import score_bounds

LOG2E = math.log2(math.e)
PROCESSORS = 132  # of an H100 or H200
QUERY_SCALE = LOG2E / HEAD_WIDTH**0.5  # exp of the attention as exp2
POINTER_SCALE = 2.0 * LOG2E  # exp(2x) of the tanh as exp2


@dataclass(frozen=True)
class TableTuning:
    """Sizes of tiles, and the bound below which no maximum is subtracted."""

    whole_columns: int = 128  # up to which all columns are worked on at once
    part_columns: int = 64  # worked on at once beyond that
    # Exponents of two: sums of 256 such weights, times values up to 4,000, are far within float32.
    max_exponent: float = 105.0


TUNING = TableTuning()


@dataclass(frozen=True)
class NodeTables:
    """What the kernels read of instances, padded; queries and pointers are scaled for exp2."""

    key: Tensor  # [B, NP, E]
    value: Tensor  # [B, NP, E]
    pointer: Tensor  # [B, NP, E]
    query_last: Tensor  # [B, NP, E]
    query_context: Tensor  # float32; TSP: first node [B, N, E]; CVRP: per unit of load left [B, E]
    bias: Tensor  # [B, NP] float32
    # [B, heads, 2, keys] float32: how far above and below 0 `query_last` scores with each key
    reach: Tensor


class LayerTables(NamedTuple):
    """A residual layer on the glimpse, as `residual_layer` reads it."""

    into: Tensor  # [B, E, E]
    into_bias: Tensor  # [B, K, E] float32, less what the latent adds to the glimpse
    out: Tensor  # [B, NP, E]: its second half times the pointers
    out_bias: Tensor  # [B, NP] float32, likewise


@dataclass(frozen=True)
class TritonTables:
    """What the kernels read of instances and of latents."""

    nodes: NodeTables
    query_shift: Tensor  # [B, K, E] float32
    glimpse_shift: Tensor  # [B, K, E]
    layer: LayerTables | None = None


@torch.no_grad()
def build_triton_tables(
    memory: Any, bias: Any, dtype: torch.dtype = torch.bfloat16
) -> TritonTables:
    """Build the tables from a policy's memory and the biases of its latents."""
    query = (bias.query * QUERY_SCALE).float()
    nodes = TABLE_CACHE.nodes(memory, dtype)
    layer = None
    if memory.layer is not None:
        layer = build_layer_tables(memory.layer, memory.pointer, bias.glimpse, dtype)
    return TritonTables(nodes, query, bias.glimpse.to(dtype).contiguous(), layer)


def build_layer_tables(
    layer: Any, pointer: Tensor, glimpse: Tensor, dtype: torch.dtype
) -> LayerTables:
    """Build the tables of a layer from pointers [B, N, E] and glimpse biases [B, K, E].

    The kernels add the biases first, which the layer must not see. They are rounded there, so the
    rounded ones are taken back.
    """
    into = layer.into.to(dtype)
    into = into.contiguous()
    pointer = pointer.float() * POINTER_SCALE
    rounded = glimpse.to(dtype).float()
    seen = rounded @ into.float()
    into_bias = (layer.into_bias - seen).float()
    out = pointer @ layer.out.transpose(1, 2)
    out = pad_rows(out)
    out_bias = pointer @ layer.out_bias.transpose(1, 2)
    out_bias = pad_rows(out_bias)
    return LayerTables(
        into=into,
        into_bias=into_bias.contiguous(),
        out=out.to(dtype),
        out_bias=out_bias[..., 0].contiguous(),
    )


def pad_rows(table: Tensor) -> Tensor:
    """Append zeros to a table [B, N, E] for the columns of a tile that have no node."""
    nodes = table.shape[1]
    missing = padded_columns(nodes) - nodes
    return pad(table, (0, 0, 0, missing))


def padded_columns(nodes: int) -> int:
    """Return the columns of a tile: a power of two, or as many parts as are needed."""
    if nodes <= TUNING.whole_columns:
        power_of_two = 1 << (nodes - 1).bit_length()
        return max(16, power_of_two)
    parts = -(-nodes // TUNING.part_columns)
    return parts * TUNING.part_columns


def part_width(columns: int) -> int:
    """Return how many columns of a tile are worked on at once."""
    if columns <= TUNING.whole_columns:
        return columns
    return TUNING.part_columns


def build_node_tables(memory: Any, dtype: torch.dtype) -> NodeTables:
    """Build the tables of a policy's memory."""
    is_tsp = memory.query_load is None
    context = memory.query_first if is_tsp else memory.query_load[:, 0]
    scaled = (
        (memory.key, 1.0),
        (memory.value, 1.0),
        (memory.pointer, POINTER_SCALE),
        (memory.query_last, QUERY_SCALE),
    )
    key, value, pointer, query_last = scale_and_pad(scaled, dtype)
    bias = pad_rows(memory.bias.transpose(1, 2) * POINTER_SCALE)
    return NodeTables(
        key=key,
        value=value,
        pointer=pointer,
        query_last=query_last,
        query_context=(context * QUERY_SCALE).float(),
        bias=bias[..., 0].float().contiguous(),
        reach=bound_scores(query_last, key),
    )


def scale_and_pad(scaled: Sequence[tuple[Tensor, float]], dtype: torch.dtype) -> Tensor:
    """Multiply tables [B, N, E] by their factors and pad them with zeros, in one buffer.

    That takes one launch for each, and one for all.
    """
    table, _ = scaled[0]
    count, nodes, width = table.shape
    columns = padded_columns(nodes)
    shape = (len(scaled), count, columns, width)
    buffer = torch.zeros(shape, dtype=dtype, device=table.device)
    pairs = zip(buffer, scaled, strict=True)
    for target, (source, factor) in pairs:
        torch.mul(source, factor, out=target[:, :nodes])
    return buffer


class TableCache:
    """The tables of the last memory: a search needs those of the same memory at every step.

    They cost two dozen launches, which matters for few instances. No caller writes into a memory,
    so the same object has the same tables. While a CUDA graph is recorded nothing is kept, as it
    has not been computed yet.
    """

    # One value, replaced as a whole: searches may run in threads.
    last: "tuple[weakref.ref[Any], NodeTables] | None" = None

    def nodes(self, memory: Any, dtype: torch.dtype) -> NodeTables:
        """Return the tables of a memory, those of the last call if they are the same."""
        last = self.last
        if last is not None:
            of_memory, tables = last
            if of_memory() is memory and tables.key.dtype == dtype:
                return tables
        made = build_node_tables(memory, dtype)
        is_recording = made.key.is_cuda and torch.cuda.is_current_stream_capturing()
        if not is_recording:
            self.last = (weakref.ref(memory, self.forget), made)
        return made

    def forget(self, gone: "weakref.ref[Any]") -> None:
        """Release the tables together with their memory."""
        last = self.last
        if last is not None and last[0] is gone:
            self.last = None


TABLE_CACHE = TableCache()


def by_head(x: Tensor) -> Tensor:
    """Split the rows of a table into heads, [B, heads, rows, width]."""
    heads = x.unflatten(-1, (HEADS, HEAD_WIDTH))
    return heads.transpose(1, 2)


def bound_scores(query: Tensor, key: Tensor) -> Tensor:
    """Bound how far above and below 0 any row of a query part scores with each key.

    Returns [B, heads, 2, keys].
    """
    if kernels.on_gpu(key):
        width = part_width(key.shape[1])
        return score_bounds.launch_bound_scores(query, key, HEADS, width)
    queries = by_head(query.to(key.dtype))
    keys = by_head(key)
    scores = queries @ keys.transpose(2, 3)
    highest = scores.amax(2)
    lowest = scores.amin(2)
    bounds = torch.stack([highest, -lowest], dim=2)
    return bounds.float()


def find_bounded_instances(nodes: NodeTables, *parts: Tensor) -> Tensor:
    """Find the instances whose attention scores provably stay below the bound: [B] int32.

    No maximum need be subtracted from them. A query is the sum of a row of `query_last` and of one
    of each part [B, rows, E]. So the sum of the highest scores of each of them with a key bounds
    the score of the query, and likewise from below. A bound that ignores the key and the sign would
    be a fifth larger for trained policies, and one by lengths two to four times as large.
    """
    of_parts = [bound_scores(part, nodes.key) for part in parts]
    reach = nodes.reach + sum(of_parts)
    is_below = reach < TUNING.max_exponent
    bounded = is_below.flatten(1).all(1)
    return bounded.to(torch.int32)


def empty_and_full_queries(query: Tensor, load: Tensor, capacity: Tensor) -> Tensor:
    """Compute the queries [B, 2 K, E] of vehicles with no capacity and with all of it left.

    Among all loads one of these two has the highest score.
    """
    all_left = load * capacity[:, None]
    all_left = all_left[:, None]
    full = query + all_left
    return torch.cat([query, full], dim=1)
