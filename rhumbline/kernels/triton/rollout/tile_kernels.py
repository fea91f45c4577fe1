"""Triton: a whole rollout in one launch; a program carries a tile of rollouts of one instance.

Only the actions and the cost leave the chip. Keys, values and, without a residual layer, pointers
of the instance stay in shared memory; scores, masks and logits live in registers. Matrix products run
on tensor cores in bfloat16, everything else is float32. All routing problems share
`glimpse_logits` and `pick`; a problem adds its mask, query and cost.
"""

import triton
import triton.language as tl

from rhumbline.kernels.triton.rollout.masks import (
    CLOSED,
    closed_now,
    columns,
    first_words,
    mask_of,
    served_by,
    served_first,
    served_too,
    unknown,
    words_too,
)
from rhumbline.kernels.triton.rollout.residual_layer import hidden_of, layered
from rhumbline.kernels.triton.rollout.sampling import counting_tables, pick
from rhumbline.kernels.triton.rollout.state import (
    cvrp_step,
    distance,
    gone_to,
    imposed,
    imposed_on_all,
    marked,
    noise,
    place,
    tile_rows,
)


@triton.jit
def head_tables(
    TABLE, TRANSPOSED: tl.constexpr, C: tl.constexpr, W: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """A table's heads by parts, [W, D] or [D, W], loaded once: as operands of products they stay in shared memory."""
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
def query_parts(QUERY, QUERY_LAST, h, row, last, E: tl.constexpr, D: tl.constexpr):
    """A head's queries [M, D] in two parts: what never changes during a rollout, and the last node's share."""
    e = h * D + tl.arange(0, D)
    return tl.load(QUERY + row[:, None] * E + e[None, :]), tl.load(QUERY_LAST + last[:, None] * E + e[None, :])


@triton.jit
def query_of(parts, QUERY_LOAD, h, left, LOAD: tl.constexpr, D: tl.constexpr, DT: tl.constexpr):
    """The sum of the parts and of the capacity left's share.

    A sum over a joined axis, not of two tiles: of those the compiler moves each through shared memory by itself.
    """
    q = tl.sum(tl.join(parts[0].to(tl.float32), parts[1].to(tl.float32)), 2)
    if LOAD:
        q += left.to(tl.float32)[:, None] * tl.load(QUERY_LOAD + h * D + tl.arange(0, D))[None, :]
    return q.to(DT)


@triton.jit
def shift_of(GLIMPSE_SHIFT, h, latent, E: tl.constexpr, D: tl.constexpr):
    """A latent's share of a head's glimpses."""
    e = h * D + tl.arange(0, D)
    return tl.load(GLIMPSE_SHIFT + latent[:, None] * E + e[None, :])


@triton.jit
def shifted(glimpse, total, shift, DT: tl.constexpr):
    """A head's glimpses, divided by the sum of their weights, with the latent's share."""
    return (glimpse * (1.0 / total)[:, None] + shift.to(tl.float32)).to(DT)


@triton.jit
def whole_logits(
    QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, BIAS, layer, keys, values, pointers, mask, latent, row, last, left,
    LOAD: tl.constexpr, LAYER: tl.constexpr, BOUNDED: tl.constexpr, W: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """`glimpse_logits` where one part has all columns: each head adds to the logits at once; a layer waits for all."""
    heads = ()
    logits = mask + tl.load(BIAS + columns(0, W))[None, :]
    parts = query_parts(QUERY, QUERY_LAST, 0, row, last, H * D, D)
    for h in tl.static_range(H):
        q = query_of(parts, QUERY_LOAD, h, left, LOAD, D, DT)
        if h + 1 < H:
            parts = query_parts(QUERY, QUERY_LAST, h + 1, row, last, H * D, D)
        shift = shift_of(GLIMPSE_SHIFT, h, latent, H * D, D)
        scores = tl.dot(q, keys[h], input_precision=PREC) + mask
        if not BOUNDED:
            scores -= tl.max(scores, 1)[:, None]
        weight = tl.exp2(scores)
        glimpse = tl.dot(weight.to(DT), values[h], input_precision=PREC)
        head = shifted(glimpse, tl.sum(weight, 1), shift, DT)
        if LAYER:
            heads = heads + (head,)
        else:
            logits = tl.dot(head, pointers[h], logits, input_precision=PREC)
    if LAYER:
        hidden = hidden_of(heads, layer, latent, H, D, DT, PREC)
        logits = layered(logits, heads, hidden, pointers[0], layer, 0, W, H, D, PREC)
    return (logits,)


@triton.jit
def nothing_seen(M: tl.constexpr, H: tl.constexpr, D: tl.constexpr):
    """Before the first part: glimpses, sums of weights and the highest scores of all heads."""
    glimpses = ()
    totals = ()
    tops = ()
    for _ in tl.static_range(H):
        glimpses = glimpses + (tl.zeros([M, D], tl.float32),)
        totals = totals + (tl.zeros([M], tl.float32),)
        tops = tops + (tl.full([M], float("-inf"), tl.float32),)
    return glimpses, totals, tops


@triton.jit
def seen_too(scores, value, glimpse, total, top, BOUNDED: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr):
    """A head's glimpses, sums and highest scores after one more part; sums of earlier ones follow a new maximum."""
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
    QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, BIAS, layer, keys, values, pointers, closed, latent, row, last, left,
    N, LOAD: tl.constexpr, LAYER: tl.constexpr, BOUNDED: tl.constexpr, C: tl.constexpr, W: tl.constexpr,
    H: tl.constexpr, D: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Pointer scores [M, W] of each part, times 2 log2(e); closed nodes are far below any other.

    QUERY holds, at `row`, what never changes during a rollout; `closed` is a tile or words, as `served_first` makes
    them. Logits begin with the mask, so that it is not needed after them. With several parts, all heads see one part
    before they see the next: one part of the mask is in use at a time, and logits are needed only when attention is
    over.
    """
    if C == 1:
        return whole_logits(
            QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, BIAS, layer, keys, values, pointers, closed[0], latent, row,
            last, left, LOAD, LAYER, BOUNDED, W, H, D, DT, PREC,
        )  # fmt: skip
    else:
        queries = ()
        parts = query_parts(QUERY, QUERY_LAST, 0, row, last, H * D, D)
        glimpses, totals, tops = nothing_seen(row.shape[0], H, D)
        for c in tl.static_range(C):
            before = (glimpses, totals, tops)
            part = mask_of(closed, c, W)
            glimpses, totals, tops = (), (), ()
            for h in tl.static_range(H):
                if c == 0:
                    queries = queries + (query_of(parts, QUERY_LOAD, h, left, LOAD, D, DT),)
                    if h + 1 < H:
                        parts = query_parts(QUERY, QUERY_LAST, h + 1, row, last, H * D, D)
                scores = tl.dot(queries[h], keys[h * C + c], input_precision=PREC) + part
                glimpse, total, top = seen_too(
                    scores, values[h * C + c], before[0][h], before[1][h], before[2][h], BOUNDED, DT, PREC
                )
                glimpses, totals, tops = glimpses + (glimpse,), totals + (total,), tops + (top,)
        heads = ()
        for h in tl.static_range(H):
            heads = heads + (shifted(glimpses[h], totals[h], shift_of(GLIMPSE_SHIFT, h, latent, H * D, D), DT),)
        hidden = hidden_of(heads, layer, latent, H, D, DT, PREC) if LAYER else 0.0
        again = unknown(closed, N // (N + 1), C * W // 32)  # that is 0
        logits = ()
        for c in tl.static_range(C):
            score = mask_of(again, c, W) + tl.load(BIAS + columns(c, W))[None, :]  # now: registers are scarce above
            if LAYER:
                score = layered(score, heads, hidden, pointers[0], layer, c, W, H, D, PREC)
            else:
                for h in tl.static_range(H):
                    score = tl.dot(heads[h], pointers[h * C + c], score, input_precision=PREC)
            logits = logits + (score,)
        return logits


@triton.jit
def tsp_step(
    t, served, last, x, y, cost, keys, values, pointers, groups, places, layer, QUERY, QUERY_LAST, GLIMPSE_SHIFT, BIAS,
    XY, ACTION, LENGTH, r, valid, latent, start, seed, attempt, instance, R, N, sharpness, certain,
    C: tl.constexpr, W: tl.constexpr, G: tl.constexpr, H: tl.constexpr, D: tl.constexpr, GREEDY: tl.constexpr,
    WARM: tl.constexpr, BOUNDED: tl.constexpr, MARK: tl.constexpr, GIVEN: tl.constexpr, LAYER: tl.constexpr,
    DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Step t of tours: who is visited by then, where everybody is, and what it has cost."""
    served = served_too(served, last, t, C, W)
    logits = glimpse_logits(
        QUERY, QUERY, QUERY_LAST, GLIMPSE_SHIFT, BIAS, layer, keys, values, pointers, served, latent, r, last, cost,
        N, False, LAYER, BOUNDED, C, W, H, D, DT, PREC,
    )  # fmt: skip
    uniform = noise(seed, start * N + t, attempt, instance)
    last, share = pick(logits, uniform, sharpness, groups, places, C, W, G, GREEDY, WARM, DT, PREC)
    if GIVEN:
        last = imposed(ACTION, LENGTH, t, R, r, last)
    x, y, cost = gone_to(XY, last, x, y, cost)
    # [T, R]: neighbours write side by side. This store also keeps the compiler from lifting the loads above out of the
    # loop, where they would cost registers and spill.
    tl.store(ACTION + t * R + r, marked(last, share, certain, MARK), mask=valid)
    return served, last, x, y, cost


@triton.jit(do_not_specialize=["K", "S", "N"])  # multiples of 16 would have machine code of their own
def tsp_rollout_kernel(
    KEY, VALUE, POINTER, QUERY_LAST, QUERY, GLIMPSE_SHIFT, BIAS, IS_BOUNDED, XY, START, ID, COUNTERS, ACTION, COST,
    LENGTH, INTO, INTO_BIAS, OUT, K, S, N, sharpness, certain,
    NP: tl.constexpr, W: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    GREEDY: tl.constexpr, WARM: tl.constexpr, BOUNDED: tl.constexpr, MARK: tl.constexpr, GIVEN: tl.constexpr,
    LAYER: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
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
    served = served_first(first, N, C, W)
    x0, y0 = place(XY, first)
    x, y = x0, y0
    cost = tl.zeros([M], tl.float32)
    keys = head_tables(KEY, True, C, W, H, D)
    values = head_tables(VALUE, False, C, W, H, D)
    pointers = (POINTER,) if LAYER else head_tables(POINTER, True, C, W, H, D)
    groups, places = counting_tables(C, W, G, DT)
    tl.store(ACTION + r, first.to(tl.int16), mask=valid)
    if GIVEN:
        # Steps that are imposed on all need no look at the policy. Who was visited before `last`, as in the loop below,
        # is kept in words: a tile that two loops carry would need room.
        t = imposed_on_all(LENGTH, r)
        words = first_words(first, N, WORDS)
        for step in range(1, t):
            words = words_too(words, last, WORDS)
            last = imposed(ACTION, LENGTH, step, R, r, last)
            x, y, cost = gone_to(XY, last, x, y, cost)
        served = served_by(words, C, W)
        while t < N:  # as a range from t on it would spill four times as much
            served, last, x, y, cost = tsp_step(
                t, served, last, x, y, cost, keys, values, pointers, groups, places, layer, QUERY, QUERY_LAST,
                GLIMPSE_SHIFT, BIAS, XY, ACTION, LENGTH, r, valid, latent, start, seed, attempt, instance, R, N,
                sharpness, certain, C, W, G, H, D, GREEDY, WARM, BOUNDED, MARK, GIVEN, LAYER, DT, PREC,
            )  # fmt: skip
            t += 1
    else:
        for t in range(1, N):  # and this, as a while loop, in tiles of 16 and 32 rows
            served, last, x, y, cost = tsp_step(
                t, served, last, x, y, cost, keys, values, pointers, groups, places, layer, QUERY, QUERY_LAST,
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
    waiting = tl.zeros([M], tl.int32) + (N - 2)  # customers not yet served: all but the first
    served = served_first(last, N, C, W)
    home_x, home_y = place(XY, 0)
    x, y = place(XY, last)
    cost = distance(home_x, home_y, x, y)
    keys = head_tables(KEY, True, C, W, H, D)
    values = head_tables(VALUE, False, C, W, H, D)
    pointers = (POINTER,) if LAYER else head_tables(POINTER, True, C, W, H, D)
    groups, places = counting_tables(C, W, G, DT)
    tl.store(ACTION + r, last.to(tl.int16), mask=valid)
    t = 1
    if GIVEN:  # here `last` is among those who were served, as it is in the loop below
        t = imposed_on_all(LENGTH, r)
        words = first_words(last, N, WORDS)
        for step in range(1, t):
            last = imposed(ACTION, LENGTH, step, R, r, last)
            left, waiting = cvrp_step(DEMAND, last, capacity, left, waiting)
            words = words_too(words, last, WORDS)
            x, y, cost = gone_to(XY, last, x, y, cost)
        served = served_by(words, C, W)
    while (t < T) & (tl.max(waiting + last, 0) > 0):  # until every vehicle is home and no customer waits
        # The depot is open unless the vehicle is there while customers wait.
        depot = tl.where((last == 0) & (waiting > 0), CLOSED, 0.0)
        served, closed = closed_now(served, DEMAND, left, depot, N, C, W)
        logits = glimpse_logits(
            QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, BIAS, layer, keys, values, pointers, closed, latent, latent,
            last, left, N, True, LAYER, BOUNDED, C, W, H, D, DT, PREC,
        )  # fmt: skip
        uniform = noise(seed, start * T + t, attempt, instance)
        last, share = pick(logits, uniform, sharpness, groups, places, C, W, G, GREEDY, WARM, DT, PREC)
        if GIVEN:
            last = imposed(ACTION, LENGTH, t, R, r, last)
        left, waiting = cvrp_step(DEMAND, last, capacity, left, waiting)
        served = served_too(served, last, t, C, W)
        x, y, cost = gone_to(XY, last, x, y, cost)
        tl.store(ACTION + t * R + r, marked(last, share, certain, MARK), mask=valid)
        t += 1
    cost += distance(x, y, home_x, home_y)
    tl.store(COST + b * R + r, cost, mask=valid)
