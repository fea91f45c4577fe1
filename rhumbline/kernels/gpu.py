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

from rhumbline.kernels import HEAD_WIDTH, HEADS
from rhumbline.kernels.gpu_tables import Tables, bounded, empty_and_full

LOG2E = tl.constexpr(1.4426950408889634)
BELOW_ONE = tl.constexpr(1.0 - 2.0**-22)  # as in decoding.choose
CLOSED = tl.constexpr(-1.0e9)
WARM = 0.25  # temperature from which the weights of all logits in [-10, 10] are normal numbers


@triton.jit
def tile_rows(K, S, ID, COUNTERS, b, M: tl.constexpr):
    """Rollouts of this program: number, whether it exists, latent, start; and the words of its noise counter."""
    r = tl.program_id(1) * M + tl.arange(0, M)  # rollout r: latent r // S from start r % S
    valid = r < K * S
    r = tl.minimum(r, K * S - 1)
    latent = r // S
    attempt = (tl.load(COUNTERS + 1) + latent).to(tl.uint32)
    instance = tl.load(ID + b).to(tl.uint32) + tl.zeros([M], tl.uint32)
    return r, valid, latent, r % S, attempt, instance


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
def counting_tables(cols, NP: tl.constexpr, DT: tl.constexpr):
    """Zeros and ones [NP, 16]: products with them are running sums of 16 groups, and of the places in a group."""
    sixteen = tl.arange(0, 16)
    groups = (cols[:, None] // (NP // 16) <= sixteen[None, :]).to(DT)
    places = (cols[:, None] % (NP // 16) <= sixteen[None, :]).to(DT)
    return groups, places


@triton.jit
def glimpse_logits(
    QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, keys, values, pointers, logits, mask, latent, row, load, last,
    LOAD: tl.constexpr, BOUNDED: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Pointer scores [M, NP], times 2 log2(e): attention over open nodes head by head, accumulated on `logits`.

    QUERY holds, at `row`, what never changes during a rollout. With LOAD, the capacity left adds its share.
    """
    E: tl.constexpr = H * D
    for h in tl.static_range(H):
        e = h * D + tl.arange(0, D)
        q = tl.load(QUERY + row[:, None] * E + e[None, :]).to(tl.float32)
        q += tl.load(QUERY_LAST + last[:, None] * E + e[None, :]).to(tl.float32)
        if LOAD:
            q += load[:, None] * tl.load(QUERY_LOAD + e)[None, :]
        scores = tl.dot(q.to(DT), keys[h], input_precision=PREC) + mask
        if not BOUNDED:
            scores -= tl.max(scores, 1)[:, None]
        weight = tl.exp2(scores)
        glimpse = tl.dot(weight.to(DT), values[h], input_precision=PREC) * (1.0 / tl.sum(weight, 1))[:, None]
        glimpse += tl.load(GLIMPSE_SHIFT + latent[:, None] * E + e[None, :]).to(tl.float32)
        logits = tl.dot(glimpse.to(DT), pointers[h], logits, input_precision=PREC)
    return logits


@triton.jit
def pick(
    logits, mask, cols, uniform, sharpness, groups, places,
    NP: tl.constexpr, GREEDY: tl.constexpr, WARM: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """The chosen column of each row, and its probability: the best, or the one that the uniform hits among the weights.

    Running sums come from tensor cores, in two stages: first which group of columns, then which place in it. Equal
    terms give equal sums, so a closed column never raises a sum and is never hit, whatever the rounding.
    """
    squashed = mask - 20.0 / (tl.exp2(logits) + 1.0)  # 10 tanh - 10
    if GREEDY:
        return tl.argmax(squashed, 1).to(tl.int32), uniform  # nobody asks for a probability then
    else:
        if not WARM:  # cold weights would all vanish
            squashed -= tl.max(squashed, 1)[:, None]
        weight = tl.exp2(squashed * sharpness).to(DT)
        reach = tl.dot(weight, groups, input_precision=PREC)  # [M, 16]
        total = tl.max(reach, 1)
        limit = uniform * (total * BELOW_ONE)
        passed = reach <= limit[:, None]
        group = tl.sum(passed.to(tl.int32), 1)
        # The difference may be contracted to one rounding and fall just below zero.
        rest = tl.maximum(limit - tl.max(tl.where(passed, reach, 0.0), 1), 0.0)
        inside = tl.where((cols // (NP // 16))[None, :] == group[:, None], weight, 0.0)
        reach = tl.dot(inside, places, input_precision=PREC)
        short = (reach <= rest[:, None]) & (reach < tl.max(reach, 1)[:, None])
        hit = tl.min(tl.where(short, float("inf"), reach), 1) - tl.max(tl.where(short, reach, 0.0), 1)
        return group * (NP // 16) + tl.sum(short.to(tl.int32), 1), hit / total


@triton.jit
def marked(node, share, certain, MARK: tl.constexpr):
    """What is stored for a decision: the node, or its complement where it was all but certain."""
    return (tl.where(share >= certain, -1 - node, node) if MARK else node).to(tl.int16)


@triton.jit(do_not_specialize=["K"])  # strategies try 16 latents, 8 or 1: one and the same machine code
def tsp_rollout_kernel(
    KEY, VALUE, POINTER, QUERY_LAST, QUERY, GLIMPSE_SHIFT, BIAS, IS_BOUNDED, XY, START, ID, COUNTERS, ACTION, COST,
    K, S, N, sharpness, certain,
    NP: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    GREEDY: tl.constexpr, WARM: tl.constexpr, BOUNDED: tl.constexpr, MARK: tl.constexpr, DT: tl.constexpr,
    PREC: tl.constexpr,
):  # fmt: skip
    E: tl.constexpr = H * D
    b = tl.program_id(0).to(tl.int64)
    if (tl.load(IS_BOUNDED + b) != 0) != BOUNDED:
        return
    r, valid, latent, start, attempt, instance = tile_rows(K, S, ID, COUNTERS, b, M)
    R = K * S
    KEY += b * NP * E
    VALUE += b * NP * E
    POINTER += b * NP * E
    QUERY_LAST += b * NP * E
    QUERY += b * R * E
    GLIMPSE_SHIFT += b * K * E
    BIAS += b * NP
    XY += b * N * 2
    ACTION += b * N * R
    seed = tl.load(COUNTERS)
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
    groups, places = counting_tables(cols, NP, DT)
    tl.store(ACTION + r, first.to(tl.int16), mask=valid)
    for t in range(1, N):
        logits = tl.zeros([M, NP], tl.float32) + tl.load(BIAS + cols)[None, :]
        logits = glimpse_logits(
            QUERY, QUERY, QUERY_LAST, GLIMPSE_SHIFT, keys, values, pointers, logits, mask, latent, r, cost, last,
            False, BOUNDED, H, D, DT, PREC,
        )  # fmt: skip
        word, _, _, _ = tl.philox(seed, (start * N + t).to(tl.uint32), attempt, instance, tl.zeros([M], tl.uint32))
        uniform = tl.uint_to_uniform_float(word)
        last, share = pick(logits, mask, cols, uniform, sharpness, groups, places, NP, GREEDY, WARM, DT, PREC)
        # A value that changes with t: for a constant the compiler keeps predicates instead, and spills twice as much.
        mask = tl.where(cols[None, :] == last[:, None], CLOSED * (1 + t), mask)
        x1 = tl.load(XY + last * 2)
        y1 = tl.load(XY + last * 2 + 1)
        cost += tl.sqrt((x1 - x) * (x1 - x) + (y1 - y) * (y1 - y))
        x, y = x1, y1
        # [T, R]: neighbours write side by side. This store also keeps the compiler from lifting the loads above out
        # of the loop, where they would cost registers and spill.
        tl.store(ACTION + t * R + r, marked(last, share, certain, MARK), mask=valid)
    cost += tl.sqrt((x0 - x) * (x0 - x) + (y0 - y) * (y0 - y))
    tl.store(COST + b * R + r, cost, mask=valid)


@triton.jit(do_not_specialize=["K"])
def cvrp_rollout_kernel(
    KEY, VALUE, POINTER, QUERY_LAST, QUERY, GLIMPSE_SHIFT, BIAS, IS_BOUNDED, XY, START, ID, COUNTERS, ACTION, COST,
    QUERY_LOAD, DEMAND, CAPACITY, K, S, N, T, sharpness, certain,
    NP: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    GREEDY: tl.constexpr, WARM: tl.constexpr, BOUNDED: tl.constexpr, MARK: tl.constexpr, DT: tl.constexpr,
    PREC: tl.constexpr,
):  # fmt: skip
    E: tl.constexpr = H * D
    b = tl.program_id(0).to(tl.int64)
    if (tl.load(IS_BOUNDED + b) != 0) != BOUNDED:
        return
    r, valid, latent, start, attempt, instance = tile_rows(K, S, ID, COUNTERS, b, M)
    R = K * S
    KEY += b * NP * E
    VALUE += b * NP * E
    POINTER += b * NP * E
    QUERY_LAST += b * NP * E
    QUERY += b * K * E
    QUERY_LOAD += b * E
    GLIMPSE_SHIFT += b * K * E
    BIAS += b * NP
    XY += b * N * 2
    DEMAND += b * N
    ACTION += b * T * R
    seed = tl.load(COUNTERS)
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
    groups, places = counting_tables(cols, NP, DT)
    tl.store(ACTION + r, last.to(tl.int16), mask=valid)
    t = 1
    while (t < T) & (tl.max(waiting + last, 0) > 0):  # until every vehicle is home and nobody waits
        # Integer comparisons, so no epsilon. The depot is open unless the vehicle is there while somebody waits.
        mask = tl.where(mask < 1.5 * CLOSED, mask, tl.where(demand[None, :] <= left[:, None], 0.0, CLOSED))
        depot = tl.where((last == 0) & (waiting > 0), CLOSED, 0.0)
        mask = tl.where(cols[None, :] == 0, depot[:, None], mask)
        logits = tl.zeros([M, NP], tl.float32) + tl.load(BIAS + cols)[None, :]
        logits = glimpse_logits(
            QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, keys, values, pointers, logits, mask, latent, latent,
            left.to(tl.float32), last, True, BOUNDED, H, D, DT, PREC,
        )  # fmt: skip
        word, _, _, _ = tl.philox(seed, (start * T + t).to(tl.uint32), attempt, instance, tl.zeros([M], tl.uint32))
        uniform = tl.uint_to_uniform_float(word)
        last, share = pick(logits, mask, cols, uniform, sharpness, groups, places, NP, GREEDY, WARM, DT, PREC)
        left = tl.where(last == 0, capacity, left - tl.load(DEMAND + last))
        waiting -= (last > 0).to(tl.int32)
        mask = tl.where(cols[None, :] == last[:, None], CLOSED * (1 + t), mask)  # the depot's column is set anew above
        x1 = tl.load(XY + last * 2)
        y1 = tl.load(XY + last * 2 + 1)
        cost += tl.sqrt((x1 - x) * (x1 - x) + (y1 - y) * (y1 - y))
        x, y = x1, y1
        tl.store(ACTION + t * R + r, marked(last, share, certain, MARK), mask=valid)
        t += 1
    cost += tl.sqrt((home_x - x) * (home_x - x) + (home_y - y) * (home_y - y))
    tl.store(COST + b * R + r, cost, mask=valid)


def tile(instances: int, rollouts: int, padded: int) -> tuple[int, int]:
    """Rollouts per program and warps: large tiles read tables less often, small ones fill the chip's 132 processors.

    Two programs of 64 rows share a processor: one computes while the other waits. From 256 nodes on one fills it. Then
    the products of fewer rows would take tables from registers, where they do not fit, and those of eight warps more
    shared memory than there is.
    """
    if padded > 128:
        return 64, 4
    fits = (m for m in (64, 32) if m < 2 * rollouts)
    rows = next((m for m in fits if instances * triton.cdiv(rollouts, m) >= 132), 16)
    return rows, max(1, min(8, rows * padded // 2048))


@dataclass(frozen=True)
class Launch:
    """What both kernels are started with, and where their results go."""

    grid: tuple[int, int]
    inputs: tuple[Tensor, ...]
    actions: Tensor  # [B, T, R] int16; 0 where a rollout ended before
    cost: Tensor  # [B, R]
    sizes: tuple[int, int, int]  # K, S, N
    options: dict[str, Any]

    def start(self, kernel: Any, *more: Any) -> tuple[Tensor, Tensor]:
        """Costs [B, K, S] and actions [B, K, S, T], the latter a strided view.

        Two launches, each for the instances that are or are not bounded: nothing is read back from the device.
        """
        for flag in (True, False):
            kernel[self.grid](*self.inputs, *more, BOUNDED=flag, **self.options)
        shape = (len(self.cost), *self.sizes[:2])
        return self.cost.view(shape), self.actions.transpose(1, 2).view(*shape, -1)


def launch(
    tables: Tables, query: Tensor, safe: Tensor, xy: Tensor, starts: Tensor, key: Tensor, counters: Tensor, steps: int,
    temperature: float, mark: float, shape: tuple[int, int] | None,
) -> Launch:  # fmt: skip
    """Tiles, buffers and common arguments of a rollout of `steps` actions."""
    (count, size, _), per, tried, nodes = xy.shape, starts.shape[1], tables.query_shift.shape[1], tables.nodes
    rows, warps = shape or tile(count, tried * per, nodes.key.shape[1])
    actions = torch.zeros(count, steps, tried * per, dtype=torch.int16, device=xy.device)
    cost = torch.empty(count, tried * per, device=xy.device)
    inputs = (
        nodes.key, nodes.value, nodes.pointer, nodes.query_last, query.to(nodes.key.dtype).contiguous(),
        tables.glimpse_shift, nodes.bias, safe, xy.contiguous(), starts.to(torch.int32).contiguous(), key, counters,
        actions, cost,
    )  # fmt: skip
    half = nodes.key.dtype == torch.bfloat16
    options = {
        "NP": nodes.key.shape[1], "M": rows, "H": HEADS, "D": HEAD_WIDTH, "GREEDY": temperature == 0.0,
        "WARM": temperature >= WARM, "DT": tl.bfloat16 if half else tl.float32, "PREC": "ieee", "num_warps": warps,
        "num_stages": 1, "sharpness": LOG2E.value / (temperature or 1.0), "MARK": mark > 0.0 and temperature > 0.0,
        "certain": mark,
    }  # fmt: skip
    return Launch((count, triton.cdiv(tried * per, rows)), inputs, actions, cost, (tried, per, size), options)


@torch.no_grad()
def begun(shift: Tensor, first: Tensor, dtype: torch.dtype) -> Tensor:
    """The part of the query that a rollout keeps, [B, K * S, E]: added in float32 and written once, in `dtype`."""
    (count, tried, width), per = shift.shape, first.shape[1]
    query = torch.empty(count, tried, per, width, dtype=dtype, device=shift.device)
    torch.add(shift[:, :, None], first[:, None], out=query)
    return query.flatten(1, 2)


def tsp_rollout(
    tables: Tables, xy: Tensor, starts: Tensor, key: Tensor, counters: Tensor, *, temperature: float = 1.0,
    mark: float = 0.0, shape: tuple[int, int] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Costs [B, K, S] and actions [B, K, S, N] (int16; a strided view). `counters` is [seed, first attempt], int64.

    The counters live on the device so that a CUDA graph can be replayed with other noise. With `mark`, actions that had
    at least that probability when they were drawn come as their complements.
    """
    chosen = starts.long()[..., None].expand(-1, -1, tables.query_shift.shape[2])
    first = tables.nodes.query_context.gather(1, chosen)
    query = begun(tables.query_shift, first, tables.nodes.key.dtype)
    safe = bounded(tables.nodes, tables.query_shift, first)
    go = launch(tables, query, safe, xy, starts, key, counters, xy.shape[1], temperature, mark, shape)
    return go.start(tsp_rollout_kernel, *go.sizes)


def cvrp_rollout(
    tables: Tables, xy: Tensor, demand: Tensor, capacity: Tensor, starts: Tensor, key: Tensor, counters: Tensor, *,
    temperature: float = 1.0, mark: float = 0.0, shape: tuple[int, int] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The same for CVRP: actions [B, K, S, 2n], padded with the depot. Demands and capacities are whole."""
    steps, query, load = 2 * (xy.shape[1] - 1), tables.query_shift, tables.nodes.query_context
    safe = bounded(tables.nodes, empty_and_full(query, load, capacity))
    go = launch(tables, query, safe, xy, starts, key, counters, steps, temperature, mark, shape)
    whole = (demand.to(torch.int32).contiguous(), capacity.to(torch.int32).contiguous())
    return go.start(cvrp_rollout_kernel, load.contiguous(), *whole, *go.sizes, steps)
