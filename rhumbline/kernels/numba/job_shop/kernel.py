"""numba: the CPU rollout kernel for job shops, `run_schedules`; `launch` calls it.

A thread works on a tile of rollouts at a time. Rollouts of the same latent are identical until they
choose different jobs; until then one of them, the leader, stands for all. Decisions without a choice
are made for each leader alone. All other decisions are made by the network for a group of leaders
together. The rows of its products are their unfinished jobs; the products take nearly all the time.

The compiled code comes from here, from `network`, `rules` and `simd`, and from the kernel of
tours and routes, whose style this one has.
"""

from collections.abc import Callable

import numpy as np
from numba import types

from rhumbline.kernels.numba.job_shop.network import (
    FEATURES,
    NEAR_FEATURES,
    ROW_BLOCK,
    attend,
    compress_times,
    embed,
    njit_function,
    score_candidates,
    squash_scores,
)
from rhumbline.kernels.numba.job_shop.rules import (
    dispatch,
    find_candidates,
    largest,
    start_schedule,
    write_features,
)
from rhumbline.kernels.numba.job_shop.simd import TILE_COLUMNS, TILE_ROWS, load_now, offset_floats
from rhumbline.kernels.numba.rollout import precompile
from rhumbline.kernels.numba.rollout.kernel import BELOW_ONE, draw_uniform
from rhumbline.kernels.numba.rollout.simd import (
    LANES,
    ZERO,
    broadcast,
    exp2,
    fetch_add,
    load,
    mul,
    offset_pointer,
    scalar_min,
    store,
    sub,
)

GROUP = 8  # leaders that the network decides for at once, at most: one for each row of a tile
MAX_SLOTS = 64  # rollouts of a tile


@njit_function
def find_leaders(first, live, alike, leader):
    """Let the first of those rollouts of a tile that are alike stand for the others; `alike` has equal numbers then."""
    for s in range(live):
        leader[s] = s
        for other in range(s):
            if alike[first + other] == alike[first + s]:
                leader[s] = leader[other]
                break


@njit_function
def carry_to_choice(
    r, horizon, jobs, columns, machines, active, duration, machine, imposed, following, job_free, machine_free, left,
    start, place, allowed, actions, step, slot, earliest,
):  # fmt: skip
    """Carry a rollout through imposed actions and decisions without a choice; return how many jobs the next has.

    The result is 0 at the end. `step` and `earliest` get the index of that decision, and the candidate that ends first.
    """
    t, count = step[slot], 0
    while t < horizon:
        if t < imposed:
            job = np.int64(actions[r * horizon + t])
        else:
            count, job = find_candidates(
                jobs, columns, machines, active, duration, machine, following, job_free, machine_free, left, start,
                place, allowed,
            )  # fmt: skip
            if count != 1:
                break
        actions[r * horizon + t] = job
        dispatch(job, columns, machines, duration, machine, following, job_free, machine_free, left)
        t, count = t + 1, 0
    step[slot], earliest[slot] = t, job
    return count


@njit_function
def finish(slot, live, first, horizon, makespan, leader, actions, cost):
    """Write the result of a leader for itself and for all rollouts that it stands for, and let them have no leader."""
    for s in range(live):
        if leader[s] == slot:
            cost[first + s] = np.float32(makespan)
            leader[s] = -1
            for t in range(1, horizon):
                actions[(first + s) * horizon + t] = actions[(first + slot) * horizon + t]


@njit_function
def list_jobs(
    base, jobs, columns, machines, following, place, allowed, number, row, operation, latent, candidate, candidate_row,
    candidate_job,
):  # fmt: skip
    """List the unfinished jobs of a rollout from a row on, and its candidates; return the number behind the last one.

    Its table begins with operation `base`; `number` is that of its latent.
    """
    for j in range(jobs):
        if place[j] < machines - 1:
            operation[row], latent[row] = base + j * columns + following[j], number
            if allowed[j]:
                candidate_row[candidate], candidate_job[candidate] = row, j
                candidate += 1
            row += 1
    return candidate


@njit_function
def accumulate_weights(score, first, count, sharpness, weights):
    """Write the cumulative weights of a rollout's candidates, relative to that of the best one."""
    top = score[first]
    for i in range(first + 1, first + count):
        top = score[i] if score[i] > top else top
    for i in range(0, count, LANES):
        below = sub(load(score, first + i), broadcast(top))
        store(weights, i, exp2(mul(below, broadcast(sharpness))))
    for i in range(1, count):
        weights[i] += weights[i - 1]


@njit_function
def select_candidate(weights, count, uniform):
    """Return the candidate that the uniform selects by inversion of cumulative weights, or -1 if none is valid."""
    limit = uniform * (weights[count - 1] * BELOW_ONE)
    for i in range(count):
        if weights[i] > limit:
            return i
    return -1


@njit_function
def best_candidate(score, first, count):
    """Return the first candidate with the highest logit."""
    best = 0
    for i in range(1, count):
        best = i if score[first + i] > score[first + best] else best
    return best


@njit_function
def part_from_leader(slot, leader, job, first, horizon, size, state, actions, step, branch):
    """Let a rollout follow the one that made its choice, or lead itself, with a copy of its leader's state.

    `branch` has the rollout that leads after the choice of a job, or -1.
    """
    if branch[job] < 0:
        branch[job] = slot
        old = leader[slot]
        for i in range(size):
            state[slot * size + i] = state[old * size + i]
        for t in range(1, step[old]):
            actions[(first + slot) * horizon + t] = actions[(first + old) * horizon + t]
        step[slot] = step[old]
    leader[slot] = branch[job]


def define_kernel(kernel: str) -> Callable[..., None]:
    """Return the kernel; its name on disk is that of `kernel` in `precompile.KERNELS`."""

    def run_schedules(
        instances, jobs, columns, machines, horizon, tried, per, seed, attempt, sharpness, width, heads, active, slots,
        counter, stopped,
        table, times, token, token_bias, token_shift, norm, query_key, value, out, out_bias, rival, hidden_weights,
        hidden_shift, context, score_weights, unit, bound, durations, places, tails, loads, imposed, alike, identity,
        actions, cost,
        near, features, hidden, seen, x, projected, glimpses, mixed, joined, compact, means, common, queries, weights,
        share, picked, machine, row_machine, largest_unit, score,
        operation, latent, candidate_row, candidate_job, state, start, place, allowed, branch, choice, leader, order,
        step, earliest, shift, first_row, first_candidate, active_unit, active_count,
    ):  # fmt: skip
        """Run tiles of rollouts until the counter, which the threads share, has passed the last one.

        A number in `stopped` ends all threads before the next decision; what they have not finished has no meaning.
        `actions` holds the given prefix of each rollout, and `imposed` says how long it is. Rollouts with equal numbers
        in `alike` differ in nothing but their uniforms.
        """
        each, cells = tried * per, jobs * columns  # rollouts and entries of the tables of an instance
        size = 2 * (jobs + machines)  # of the state of a rollout
        while True:
            r0 = fetch_add(counter) * slots
            if r0 >= instances * each or load_now(stopped, 0) > 0:
                return
            live = scalar_min(slots, instances * each - r0)
            find_leaders(r0, live, alike, leader)
            for s in range(live):
                step[s] = 1
                if leader[s] == s:
                    own = offset_pointer(state, s * size)
                    start_schedule(jobs, machines, offset_pointer(loads, (r0 + s) // each * machines), own)
            while True:
                leaders = 0
                for s in range(live):
                    if leader[s] == s:
                        order[leaders] = s
                        leaders += 1
                if leaders == 0 or load_now(stopped, 0) > 0:
                    break
                groups = (leaders + GROUP - 1) // GROUP
                for group in range(groups):  # of about equal sizes
                    first_leader = group * leaders // groups
                    count_of_leaders = (group + 1) * leaders // groups - first_leader
                    chosen_leaders = offset_pointer(order, first_leader)
                    rows = candidates = 0
                    for g in range(count_of_leaders):
                        s = chosen_leaders[g]
                        r, b = r0 + s, (r0 + s) // each
                        first_row[g], first_candidate[g], shift[g] = rows, candidates, r // per
                        next_, free = offset_pointer(state, s * size), offset_pointer(state, s * size + jobs)
                        ready = offset_pointer(state, s * size + 2 * jobs)
                        work = offset_pointer(state, s * size + 2 * jobs + machines)
                        duration = offset_pointer(durations, b * cells)
                        count = carry_to_choice(
                            r, horizon, jobs, columns, machines, active, duration, offset_pointer(places, b * cells),
                            imposed[r], next_, free, ready, work, start, place, allowed, actions, step, s, earliest,
                        )  # fmt: skip
                        if count == 0:
                            finish(s, live, r0, horizon, largest(free, jobs), leader, actions, cost)
                            continue
                        candidates = list_jobs(
                            b * cells, jobs, columns, machines, next_, place, allowed, shift[g], rows, operation,
                            latent, candidates, candidate_row, candidate_job,
                        )  # fmt: skip
                        rows = write_features(
                            jobs, columns, machines, duration, offset_pointer(tails, b * cells), next_, free, ready,
                            work, start, place, allowed, unit[b], bound[b], rows, near, features, row_machine,
                        )  # fmt: skip
                    first_row[count_of_leaders], first_candidate[count_of_leaders] = rows, candidates
                    compress_times(near, features, rows)
                    embed(
                        features, rows, operation, latent, width, table, times, token, token_bias, token_shift, norm,
                        query_key, hidden, seen, x, projected, largest_unit, active_unit, active_count, ROW_BLOCK,
                    )  # fmt: skip
                    for g in range(count_of_leaders):
                        row, count, candidate = first_row[g], first_row[g + 1] - first_row[g], first_candidate[g]
                        if count > 0:
                            attend(
                                offset_floats(projected, row * 2 * width), width, heads, rival, count,
                                offset_floats(row_machine, row), first_candidate[g + 1] - candidate,
                                offset_pointer(candidate_row, candidate), row, offset_floats(seen, row * width),
                                machine, queries, weights, share, picked,
                                offset_floats(glimpses, (candidate + g) * heads * width),
                            )  # fmt: skip
                    score_candidates(
                        count_of_leaders, first_row, first_candidate, candidate_row, shift, width, heads, x, glimpses,
                        value, out, out_bias, hidden_weights, hidden_shift, context, score_weights, mixed, joined,
                        compact, means, common, hidden, score,
                    )  # fmt: skip
                    squash_scores(score, candidates)
                    for g in range(count_of_leaders):
                        s, first, count = chosen_leaders[g], first_candidate[g], first_candidate[g + 1] - first_candidate[g]
                        if count == 0:
                            continue
                        t, b = step[s], (r0 + s) // each
                        for j in range(jobs):
                            branch[j] = -1
                        if sharpness > ZERO:
                            accumulate_weights(score, first, count, sharpness, machine)
                        for f in range(s, live):  # a leader is the first of its rollouts
                            if leader[f] != s:
                                continue
                            r = r0 + f
                            if sharpness > ZERO:
                                c0, c1 = np.uint64(r % per * horizon + t), np.uint64(attempt + r % each // per)
                                chosen = select_candidate(machine, count, draw_uniform(seed, c0, c1, identity[b]))
                            else:
                                chosen = best_candidate(score, first, count)
                            # A policy of NaN selects none: then the operation that ends first goes on.
                            choice[f] = candidate_job[first + chosen] if chosen >= 0 else earliest[s]
                        branch[choice[s]] = s
                        for f in range(s + 1, live):
                            if leader[f] == s and choice[f] != choice[s]:
                                part_from_leader(f, leader, choice[f], r0, horizon, size, state, actions, step, branch)
                        for j in range(jobs):
                            f = branch[j]
                            if f >= 0:
                                actions[(r0 + f) * horizon + t] = j
                                step[f] = t + 1
                                dispatch(
                                    j, columns, machines, offset_pointer(durations, b * cells),
                                    offset_pointer(places, b * cells), offset_pointer(state, f * size),
                                    offset_pointer(state, f * size + jobs), offset_pointer(state, f * size + 2 * jobs),
                                    offset_pointer(state, f * size + 2 * jobs + machines),
                                )  # fmt: skip

    run_schedules.__qualname__ = precompile.cache_name(kernel)  # names the file of numba's cache
    return run_schedules


FLOAT_ARRAY, LONG_ARRAY, WORD_ARRAY, SHORT_ARRAY = (
    types.CPointer(kind) for kind in (types.float32, types.int64, types.uint64, types.int16)
)
SIGNATURE = types.void(
    *[types.int64] * 7, types.uint64, types.int64, types.float32, *[types.int64] * 4, *[LONG_ARRAY] * 2,
    *[FLOAT_ARRAY] * 17, *[LONG_ARRAY] * 6, WORD_ARRAY, SHORT_ARRAY, FLOAT_ARRAY,
    *[FLOAT_ARRAY] * 20, *[LONG_ARRAY] * 19,
)  # fmt: skip


def scratch(jobs: int, machines: int, width: int, heads: int, slots: int) -> list[np.ndarray]:
    """Return the scratch arrays of one thread: the last arguments of `run_schedules`."""
    padded = -(-jobs // TILE_COLUMNS) * TILE_COLUMNS
    leaders = min(GROUP, slots)
    rows = leaders * jobs + max(TILE_ROWS, LANES)  # up to that many rows are read or written behind the last
    wide = 2 * width
    floats = (
        (rows + LANES) * NEAR_FEATURES,
        rows * FEATURES,
        max(rows, ROW_BLOCK + TILE_ROWS) * wide,
        *[rows * width] * 2,
        rows * wide,
        (rows + leaders) * heads * width,
        *[(rows + leaders) * width] * 2,
        rows * width,
        *[(leaders + TILE_ROWS) * wide] * 2,
        padded * (width // heads),
        (jobs + TILE_ROWS) * padded,
        2 * padded,
        ((jobs + 1) * heads + TILE_ROWS) * padded,
        padded + LANES,
        rows,
        wide,
        rows + LANES,
    )
    longs = (
        *[rows] * 4,
        slots * 2 * (jobs + machines),
        *[jobs] * 4,
        *[slots] * 5,
        leaders,
        *[leaders + 1] * 2,
        (ROW_BLOCK + 1) * wide,
        ROW_BLOCK,
    )
    return [np.zeros(n, np.float32) for n in floats] + [np.zeros(n, np.int64) for n in longs]
