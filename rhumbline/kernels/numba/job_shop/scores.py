"""numba: scores of given schedules, and the gradient of their weighted sum; `scoring` calls it.

The decisions of a sequence are scored GROUP at a time, and what the gradient needs of the network
is still in the cache when it is computed. The sequences of an instance are divided into parts, whose
gradients are added up afterwards: which thread takes a part changes nothing.
"""

from collections.abc import Callable

import numpy as np
from numba import types

from rhumbline.kernels.numba.job_shop.gradients import (
    add_to_table,
    go_back_through_attention,
    go_back_through_norm,
    go_back_to_glimpses,
    score_decision,
)
from rhumbline.kernels.numba.job_shop.kernel import GROUP, list_jobs
from rhumbline.kernels.numba.job_shop.network import (
    FEATURES,
    NEAR_FEATURES,
    attend,
    compress_times,
    embed,
    multiply_weights,
    score_candidates,
    squash_scores,
)
from rhumbline.kernels.numba.job_shop.rules import (
    dispatch,
    find_candidates,
    start_schedule,
    write_features,
)
from rhumbline.kernels.numba.job_shop.simd import TILE_COLUMNS, TILE_ROWS, offset_floats
from rhumbline.kernels.numba.rollout import precompile
from rhumbline.kernels.numba.rollout.simd import LANES, ZERO, fetch_add, offset_pointer


def define_kernel(kernel: str) -> Callable[..., None]:
    """Return the kernel; its name on disk is that of `kernel` in `precompile.KERNELS`."""

    def score_schedules(
        instances, jobs, columns, machines, horizon, tried, per, width, heads, active, parts, differentiates,
        counter,
        table, times, token, token_bias, token_shift, norm, query_key, value, out, out_bias, rival, hidden_weights,
        hidden_shift, context, score_weights, token_t, query_key_t, value_t, out_t, hidden_t, context_t,
        unit, bound, factor, durations, places, tails, loads, actions, scores, gradient,
        near, features, hidden, seen, x, projected, glimpses, mixed, joined, compact, means, common, queries, weights,
        share, picked, machine, row_machine, largest_unit, score, second, slopes, x_slope, seen_slope, projected_slope,
        hidden_slope, picked_slope, turned, slope,
        operation, latent, candidate_row, candidate_job, state, start, place, allowed, shift, first_row,
        first_candidate, active_unit, active_count, taken,
    ):  # fmt: skip
        """Score the parts of all instances; `factor` has the weight of each sequence in the gradient.

        `gradient` has a table for each part. `taken` is scratch: the candidate that was chosen in each decision.
        """
        each, cells, wide = tried * per, jobs * columns, 2 * width
        next_, free = state, offset_pointer(state, jobs)
        ready, work = offset_pointer(state, 2 * jobs), offset_pointer(state, 2 * jobs + machines)
        while True:
            part = fetch_add(counter)
            if part >= instances * parts:
                return
            b = part // parts
            duration, place_of = (offset_pointer(durations, b * cells), offset_pointer(places, b * cells))
            tail, result = (offset_pointer(tails, b * cells), offset_floats(gradient, part * cells * wide))
            own_table = offset_floats(table, b * cells * wide)
            for r in range(b * each + part % parts, (b + 1) * each, parts):
                start_schedule(jobs, machines, offset_pointer(loads, b * machines), state)
                total, t = np.float64(0.0), 1
                while t < horizon:
                    decisions = rows = candidates = 0
                    while t < horizon and decisions < GROUP:
                        count, _ = find_candidates(
                            jobs, columns, machines, active, duration, place_of, next_, free, ready, work, start, place,
                            allowed,
                        )  # fmt: skip
                        action = actions[r * horizon + t]
                        if count > 1:
                            first_row[decisions], first_candidate[decisions] = rows, candidates
                            shift[decisions] = r // per
                            before = candidates
                            candidates = list_jobs(
                                0, jobs, columns, machines, next_, place, allowed, r // per, rows, operation, latent,
                                candidates, candidate_row, candidate_job,
                            )  # fmt: skip
                            rows = write_features(
                                jobs, columns, machines, duration, tail, next_, free, ready, work, start, place,
                                allowed, unit[b], bound[b], rows, near, features, row_machine,
                            )  # fmt: skip
                            taken[decisions] = -1
                            for i in range(before, candidates):
                                if candidate_job[i] == action:
                                    taken[decisions] = i - before
                            decisions += 1
                        dispatch(action, columns, machines, duration, place_of, next_, free, ready, work)
                        t += 1
                    if decisions == 0:
                        break
                    first_row[decisions], first_candidate[decisions] = rows, candidates
                    compress_times(near, features, rows)
                    embed(
                        features, rows, operation, latent, width, own_table, times, token, token_bias, token_shift,
                        norm, query_key, hidden, seen, x, projected, largest_unit, active_unit, active_count,
                        rows + TILE_ROWS - rows % TILE_ROWS,
                    )  # fmt: skip
                    for g in range(decisions):
                        row, count, candidate = (first_row[g], first_row[g + 1] - first_row[g], first_candidate[g])
                        attend(
                            offset_floats(projected, row * wide), width, heads, rival, count,
                            offset_floats(row_machine, row), first_candidate[g + 1] - candidate,
                            offset_pointer(candidate_row, candidate), row, offset_floats(seen, row * width), machine,
                            queries, weights, share, picked, offset_floats(glimpses, (candidate + g) * heads * width),
                        )  # fmt: skip
                    score_candidates(
                        decisions, first_row, first_candidate, candidate_row, shift, width, heads, x, glimpses, value,
                        out, out_bias, hidden_weights, hidden_shift, context, score_weights, mixed, joined, compact,
                        means, common, second, score,
                    )  # fmt: skip
                    squash_scores(score, candidates)
                    for g in range(decisions):
                        first, count = (first_candidate[g], first_candidate[g + 1] - first_candidate[g])
                        if taken[g] < 0:  # no policy makes this decision
                            total = -np.inf
                            for i in range(first, first + count):
                                slopes[i] = ZERO
                        else:
                            total += score_decision(score, first, count, taken[g], factor[r], slopes, machine)
                    if not differentiates:
                        continue
                    go_back_to_glimpses(
                        decisions, first_row, first_candidate, candidate_row, width, heads, slopes, score_weights,
                        second, hidden_t, context_t, out_t, value_t, hidden_slope, compact, common, means, joined,
                        mixed, glimpses, x_slope,
                    )  # fmt: skip
                    for g in range(decisions):
                        row, count, candidate = (first_row[g], first_row[g + 1] - first_row[g], first_candidate[g])
                        go_back_through_attention(
                            offset_floats(projected, row * wide), width, heads, rival, count,
                            offset_floats(row_machine, row), first_candidate[g + 1] - candidate,
                            offset_pointer(candidate_row, candidate), row, offset_floats(seen, row * width), machine,
                            queries, weights, share, picked, offset_floats(glimpses, (candidate + g) * heads * width),
                            picked_slope, turned, slope, offset_floats(seen_slope, row * width),
                            offset_floats(projected_slope, row * wide),
                        )  # fmt: skip
                    multiply_weights(projected_slope, wide, query_key_t, width, seen_slope, rows, True, False)
                    go_back_through_norm(x, norm, width, rows, seen_slope, x_slope)
                    add_to_table(x_slope, rows, width, token_t, hidden, hidden_slope, operation, result)
                scores[r] = np.float32(total)

    score_schedules.__qualname__ = precompile.cache_name(kernel)  # names the file of numba's cache
    return score_schedules


FLOAT_ARRAY, LONG_ARRAY = types.CPointer(types.float32), types.CPointer(types.int64)
SIGNATURE = types.void(
    *[types.int64] * 12, LONG_ARRAY, *[FLOAT_ARRAY] * 24, *[LONG_ARRAY] * 5, *[FLOAT_ARRAY] * 2,
    *[FLOAT_ARRAY] * 29, *[LONG_ARRAY] * 14,
)  # fmt: skip


def scratch(jobs: int, machines: int, width: int, heads: int) -> list[np.ndarray]:
    """Return the scratch arrays of one thread: the last arguments of `score_schedules`."""
    padded = -(-jobs // TILE_COLUMNS) * TILE_COLUMNS
    rows = GROUP * jobs + max(TILE_ROWS, LANES)  # up to that many rows are read or written behind the last
    wide, reads = 2 * width, (jobs + 1) * heads + TILE_ROWS
    square = (jobs + TILE_ROWS + LANES) * padded
    floats = (
        (rows + LANES) * NEAR_FEATURES,
        rows * FEATURES,
        rows * wide,
        *[rows * width] * 2,
        rows * wide,
        (rows + GROUP) * heads * width,
        *[(rows + GROUP) * width] * 2,
        rows * width,
        *[(GROUP + TILE_ROWS) * wide] * 2,
        padded * (width // heads),
        square,
        2 * padded,
        reads * padded,
        padded + LANES,
        rows,
        wide,
        rows + LANES,
        rows * wide,
        rows + LANES,
        *[rows * width] * 2,
        *[rows * wide] * 2,
        reads * padded,
        max(width * padded, (jobs + TILE_ROWS) * reads),
        square,
    )
    longs = (*[rows] * 4, 2 * (jobs + machines), *[jobs] * 3, *[GROUP + 1] * 3, (rows + 1) * wide, rows, GROUP)
    return [np.zeros(n, np.float32) for n in floats] + [np.zeros(n, np.int64) for n in longs]
