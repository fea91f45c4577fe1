"""Triton: rollouts of more than 256 nodes, whose tables exceed a processor's shared memory.

As in `tile_kernels`, a program carries a tile of rollouts through every step. But keys, values and
pointers are read part by part from the second-level cache, in loops, so that one kernel serves all
sizes. Attention keeps running sums over the parts. The logits of all columns would not fit into
registers: pointers are read twice, for the sum of the weights and for the column that the uniform
selects. Visited nodes have a byte for each node and rollout in memory.
"""

import triton
import triton.language as tl

from rhumbline.kernels.triton.rollout.masks import CLOSED, columns
from rhumbline.kernels.triton.rollout.sampling import BELOW_ONE
from rhumbline.kernels.triton.rollout.state import (
    cvrp_step,
    distance,
    gone_to,
    imposed,
    imposed_on_all,
    noise,
    place,
    tile_rows,
)
from rhumbline.kernels.triton.rollout.tile_kernels import (
    nothing_seen,
    query_of,
    query_parts,
    seen_too,
    shift_of,
    shifted,
)


@triton.jit
def part_of(TABLE, h, c, TRANSPOSED: tl.constexpr, W: tl.constexpr, H: tl.constexpr, D: tl.constexpr):
    """A head of some rows of a table, [W, D] or [D, W]."""
    e, rows = h * D + tl.arange(0, D), columns(c, W)
    if TRANSPOSED:
        return tl.load(TABLE + rows[None, :] * (H * D) + e[:, None])
    else:
        return tl.load(TABLE + rows[:, None] * (H * D) + e[None, :])


@triton.jit
def rows_of(KEY, VALUE, POINTER, QUERY_LAST, BIAS, row, E: tl.constexpr):
    """An instance's tables, which begin at a row of all."""
    return KEY + row * E, VALUE + row * E, POINTER + row * E, QUERY_LAST + row * E, BIAS + row


@triton.jit
def closed_part(SEEN, DEMAND, row, left, home, c, N, NP, LOAD: tl.constexpr, W: tl.constexpr):
    """The additive mask of a part: visited or missing; with loads also who does not fit, the depot unless `home`."""
    node = columns(c, W)[None, :]
    closed = tl.load(SEEN + row[:, None] * NP + node) != 0
    if LOAD:
        demand = tl.load(DEMAND + node, mask=node < N, other=0)
        closed = closed | (demand > left[:, None])
        closed = tl.where(node == 0, ~home[:, None], closed)
    return tl.where(closed, CLOSED, 0.0)


@triton.jit
def heads_of(
    KEY, VALUE, QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, SEEN, DEMAND, row, kept, latent, last, left, home, N, NP,
    LOAD: tl.constexpr, W: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Glimpses [M, D] of all heads; `kept` is the row of QUERY with what never changes during a rollout."""
    queries = ()
    for h in tl.static_range(H):
        parts = query_parts(QUERY, QUERY_LAST, h, kept, last, H * D, D)
        queries = queries + (query_of(parts, QUERY_LOAD, h, left, LOAD, D, DT),)
    glimpses, totals, tops = nothing_seen(row.shape[0], H, D)
    for c in range(NP // W):
        mask = closed_part(SEEN, DEMAND, row, left, home, c, N, NP, LOAD, W)
        before = (glimpses, totals, tops)
        glimpses, totals, tops = (), (), ()
        for h in tl.static_range(H):
            scores = tl.dot(queries[h], part_of(KEY, h, c, True, W, H, D), input_precision=PREC) + mask
            value = part_of(VALUE, h, c, False, W, H, D)
            glimpse, total, top = seen_too(scores, value, before[0][h], before[1][h], before[2][h], False, DT, PREC)
            glimpses, totals, tops = glimpses + (glimpse,), totals + (total,), tops + (top,)
    heads = ()
    for h in tl.static_range(H):
        heads = heads + (shifted(glimpses[h], totals[h], shift_of(GLIMPSE_SHIFT, h, latent, H * D, D), DT),)
    return heads


@triton.jit
def squashed_part(
    heads, POINTER, BIAS, SEEN, DEMAND, row, left, home, c, N, NP, LOAD: tl.constexpr, W: tl.constexpr,
    H: tl.constexpr, D: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Pointer scores [M, W] of a part as 10 tanh - 10; closed nodes are far below any other."""
    mask = closed_part(SEEN, DEMAND, row, left, home, c, N, NP, LOAD, W)
    score = mask + tl.load(BIAS + columns(c, W))[None, :]
    for h in tl.static_range(H):
        score = tl.dot(heads[h], part_of(POINTER, h, c, True, W, H, D), score, input_precision=PREC)
    return tl.where(mask < 0.5 * CLOSED, CLOSED, -20.0 / (tl.exp2(score) + 1.0))


@triton.jit
def drawn(
    heads, POINTER, BIAS, SEEN, DEMAND, row, left, home, uniform, sharpness, N, NP, LOAD: tl.constexpr,
    GREEDY: tl.constexpr, W: tl.constexpr, H: tl.constexpr, D: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """The column of each row: the best, or the one that the uniform hits among the weights."""
    top = tl.zeros_like(uniform) + CLOSED
    total = tl.zeros_like(uniform)
    best = tl.zeros_like(row)
    for c in range(NP // W):
        value = squashed_part(heads, POINTER, BIAS, SEEN, DEMAND, row, left, home, c, N, NP, LOAD, W, H, D, PREC)
        most = tl.max(value, 1)
        if GREEDY:
            best = tl.where(most > top, c * W + tl.argmax(value, 1).to(tl.int32), best)
            top = tl.maximum(top, most)
        else:  # of a part without an open column the sum vanishes with the next one's maximum
            higher = tl.maximum(top, most)
            weight = tl.exp2((value - higher[:, None]) * sharpness)
            total = total * tl.exp2((top - higher) * sharpness) + tl.sum(weight, 1)
            top = higher
    if not GREEDY:
        # Sums of one order only are compared with one another, and only open columns count as hit: rounding may choose
        # a neighbour of the right column, but none that is closed.
        limit = uniform * (total * BELOW_ONE)
        below = tl.zeros_like(uniform)
        best = tl.zeros_like(row) - 1
        spare = tl.zeros_like(row)  # the last open column, should rounding leave all sums below the limit
        for c in range(NP // W):
            value = squashed_part(heads, POINTER, BIAS, SEEN, DEMAND, row, left, home, c, N, NP, LOAD, W, H, D, PREC)
            weight = tl.exp2((value - top[:, None]) * sharpness)
            reach = below[:, None] + tl.cumsum(weight, 1)
            node = columns(c, W)[None, :]
            hit = tl.min(tl.where((reach > limit[:, None]) & (weight > 0.0), node, NP), 1)
            best = tl.where((best < 0) & (hit < NP), hit, best)
            spare = tl.maximum(spare, tl.max(tl.where(weight > 0.0, node, 0), 1))
            below += tl.sum(weight, 1)
        best = tl.where(best < 0, spare, best)
    return best


@triton.jit(do_not_specialize=["K", "S", "N", "NP"])
def tsp_stream_kernel(
    KEY, VALUE, POINTER, QUERY_LAST, QUERY, GLIMPSE_SHIFT, BIAS, SEEN, XY, START, ID, COUNTERS, ACTION, COST,
    LENGTH, K, S, N, NP, sharpness,
    W: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr, GREEDY: tl.constexpr, GIVEN: tl.constexpr,
    DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    E: tl.constexpr = H * D
    NP = NP // 16 * 16  # as it is, but now the compiler knows: rows of bytes are loaded by words
    b = tl.program_id(0).to(tl.int64)
    r, valid, latent, start, attempt, instance = tile_rows(K, S, ID, COUNTERS, b, M)
    R = K * S
    KEY, VALUE, POINTER, QUERY_LAST, BIAS = rows_of(KEY, VALUE, POINTER, QUERY_LAST, BIAS, b * NP, E)
    QUERY += b * R * E
    GLIMPSE_SHIFT += b * K * E
    SEEN += b * R * NP
    XY += b * N * 2
    ACTION += b * N * R
    LENGTH += b * R
    seed = tl.load(COUNTERS)
    first = tl.load(ACTION + r).to(tl.int32) if GIVEN else tl.load(START + b * S + start)
    last = first
    x0, y0 = place(XY, first)
    x, y = x0, y0
    cost = tl.zeros([M], tl.float32)
    home = last < 0
    tl.store(ACTION + r, first.to(tl.int16), mask=valid)
    begin = 1
    if GIVEN:  # nothing that was seen is read before the first decision
        begin = imposed_on_all(LENGTH, r)
        for t in range(1, begin):
            tl.store(SEEN + r * NP + last, tl.full([M], 1, tl.int8), mask=valid)
            last = imposed(ACTION, LENGTH, t, R, r, last)
            x, y, cost = gone_to(XY, last, x, y, cost)
    for t in range(begin, N):
        tl.store(SEEN + r * NP + last, tl.full([M], 1, tl.int8), mask=valid)
        tl.debug_barrier()  # other threads read it
        heads = heads_of(
            KEY, VALUE, QUERY, QUERY, QUERY_LAST, GLIMPSE_SHIFT, SEEN, SEEN, r, r, latent, last, last, home, N, NP,
            False, W, H, D, DT, PREC,
        )  # fmt: skip
        uniform = noise(seed, start * N + t, attempt, instance)
        last = drawn(
            heads, POINTER, BIAS, SEEN, SEEN, r, last, home, uniform, sharpness, N, NP, False, GREEDY, W, H, D, PREC
        )
        if GIVEN:
            last = imposed(ACTION, LENGTH, t, R, r, last)
        x, y, cost = gone_to(XY, last, x, y, cost)
        tl.store(ACTION + t * R + r, last.to(tl.int16), mask=valid)
        tl.debug_barrier()  # before anybody writes what others still read
    cost += distance(x, y, x0, y0)
    tl.store(COST + b * R + r, cost, mask=valid)


@triton.jit(do_not_specialize=["K", "S", "N", "NP", "T"])
def cvrp_stream_kernel(
    KEY, VALUE, POINTER, QUERY_LAST, QUERY, GLIMPSE_SHIFT, BIAS, SEEN, XY, START, ID, COUNTERS, ACTION, COST,
    LENGTH, QUERY_LOAD, DEMAND, CAPACITY, K, S, N, NP, T, sharpness,
    W: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr, GREEDY: tl.constexpr, GIVEN: tl.constexpr,
    DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    E: tl.constexpr = H * D
    NP = NP // 16 * 16  # as it is, but now the compiler knows: rows of bytes are loaded by words
    b = tl.program_id(0).to(tl.int64)
    r, valid, latent, start, attempt, instance = tile_rows(K, S, ID, COUNTERS, b, M)
    R = K * S
    KEY, VALUE, POINTER, QUERY_LAST, BIAS = rows_of(KEY, VALUE, POINTER, QUERY_LAST, BIAS, b * NP, E)
    QUERY += b * K * E
    QUERY_LOAD += b * E
    GLIMPSE_SHIFT += b * K * E
    SEEN += b * R * NP
    XY += b * N * 2
    DEMAND += b * N
    ACTION += b * T * R
    LENGTH += b * R
    seed = tl.load(COUNTERS)
    capacity = tl.load(CAPACITY + b)
    last = tl.load(ACTION + r).to(tl.int32) if GIVEN else tl.load(START + b * S + start)
    left = capacity - tl.load(DEMAND + last)
    waiting = tl.zeros([M], tl.int32) + (N - 2)  # customers not yet served: all but the first
    home_x, home_y = place(XY, 0)
    x, y = place(XY, last)
    cost = distance(home_x, home_y, x, y)
    tl.store(ACTION + r, last.to(tl.int16), mask=valid)
    t = 1
    if GIVEN:
        t = imposed_on_all(LENGTH, r)
        for step in range(1, t):
            tl.store(SEEN + r * NP + last, tl.full([M], 1, tl.int8), mask=valid)
            last = imposed(ACTION, LENGTH, step, R, r, last)
            left, waiting = cvrp_step(DEMAND, last, capacity, left, waiting)
            x, y, cost = gone_to(XY, last, x, y, cost)
    while (t < T) & (tl.max(waiting + last, 0) > 0):  # until every vehicle is home and no customer waits
        tl.store(SEEN + r * NP + last, tl.full([M], 1, tl.int8), mask=valid)  # the depot's byte is never looked at
        tl.debug_barrier()
        home = (last > 0) | (waiting == 0)  # the depot is open unless the vehicle is there while customers wait
        heads = heads_of(
            KEY, VALUE, QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, SEEN, DEMAND, r, latent, latent, last, left, home,
            N, NP, True, W, H, D, DT, PREC,
        )  # fmt: skip
        uniform = noise(seed, start * T + t, attempt, instance)
        last = drawn(
            heads, POINTER, BIAS, SEEN, DEMAND, r, left, home, uniform, sharpness, N, NP, True, GREEDY, W, H, D, PREC
        )
        if GIVEN:
            last = imposed(ACTION, LENGTH, t, R, r, last)
        left, waiting = cvrp_step(DEMAND, last, capacity, left, waiting)
        x, y, cost = gone_to(XY, last, x, y, cost)
        tl.store(ACTION + t * R + r, last.to(tl.int16), mask=valid)
        tl.debug_barrier()
        t += 1
    cost += distance(x, y, home_x, home_y)
    tl.store(COST + b * R + r, cost, mask=valid)
