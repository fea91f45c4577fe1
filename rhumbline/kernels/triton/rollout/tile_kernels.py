"""Triton: a whole rollout in one launch; a program runs a tile of rollouts of one instance.

Only the actions and the cost are written to global memory. Keys, values and, without a residual
layer, pointers of the instance stay in shared memory; scores, masks and logits live in registers.
Matrix products run on tensor cores in bfloat16, everything else is float32. All routing problems
share `glimpse_logits` and `select_node`; a problem adds its mask, query and cost.

Sizes: K latents, S starts, R = K S rollouts of an instance; N nodes, padded to NP; C parts of W
columns; M rollouts of a tile; H heads of width D, E = H D; T steps at most.
"""

import triton
import triton.language as tl

from rhumbline.kernels.triton.rollout.masks import (
    MASKED,
    add_to_words,
    bits_to_mask,
    columns,
    hide_from_compiler,
    initial_mask,
    initial_words,
    mark_visited,
    mask_from_words,
    step_mask,
)
from rhumbline.kernels.triton.rollout.residual_layer import layer_hidden, layer_logits
from rhumbline.kernels.triton.rollout.sampling import prefix_sum_tables, select_node
from rhumbline.kernels.triton.rollout.state import (
    apply_prefix,
    common_prefix_length,
    coordinates,
    cvrp_step,
    distance,
    draw_uniform,
    mark_certain,
    move_to,
    tile_rows,
)


@triton.jit
def load_heads(
    TABLE, TRANSPOSED: tl.constexpr, C: tl.constexpr, W: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Load a table, for each head and part, [W, D], or [D, W] if TRANSPOSED; entry h * C + c is head h of part c.

    The tiles are operands of products, so they stay in shared memory.
    """
    heads = ()
    for h in tl.static_range(H):
        e = h * D + tl.arange(0, D)
        for c in tl.static_range(C):
            if TRANSPOSED:
                heads = heads + (tl.load(TABLE + columns(c, W)[None, :] * (H * D) + e[:, None]),)
            else:
                heads = heads + (tl.load(TABLE + columns(c, W)[:, None] * (H * D) + e[None, :]),)
    return heads


@triton.jit
def load_query_parts(QUERY, QUERY_LAST, h, row, last, E: tl.constexpr, D: tl.constexpr):
    """Load a head's queries [M, D] in two parts: the constant one of the rollout, and that of the last node."""
    e = h * D + tl.arange(0, D)
    return tl.load(QUERY + row[:, None] * E + e[None, :]), tl.load(QUERY_LAST + last[:, None] * E + e[None, :])


@triton.jit
def combine_query(parts, QUERY_LOAD, h, left, LOAD: tl.constexpr, D: tl.constexpr, DT: tl.constexpr):
    """Return the sum of the two parts, plus the share of the load left if LOAD.

    It is a sum over a joined axis: the compiler would move each of two separate tiles through shared memory.
    """
    q = tl.sum(tl.join(parts[0].to(tl.float32), parts[1].to(tl.float32)), 2)
    if LOAD:
        q += left.to(tl.float32)[:, None] * tl.load(QUERY_LOAD + h * D + tl.arange(0, D))[None, :]
    return q.to(DT)


@triton.jit
def load_shift(GLIMPSE_SHIFT, h, latent, E: tl.constexpr, D: tl.constexpr):
    """Load what the latent adds to a head's glimpses, [M, D]."""
    e = h * D + tl.arange(0, D)
    return tl.load(GLIMPSE_SHIFT + latent[:, None] * E + e[None, :])


@triton.jit
def finish_head(glimpse, total, shift, DT: tl.constexpr):
    """Divide a head's glimpses by the sums of their weights, and add the latent's share."""
    return (glimpse * (1.0 / total)[:, None] + shift.to(tl.float32)).to(DT)


@triton.jit
def single_part_logits(
    QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, BIAS, layer, keys, values, pointers, mask, latent, row, last, left,
    LOAD: tl.constexpr, LAYER: tl.constexpr, BOUNDED: tl.constexpr, W: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Compute `glimpse_logits` with one part: each head adds to the logits at once; a layer needs all heads first."""
    heads = ()
    logits = mask + tl.load(BIAS + columns(0, W))[None, :]
    parts = load_query_parts(QUERY, QUERY_LAST, 0, row, last, H * D, D)
    for h in tl.static_range(H):
        q = combine_query(parts, QUERY_LOAD, h, left, LOAD, D, DT)
        if h + 1 < H:
            parts = load_query_parts(QUERY, QUERY_LAST, h + 1, row, last, H * D, D)
        shift = load_shift(GLIMPSE_SHIFT, h, latent, H * D, D)
        scores = tl.dot(q, keys[h], input_precision=PREC) + mask
        if not BOUNDED:
            scores -= tl.max(scores, 1)[:, None]
        weight = tl.exp2(scores)
        glimpse = tl.dot(weight.to(DT), values[h], input_precision=PREC)
        head = finish_head(glimpse, tl.sum(weight, 1), shift, DT)
        if LAYER:
            heads = heads + (head,)
        else:
            logits = tl.dot(head, pointers[h], logits, input_precision=PREC)
    if LAYER:
        hidden = layer_hidden(heads, layer, latent, H, D, DT, PREC)
        logits = layer_logits(logits, heads, hidden, pointers[0], layer, 0, W, H, D, PREC)
    return (logits,)


@triton.jit
def initial_attention(M: tl.constexpr, H: tl.constexpr, D: tl.constexpr):
    """Return the accumulators before the first part, for each head: glimpses, sums of weights, highest scores."""
    glimpses = ()
    totals = ()
    tops = ()
    for _ in tl.static_range(H):
        glimpses = glimpses + (tl.zeros([M, D], tl.float32),)
        totals = totals + (tl.zeros([M], tl.float32),)
        tops = tops + (tl.full([M], float("-inf"), tl.float32),)
    return glimpses, totals, tops


@triton.jit
def attend_part(scores, value, glimpse, total, top, BOUNDED: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr):
    """Return a head's accumulators after one more part, as in online softmax.

    Unless scores are BOUNDED, the earlier sums are rescaled to the new maximum.
    """
    if not BOUNDED:
        higher = tl.maximum(top, tl.max(scores, 1))
        scores -= higher[:, None]
        fading = tl.exp2(top - higher)
        glimpse *= fading[:, None]
        total *= fading
        top = higher
    weight = tl.exp2(scores)
    glimpse = tl.dot(weight.to(DT), value, glimpse, input_precision=PREC)
    return glimpse, total + tl.sum(weight, 1), top


@triton.jit
def glimpse_logits(
    QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, BIAS, layer, keys, values, pointers, masked, latent, row, last, left,
    N, LOAD: tl.constexpr, LAYER: tl.constexpr, BOUNDED: tl.constexpr, C: tl.constexpr, W: tl.constexpr,
    H: tl.constexpr, D: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Return a tuple of the pointer scores [M, W] of each part, times 2 log2(e); masked nodes are far below any other.

    Row `row` of QUERY is the constant part of a rollout's query. `masked` is a tile or a bitset, as `initial_mask`
    makes them. Logits begin with the mask, so that it is not needed after them. With several parts, all heads process
    one part before the next: one part of the mask is in use at a time, and logits are needed only after attention.
    """
    if C == 1:
        return single_part_logits(
            QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, BIAS, layer, keys, values, pointers, masked[0], latent, row,
            last, left, LOAD, LAYER, BOUNDED, W, H, D, DT, PREC,
        )  # fmt: skip
    else:
        queries = ()
        parts = load_query_parts(QUERY, QUERY_LAST, 0, row, last, H * D, D)
        glimpses, totals, tops = initial_attention(row.shape[0], H, D)
        for c in tl.static_range(C):
            before = (glimpses, totals, tops)
            part = bits_to_mask(masked, c, W)
            glimpses, totals, tops = (), (), ()
            for h in tl.static_range(H):
                if c == 0:
                    queries = queries + (combine_query(parts, QUERY_LOAD, h, left, LOAD, D, DT),)
                    if h + 1 < H:
                        parts = load_query_parts(QUERY, QUERY_LAST, h + 1, row, last, H * D, D)
                scores = tl.dot(queries[h], keys[h * C + c], input_precision=PREC) + part
                glimpse, total, top = attend_part(
                    scores, values[h * C + c], before[0][h], before[1][h], before[2][h], BOUNDED, DT, PREC
                )
                glimpses, totals, tops = glimpses + (glimpse,), totals + (total,), tops + (top,)
        heads = ()
        for h in tl.static_range(H):
            heads = heads + (finish_head(glimpses[h], totals[h], load_shift(GLIMPSE_SHIFT, h, latent, H * D, D), DT),)
        hidden = layer_hidden(heads, layer, latent, H, D, DT, PREC) if LAYER else 0.0
        again = hide_from_compiler(masked, N // (N + 1), C * W // 32)  # equals 0
        logits = ()
        for c in tl.static_range(C):
            score = bits_to_mask(again, c, W) + tl.load(BIAS + columns(c, W))[None, :]  # late, to save registers
            if LAYER:
                score = layer_logits(score, heads, hidden, pointers[0], layer, c, W, H, D, PREC)
            else:
                for h in tl.static_range(H):
                    score = tl.dot(heads[h], pointers[h * C + c], score, input_precision=PREC)
            logits = logits + (score,)
        return logits


@triton.jit
def tsp_step(
    t, visited, last, x, y, cost, keys, values, pointers, groups, places, layer, QUERY, QUERY_LAST, GLIMPSE_SHIFT, BIAS,
    XY, ACTION, LENGTH, r, valid, latent, start, seed, attempt, instance, R, N, sharpness, certain,
    C: tl.constexpr, W: tl.constexpr, G: tl.constexpr, H: tl.constexpr, D: tl.constexpr, GREEDY: tl.constexpr,
    WARM: tl.constexpr, BOUNDED: tl.constexpr, MARK: tl.constexpr, GIVEN: tl.constexpr, LAYER: tl.constexpr,
    DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Run step t of TSP rollouts; return the mask, the last node, its coordinates and the cost after it."""
    visited = mark_visited(visited, last, t, C, W)
    logits = glimpse_logits(
        QUERY, QUERY, QUERY_LAST, GLIMPSE_SHIFT, BIAS, layer, keys, values, pointers, visited, latent, r, last, cost,
        N, False, LAYER, BOUNDED, C, W, H, D, DT, PREC,
    )  # fmt: skip
    uniform = draw_uniform(seed, start * N + t, attempt, instance)
    last, share = select_node(logits, uniform, sharpness, groups, places, C, W, G, GREEDY, WARM, DT, PREC)
    if GIVEN:
        last = apply_prefix(ACTION, LENGTH, t, R, r, last)
    x, y, cost = move_to(XY, last, x, y, cost)
    # ACTION is [T, R], so that neighbouring threads write side by side. This store also keeps the compiler from
    # hoisting the loads above out of the loop, where they would cost registers and spill.
    tl.store(ACTION + t * R + r, mark_certain(last, share, certain, MARK), mask=valid)
    return visited, last, x, y, cost


@triton.jit(do_not_specialize=["K", "S", "N"])  # multiples of 16 would be compiled separately
def tsp_rollout_kernel(
    KEY, VALUE, POINTER, QUERY_LAST, QUERY, GLIMPSE_SHIFT, BIAS, IS_BOUNDED, XY, START, ID, COUNTERS, ACTION, COST,
    LENGTH, INTO, INTO_BIAS, OUT, K, S, N, sharpness, certain,
    NP: tl.constexpr, W: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    GREEDY: tl.constexpr, WARM: tl.constexpr, BOUNDED: tl.constexpr, MARK: tl.constexpr, GIVEN: tl.constexpr,
    LAYER: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Run M TSP rollouts of one instance; the grid is (instances, tiles of rollouts).

    Tables by instance: KEY, VALUE, POINTER, QUERY_LAST [NP, E], QUERY [R, E], GLIMPSE_SHIFT [K, E], BIAS [NP], XY [N,
    2], START [S]. ACTION [N, R] and COST [R] are results. If GIVEN, ACTION begins with prefixes of LENGTH [R] actions.
    COUNTERS are the seed and the number of the first attempt. A program returns at once unless IS_BOUNDED of its
    instance is BOUNDED, so that a launch of each variant serves all instances.
    """
    E: tl.constexpr = H * D
    C: tl.constexpr = NP // W
    G: tl.constexpr = NP // 16 if C == 1 else 16
    WORDS: tl.constexpr = (NP + 31) // 32
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
    LENGTH += b * R
    layer = (INTO + b * E * E, INTO_BIAS + b * K * E, OUT + b * NP * E)
    seed = tl.load(COUNTERS)
    first = tl.load(ACTION + r).to(tl.int32) if GIVEN else tl.load(START + b * S + start)
    last = first
    visited = initial_mask(first, N, C, W)
    x0, y0 = coordinates(XY, first)
    x, y = x0, y0
    cost = tl.zeros([M], tl.float32)
    keys = load_heads(KEY, True, C, W, H, D)
    values = load_heads(VALUE, False, C, W, H, D)
    pointers = (POINTER,) if LAYER else load_heads(POINTER, True, C, W, H, D)
    groups, places = prefix_sum_tables(C, W, G, DT)
    tl.store(ACTION + r, first.to(tl.int16), mask=valid)
    if GIVEN:
        # Steps given for all rollouts need no policy. The nodes visited before `last`, as in the loop below, are kept
        # in a bitset: a tile that two loops carry would need more registers.
        t = common_prefix_length(LENGTH, r)
        words = initial_words(first, N, WORDS)
        for step in range(1, t):
            words = add_to_words(words, last, WORDS)
            last = apply_prefix(ACTION, LENGTH, step, R, r, last)
            x, y, cost = move_to(XY, last, x, y, cost)
        visited = mask_from_words(words, C, W)
        while t < N:  # `for t in range(t, N)` would spill four times as much
            visited, last, x, y, cost = tsp_step(
                t, visited, last, x, y, cost, keys, values, pointers, groups, places, layer, QUERY, QUERY_LAST,
                GLIMPSE_SHIFT, BIAS, XY, ACTION, LENGTH, r, valid, latent, start, seed, attempt, instance, R, N,
                sharpness, certain, C, W, G, H, D, GREEDY, WARM, BOUNDED, MARK, GIVEN, LAYER, DT, PREC,
            )  # fmt: skip
            t += 1
    else:
        for t in range(1, N):  # a while loop here would spill in tiles of 16 and 32 rows
            visited, last, x, y, cost = tsp_step(
                t, visited, last, x, y, cost, keys, values, pointers, groups, places, layer, QUERY, QUERY_LAST,
                GLIMPSE_SHIFT, BIAS, XY, ACTION, LENGTH, r, valid, latent, start, seed, attempt, instance, R, N,
                sharpness, certain, C, W, G, H, D, GREEDY, WARM, BOUNDED, MARK, GIVEN, LAYER, DT, PREC,
            )  # fmt: skip
    cost += distance(x, y, x0, y0)
    tl.store(COST + b * R + r, cost, mask=valid)


@triton.jit(do_not_specialize=["K", "S", "N", "T"])
def cvrp_rollout_kernel(
    KEY, VALUE, POINTER, QUERY_LAST, QUERY, GLIMPSE_SHIFT, BIAS, IS_BOUNDED, XY, START, ID, COUNTERS, ACTION, COST,
    LENGTH, INTO, INTO_BIAS, OUT, QUERY_LOAD, DEMAND, CAPACITY, K, S, N, T, sharpness, certain,
    NP: tl.constexpr, W: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    GREEDY: tl.constexpr, WARM: tl.constexpr, BOUNDED: tl.constexpr, MARK: tl.constexpr, GIVEN: tl.constexpr,
    LAYER: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Run M CVRP rollouts of one instance, as `tsp_rollout_kernel` does.

    In addition: QUERY is [K, E], QUERY_LOAD [E], DEMAND [N], CAPACITY a number, ACTION [T, R]. Node 0 is the depot.
    """
    E: tl.constexpr = H * D
    C: tl.constexpr = NP // W
    G: tl.constexpr = NP // 16 if C == 1 else 16
    WORDS: tl.constexpr = (NP + 31) // 32
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
    LENGTH += b * R
    layer = (INTO + b * E * E, INTO_BIAS + b * K * E, OUT + b * NP * E)
    seed = tl.load(COUNTERS)
    capacity = tl.load(CAPACITY + b)
    last = tl.load(ACTION + r).to(tl.int32) if GIVEN else tl.load(START + b * S + start)
    left = capacity - tl.load(DEMAND + last)
    unserved = tl.zeros([M], tl.int32) + (N - 2)  # number of customers without the first one
    visited = initial_mask(last, N, C, W)
    home_x, home_y = coordinates(XY, 0)
    x, y = coordinates(XY, last)
    cost = distance(home_x, home_y, x, y)
    keys = load_heads(KEY, True, C, W, H, D)
    values = load_heads(VALUE, False, C, W, H, D)
    pointers = (POINTER,) if LAYER else load_heads(POINTER, True, C, W, H, D)
    groups, places = prefix_sum_tables(C, W, G, DT)
    tl.store(ACTION + r, last.to(tl.int16), mask=valid)
    t = 1
    if GIVEN:  # here the visited nodes include `last`, as in the loop below
        t = common_prefix_length(LENGTH, r)
        words = initial_words(last, N, WORDS)
        for step in range(1, t):
            last = apply_prefix(ACTION, LENGTH, step, R, r, last)
            left, unserved = cvrp_step(DEMAND, last, capacity, left, unserved)
            words = add_to_words(words, last, WORDS)
            x, y, cost = move_to(XY, last, x, y, cost)
        visited = mask_from_words(words, C, W)
    while (t < T) & (tl.max(unserved + last, 0) > 0):  # until all vehicles are home and no customer is unserved
        # The depot is masked only if the vehicle is there and customers are unserved.
        depot = tl.where((last == 0) & (unserved > 0), MASKED, 0.0)
        visited, masked = step_mask(visited, DEMAND, left, depot, N, C, W)
        logits = glimpse_logits(
            QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, BIAS, layer, keys, values, pointers, masked, latent, latent,
            last, left, N, True, LAYER, BOUNDED, C, W, H, D, DT, PREC,
        )  # fmt: skip
        uniform = draw_uniform(seed, start * T + t, attempt, instance)
        last, share = select_node(logits, uniform, sharpness, groups, places, C, W, G, GREEDY, WARM, DT, PREC)
        if GIVEN:
            last = apply_prefix(ACTION, LENGTH, t, R, r, last)
        left, unserved = cvrp_step(DEMAND, last, capacity, left, unserved)
        visited = mark_visited(visited, last, t, C, W)
        x, y, cost = move_to(XY, last, x, y, cost)
        tl.store(ACTION + t * R + r, mark_certain(last, share, certain, MARK), mask=valid)
        t += 1
    cost += distance(x, y, home_x, home_y)
    tl.store(COST + b * R + r, cost, mask=valid)
