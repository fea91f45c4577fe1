"""Triton: a whole rollout in one launch. A program carries a tile of rollouts of one instance through every step.

Nothing but the actions and the cost leaves the chip. Keys, values and pointers of the instance stay in shared memory;
scores, masks and logits live in registers. Products run on tensor cores in bfloat16, everything else is float32.
`glimpse_logits` and `pick` are the core that every routing problem shares; a problem adds its mask, query and cost.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2E = tl.constexpr(1.4426950408889634)
BELOW_ONE = tl.constexpr(1.0 - 2.0**-22)  # as in decoding.choose
CLOSED = tl.constexpr(-1.0e9)
HEADS, HEAD_WIDTH = 8, 16


@dataclass(frozen=True)
class Tables:
    """What the kernels read: nodes padded to a power of two, queries times log2(e)/sqrt(head width) for exp2."""

    key: Tensor  # [B, NP, E]
    value: Tensor  # [B, NP, E]
    pointer: Tensor  # [B, NP, E]
    query_last: Tensor  # [B, NP, E]
    query_context: Tensor  # [B, NP, E] of the first node (TSP), or [B, E] float32 per unit of capacity left (CVRP)
    query_shift: Tensor  # [B, K, E]
    pointer_shift: Tensor  # [B, K, NP] float32


def tables(memory: Any, shift: Any, dtype: torch.dtype = torch.bfloat16) -> Tables:
    """Kernel tables from a policy's memory and the shifts of its latents."""
    nodes = memory.key.shape[1]
    padding = max(16, triton.next_power_of_2(nodes)) - nodes
    scale = LOG2E.value / HEAD_WIDTH**0.5

    def rows(x: Tensor, factor: float = 1.0) -> Tensor:
        return torch.nn.functional.pad(x * factor, (0, 0, 0, padding)).to(dtype)

    def context_rows() -> Tensor:
        if memory.query_load is not None:
            return (memory.query_load[:, 0] * scale).float().contiguous()
        return rows(memory.query_first, scale)

    return Tables(
        key=rows(memory.key),
        value=rows(memory.value),
        pointer=rows(memory.pointer),
        query_last=rows(memory.query_last, scale),
        query_context=context_rows(),
        query_shift=(shift.query * scale).to(dtype).contiguous(),
        pointer_shift=torch.nn.functional.pad(shift.pointer, (0, padding)).float().contiguous(),
    )


@triton.jit
def head_tables(TABLE, cols, TRANSPOSED: tl.constexpr, H: tl.constexpr, D: tl.constexpr):
    """A table's heads, [NP, D] or [D, NP] each, loaded once: as operands of products they stay in shared memory."""
    heads = ()
    for h in tl.static_range(H):
        e = h * D + tl.arange(0, D)
        if TRANSPOSED:
            heads = heads + (tl.load(TABLE + cols[None, :] * (H * D) + e[:, None]),)
        else:
            heads = heads + (tl.load(TABLE + cols[:, None] * (H * D) + e[None, :]),)
    return heads


@triton.jit
def glimpse_logits(
    QUERY_SHIFT, QUERY_CONTEXT, QUERY_LAST, keys, values, pointers, logits, mask, latent, context, last,
    LOAD: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Pointer scores [M, NP] before the tanh: attention over open nodes head by head, accumulated on `logits`.

    `context` is the first node of each row, or with LOAD its capacity left.
    """
    E: tl.constexpr = H * D
    for h in tl.static_range(H):
        e = h * D + tl.arange(0, D)
        q = tl.load(QUERY_SHIFT + latent[:, None] * E + e[None, :]).to(tl.float32)
        if LOAD:
            q += context[:, None] * tl.load(QUERY_CONTEXT + e)[None, :]
        else:
            q += tl.load(QUERY_CONTEXT + context[:, None] * E + e[None, :]).to(tl.float32)
        q += tl.load(QUERY_LAST + last[:, None] * E + e[None, :]).to(tl.float32)
        scores = tl.dot(q.to(DT), keys[h], input_precision=PREC) + mask
        weight = tl.exp2(scores - tl.max(scores, 1)[:, None])
        total = tl.sum(weight, 1)
        glimpse = tl.dot(weight.to(DT), values[h], input_precision=PREC) * (1.0 / total)[:, None]
        logits = tl.dot(glimpse.to(DT), pointers[h], logits, input_precision=PREC)
    return logits


@triton.jit
def pick(logits, mask, cols, uniform, sharpness, NP: tl.constexpr, GREEDY: tl.constexpr):
    """The chosen column of each row: the best, or the one that the uniform hits in the cumulative weights."""
    squashed = 10.0 - 20.0 / (tl.exp2(logits * (2.0 * LOG2E)) + 1.0) + mask  # 10 tanh(logits)
    if GREEDY:
        return tl.argmax(squashed, 1).to(tl.int32)
    else:
        weight = tl.exp2((squashed - tl.max(squashed, 1)[:, None]) * sharpness)
        limit = uniform * (tl.sum(weight, 1) * BELOW_ONE)
        chosen = tl.sum((tl.cumsum(weight, 1) <= limit[:, None]).to(tl.int32), 1)
        # Sum and scan add in different orders, so about one uniform in 10^7 falls past the end or on a closed node.
        # Asking the mask afterwards is far cheaper than inside the scan, whose layout differs.
        chosen = tl.minimum(chosen, NP - 1)
        closed = tl.sum(tl.where(cols[None, :] == chosen[:, None], mask, 0.0), 1) != 0.0
        if tl.max(closed.to(tl.int32), 0) > 0:
            chosen = tl.where(closed, tl.max(tl.where(mask == 0.0, cols[None, :], -1), 1), chosen)
        return chosen


@triton.jit
def tsp_rollout_kernel(
    KEY, VALUE, POINTER, QUERY_LAST, QUERY_CONTEXT, QUERY_SHIFT, POINTER_SHIFT, XY, START, ID, COUNTERS, ACTION, COST,
    K, S, sharpness,
    N: tl.constexpr, NP: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    GREEDY: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    E: tl.constexpr = H * D
    b = tl.program_id(0).to(tl.int64)
    R = K * S
    r = tl.program_id(1) * M + tl.arange(0, M)  # rollout r: latent r // S from start r % S
    valid = r < R
    r = tl.minimum(r, R - 1)
    latent = r // S
    start = r % S
    KEY += b * NP * E
    VALUE += b * NP * E
    POINTER += b * NP * E
    QUERY_LAST += b * NP * E
    QUERY_CONTEXT += b * NP * E
    QUERY_SHIFT += b * K * E
    POINTER_SHIFT += b * K * NP
    XY += b * N * 2
    ACTION += b * N * R
    seed = tl.load(COUNTERS)
    attempt = (tl.load(COUNTERS + 1) + latent).to(tl.uint32)
    instance = tl.load(ID + b).to(tl.uint32) + tl.zeros([M], tl.uint32)
    cols = tl.arange(0, NP)
    first = tl.load(START + b * S + start)
    last = first
    # Additive masks, not booleans: one addition per element wherever they are used.
    mask = tl.where((cols[None, :] < N) & (cols[None, :] != first[:, None]), 0.0, CLOSED)
    x0 = tl.load(XY + first * 2)
    y0 = tl.load(XY + first * 2 + 1)
    x, y = x0, y0
    cost = tl.zeros([M], tl.float32)
    keys = head_tables(KEY, cols, True, H, D)
    values = head_tables(VALUE, cols, False, H, D)
    pointers = head_tables(POINTER, cols, True, H, D)
    tl.store(ACTION + r, first.to(tl.int16), mask=valid)
    for t in range(1, N):
        logits = tl.load(POINTER_SHIFT + latent[:, None] * NP + cols[None, :])
        logits = glimpse_logits(
            QUERY_SHIFT, QUERY_CONTEXT, QUERY_LAST, keys, values, pointers, logits, mask, latent, first, last,
            False, H, D, DT, PREC,
        )  # fmt: skip
        word, _, _, _ = tl.philox(seed, (start * N + t).to(tl.uint32), attempt, instance, tl.zeros([M], tl.uint32))
        last = pick(logits, mask, cols, tl.uint_to_uniform_float(word), sharpness, NP, GREEDY)
        # A value that changes with t: for a constant the compiler keeps predicates instead, and spills twice as much.
        mask = tl.where(cols[None, :] == last[:, None], CLOSED * (1 + t), mask)
        x1 = tl.load(XY + last * 2)
        y1 = tl.load(XY + last * 2 + 1)
        cost += tl.sqrt((x1 - x) * (x1 - x) + (y1 - y) * (y1 - y))
        x, y = x1, y1
        # [T, R]: neighbours write side by side. This store also keeps the compiler from lifting the loads above out
        # of the loop, where they would cost 64 registers a thread and spill.
        tl.store(ACTION + t * R + r, last.to(tl.int16), mask=valid)
    cost += tl.sqrt((x0 - x) * (x0 - x) + (y0 - y) * (y0 - y))
    tl.store(COST + b * R + r, cost, mask=valid)


@triton.jit
def cvrp_rollout_kernel(
    KEY, VALUE, POINTER, QUERY_LAST, QUERY_CONTEXT, QUERY_SHIFT, POINTER_SHIFT, XY, START, ID, COUNTERS, ACTION, COST,
    DEMAND, CAPACITY, K, S, T, sharpness,
    N: tl.constexpr, NP: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    GREEDY: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    E: tl.constexpr = H * D
    b = tl.program_id(0).to(tl.int64)
    R = K * S
    r = tl.program_id(1) * M + tl.arange(0, M)  # rollout r: latent r // S from start r % S
    valid = r < R
    r = tl.minimum(r, R - 1)
    latent = r // S
    start = r % S
    KEY += b * NP * E
    VALUE += b * NP * E
    POINTER += b * NP * E
    QUERY_LAST += b * NP * E
    QUERY_CONTEXT += b * E
    QUERY_SHIFT += b * K * E
    POINTER_SHIFT += b * K * NP
    XY += b * N * 2
    DEMAND += b * N
    ACTION += b * T * R
    seed = tl.load(COUNTERS)
    attempt = (tl.load(COUNTERS + 1) + latent).to(tl.uint32)
    instance = tl.load(ID + b).to(tl.uint32) + tl.zeros([M], tl.uint32)
    cols = tl.arange(0, NP)
    demand = tl.load(DEMAND + cols, mask=cols < N, other=0)
    capacity = tl.load(CAPACITY + b)
    last = tl.load(START + b * S + start)
    left = capacity - tl.load(DEMAND + last)
    waiting = tl.zeros([M], tl.int32) + (N - 2)  # customers not yet served: all but the first
    # One tile holds both reasons to be closed: served for good (beyond 1.5 CLOSED), or too large for this vehicle.
    mask = tl.where((cols[None, :] < N) & (cols[None, :] != last[:, None]), 0.0, 2.0 * CLOSED)
    home_x = tl.load(XY)
    home_y = tl.load(XY + 1)
    x = tl.load(XY + last * 2)
    y = tl.load(XY + last * 2 + 1)
    cost = tl.sqrt((x - home_x) * (x - home_x) + (y - home_y) * (y - home_y))
    keys = head_tables(KEY, cols, True, H, D)
    values = head_tables(VALUE, cols, False, H, D)
    pointers = head_tables(POINTER, cols, True, H, D)
    tl.store(ACTION + r, last.to(tl.int16), mask=valid)
    t = 1
    while (t < T) & (tl.max(waiting + last, 0) > 0):  # until every vehicle is home and nobody waits
        # Integer comparisons, so no epsilon. The depot is open unless the vehicle is there while somebody waits.
        mask = tl.where(mask < 1.5 * CLOSED, mask, tl.where(demand[None, :] <= left[:, None], 0.0, CLOSED))
        depot = tl.where((last == 0) & (waiting > 0), CLOSED, 0.0)
        mask = tl.where(cols[None, :] == 0, depot[:, None], mask)
        logits = tl.load(POINTER_SHIFT + latent[:, None] * NP + cols[None, :])
        logits = glimpse_logits(
            QUERY_SHIFT, QUERY_CONTEXT, QUERY_LAST, keys, values, pointers, logits, mask, latent,
            left.to(tl.float32), last, True, H, D, DT, PREC,
        )  # fmt: skip
        word, _, _, _ = tl.philox(seed, (start * T + t).to(tl.uint32), attempt, instance, tl.zeros([M], tl.uint32))
        last = pick(logits, mask, cols, tl.uint_to_uniform_float(word), sharpness, NP, GREEDY)
        left = tl.where(last == 0, capacity, left - tl.load(DEMAND + last))
        waiting -= (last > 0).to(tl.int32)
        mask = tl.where(cols[None, :] == last[:, None], CLOSED * (1 + t), mask)  # the depot's column is set anew above
        x1 = tl.load(XY + last * 2)
        y1 = tl.load(XY + last * 2 + 1)
        cost += tl.sqrt((x1 - x) * (x1 - x) + (y1 - y) * (y1 - y))
        x, y = x1, y1
        tl.store(ACTION + t * R + r, last.to(tl.int16), mask=valid)
        t += 1
    cost += tl.sqrt((home_x - x) * (home_x - x) + (home_y - y) * (home_y - y))
    tl.store(COST + b * R + r, cost, mask=valid)


def tile(instances: int, rollouts: int, padded: int) -> tuple[int, int]:
    """Rollouts per program and warps: large tiles read tables less often, small ones fill the chip's 132 processors."""
    largest = max(16, 128 * 128 // padded)
    fits = (m for m in (128, 64, 32) if m <= largest and m < 2 * rollouts)
    rows = next((m for m in fits if instances * triton.cdiv(rollouts, m) >= 132), 16)
    return rows, max(1, min(8, rows * padded // 2048))


@dataclass(frozen=True)
class Launch:
    """What both kernels are started with, and where their results go."""

    grid: tuple[int, int]
    inputs: tuple[Tensor, ...]
    actions: Tensor  # [B, T, R] int16; 0 where a rollout ended before
    cost: Tensor  # [B, R]
    sizes: tuple[int, int]  # K, S
    options: dict[str, Any]

    @property
    def results(self) -> tuple[Tensor, Tensor]:
        """Costs [B, K, S] and actions [B, K, S, T], the latter a strided view."""
        shape = (len(self.cost), *self.sizes)
        return self.cost.view(shape), self.actions.transpose(1, 2).view(*shape, -1)


def launch(
    tables: Tables, xy: Tensor, starts: Tensor, key: Tensor, counters: Tensor, steps: int, greedy: bool,
    shape: tuple[int, int] | None,
) -> Launch:  # fmt: skip
    """Tiles, buffers and common arguments of a rollout of `steps` actions."""
    (count, nodes, _), per, tried = xy.shape, starts.shape[1], tables.query_shift.shape[1]
    padded, rollouts = tables.key.shape[1], tried * per
    rows, warps = shape or tile(count, rollouts, padded)
    actions = torch.zeros(count, steps, rollouts, dtype=torch.int16, device=xy.device)
    cost = torch.empty(count, rollouts, device=xy.device)
    inputs = (
        tables.key, tables.value, tables.pointer, tables.query_last, tables.query_context, tables.query_shift,
        tables.pointer_shift, xy.contiguous(), starts.to(torch.int32).contiguous(), key, counters, actions, cost,
    )  # fmt: skip
    half = tables.key.dtype == torch.bfloat16
    options = {
        "N": nodes, "NP": padded, "M": rows, "H": HEADS, "D": HEAD_WIDTH, "GREEDY": greedy,
        "DT": tl.bfloat16 if half else tl.float32, "PREC": "ieee", "num_warps": warps, "num_stages": 1,
    }  # fmt: skip
    return Launch((count, triton.cdiv(rollouts, rows)), inputs, actions, cost, (tried, per), options)


def tsp_rollout(
    tables: Tables, xy: Tensor, starts: Tensor, key: Tensor, counters: Tensor, *, temperature: float = 1.0,
    shape: tuple[int, int] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Costs [B, K, S] and actions [B, K, S, N] (int16; a strided view). `counters` is [seed, first attempt], int64.

    The counters live on the device so that a CUDA graph can be replayed with other noise.
    """
    start = launch(tables, xy, starts, key, counters, xy.shape[1], temperature == 0.0, shape)
    sharpness = LOG2E.value / (temperature or 1.0)
    tsp_rollout_kernel[start.grid](*start.inputs, *start.sizes, sharpness, **start.options)
    return start.results


def cvrp_rollout(
    tables: Tables, xy: Tensor, demand: Tensor, capacity: Tensor, starts: Tensor, key: Tensor, counters: Tensor, *,
    temperature: float = 1.0, shape: tuple[int, int] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The same for CVRP: actions [B, K, S, 2n], padded with the depot. Demands and capacities are whole."""
    steps = 2 * (xy.shape[1] - 1)
    start = launch(tables, xy, starts, key, counters, steps, temperature == 0.0, shape)
    whole = (demand.to(torch.int32).contiguous(), capacity.to(torch.int32).contiguous())
    sharpness = LOG2E.value / (temperature or 1.0)
    cvrp_rollout_kernel[start.grid](*start.inputs, *whole, *start.sizes, steps, sharpness, **start.options)
    return start.results
