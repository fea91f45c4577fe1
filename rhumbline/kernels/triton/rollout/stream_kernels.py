"""Triton: rollouts of more than 256 nodes, whose tables exceed the shared memory of a multiprocessor.

As in `tile_kernels`, a program runs a tile of rollouts through every step. But keys, values and
pointers are read part by part from the L2 cache, in loops, so that one kernel serves all sizes.
Attention keeps running sums over the parts (online softmax). The logits of all columns would not
fit into registers, so pointers are read twice: for the sum of the weights, and for the column that
the uniform selects. SEEN has a byte for each rollout and node, 1 for visited nodes.
"""

import triton
import triton.language as tl

from rhumbline.kernels.triton.rollout.masks import MASKED, columns
from rhumbline.kernels.triton.rollout.sampling import BELOW_ONE
from rhumbline.kernels.triton.rollout.state import (
    apply_prefix,
    common_prefix_length,
    coordinates,
    cvrp_step,
    distance,
    draw_uniform,
    move_to,
    tile_rows,
)
from rhumbline.kernels.triton.rollout.tile_kernels import (
    attend_part,
    combine_query,
    finish_head,
    initial_attention,
    load_query_parts,
    load_shift,
)


@triton.jit
def load_head_part(TABLE, h, c, TRANSPOSED: tl.constexpr, W: tl.constexpr, H: tl.constexpr, D: tl.constexpr):
    """Load head h of part c of a table, [W, D], or [D, W] if TRANSPOSED."""
    e, rows = h * D + tl.arange(0, D), columns(c, W)
    if TRANSPOSED:
        return tl.load(TABLE + rows[None, :] * (H * D) + e[:, None])
    else:
        return tl.load(TABLE + rows[:, None] * (H * D) + e[None, :])


@triton.jit
def instance_tables(KEY, VALUE, POINTER, QUERY_LAST, BIAS, row, E: tl.constexpr):
    """Return pointers to an instance's tables, which begin at row `row` of the whole tables."""
    return KEY + row * E, VALUE + row * E, POINTER + row * E, QUERY_LAST + row * E, BIAS + row


@triton.jit
def load_part_mask(SEEN, DEMAND, row, left, home, c, N, NP, LOAD: tl.constexpr, W: tl.constexpr):
    """Return the additive mask [M, W] of part c: visited nodes and padding are masked.

    With LOAD, so are customers whose demand exceeds the load left, and the depot unless `home` [M] allows it.
    """
    node = columns(c, W)[None, :]
    masked = tl.load(SEEN + row[:, None] * NP + node) != 0
    if LOAD:
        demand = tl.load(DEMAND + node, mask=node < N, other=0)
        masked = masked | (demand > left[:, None])
        masked = tl.where(node == 0, ~home[:, None], masked)
    return tl.where(masked, MASKED, 0.0)


@triton.jit
def compute_glimpses(
    KEY, VALUE, QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, SEEN, DEMAND, row, q_row, latent, last, left, home, N, NP,
    LOAD: tl.constexpr, W: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Return the glimpses [M, D] of all heads; `q_row` is the row of QUERY with the rollout's constant part."""
    queries = ()
    for h in tl.static_range(H):
        parts = load_query_parts(QUERY, QUERY_LAST, h, q_row, last, H * D, D)
        queries = queries + (combine_query(parts, QUERY_LOAD, h, left, LOAD, D, DT),)
    glimpses, totals, tops = initial_attention(row.shape[0], H, D)
    for c in range(NP // W):
        mask = load_part_mask(SEEN, DEMAND, row, left, home, c, N, NP, LOAD, W)
        before = (glimpses, totals, tops)
        glimpses, totals, tops = (), (), ()
        for h in tl.static_range(H):
            scores = tl.dot(queries[h], load_head_part(KEY, h, c, True, W, H, D), input_precision=PREC) + mask
            value = load_head_part(VALUE, h, c, False, W, H, D)
            glimpse, total, top = attend_part(scores, value, before[0][h], before[1][h], before[2][h], False, DT, PREC)
            glimpses, totals, tops = glimpses + (glimpse,), totals + (total,), tops + (top,)
    heads = ()
    for h in tl.static_range(H):
        heads = heads + (finish_head(glimpses[h], totals[h], load_shift(GLIMPSE_SHIFT, h, latent, H * D, D), DT),)
    return heads


@triton.jit
def part_logits(
    heads, POINTER, BIAS, SEEN, DEMAND, row, left, home, c, N, NP, LOAD: tl.constexpr, W: tl.constexpr,
    H: tl.constexpr, D: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Return the logits [M, W] of part c as 10 tanh - 10; those of masked nodes are far below any other."""
    mask = load_part_mask(SEEN, DEMAND, row, left, home, c, N, NP, LOAD, W)
    score = mask + tl.load(BIAS + columns(c, W))[None, :]
    for h in tl.static_range(H):
        score = tl.dot(heads[h], load_head_part(POINTER, h, c, True, W, H, D), score, input_precision=PREC)
    return tl.where(mask < 0.5 * MASKED, MASKED, -20.0 / (tl.exp2(score) + 1.0))


@triton.jit
def sample_node(
    heads, POINTER, BIAS, SEEN, DEMAND, row, left, home, uniform, sharpness, N, NP, LOAD: tl.constexpr,
    GREEDY: tl.constexpr, W: tl.constexpr, H: tl.constexpr, D: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Return the chosen column of each row: the best one, or the one that the uniform selects."""
    top = tl.zeros_like(uniform) + MASKED
    total = tl.zeros_like(uniform)
    best = tl.zeros_like(row)
    for c in range(NP // W):
        value = part_logits(heads, POINTER, BIAS, SEEN, DEMAND, row, left, home, c, N, NP, LOAD, W, H, D, PREC)
        most = tl.max(value, 1)
        if GREEDY:
            best = tl.where(most > top, c * W + tl.argmax(value, 1).to(tl.int32), best)
            top = tl.maximum(top, most)
        else:  # the sum of a fully masked part underflows once a later part raises the maximum
            higher = tl.maximum(top, most)
            weight = tl.exp2((value - higher[:, None]) * sharpness)
            total = total * tl.exp2((top - higher) * sharpness) + tl.sum(weight, 1)
            top = higher
    if not GREEDY:
        # The limit comes from sums of another order, so rounding may choose a neighbour of the right column. It never
        # chooses a masked one, as only columns with a weight can be chosen.
        limit = uniform * (total * BELOW_ONE)
        below = tl.zeros_like(uniform)
        best = tl.zeros_like(row) - 1
        spare = tl.zeros_like(row)  # the last open column, used if rounding leaves all sums below the limit
        for c in range(NP // W):
            value = part_logits(heads, POINTER, BIAS, SEEN, DEMAND, row, left, home, c, N, NP, LOAD, W, H, D, PREC)
            weight = tl.exp2((value - top[:, None]) * sharpness)
            cumulative = below[:, None] + tl.cumsum(weight, 1)
            node = columns(c, W)[None, :]
            hit = tl.min(tl.where((cumulative > limit[:, None]) & (weight > 0.0), node, NP), 1)
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
    """Run M TSP rollouts of one instance, as `tile_kernels.tsp_rollout_kernel` does; SEEN [R, NP] must begin as 0."""
    E: tl.constexpr = H * D
    NP = NP // 16 * 16  # unchanged, but tells the compiler so that rows of bytes are loaded by words
    b = tl.program_id(0).to(tl.int64)
    r, valid, latent, start, attempt, instance = tile_rows(K, S, ID, COUNTERS, b, M)
    R = K * S
    KEY, VALUE, POINTER, QUERY_LAST, BIAS = instance_tables(KEY, VALUE, POINTER, QUERY_LAST, BIAS, b * NP, E)
    QUERY += b * R * E
    GLIMPSE_SHIFT += b * K * E
    SEEN += b * R * NP
    XY += b * N * 2
    ACTION += b * N * R
    LENGTH += b * R
    seed = tl.load(COUNTERS)
    first = tl.load(ACTION + r).to(tl.int32) if GIVEN else tl.load(START + b * S + start)
    last = first
    x0, y0 = coordinates(XY, first)
    x, y = x0, y0
    cost = tl.zeros([M], tl.float32)
    home = last < 0
    tl.store(ACTION + r, first.to(tl.int16), mask=valid)
    begin = 1
    if GIVEN:  # SEEN is not read before the first decision
        begin = common_prefix_length(LENGTH, r)
        for t in range(1, begin):
            tl.store(SEEN + r * NP + last, tl.full([M], 1, tl.int8), mask=valid)
            last = apply_prefix(ACTION, LENGTH, t, R, r, last)
            x, y, cost = move_to(XY, last, x, y, cost)
    for t in range(begin, N):
        tl.store(SEEN + r * NP + last, tl.full([M], 1, tl.int8), mask=valid)
        tl.debug_barrier()  # other threads read what is stored here
        heads = compute_glimpses(
            KEY, VALUE, QUERY, QUERY, QUERY_LAST, GLIMPSE_SHIFT, SEEN, SEEN, r, r, latent, last, last, home, N, NP,
            False, W, H, D, DT, PREC,
        )  # fmt: skip
        uniform = draw_uniform(seed, start * N + t, attempt, instance)
        last = sample_node(
            heads, POINTER, BIAS, SEEN, SEEN, r, last, home, uniform, sharpness, N, NP, False, GREEDY, W, H, D, PREC
        )
        if GIVEN:
            last = apply_prefix(ACTION, LENGTH, t, R, r, last)
        x, y, cost = move_to(XY, last, x, y, cost)
        tl.store(ACTION + t * R + r, last.to(tl.int16), mask=valid)
        tl.debug_barrier()  # no thread may write what others still read
    cost += distance(x, y, x0, y0)
    tl.store(COST + b * R + r, cost, mask=valid)


@triton.jit(do_not_specialize=["K", "S", "N", "NP", "T"])
def cvrp_stream_kernel(
    KEY, VALUE, POINTER, QUERY_LAST, QUERY, GLIMPSE_SHIFT, BIAS, SEEN, XY, START, ID, COUNTERS, ACTION, COST,
    LENGTH, QUERY_LOAD, DEMAND, CAPACITY, K, S, N, NP, T, sharpness,
    W: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr, GREEDY: tl.constexpr, GIVEN: tl.constexpr,
    DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Run M CVRP rollouts of one instance, as `tile_kernels.cvrp_rollout_kernel` does; SEEN as for TSP."""
    E: tl.constexpr = H * D
    NP = NP // 16 * 16  # unchanged, but tells the compiler so that rows of bytes are loaded by words
    b = tl.program_id(0).to(tl.int64)
    r, valid, latent, start, attempt, instance = tile_rows(K, S, ID, COUNTERS, b, M)
    R = K * S
    KEY, VALUE, POINTER, QUERY_LAST, BIAS = instance_tables(KEY, VALUE, POINTER, QUERY_LAST, BIAS, b * NP, E)
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
    unserved = tl.zeros([M], tl.int32) + (N - 2)  # number of customers without the first one
    home_x, home_y = coordinates(XY, 0)
    x, y = coordinates(XY, last)
    cost = distance(home_x, home_y, x, y)
    tl.store(ACTION + r, last.to(tl.int16), mask=valid)
    t = 1
    if GIVEN:
        t = common_prefix_length(LENGTH, r)
        for step in range(1, t):
            tl.store(SEEN + r * NP + last, tl.full([M], 1, tl.int8), mask=valid)
            last = apply_prefix(ACTION, LENGTH, step, R, r, last)
            left, unserved = cvrp_step(DEMAND, last, capacity, left, unserved)
            x, y, cost = move_to(XY, last, x, y, cost)
    while (t < T) & (tl.max(unserved + last, 0) > 0):  # until all vehicles are home and no customer is unserved
        tl.store(SEEN + r * NP + last, tl.full([M], 1, tl.int8), mask=valid)  # the depot's byte is never used
        tl.debug_barrier()
        home = (last > 0) | (unserved == 0)  # masked only if the vehicle is there and customers are unserved
        heads = compute_glimpses(
            KEY, VALUE, QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, SEEN, DEMAND, r, latent, latent, last, left, home,
            N, NP, True, W, H, D, DT, PREC,
        )  # fmt: skip
        uniform = draw_uniform(seed, start * T + t, attempt, instance)
        last = sample_node(
            heads, POINTER, BIAS, SEEN, DEMAND, r, left, home, uniform, sharpness, N, NP, True, GREEDY, W, H, D, PREC
        )
        if GIVEN:
            last = apply_prefix(ACTION, LENGTH, t, R, r, last)
        left, unserved = cvrp_step(DEMAND, last, capacity, left, unserved)
        x, y, cost = move_to(XY, last, x, y, cost)
        tl.store(ACTION + t * R + r, last.to(tl.int16), mask=valid)
        tl.debug_barrier()
        t += 1
    cost += distance(x, y, home_x, home_y)
    tl.store(COST + b * R + r, cost, mask=valid)
