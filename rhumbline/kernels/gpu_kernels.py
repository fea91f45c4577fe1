"""Triton: a whole rollout in one launch. A program carries a tile of rollouts of one instance through every step.

Nothing but the actions and the cost leaves the chip. Keys, values and pointers of the instance stay in shared memory;
scores, masks and logits live in registers. Products run on tensor cores in bfloat16, everything else is float32.
`glimpse_logits` and `pick` are the core that every routing problem shares; a problem adds its mask, query and cost.
"""

import triton
import triton.language as tl

from rhumbline.kernels.gpu_masks import (
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

BELOW_ONE = tl.constexpr(1.0 - 2.0**-22)  # as in decoding.choose


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
def place(XY, node):
    """Coordinates of nodes."""
    return tl.load(XY + node * 2), tl.load(XY + node * 2 + 1)


@triton.jit
def distance(x, y, to_x, to_y):
    """Straight lines."""
    return tl.sqrt((to_x - x) * (to_x - x) + (to_y - y) * (to_y - y))


@triton.jit
def noise(seed, step, attempt, instance):
    """The uniform of a decision; `noise.py` is its twin."""
    word, _, _, _ = tl.philox(seed, step.to(tl.uint32), attempt, instance, tl.zeros_like(attempt))
    return tl.uint_to_uniform_float(word)


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
def counting_tables(C: tl.constexpr, W: tl.constexpr, G: tl.constexpr, DT: tl.constexpr):
    """Zeros and ones [W, 16]: products with them are running sums of 16 groups of G, and of the places in a group."""
    sixteen = tl.arange(0, 16)
    groups = ()
    for c in tl.static_range(C):
        groups = groups + ((columns(c, W)[:, None] // G <= sixteen[None, :]).to(DT),)
    places = (tl.arange(0, W)[:, None] % G <= sixteen[None, :]).to(DT)
    return groups, places


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
    QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, BIAS, keys, values, pointers, mask, latent, row, last, left,
    LOAD: tl.constexpr, BOUNDED: tl.constexpr, W: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DT: tl.constexpr,
    PREC: tl.constexpr,
):  # fmt: skip
    """`glimpse_logits` where one part has all columns: each head adds to the logits at once."""
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
        logits = tl.dot(head, pointers[h], logits, input_precision=PREC)
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
    QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, BIAS, keys, values, pointers, closed, latent, row, last, left,
    N, LOAD: tl.constexpr, BOUNDED: tl.constexpr, C: tl.constexpr, W: tl.constexpr, H: tl.constexpr,
    D: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Pointer scores [M, W] of each part, times 2 log2(e); closed nodes are far below any other.

    QUERY holds, at `row`, what never changes during a rollout; `closed` is a tile or words, as `served_first` makes
    them. Logits begin with the mask, so that nobody needs it after them. With several parts, all heads see one part
    before they see the next: one part of the mask is in use at a time, and logits are needed only when attention is
    over.
    """
    if C == 1:
        return whole_logits(
            QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, BIAS, keys, values, pointers, closed[0], latent, row, last,
            left, LOAD, BOUNDED, W, H, D, DT, PREC,
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
        again = unknown(closed, N // (N + 1), C * W // 32)  # that is 0
        logits = ()
        for c in tl.static_range(C):
            score = mask_of(again, c, W) + tl.load(BIAS + columns(c, W))[None, :]  # now: registers are scarce above
            for h in tl.static_range(H):
                score = tl.dot(heads[h], pointers[h * C + c], score, input_precision=PREC)
            logits = logits + (score,)
        return logits


@triton.jit
def best_column(parts, C: tl.constexpr, W: tl.constexpr):
    """The largest entry of each row and its column, the first of equal ones."""
    most = tl.max(parts[0], 1)
    best = tl.argmax(parts[0], 1)
    for c in tl.static_range(1, C):
        other = tl.max(parts[c], 1)
        best = tl.where(other > most, c * W + tl.argmax(parts[c], 1), best)
        most = tl.maximum(most, other)
    return most, best.to(tl.int32)


@triton.jit
def pick(
    logits, uniform, sharpness, groups, places, C: tl.constexpr, W: tl.constexpr, G: tl.constexpr,
    GREEDY: tl.constexpr, WARM: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """The chosen column of each row, and its probability: the best, or the one that the uniform hits among the weights.

    Running sums come from tensor cores, in two stages: first which group of columns, then which place in it. Equal
    terms give equal sums, so a closed column never raises a sum and is never hit, whatever the rounding.
    """
    squashed = ()
    for c in tl.static_range(C):
        value = -20.0 / (tl.exp2(logits[c]) + 1.0)  # 10 tanh - 10
        squashed = squashed + (tl.where(logits[c] < 0.5 * CLOSED, CLOSED, value),)
    if GREEDY:
        return best_column(squashed, C, W)[1], uniform  # nobody asks for a probability then
    else:
        top = tl.zeros_like(uniform)
        if not WARM:  # cold weights would all vanish
            top = best_column(squashed, C, W)[0]
        weight = ()
        reach = tl.zeros([uniform.shape[0], 16], tl.float32)
        for c in tl.static_range(C):
            weight = weight + (tl.exp2((squashed[c] - top[:, None]) * sharpness).to(DT),)
            reach = tl.dot(weight[c], groups[c], reach, input_precision=PREC)
        total = tl.max(reach, 1)
        limit = uniform * (total * BELOW_ONE)
        passed = reach <= limit[:, None]
        group = tl.sum(passed.to(tl.int32), 1)
        # The difference may be contracted to one rounding and fall just below zero.
        rest = tl.maximum(limit - tl.max(tl.where(passed, reach, 0.0), 1), 0.0)
        inside = tl.where((columns(0, W) // G)[None, :] == group[:, None], weight[0], 0.0)
        for c in tl.static_range(1, C):  # no group lies in two parts, and places are the same in all
            inside = tl.where((columns(c, W) // G)[None, :] == group[:, None], weight[c], inside)
        reach = tl.dot(inside, places, input_precision=PREC)
        short = (reach <= rest[:, None]) & (reach < tl.max(reach, 1)[:, None])
        hit = tl.min(tl.where(short, float("inf"), reach), 1) - tl.max(tl.where(short, reach, 0.0), 1)
        return group * G + tl.sum(short.to(tl.int32), 1), hit / total


@triton.jit
def marked(node, share, certain, MARK: tl.constexpr):
    """What is stored for a decision: the node, or its complement where it was all but certain."""
    return (tl.where(share >= certain, -1 - node, node) if MARK else node).to(tl.int16)


@triton.jit
def imposed(ACTION, LENGTH, t, R, row, node):
    """The action of a step: the one that was given, which stands where actions go, or `node` where none was.

    Other threads may have stored there what this one reads: the same action, or one that does not count.
    """
    given = tl.load(ACTION + t * R + row).to(tl.int32)
    return tl.where(t < tl.load(LENGTH + row), given, node)


@triton.jit
def imposed_on_all(LENGTH, row):
    """How many actions of every rollout of the tile are given."""
    return tl.min(tl.load(LENGTH + row), 0)


@triton.jit
def gone_to(XY, node, x, y, cost):
    """Where everybody is after the next node, and how far that was in all."""
    x1, y1 = place(XY, node)
    return x1, y1, cost + distance(x, y, x1, y1)


@triton.jit(do_not_specialize=["K", "S", "N"])  # multiples of 16 would have machine code of their own
def tsp_rollout_kernel(
    KEY, VALUE, POINTER, QUERY_LAST, QUERY, GLIMPSE_SHIFT, BIAS, IS_BOUNDED, XY, START, ID, COUNTERS, ACTION, COST,
    LENGTH, K, S, N, sharpness, certain,
    NP: tl.constexpr, W: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    GREEDY: tl.constexpr, WARM: tl.constexpr, BOUNDED: tl.constexpr, MARK: tl.constexpr, GIVEN: tl.constexpr,
    DT: tl.constexpr, PREC: tl.constexpr,
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
    seed = tl.load(COUNTERS)
    first = tl.load(ACTION + r).to(tl.int32) if GIVEN else tl.load(START + b * S + start)
    last = first
    served = served_first(first, N, C, W)
    x0, y0 = place(XY, first)
    x, y = x0, y0
    cost = tl.zeros([M], tl.float32)
    keys = head_tables(KEY, True, C, W, H, D)
    values = head_tables(VALUE, False, C, W, H, D)
    pointers = head_tables(POINTER, True, C, W, H, D)
    groups, places = counting_tables(C, W, G, DT)
    tl.store(ACTION + r, first.to(tl.int16), mask=valid)
    t = 1
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
        served = served_too(served, last, t, C, W)
        logits = glimpse_logits(
            QUERY, QUERY, QUERY_LAST, GLIMPSE_SHIFT, BIAS, keys, values, pointers, served, latent, r, last, cost,
            N, False, BOUNDED, C, W, H, D, DT, PREC,
        )  # fmt: skip
        uniform = noise(seed, start * N + t, attempt, instance)
        last, share = pick(logits, uniform, sharpness, groups, places, C, W, G, GREEDY, WARM, DT, PREC)
        if GIVEN:
            last = imposed(ACTION, LENGTH, t, R, r, last)
        x, y, cost = gone_to(XY, last, x, y, cost)
        # [T, R]: neighbours write side by side. This store also keeps the compiler from lifting the loads above out
        # of the loop, where they would cost registers and spill.
        tl.store(ACTION + t * R + r, marked(last, share, certain, MARK), mask=valid)
        t += 1
    cost += distance(x, y, x0, y0)
    tl.store(COST + b * R + r, cost, mask=valid)


@triton.jit
def driven(DEMAND, node, capacity, left, waiting):
    """The load that is left after a node and the customers that wait."""
    left = tl.where(node == 0, capacity, left - tl.load(DEMAND + node))
    return left, waiting - (node > 0).to(tl.int32)


@triton.jit(do_not_specialize=["K", "S", "N", "T"])
def cvrp_rollout_kernel(
    KEY, VALUE, POINTER, QUERY_LAST, QUERY, GLIMPSE_SHIFT, BIAS, IS_BOUNDED, XY, START, ID, COUNTERS, ACTION, COST,
    LENGTH, QUERY_LOAD, DEMAND, CAPACITY, K, S, N, T, sharpness, certain,
    NP: tl.constexpr, W: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    GREEDY: tl.constexpr, WARM: tl.constexpr, BOUNDED: tl.constexpr, MARK: tl.constexpr, GIVEN: tl.constexpr,
    DT: tl.constexpr, PREC: tl.constexpr,
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
    pointers = head_tables(POINTER, True, C, W, H, D)
    groups, places = counting_tables(C, W, G, DT)
    tl.store(ACTION + r, last.to(tl.int16), mask=valid)
    t = 1
    if GIVEN:  # here `last` is among those who were served, as it is in the loop below
        t = imposed_on_all(LENGTH, r)
        words = first_words(last, N, WORDS)
        for step in range(1, t):
            last = imposed(ACTION, LENGTH, step, R, r, last)
            left, waiting = driven(DEMAND, last, capacity, left, waiting)
            words = words_too(words, last, WORDS)
            x, y, cost = gone_to(XY, last, x, y, cost)
        served = served_by(words, C, W)
    while (t < T) & (tl.max(waiting + last, 0) > 0):  # until every vehicle is home and nobody waits
        # The depot is open unless the vehicle is there while somebody waits.
        depot = tl.where((last == 0) & (waiting > 0), CLOSED, 0.0)
        served, closed = closed_now(served, DEMAND, left, depot, N, C, W)
        logits = glimpse_logits(
            QUERY, QUERY_LOAD, QUERY_LAST, GLIMPSE_SHIFT, BIAS, keys, values, pointers, closed, latent, latent, last,
            left, N, True, BOUNDED, C, W, H, D, DT, PREC,
        )  # fmt: skip
        uniform = noise(seed, start * T + t, attempt, instance)
        last, share = pick(logits, uniform, sharpness, groups, places, C, W, G, GREEDY, WARM, DT, PREC)
        if GIVEN:
            last = imposed(ACTION, LENGTH, t, R, r, last)
        left, waiting = driven(DEMAND, last, capacity, left, waiting)
        served = served_too(served, last, t, C, W)
        x, y, cost = gone_to(XY, last, x, y, cost)
        tl.store(ACTION + t * R + r, marked(last, share, certain, MARK), mask=valid)
        t += 1
    cost += distance(x, y, home_x, home_y)
    tl.store(COST + b * R + r, cost, mask=valid)
