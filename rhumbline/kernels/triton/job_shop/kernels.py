"""Triton: a whole job-shop rollout in one launch; a program carries a few rollouts to their ends.

The tokens are the jobs of the program's rollouts, JP each. Rules and times are whole numbers in
tiles [R, JP]. The network sees all tokens as the M = R JP rows of its products, and a job attends
to those of its own rollout. The weights do not fit on the chip and are read from the cache at each
decision. So decisions without a choice, about half of all, are made without the network.
"""

import triton
import triton.language as tl

from rhumbline.kernels.triton.rollout.sampling import BELOW_ONE
from rhumbline.kernels.triton.rollout.state import noise, tile_rows

LATE = tl.constexpr(2**31 - 1)
HIDDEN_FROM = tl.constexpr(-1.0e9)  # added to what attention must not see
CLIP = tl.constexpr(10.0)


@triton.jit
def of_job(values, job, JP: tl.constexpr):
    """The entry of one job in each row."""
    return tl.sum(tl.where(tl.arange(0, JP)[None, :] == job[:, None], values, 0), 1)


@triton.jit
def candidates(duration, machine, load, start, done, JP: tl.constexpr, ACTIVE: tl.constexpr):
    """Whom the rules allow, and the one that ends first: the conflict set, or all that are not done.

    Among those that end first, those that take time count, then those on the machine with more work left, then the
    first of them, as in `problems.jssp.conflict`.
    """
    jobs = tl.arange(0, JP)[None, :]
    finish = tl.where(done, LATE, start + duration)
    earliest = tl.min(finish, 1)
    first = (finish == earliest[:, None]) & ~done
    timed = (duration > 0).to(tl.int32)
    first = first & (timed == tl.max(tl.where(first, timed, 0), 1)[:, None])
    first = first & (load == tl.max(tl.where(first, load, -1), 1)[:, None])
    chosen = tl.min(tl.where(first, jobs, JP - 1), 1)
    if ACTIVE:
        here = machine == of_job(machine, chosen, JP)[:, None]
        allowed = (here & (start < earliest[:, None]) & ~done) | (jobs == chosen[:, None])
    else:
        allowed = ~done
    return allowed & ~done, chosen, earliest


@triton.jit
def bent(x, unit):
    """asinh of a time in units."""
    x = x.to(tl.float32) / unit
    size = tl.abs(x)
    length = tl.log(size + tl.sqrt(size * size + 1.0))
    return tl.where(x < 0, -length, length)


@triton.jit
def column(features, values, k: tl.constexpr, M: tl.constexpr):
    """The features with one column more."""
    return tl.where(tl.arange(0, 16)[None, :] == k, tl.reshape(values, [M])[:, None], features)


@triton.jit
def time_features(
    next_, job, free, load, duration, tail, start, done, allowed, earliest, machines_bound, unit, bound_unit, C,
    M: tl.constexpr,
):  # fmt: skip
    """What the moment looks like for each job, [M, 16] of which 13 are in use; `policies.jssp.time_features`."""
    frontier = tl.min(tl.where(done, LATE, start), 1)[:, None]
    earliest = earliest[:, None]
    bound = tl.maximum(tl.max(start + tail, 1), machines_bound)[:, None]
    f = tl.zeros([M, 16], tl.float32)
    f = column(f, bent(job - frontier, unit), 0, M)
    f = column(f, bent(free - frontier, unit), 1, M)
    f = column(f, bent(start - frontier, unit), 2, M)
    f = column(f, bent(start + duration - earliest, unit), 3, M)
    f = column(f, bent(start - earliest, unit), 4, M)
    f = column(f, bent(start + tail - bound, unit), 5, M)
    f = column(f, bent(free + load - bound, unit), 6, M)
    f = column(f, bent(duration, unit), 7, M)
    f = column(f, tail.to(tl.float32) / bound_unit, 8, M)
    f = column(f, load.to(tl.float32) / bound_unit, 9, M)
    f = column(f, tl.zeros_like(tail.to(tl.float32)) + (bound - frontier).to(tl.float32) / bound_unit, 10, M)
    f = column(f, next_.to(tl.float32) / C, 11, M)
    return column(f, allowed.to(tl.float32), 12, M)


@triton.jit
def block(W, row, col, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """A part of a matrix with rows of WIDTH."""
    return tl.load(W + (row + tl.arange(0, ROWS))[:, None] * WIDTH + col + tl.arange(0, COLS)[None, :])


@triton.jit
def tokens(
    TABLE, TIMES, TOKEN, TOKEN_BIAS, TOKEN_SHIFT, features, cell, latent, M: tl.constexpr, D: tl.constexpr,
    PART: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Jobs as vectors [M, D]: their next operation's row, the times and the latent's share, through a hidden layer."""
    x = tl.zeros([M, D], tl.float32) + tl.load(TOKEN_BIAS + tl.arange(0, D))[None, :]
    for at in range(0, 2 * D, PART):
        cols = at + tl.arange(0, PART)[None, :]
        h = tl.load(TABLE + cell[:, None] * (2 * D) + cols).to(tl.float32)
        h += tl.load(TOKEN_SHIFT + latent[:, None] * (2 * D) + cols)
        h = tl.dot(features.to(DT), block(TIMES, 0, at, 2 * D, 16, PART), h, input_precision=PREC)
        x = tl.dot(tl.maximum(h, 0.0).to(DT), block(TOKEN, at, 0, D, PART, D), x, input_precision=PREC)
    return x


@triton.jit
def normed(x, NORM, D: tl.constexpr):
    """Layer norm."""
    cols = tl.arange(0, D)
    x = x - (tl.sum(x, 1) / D)[:, None]
    x = x * tl.rsqrt(tl.sum(x * x, 1) / D + 1e-5)[:, None]
    return x * tl.load(NORM + cols)[None, :] + tl.load(NORM + D + cols)[None, :]


@triton.jit
def attended(
    x, QKV, OUT, OUT_BIAS, NORM, RIVAL, owner, machine, done, scale, M: tl.constexpr, D: tl.constexpr,
    H: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """The jobs after they saw the others of their rollout that are not done."""
    A: tl.constexpr = D // H
    seen = normed(x, NORM, D).to(DT)
    x += tl.load(OUT_BIAS + tl.arange(0, D))[None, :]
    for h in range(H):
        q = tl.dot(seen, block(QKV, 0, h * A, 3 * D, D, A), input_precision=PREC)
        k = tl.dot(seen, block(QKV, 0, D + h * A, 3 * D, D, A), input_precision=PREC)
        v = tl.dot(seen, block(QKV, 0, 2 * D + h * A, 3 * D, D, A), input_precision=PREC)
        score = tl.dot((q * scale).to(DT), tl.trans(k.to(DT)), input_precision=PREC)
        rivals = machine[:, None] == machine[None, :]
        score += tl.where(rivals, tl.load(RIVAL + h), 0.0)
        visible = (owner[:, None] == owner[None, :]) & (done[None, :] == 0)
        score = tl.where(visible, score, HIDDEN_FROM)
        weight = tl.exp2(score - tl.max(score, 1)[:, None])
        total = tl.sum(weight, 1)
        mixed = tl.dot(weight.to(DT), v.to(DT), input_precision=PREC) / total[:, None]
        x = tl.dot(mixed.to(DT), block(OUT, h * A, 0, D, A, D), x, input_precision=PREC)
    return x


@triton.jit
def shares(flags, M: tl.constexpr):
    """Weights of the flagged jobs of each rollout, which add up to one, by token."""
    some = flags.to(tl.float32)
    return tl.reshape(some / tl.maximum(tl.sum(some, 1), 1.0)[:, None], [M])


@triton.jit
def scores(
    x, HIDDEN, HIDDEN_BIAS, HIDDEN_SHIFT, CONTEXT, SCORE, owner, latent, unfinished, allowed, M: tl.constexpr,
    D: tl.constexpr, PART: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Scores of all tokens, [M]. Rows 0 to 7 of the contexts are means of unfinished jobs, 8 to 15 of allowed ones."""
    sixteen = tl.arange(0, 16)
    x = x.to(DT)
    mean = tl.where(sixteen[:, None] == owner[None, :], unfinished[None, :], 0.0)
    mean += tl.where(sixteen[:, None] == owner[None, :] + 8, allowed[None, :], 0.0)
    context = tl.dot(mean.to(DT), x, input_precision=PREC).to(DT)
    of_all = (owner[:, None] == sixteen[None, :]).to(DT)
    of_allowed = (owner[:, None] + 8 == sixteen[None, :]).to(DT)
    score = tl.zeros([M], tl.float32)
    for at in range(0, 2 * D, PART):
        cols = at + tl.arange(0, PART)
        h = tl.load(HIDDEN_SHIFT + latent[:, None] * (2 * D) + cols[None, :]) + tl.load(HIDDEN_BIAS + cols)[None, :]
        h = tl.dot(x, block(HIDDEN, 0, at, 2 * D, D, PART), h, input_precision=PREC)
        whole = tl.dot(context, block(CONTEXT, 0, at, 2 * D, D, PART), input_precision=PREC)
        h = tl.dot(of_all, whole.to(DT), h, input_precision=PREC)
        some = tl.dot(context, block(CONTEXT, D, at, 2 * D, D, PART), input_precision=PREC)
        h = tl.dot(of_allowed, some.to(DT), h, input_precision=PREC)
        score += tl.sum(tl.maximum(h, 0.0) * tl.load(SCORE + cols)[None, :], 1)
    return score


@triton.jit
def drawn(score, allowed, uniform, sharpness, JP: tl.constexpr, GREEDY: tl.constexpr):
    """The job of each row that the uniform hits among the weights of those allowed, or the best; `decoding.choose`."""
    jobs = tl.arange(0, JP)[None, :]
    power = tl.minimum(score * (2.0 * 1.4426950408889634 / CLIP), 100.0)  # beyond that nothing changes
    squashed = CLIP - 2.0 * CLIP / (tl.exp2(power) + 1.0)  # CLIP tanh(score / CLIP)
    squashed = tl.where(allowed, squashed, HIDDEN_FROM)
    if GREEDY:
        return tl.argmax(squashed, 1).to(tl.int32)
    else:
        weight = tl.exp2((squashed - tl.max(squashed, 1)[:, None]) * sharpness)
        reach = tl.where(allowed, tl.cumsum(weight, 1), 0.0)
        limit = uniform * (tl.max(reach, 1) * BELOW_ONE)
        return tl.min(tl.where(reach > limit[:, None], jobs, JP - 1), 1)


@triton.jit
def decided(
    TABLE, TIMES, TOKEN, TOKEN_BIAS, TOKEN_SHIFT, NORM, QKV, OUT, OUT_BIAS, RIVAL, HIDDEN, HIDDEN_BIAS, HIDDEN_SHIFT,
    CONTEXT, SCORE, jobs_state, start, done, allowed, earliest, machines_bound, owner, latent, unit, bound_unit, scale,
    sharpness, seed, position, attempt, instance, J, C,
    R: tl.constexpr, JP: tl.constexpr, D: tl.constexpr, H: tl.constexpr, PART: tl.constexpr, GREEDY: tl.constexpr,
    DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """The job that the network chooses in each row."""
    M: tl.constexpr = R * JP
    next_, job, duration, machine, tail, free, load = jobs_state
    features = time_features(
        next_, job, free, load, duration, tail, start, done, allowed, earliest, machines_bound, unit, bound_unit, C, M
    )
    cell = tl.reshape(tl.minimum(tl.arange(0, JP)[None, :], J - 1) * C + next_, [M])
    x = tokens(TABLE, TIMES, TOKEN, TOKEN_BIAS, TOKEN_SHIFT, features, cell, latent, M, D, PART, DT, PREC)
    flat_machine, flat_done = tl.reshape(machine, [M]), tl.reshape(done.to(tl.int32), [M])
    x = attended(x, QKV, OUT, OUT_BIAS, NORM, RIVAL, owner, flat_machine, flat_done, scale, M, D, H, DT, PREC)
    score = scores(
        x, HIDDEN, HIDDEN_BIAS, HIDDEN_SHIFT, CONTEXT, SCORE, owner, latent, shares(~done, M), shares(allowed, M), M,
        D, PART, DT, PREC,
    )  # fmt: skip
    uniform = noise(seed, position, attempt, instance)  # not before: registers are scarce above
    return drawn(tl.reshape(score, [R, JP]), allowed, uniform, sharpness, JP, GREEDY)


@triton.jit
def placed(
    jobs_state, machines_state, DURATION, MACHINE, TAIL, start, action, going, J, C, JP: tl.constexpr, WP: tl.constexpr
):  # fmt: skip
    """Jobs and machines after the next operation of job `action` was appended to its machine, in rows that go on."""
    next_, job, duration, machine, tail, free, load = jobs_state
    machine_free, machine_left, machines_bound = machines_state
    where, begin, lasting = of_job(machine, action, JP), of_job(start, action, JP), of_job(duration, action, JP)
    end = begin + lasting
    # What a machine is free at and has left only grows, and so does the most that any machine comes to.
    grown = tl.maximum(machines_bound, begin + of_job(load, action, JP))
    machines_bound = tl.where(going, grown, machines_bound)
    there = (tl.arange(0, WP)[None, :] == where[:, None]) & going[:, None]
    machine_free = tl.where(there, end[:, None], machine_free)
    machine_left = tl.where(there, machine_left - lasting[:, None], machine_left)
    waiting = (machine == where[:, None]) & going[:, None]
    free = tl.where(waiting, end[:, None], free)
    load = tl.where(waiting, load - lasting[:, None], load)
    # The job itself goes on to its next operation.
    chosen = (tl.arange(0, JP)[None, :] == action[:, None]) & going[:, None]
    following = action * C + of_job(next_, action, JP) + 1
    next_ += chosen.to(tl.int32)
    job = tl.where(chosen, end[:, None], job)
    duration = tl.where(chosen, tl.load(DURATION + following, mask=going, other=0)[:, None], duration)
    moved = tl.load(MACHINE + following, mask=going, other=0)
    machine = tl.where(chosen, moved[:, None], machine)
    tail = tl.where(chosen, tl.load(TAIL + following, mask=going, other=0)[:, None], tail)
    free = tl.where(chosen, of_job(machine_free, moved, WP)[:, None], free)
    load = tl.where(chosen, of_job(machine_left, moved, WP)[:, None], load)
    return (next_, job, duration, machine, tail, free, load), (machine_free, machine_left, machines_bound)


@triton.jit
def opened(DURATION, MACHINE, TAIL, LOAD, J, C, W, R: tl.constexpr, JP: tl.constexpr, WP: tl.constexpr):
    """Nothing is placed. Jobs: the next operation, when the job is free, what there is to know of that operation and
    its machine. Machines: when they are free, the work they have left, and the most of these sums."""
    jobs, machines = tl.arange(0, JP)[None, :], tl.arange(0, WP)[None, :]
    zeros = tl.zeros([R, JP], tl.int32)
    there = (jobs < J) & (
        tl.arange(0, R)[:, None] >= 0
    )  # of that shape at once: `zeros + jobs < J` spills twice as much
    duration = tl.load(DURATION + zeros + jobs * C, mask=there, other=0)
    machine = tl.load(MACHINE + zeros + jobs * C, mask=there, other=W - 1)
    tail = tl.load(TAIL + zeros + jobs * C, mask=there, other=0)
    machine_free = tl.zeros([R, WP], tl.int32)
    machine_left = tl.load(LOAD + machines, mask=machines < W, other=0) + machine_free
    jobs_state = (zeros, zeros, duration, machine, tail, zeros, tl.load(LOAD + machine))
    return jobs_state, (machine_free, machine_left, tl.max(machine_left, 1))


@triton.jit(do_not_specialize=["K", "J", "C", "W", "T"])  # 15 operations or 14 would else be other machine code
def jssp_rollout_kernel(
    TABLE, TIMES, TOKEN, TOKEN_BIAS, TOKEN_SHIFT, NORM, QKV, OUT, OUT_BIAS, RIVAL, HIDDEN, HIDDEN_BIAS, HIDDEN_SHIFT,
    CONTEXT, SCORE, DURATION, MACHINE, TAIL, LOAD, OPERATIONS, UNIT, BOUND, ID, COUNTERS, ACTION, COST,
    K, S, J, C, W, T, scale, sharpness,
    R: tl.constexpr, JP: tl.constexpr, WP: tl.constexpr, D: tl.constexpr, H: tl.constexpr, PART: tl.constexpr,
    AHEAD: tl.constexpr, ACTIVE: tl.constexpr, GREEDY: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    r, valid, _, _, attempt, instance = tile_rows(K, S, ID, COUNTERS, b, R)  # rows: rollouts, not tokens
    seed, unit, bound_unit = tl.load(COUNTERS), tl.load(UNIT + b), tl.load(BOUND + b)
    operations = tl.load(OPERATIONS + b)
    TABLE += b * J * C * 2 * D
    TOKEN_SHIFT += b * K * 2 * D
    HIDDEN_SHIFT += b * K * 2 * D
    DURATION += b * J * C
    MACHINE += b * J * C
    TAIL += b * J * C
    ACTION += b * T * K * S
    owner = tl.arange(0, R * JP) // JP
    latent = tl.minimum(tl.program_id(1) * R + owner, K * S - 1) // S
    jobs_state, machines_state = opened(DURATION, MACHINE, TAIL, LOAD + b * W, J, C, W, R, JP, WP)
    t = tl.full([R], 1, tl.int32)  # decisions made and the imposed one; rows are not in step
    turn = 0
    while tl.min(t, 0) <= operations:
        duration, machine, load = jobs_state[2], jobs_state[3], jobs_state[6]
        start = tl.maximum(jobs_state[1], jobs_state[5])
        done = machine == W - 1
        allowed, action, earliest = candidates(duration, machine, load, start, done, JP, ACTIVE)
        choices = tl.where(t <= operations, tl.sum(allowed.to(tl.int32), 1), 0)
        going = choices == 1
        turn += 1
        if (tl.max(choices, 0) > 1) & ((turn > AHEAD) | (tl.max(going.to(tl.int32), 0) == 0)):
            turn = 0
            going = t <= operations
            wanted = decided(
                TABLE, TIMES, TOKEN, TOKEN_BIAS, TOKEN_SHIFT, NORM, QKV, OUT, OUT_BIAS, RIVAL, HIDDEN, HIDDEN_BIAS,
                HIDDEN_SHIFT, CONTEXT, SCORE, jobs_state, start, done, allowed, earliest, machines_state[2], owner,
                latent, unit, bound_unit, scale, sharpness, seed, (r % S) * T + t, attempt, instance, J, C, R, JP,
                D, H, PART, GREEDY, DT, PREC,
            )  # fmt: skip
            # Scores that are not numbers hit no job: then take the one that ends first, to keep all addresses valid.
            action = tl.where(of_job(allowed.to(tl.int32), wanted, JP) > 0, wanted, action)
        tl.store(ACTION + t.to(tl.int64) * (K * S) + r, action.to(tl.int16), mask=valid & going)
        jobs_state, machines_state = placed(
            jobs_state, machines_state, DURATION, MACHINE, TAIL, start, action, going, J, C, JP, WP
        )
        t += going.to(tl.int32)
    tl.store(COST + b * K * S + r, tl.max(jobs_state[1], 1).to(tl.float32), mask=valid)
