"""The Triton kernels that score given actions and differentiate the scores; `score_actions` launches them.

A query row is one (trajectory r, step t); the rows of an instance are flattened, so tiles are full whatever T is:

    q       = query_constant[r] + query_first[first action] + query_last[action t-1]  (+ load_t * query_load for CVRP)
    o_h     = softmax_j(scale * q_h . key_jh ; allowed j) . value_h                    8 heads of 16
    u_j     = o . pointer_j + pointer_constant[r, j]
    score_t = log_softmax_j(clip * tanh(u_j) ; allowed j)[action t]                    the temperature is always 1

Nothing of size rows x nodes reaches global memory. `research/notebooks/kernels.md` has the design and its limits.
"""

# ruff: noqa: E741, RUF059  (kernels name tables by letter; Triton wants both branches of a constant `if`)
from functools import partial

import triton
import triton.language as tl
from triton.language.extra import libdevice

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
TSP = tl.constexpr(0)
CVRP = tl.constexpr(1)
NEVER = tl.constexpr(32767)  # later than any step; steps are int16

# Triton compiles a kernel again for integers that are 1 or multiples of 16. That takes seconds in the middle of a
# search, and gains nothing except a few instructions if there is a single chunk.
scoring_jit = partial(
    triton.jit, do_not_specialize=["R", "pc_groups", "pc_share"], do_not_specialize_on_alignment=["splits"]
)

# One argument per line would add 150 lines to the kernels and hide the order that the launches rely on.
# fmt: off


@triton.jit
def _rows(INDEX, ACT, ROOM, tile, count, A, T, t0, M: tl.constexpr, LISTED: tl.constexpr, PROBLEM: tl.constexpr):
    """Load rows of a tile: index, validity, trajectory, step, current and chosen node, load left (`room`).

    If LISTED they are those that a list names, in ascending order, else all. Past the end the last row repeats, since
    the forward kernel may not have stored anything for rows that are not listed.
    """
    at = tile * M + tl.arange(0, M)
    valid = at < count
    row = tl.maximum(tl.minimum(at, count - 1), 0)                   # an empty list is read, but the row is not used
    if LISTED:
        row = tl.load(INDEX + row)
    r = row // T
    t = row - r * T + t0
    room = tl.load(ROOM + row) if PROBLEM == CVRP else tl.zeros([M], tl.float32)
    at = ACT + r * A + t
    return row, valid, r, t, tl.load(at - 1).to(tl.int32), tl.load(at).to(tl.int32), room


# The interpreter has no libdevice. The type that `triton.jit` returns always tells whether it is in use.
FAST = tl.constexpr(isinstance(_rows, triton.JITFunction))


@triton.jit
def _chunk(chunk, chunks, tiles):
    """Return the first tile of a chunk and the one after its last."""
    lo = chunk * tl.cdiv(tiles, chunks)
    return lo, tl.minimum(lo + tl.cdiv(tiles, chunks), tiles)


@triton.jit
def _outer(row, col, TR: tl.constexpr):
    """Give a row vector and a column vector the axes of a [rows, nodes] tile, or of its transpose."""
    if TR:
        return row[None, :], col[:, None]
    else:
        return row[:, None], col[None, :]


@triton.jit
def _allowed(POS, DEMAND, r, t, room, col, N: tl.constexpr, NP: tl.constexpr, PROBLEM: tl.constexpr, TR: tl.constexpr):
    """Return which nodes each row may choose, [M, NP], or [NP, M] if TR: the problem's rules.

    Rows of POS are padded to NP with -1 (visited before the start), so that they can be loaded in vectors.
    """
    r, node = _outer(r, col, TR)
    due, _ = _outer(t, col, TR)
    ok = tl.load(POS + r * NP + node).to(tl.int32) >= due
    if PROBLEM == CVRP:
        demand = tl.load(DEMAND + col, mask=col < N, other=float("inf"))
        room, demand = _outer(room, demand, TR)
        ok = tl.where(node == 0, room > 0, ok & (demand <= tl.abs(room)))
    return ok


@triton.jit
def _constant(PC, r, col, pc_share, NP: tl.constexpr, TR: tl.constexpr):
    """Load the pointer constants of each row, which are padded likewise."""
    group, node = _outer(r // pc_share, col, TR)
    return tl.load(PC + group * NP + node)


@triton.jit
def _query(QL, QB, QX, r, cur, room, e, scale2, E: tl.constexpr, PROBLEM: tl.constexpr):
    """Return one head's queries [M, D] in float32, times scale * log2(e) so that scores go straight into exp2."""
    q = tl.load(QB + r[:, None] * E + e[None, :]) + tl.load(QL + cur[:, None] * E + e[None, :]).to(tl.float32)
    if PROBLEM == CVRP:
        q += (tl.abs(room) - 0.5)[:, None] * tl.load(QX + e)[None, :]
    return q * scale2


@triton.jit
def _squash(u):
    """Return x in [0, 1] with tanh(u) = 1 - 2 x, so 1 - tanh^2 = 4 x (1 - x). exp2 may saturate to 0 or inf."""
    y = tl.exp2(u * (2.0 * LOG2E)) + 1.0
    return libdevice.fast_dividef(1.0, y) if FAST else 1.0 / y       # one reciprocal; a full division is six operations


# Every kernel first moves its pointers to its instance (one 64-bit addition each); all later offsets are 32-bit.
@scoring_jit
def forward_kernel(INDEX, PLACE, K, V, P, PC, QL, QB, QX, ACT, POS, ROOM, DEMAND, SCORE, O, STAT, LZ,
                   R, A, T, t0, pc_groups, pc_share, scale2, clip,
                   N: tl.constexpr, NP: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
                   E: tl.constexpr, PROBLEM: tl.constexpr, HAS_PC: tl.constexpr, SAVE: tl.constexpr,
                   LISTED: tl.constexpr):
    """Store scores of one tile of M rows, all heads; if SAVE also the glimpse o, the heads' log-sums and log z."""
    DT: tl.constexpr = K.dtype.element_ty
    tiles = tl.cdiv(R * T, M)
    pid = tl.program_id(0)
    b = (pid // tiles).to(tl.int64)
    tile = pid % tiles
    nodes, rows = b * N * E, b * R * T
    K, V, P, QL = K + nodes, V + nodes, P + nodes, QL + nodes
    PC, QB, QX, DEMAND = PC + b * pc_groups * NP, QB + b * R * E, QX + b * E, DEMAND + b * N
    ACT, POS, ROOM = ACT + b * R * A, POS + b * R * NP, ROOM + rows
    SCORE, O, STAT, LZ = SCORE + rows, O + rows * E, STAT + rows * H * 2, LZ + rows
    INDEX, count = INDEX + rows + b, R * T                           # a list has one entry more than there are rows
    if LISTED:
        count = tl.load(PLACE + rows + R * T - 1)
        if tile * M >= count:
            return
    row, valid, r, t, cur, nxt, room = _rows(INDEX, ACT, ROOM, tile, count, A, T, t0, M, LISTED, PROBLEM)
    col = tl.arange(0, NP)
    real = col < N
    ok = _allowed(POS, DEMAND, r, t, room, col, N, NP, PROBLEM, False)
    u = tl.zeros([M, NP], tl.float32)
    for h in range(H):  # a loop, not unrolled: it fits the instruction cache, and stages > 1 prefetch the next head
        e = h * D + tl.arange(0, D)
        q = _query(QL, QB, QX, r, cur, room, e, scale2, E, PROBLEM)
        kt = tl.load(K + col[None, :] * E + e[:, None], mask=real[None, :], other=0.0)           # [D, NP]
        s = tl.dot(q.to(DT), kt, input_precision="ieee")
        s = tl.where(ok, s, float("-inf"))
        m = tl.max(s, 1)
        a = tl.exp2(s - m[:, None])
        z = tl.sum(a, 1)
        v = tl.load(V + col[:, None] * E + e[None, :], mask=real[:, None], other=0.0)            # [NP, D]
        o = (tl.dot(a.to(DT), v, input_precision="ieee") * (1.0 / z)[:, None]).to(DT)
        pt = tl.load(P + col[None, :] * E + e[:, None], mask=real[None, :], other=0.0)
        u = tl.dot(o, pt, u, input_precision="ieee")
        if SAVE:
            tl.store(O + row[:, None] * E + e[None, :], o, mask=valid[:, None])
            tl.store(STAT + (h * R * T + row) * 2, m, mask=valid)
            tl.store(STAT + (h * R * T + row) * 2 + 1, tl.log2(z), mask=valid)
    if HAS_PC:
        u += _constant(PC, r, col, pc_share, NP, False)
    y = _squash(u) * (-2.0 * LOG2E * clip)  # log2 of exp(clip * tanh - clip): at most 0, so that no maximum is needed
    lz = tl.log2(tl.sum(tl.where(ok, tl.exp2(y), 0.0), 1))
    chosen = tl.sum(tl.where(col[None, :] == nxt[:, None], y, 0.0), 1)
    tl.store(SCORE + row, (chosen - lz) * LN2, mask=valid)
    if SAVE:
        tl.store(LZ + row, lz, mask=valid)


@scoring_jit
def pointer_backward_kernel(INDEX, PLACE, P, PC, ACT, POS, ROOM, DEMAND, G, O, LZ, DO, DP, DPC,
                            R, A, T, t0, pc_groups, pc_share, clip, splits,
                            N: tl.constexpr, NP: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
                            E: tl.constexpr, PROBLEM: tl.constexpr, HAS_PC: tl.constexpr, ONE: tl.constexpr,
                            DEEP: tl.constexpr):
    """Store dO of a chunk of tiles (if DEEP), its share of dP (kept in registers) and of dPC; u is recomputed from o.

    With ONE group of constants, dPC has a share for each chunk, too. Without, a loop over groups keeps the compiler
    from prefetching the next tile's rows.
    """
    DT: tl.constexpr = P.dtype.element_ty
    pid = tl.program_id(0)
    b = (pid // splits).to(tl.int64)
    rows, groups = b * R * T, b * pc_groups * NP
    P, PC, DEMAND = P + b * N * E, PC + groups, DEMAND + b * N
    DPC += pid.to(tl.int64) * NP if ONE else groups
    ACT, POS, ROOM = ACT + b * R * A, POS + b * R * NP, ROOM + rows
    G, O, LZ, DO, DP = G + rows, O + rows * E, LZ + rows, DO + rows * E, DP + pid.to(tl.int64) * N * E
    INDEX, count = INDEX + rows + b, tl.load(PLACE + rows + R * T - 1)
    lo, hi = _chunk(pid % splits, splits, tl.cdiv(count, M))
    col = tl.arange(0, NP)
    real = col < N
    e = tl.arange(0, E)
    p = tl.load(P + col[:, None] * E + e[None, :], mask=real[:, None], other=0.0)                # [NP, E], stays
    dp = tl.zeros([NP, E], tl.float32)
    dpc = tl.zeros([NP], tl.float32)
    for tile in range(lo, hi):
        row, valid, r, t, cur, nxt, room = _rows(INDEX, ACT, ROOM, tile, count, A, T, t0, M, True, PROBLEM)
        g = tl.load(G + row, mask=valid, other=0.0) * clip           # repeated rows of the last tile add nothing
        lz = tl.load(LZ + row)
        o = tl.load(O + row[:, None] * E + e[None, :])                                           # [M, E]
        # Transposed tiles [NP, M], as for the heads: nothing is reduced over nodes, since the forward kept log z.
        u = tl.dot(p, tl.trans(o), input_precision="ieee")
        if HAS_PC:
            u += _constant(PC, r, col, pc_share, NP, True)
        ok = _allowed(POS, DEMAND, r, t, room, col, N, NP, PROBLEM, True)
        x = _squash(u)
        w = tl.where(ok, tl.exp2(x * (-2.0 * LOG2E * clip) - lz[None, :]), 0.0)                  # probabilities
        du = (tl.where(col[:, None] == nxt[None, :], 1.0, 0.0) - w) * (4.0 * g)[None, :] * (x - x * x)
        dub = du.to(DT)
        dp = tl.dot(dub, o, dp, input_precision="ieee")
        if DEEP:
            do = tl.dot(tl.trans(dub), p, input_precision="ieee")
            tl.store(DO + row[:, None] * E + e[None, :], do.to(DT), mask=valid[:, None])
        if HAS_PC and ONE:
            dpc += tl.sum(du, 1)
        elif HAS_PC:
            first = tl.load(INDEX + tile * M) // T // pc_share       # listed rows ascend: groups first to last
            last = tl.load(INDEX + tl.minimum(tile * M + M, count) - 1) // T // pc_share
            for group in range(first, last + 1):
                part = tl.sum(tl.where((r // pc_share == group)[None, :], du, 0.0), 1)
                tl.atomic_add(DPC + group * NP + col, part, mask=real, sem="relaxed")
    tl.store(DP + col[:, None] * E + e[None, :], dp, mask=real[:, None])
    if HAS_PC and ONE:
        tl.store(DPC + col, dpc)


@triton.jit
def _fetch(INDEX, QL, QB, QX, ACT, ROOM, O, STAT, DO, tile, count, A, T, t0, scale2,
           M: tl.constexpr, E: tl.constexpr, D: tl.constexpr, PROBLEM: tl.constexpr):
    """Load one head's inputs of a tile. dO is zero for repeated rows, so they add nothing to any gradient."""
    DT: tl.constexpr = O.dtype.element_ty
    row, valid, r, t, cur, nxt, room = _rows(INDEX, ACT, ROOM, tile, count, A, T, t0, M, True, PROBLEM)
    d = tl.arange(0, D)
    q = _query(QL, QB, QX, r, cur, room, d, scale2, E, PROBLEM).to(DT)
    here = row[:, None] * E + d[None, :]
    stat = tl.load(STAT + row[:, None] * 2 + tl.arange(0, 2)[None, :])  # maximum, log2 of the sum
    return q, tl.load(DO + here, mask=valid[:, None], other=0.0), tl.load(O + here), stat


@scoring_jit
def heads_backward_kernel(INDEX, PLACE, K, V, QL, QB, QX, ACT, POS, ROOM, DEMAND, O, STAT, DO, DK, DV,
                          R, A, T, t0, scale, splits,
                          N: tl.constexpr, NP: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
                          E: tl.constexpr, PROBLEM: tl.constexpr):
    """Store one head's share of dK and dV over a chunk of tiles (kept in registers); dq overwrites dO."""
    DT: tl.constexpr = O.dtype.element_ty
    pid = tl.program_id(0)
    h = pid % H                                                      # heads of one chunk run together: they share O, DO
    part = pid // H                                                  # = b * splits + chunk
    b = (part // splits).to(tl.int64)
    nodes, rows, parts = b * N * E + h * D, b * R * T, part.to(tl.int64) * N * E + h * D
    K, V, QL, QB, QX = K + nodes, V + nodes, QL + nodes, QB + b * R * E + h * D, QX + b * E + h * D
    ACT, POS, ROOM, DEMAND = ACT + b * R * A, POS + b * R * NP, ROOM + rows, DEMAND + b * N
    O, DO, STAT = O + rows * E + h * D, DO + rows * E + h * D, STAT + (b * H + h) * R * T * 2
    DK, DV = DK + parts, DV + parts
    INDEX, count = INDEX + rows + b, tl.load(PLACE + rows + R * T - 1)
    lo, hi = _chunk(part % splits, splits, tl.cdiv(count, M))
    col = tl.arange(0, NP)
    real = col < N
    d = tl.arange(0, D)
    at = col[:, None] * E + d[None, :]
    k = tl.load(K + at, mask=real[:, None], other=0.0)
    v = tl.load(V + at, mask=real[:, None], other=0.0)
    dk = tl.zeros([NP, D], tl.float32)
    dv = tl.zeros([NP, D], tl.float32)
    scale2 = scale * LOG2E
    q, do, o, stat = _fetch(INDEX, QL, QB, QX, ACT, ROOM, O, STAT, DO, lo, count, A, T, t0, scale2,
                            M, E, D, PROBLEM)
    for tile in range(lo, hi):
        # The next tile's rows arrive while this one is computed (14 registers); past the end they are not used.
        q1, do1, o1, stat1 = _fetch(INDEX, QL, QB, QX, ACT, ROOM, O, STAT, DO, tile + 1, count, A, T, t0, scale2,
                                    M, E, D, PROBLEM)
        row, valid, r, t, cur, nxt, room = _rows(INDEX, ACT, ROOM, tile, count, A, T, t0, M, True, PROBLEM)
        delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), 1)      # = sum_j a_j da_j, the softmax's own correction
        lse = tl.sum(stat, 1)
        # Transposed tiles [NP, M]: a and ds are then left operands from registers for dV and dK; only dq turns one.
        ok = _allowed(POS, DEMAND, r, t, room, col, N, NP, PROBLEM, True)
        s = tl.dot(k, tl.trans(q), input_precision="ieee")
        a = tl.where(ok, tl.exp2(s - lse[None, :]), 0.0)
        dv = tl.dot(a.to(DT), do, dv, input_precision="ieee")
        da = tl.dot(v, tl.trans(do), input_precision="ieee")
        ds = (a * (da - delta[None, :])).to(DT)
        dk = tl.dot(ds, q, dk, input_precision="ieee")
        dq = tl.dot(tl.trans(ds), k, input_precision="ieee") * scale
        tl.store(DO + row[:, None] * E + d[None, :], dq.to(DT), mask=valid[:, None])  # its own slice
        q, do, o, stat = q1, do1, o1, stat1
    tl.store(DK + at, dk * LN2, mask=real[:, None])                  # q carries log2(e); undo it here
    tl.store(DV + at, dv, mask=real[:, None])


@scoring_jit
def query_backward_kernel(INDEX, PLACE, DQ, ACT, ROOM, DQL, DQX, R, A, T, t0, splits,
                          N: tl.constexpr, NP: tl.constexpr, M: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
                          E: tl.constexpr, PROBLEM: tl.constexpr):
    """Store a chunk's share of dQL, by a one-hot product (no contention, deterministic), and of dQX."""
    pid = tl.program_id(0)
    b = (pid // splits).to(tl.int64)
    rows = b * R * T
    DQ, ACT, ROOM, DQL = DQ + rows * E, ACT + b * R * A, ROOM + rows, DQL + pid.to(tl.int64) * N * E
    INDEX, count = INDEX + rows + b, tl.load(PLACE + rows + R * T - 1)
    lo, hi = _chunk(pid % splits, splits, tl.cdiv(count, M))
    col = tl.arange(0, NP)
    e = tl.arange(0, E)
    dql = tl.zeros([NP, E], tl.float32)
    dqx = tl.zeros([E], tl.float32)
    for tile in range(lo, hi):
        row, valid, r, t, cur, nxt, room = _rows(INDEX, ACT, ROOM, tile, count, A, T, t0, M, True, PROBLEM)
        dq = tl.load(DQ + row[:, None] * E + e[None, :], mask=valid[:, None], other=0.0)
        pick = (col[:, None] == cur[None, :]).to(DQ.dtype.element_ty)  # exact: 0 or 1 times stored values, float32 sums
        dql = tl.dot(pick, dq, dql, input_precision="ieee")
        if PROBLEM == CVRP:
            dqx += tl.sum(dq.to(tl.float32) * (tl.abs(room) - 0.5)[:, None], 0)
    tl.store(DQL + col[:, None] * E + e[None, :], dql, mask=(col < N)[:, None])
    if PROBLEM == CVRP:
        tl.store(DQX + pid.to(tl.int64) * E + e, dqx)


@scoring_jit
def trajectory_backward_kernel(INDEX, PLACE, DQ, DQB, R, T, M: tl.constexpr, E: tl.constexpr):
    """Store dQB: the sum of dq over the rows of one trajectory, which are consecutive in the list."""
    pid = tl.program_id(0)
    b, r = (pid // R).to(tl.int64), pid % R
    rows = b * R * T
    INDEX, PLACE, DQ = INDEX + rows + b, PLACE + rows + r * T, DQ + rows * E
    lo = tl.load(PLACE - 1, mask=r > 0, other=0)
    hi = tl.load(PLACE + T - 1)
    e = tl.arange(0, E)
    total = tl.zeros([E], tl.float32)
    for place in range(lo, hi, M):
        at = place + tl.arange(0, M)
        row = tl.load(INDEX + at, mask=at < hi, other=0)
        dq = tl.load(DQ + row[:, None] * E + e[None, :], mask=(at < hi)[:, None], other=0.0)
        total += tl.sum(dq.to(tl.float32), 0)
    tl.store(DQB + pid.to(tl.int64) * E + e, total)


@triton.jit(do_not_specialize=["rows"])
def list_kernel(WHAT, GRAD, INDEX, PLACE, rows, certain_from, M: tl.constexpr, BY_GRADIENT: tl.constexpr):
    """List the selected rows of an instance in ascending order, and their number up to each row; M rows at a time.

    If BY_GRADIENT, WHAT has scores, and rows are selected whose gradient is nonzero and whose score is below
    `certain_from`, or NaN. Else WHAT is nonzero for selected rows.
    """
    b = tl.program_id(0).to(tl.int64)
    INDEX, PLACE = INDEX + b * (rows + 1), PLACE + b * rows
    before = 0
    for first in range(0, rows, M):
        row = first + tl.arange(0, M)
        real = row < rows
        if BY_GRADIENT:
            grad = tl.load(GRAD + b * rows + row, mask=real, other=0.0)
            score = tl.load(WHAT + b * rows + row, mask=real, other=0.0)
            kept = (grad != 0.0) & ~(score >= certain_from)            # NaN scores stay
        else:
            kept = tl.load(WHAT + b * rows + row, mask=real, other=0) != 0
        kept = kept.to(tl.int32)
        place = before + tl.cumsum(kept, 0)
        tl.store(PLACE + row, place, mask=real)
        tl.store(INDEX + place - 1, row, mask=kept != 0)
        before += tl.sum(kept, 0)
    tl.store(INDEX, 0, mask=before == 0)                             # the first entry is read even if the list is empty
