"""Triton: a whole job-shop rollout in one launch; a program runs a few rollouts to their ends.

The tokens are the jobs of the program's rollouts, JP for each. Rules and times are integers in
tiles [R, JP]. The network processes all tokens as the M = R JP rows of its products, and a job
attends to those of its own rollout. The weights do not fit on the chip and are read from the cache
at each decision. So decisions without a choice, about half of all, are made without the network.
"""

import triton
import triton.language as tl

from rhumbline.kernels.triton.rollout.sampling import BELOW_ONE
from rhumbline.kernels.triton.rollout.state import draw_uniform, tile_rows

INFINITE_TIME = tl.constexpr(2**31 - 1)
MASKED = tl.constexpr(-1.0e9)  # added to the scores of what must not be attended to or chosen
CLIP = tl.constexpr(10.0)


@triton.jit
def job_entry(values, job, JP: tl.constexpr):
    """Return the entry of one job in each row: `values` [R, JP] at column `job` [R]."""
    return tl.sum(tl.where(tl.arange(0, JP)[None, :] == job[:, None], values, 0), 1)


@triton.jit
def candidates(duration, machine, load, start, done, JP: tl.constexpr, ACTIVE: tl.constexpr):
    """Return the allowed jobs [R, JP], the job whose operation ends first, and when it ends.

    Allowed is the conflict set if ACTIVE, else every unfinished job. Ties between operations that end first go to those
    with a positive duration, then to those on the machine with more work left, then to the first job, as in
    `problems.jssp.rules.conflict_set`.
    """
    jobs = tl.arange(0, JP)[None, :]
    finish = tl.where(done, INFINITE_TIME, start + duration)
    earliest = tl.min(finish, 1)
    first = (finish == earliest[:, None]) & ~done
    timed = (duration > 0).to(tl.int32)
    first = first & (timed == tl.max(tl.where(first, timed, 0), 1)[:, None])
    first = first & (load == tl.max(tl.where(first, load, -1), 1)[:, None])
    chosen = tl.min(tl.where(first, jobs, JP - 1), 1)
    if ACTIVE:
        here = machine == job_entry(machine, chosen, JP)[:, None]
        allowed = (here & (start < earliest[:, None]) & ~done) | (jobs == chosen[:, None])
    else:
        allowed = ~done
    return allowed & ~done, chosen, earliest


@triton.jit
def scaled_asinh(x, unit):
    """Return asinh(x / unit) for times x."""
    x = x.to(tl.float32) / unit
    size = tl.abs(x)
    length = tl.log(size + tl.sqrt(size * size + 1.0))
    return tl.where(x < 0, -length, length)


@triton.jit
def set_column(features, values, k: tl.constexpr, M: tl.constexpr):
    """Return the features with `values` in column k."""
    return tl.where(tl.arange(0, 16)[None, :] == k, tl.reshape(values, [M])[:, None], features)


@triton.jit
def decision_features(
    next_, job, free, load, duration, tail, start, done, allowed, earliest, machines_bound, unit, bound_unit, C,
    M: tl.constexpr,
):  # fmt: skip
    """Return the features [M, 16] of a decision, 13 of them in use, as `policies.jssp.decision_features` does."""
    frontier = tl.min(tl.where(done, INFINITE_TIME, start), 1)[:, None]
    earliest = earliest[:, None]
    bound = tl.maximum(tl.max(start + tail, 1), machines_bound)[:, None]
    f = tl.zeros([M, 16], tl.float32)
    f = set_column(f, scaled_asinh(job - frontier, unit), 0, M)
    f = set_column(f, scaled_asinh(free - frontier, unit), 1, M)
    f = set_column(f, scaled_asinh(start - frontier, unit), 2, M)
    f = set_column(f, scaled_asinh(start + duration - earliest, unit), 3, M)
    f = set_column(f, scaled_asinh(start - earliest, unit), 4, M)
    f = set_column(f, scaled_asinh(start + tail - bound, unit), 5, M)
    f = set_column(f, scaled_asinh(free + load - bound, unit), 6, M)
    f = set_column(f, scaled_asinh(duration, unit), 7, M)
    f = set_column(f, tail.to(tl.float32) / bound_unit, 8, M)
    f = set_column(f, load.to(tl.float32) / bound_unit, 9, M)
    f = set_column(f, tl.zeros_like(tail.to(tl.float32)) + (bound - frontier).to(tl.float32) / bound_unit, 10, M)
    f = set_column(f, next_.to(tl.float32) / C, 11, M)
    return set_column(f, allowed.to(tl.float32), 12, M)


@triton.jit
def load_block(W, row, col, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Load a block [ROWS, COLS] of a matrix with rows of WIDTH entries."""
    return tl.load(W + (row + tl.arange(0, ROWS))[:, None] * WIDTH + col + tl.arange(0, COLS)[None, :])


@triton.jit
def job_tokens(
    TABLE, TIMES, TOKEN, TOKEN_BIAS, TOKEN_SHIFT, features, cell, latent, M: tl.constexpr, D: tl.constexpr,
    PART: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Return token vectors [M, D]: next operation's row, features and latent's share, through a hidden layer."""
    x = tl.zeros([M, D], tl.float32) + tl.load(TOKEN_BIAS + tl.arange(0, D))[None, :]
    for at in range(0, 2 * D, PART):
        cols = at + tl.arange(0, PART)[None, :]
        h = tl.load(TABLE + cell[:, None] * (2 * D) + cols).to(tl.float32)
        h += tl.load(TOKEN_SHIFT + latent[:, None] * (2 * D) + cols)
        h = tl.dot(features.to(DT), load_block(TIMES, 0, at, 2 * D, 16, PART), h, input_precision=PREC)
        x = tl.dot(tl.maximum(h, 0.0).to(DT), load_block(TOKEN, at, 0, D, PART, D), x, input_precision=PREC)
    return x


@triton.jit
def layer_norm(x, NORM, D: tl.constexpr):
    """Return layer norm of x; NORM has D scales, then D biases."""
    cols = tl.arange(0, D)
    x = x - (tl.sum(x, 1) / D)[:, None]
    x = x * tl.rsqrt(tl.sum(x * x, 1) / D + 1e-5)[:, None]
    return x * tl.load(NORM + cols)[None, :] + tl.load(NORM + D + cols)[None, :]


@triton.jit
def self_attention(
    x, QKV, OUT, OUT_BIAS, NORM, RIVAL, owner, machine, done, scale, M: tl.constexpr, D: tl.constexpr,
    H: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Add to each token its self-attention over the unfinished jobs of its rollout."""
    A: tl.constexpr = D // H
    seen = layer_norm(x, NORM, D).to(DT)
    x += tl.load(OUT_BIAS + tl.arange(0, D))[None, :]
    for h in range(H):
        q = tl.dot(seen, load_block(QKV, 0, h * A, 3 * D, D, A), input_precision=PREC)
        k = tl.dot(seen, load_block(QKV, 0, D + h * A, 3 * D, D, A), input_precision=PREC)
        v = tl.dot(seen, load_block(QKV, 0, 2 * D + h * A, 3 * D, D, A), input_precision=PREC)
        score = tl.dot((q * scale).to(DT), tl.trans(k.to(DT)), input_precision=PREC)
        rivals = machine[:, None] == machine[None, :]
        score += tl.where(rivals, tl.load(RIVAL + h), 0.0)
        visible = (owner[:, None] == owner[None, :]) & (done[None, :] == 0)
        score = tl.where(visible, score, MASKED)
        weight = tl.exp2(score - tl.max(score, 1)[:, None])
        total = tl.sum(weight, 1)
        mixed = tl.dot(weight.to(DT), v.to(DT), input_precision=PREC) / total[:, None]
        x = tl.dot(mixed.to(DT), load_block(OUT, h * A, 0, D, A, D), x, input_precision=PREC)
    return x


@triton.jit
def means(flags, M: tl.constexpr):
    """Return weights [M] of the flagged jobs, equal and with sum 1 in each rollout."""
    some = flags.to(tl.float32)
    return tl.reshape(some / tl.maximum(tl.sum(some, 1), 1.0)[:, None], [M])


@triton.jit
def score_jobs(
    x, HIDDEN, HIDDEN_BIAS, HIDDEN_SHIFT, CONTEXT, SCORE, owner, latent, unfinished, allowed, M: tl.constexpr,
    D: tl.constexpr, PART: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Return the scores of all tokens, [M].

    Rows 0 to 7 of the context are the means over each rollout's unfinished jobs, rows 8 to 15 those over its allowed
    jobs.
    """
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
        h = tl.dot(x, load_block(HIDDEN, 0, at, 2 * D, D, PART), h, input_precision=PREC)
        whole = tl.dot(context, load_block(CONTEXT, 0, at, 2 * D, D, PART), input_precision=PREC)
        h = tl.dot(of_all, whole.to(DT), h, input_precision=PREC)
        some = tl.dot(context, load_block(CONTEXT, D, at, 2 * D, D, PART), input_precision=PREC)
        h = tl.dot(of_allowed, some.to(DT), h, input_precision=PREC)
        score += tl.sum(tl.maximum(h, 0.0) * tl.load(SCORE + cols)[None, :], 1)
    return score


@triton.jit
def sample_job(score, allowed, uniform, sharpness, JP: tl.constexpr, GREEDY: tl.constexpr):
    """Return the job of each row: the best allowed one, or the one that the uniform selects, as in `decoding`."""
    jobs = tl.arange(0, JP)[None, :]
    power = tl.minimum(score * (2.0 * 1.4426950408889634 / CLIP), 100.0)  # the result no longer changes beyond that
    squashed = CLIP - 2.0 * CLIP / (tl.exp2(power) + 1.0)  # CLIP tanh(score / CLIP)
    squashed = tl.where(allowed, squashed, MASKED)
    if GREEDY:
        return tl.argmax(squashed, 1).to(tl.int32)
    else:
        weight = tl.exp2((squashed - tl.max(squashed, 1)[:, None]) * sharpness)
        cumulative = tl.where(allowed, tl.cumsum(weight, 1), 0.0)
        limit = uniform * (tl.max(cumulative, 1) * BELOW_ONE)
        return tl.min(tl.where(cumulative > limit[:, None], jobs, JP - 1), 1)


@triton.jit
def choose_by_network(
    TABLE, TIMES, TOKEN, TOKEN_BIAS, TOKEN_SHIFT, NORM, QKV, OUT, OUT_BIAS, RIVAL, HIDDEN, HIDDEN_BIAS, HIDDEN_SHIFT,
    CONTEXT, SCORE, jobs_state, start, done, allowed, earliest, machines_bound, owner, latent, unit, bound_unit, scale,
    sharpness, seed, position, attempt, instance, J, C,
    R: tl.constexpr, JP: tl.constexpr, D: tl.constexpr, H: tl.constexpr, PART: tl.constexpr, GREEDY: tl.constexpr,
    DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Return the job that the network chooses in each row."""
    M: tl.constexpr = R * JP
    next_, job, duration, machine, tail, free, load = jobs_state
    features = decision_features(
        next_, job, free, load, duration, tail, start, done, allowed, earliest, machines_bound, unit, bound_unit, C, M
    )
    cell = tl.reshape(tl.minimum(tl.arange(0, JP)[None, :], J - 1) * C + next_, [M])
    x = job_tokens(TABLE, TIMES, TOKEN, TOKEN_BIAS, TOKEN_SHIFT, features, cell, latent, M, D, PART, DT, PREC)
    flat_machine, flat_done = tl.reshape(machine, [M]), tl.reshape(done.to(tl.int32), [M])
    x = self_attention(x, QKV, OUT, OUT_BIAS, NORM, RIVAL, owner, flat_machine, flat_done, scale, M, D, H, DT, PREC)
    score = score_jobs(
        x, HIDDEN, HIDDEN_BIAS, HIDDEN_SHIFT, CONTEXT, SCORE, owner, latent, means(~done, M), means(allowed, M), M,
        D, PART, DT, PREC,
    )  # fmt: skip
    uniform = draw_uniform(seed, position, attempt, instance)  # not earlier: registers are scarce above
    return sample_job(tl.reshape(score, [R, JP]), allowed, uniform, sharpness, JP, GREEDY)


@triton.jit
def append_operations(
    jobs_state, machines_state, DURATION, MACHINE, TAIL, start, action, going, J, C, JP: tl.constexpr, WP: tl.constexpr
):  # fmt: skip
    """Append the next operation of job `action` to its machine, in the rows that are `going`.

    Returns the new state of jobs and of machines, as in `initial_state`.
    """
    next_, job, duration, machine, tail, free, load = jobs_state
    machine_free, machine_left, machines_bound = machines_state
    where, begin, lasting = job_entry(machine, action, JP), job_entry(start, action, JP), job_entry(duration, action, JP)
    end = begin + lasting
    # The sum of a machine's free time and work left never falls, and so the largest of these sums does not either.
    grown = tl.maximum(machines_bound, begin + job_entry(load, action, JP))
    machines_bound = tl.where(going, grown, machines_bound)
    there = (tl.arange(0, WP)[None, :] == where[:, None]) & going[:, None]
    machine_free = tl.where(there, end[:, None], machine_free)
    machine_left = tl.where(there, machine_left - lasting[:, None], machine_left)
    waiting = (machine == where[:, None]) & going[:, None]
    free = tl.where(waiting, end[:, None], free)
    load = tl.where(waiting, load - lasting[:, None], load)
    # The job itself moves on to its next operation.
    chosen = (tl.arange(0, JP)[None, :] == action[:, None]) & going[:, None]
    following = action * C + job_entry(next_, action, JP) + 1
    next_ += chosen.to(tl.int32)
    job = tl.where(chosen, end[:, None], job)
    duration = tl.where(chosen, tl.load(DURATION + following, mask=going, other=0)[:, None], duration)
    moved = tl.load(MACHINE + following, mask=going, other=0)
    machine = tl.where(chosen, moved[:, None], machine)
    tail = tl.where(chosen, tl.load(TAIL + following, mask=going, other=0)[:, None], tail)
    free = tl.where(chosen, job_entry(machine_free, moved, WP)[:, None], free)
    load = tl.where(chosen, job_entry(machine_left, moved, WP)[:, None], load)
    return (next_, job, duration, machine, tail, free, load), (machine_free, machine_left, machines_bound)


@triton.jit
def initial_state(DURATION, MACHINE, TAIL, LOAD, J, C, W, R: tl.constexpr, JP: tl.constexpr, WP: tl.constexpr):
    """Return the state of jobs and of machines before the first operation.

    Jobs [R, JP]: index of the next operation; when the job is free; duration, machine and tail of that operation; when
    its machine is free, and the work left there. Machines [R, WP]: when they are free and their work left; and the
    largest sum of both over all machines, [R].
    """
    jobs, machines = tl.arange(0, JP)[None, :], tl.arange(0, WP)[None, :]
    zeros = tl.zeros([R, JP], tl.int32)
    there = (jobs < J) & (
        tl.arange(0, R)[:, None] >= 0
    )  # built with that shape: `zeros + jobs < J` spills twice as much
    duration = tl.load(DURATION + zeros + jobs * C, mask=there, other=0)
    machine = tl.load(MACHINE + zeros + jobs * C, mask=there, other=W - 1)
    tail = tl.load(TAIL + zeros + jobs * C, mask=there, other=0)
    machine_free = tl.zeros([R, WP], tl.int32)
    machine_left = tl.load(LOAD + machines, mask=machines < W, other=0) + machine_free
    jobs_state = (zeros, zeros, duration, machine, tail, zeros, tl.load(LOAD + machine))
    return jobs_state, (machine_free, machine_left, tl.max(machine_left, 1))


@triton.jit(do_not_specialize=["K", "J", "C", "W", "T"])  # else multiples of 16 would be compiled separately
def jssp_rollout_kernel(
    TABLE, TIMES, TOKEN, TOKEN_BIAS, TOKEN_SHIFT, NORM, QKV, OUT, OUT_BIAS, RIVAL, HIDDEN, HIDDEN_BIAS, HIDDEN_SHIFT,
    CONTEXT, SCORE, DURATION, MACHINE, TAIL, LOAD, OPERATIONS, UNIT, BOUND, ID, COUNTERS, ACTION, COST,
    K, S, J, C, W, T, scale, sharpness,
    R: tl.constexpr, JP: tl.constexpr, WP: tl.constexpr, D: tl.constexpr, H: tl.constexpr, PART: tl.constexpr,
    AHEAD: tl.constexpr, ACTIVE: tl.constexpr, GREEDY: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Run R job-shop rollouts of one instance; the grid is (instances, tiles of rollouts).

    DURATION, MACHINE and TAIL are [J, C] by instance, for J jobs of up to C operations; machine W - 1 means that a job
    is done. ACTION [T, K S] and COST [K S] are results. All rows whose next decision has one candidate make it without
    the network, up to AHEAD times before the network decides for all rows.
    """
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
    jobs_state, machines_state = initial_state(DURATION, MACHINE, TAIL, LOAD + b * W, J, C, W, R, JP, WP)
    t = tl.full([R], 1, tl.int32)  # index of the next decision; may differ between rows
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
            wanted = choose_by_network(
                TABLE, TIMES, TOKEN, TOKEN_BIAS, TOKEN_SHIFT, NORM, QKV, OUT, OUT_BIAS, RIVAL, HIDDEN, HIDDEN_BIAS,
                HIDDEN_SHIFT, CONTEXT, SCORE, jobs_state, start, done, allowed, earliest, machines_state[2], owner,
                latent, unit, bound_unit, scale, sharpness, seed, (r % S) * T + t, attempt, instance, J, C, R, JP,
                D, H, PART, GREEDY, DT, PREC,
            )  # fmt: skip
            # NaN scores select no allowed job: then take the one that ends first, which keeps all addresses valid.
            action = tl.where(job_entry(allowed.to(tl.int32), wanted, JP) > 0, wanted, action)
        tl.store(ACTION + t.to(tl.int64) * (K * S) + r, action.to(tl.int16), mask=valid & going)
        jobs_state, machines_state = append_operations(
            jobs_state, machines_state, DURATION, MACHINE, TAIL, start, action, going, J, C, JP, WP
        )
        t += going.to(tl.int32)
    tl.store(COST + b * K * S + r, tl.max(jobs_state[1], 1).to(tl.float32), mask=valid)
