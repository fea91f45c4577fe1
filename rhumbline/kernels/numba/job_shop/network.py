"""numba: the network of a job-shop decision, for all jobs of a few rollouts at once.

The rows of a matrix are jobs, of one rollout after another: only unfinished jobs have one. The
weights come in panels of TILE_COLUMNS columns, so that a product reads them from front to back.
Sums run in one order, whatever the other rows are, so a rollout does not depend on them.
"""

import math

import numpy as np
from numba import njit

from rhumbline.kernels.numba.job_shop.simd import (
    TILE_COLUMNS,
    TILE_ROWS,
    accumulate_tile,
    asinh,
    load_tile,
    offset_floats,
    relu_tile,
    store_tile,
    sum_lanes,
    transpose,
    where_equal,
    zero_tile,
)
from rhumbline.kernels.numba.rollout.simd import (
    LANES,
    MASKED,
    ONE,
    ZERO,
    add,
    broadcast,
    div,
    exp2,
    load,
    mul,
    scalar_min,
    store,
    sub,
    vector_max,
    vector_min,
)

LOG2E = 1.4426950408889634
CLIP = np.float32(10.0)
FEATURES = 16  # numbers from one row of features to the next; 13 are in use
NEAR_FEATURES = 8  # those that are compressed: times in mean durations
USED_FEATURES = 13
NOWHERE = np.float32(-1.0)  # the machine of columns behind the last job
ROW_BLOCK = 6 * TILE_ROWS  # rows whose wide hidden layer stays in the cache

njit_function = njit(
    nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, no_rewrites=True, _nrt=False
)


@njit_function
def multiply(
    left, stride, depth, right, row_stride, panel_stride, panels, target, target_stride, rows, adds, rectifies
):
    """Compute left @ right, and add it to the target if `adds`; `rectifies` applies a ReLU.

    Rows are computed in groups of TILE_ROWS; those of the last group that are too many get numbers without meaning.
    """
    for panel in range(panels):
        start = panel * panel_stride
        for row in range(0, rows, TILE_ROWS):
            place = row * target_stride + panel * TILE_COLUMNS
            total = load_tile(target, place, target_stride) if adds else zero_tile()
            for k in range(depth):
                total = accumulate_tile(total, left, row * stride + k, stride, right, start + k * row_stride)
            store_tile(target, place, target_stride, relu_tile(total) if rectifies else total)


@njit_function
def multiply_weights(left, depth, weights, width, target, rows, adds, rectifies):
    """Compute left @ weights for weights [depth, width] in panels; the rows of `left` are contiguous."""
    panels = width // TILE_COLUMNS
    multiply(
        left, depth, depth, weights, TILE_COLUMNS, depth * TILE_COLUMNS, panels, target, width, rows, adds, rectifies
    )


@njit_function
def list_active(hidden, start, width, largest, active, place):
    """List the units of a hidden layer that are not 0 in every row of a tile, from a place on; return their number.

    `largest` is scratch.
    """
    for c in range(0, width, LANES):
        top = load(hidden, start + c)
        for row in range(1, TILE_ROWS):
            top = vector_max(top, load(hidden, start + row * width + c))
        store(largest, c, top)
    count = 0
    for c in range(width):
        active[place + count] = c
        count += largest[c] > ZERO
    return count


@njit_function
def multiply_active(hidden, depth, weights, width, target, rows, largest, active, counts):
    """Add hidden @ weights to the target, as `multiply_weights` does, without units that are 0 in all rows of a tile.

    A ReLU leaves two fifths of the units of a job's token, and jobs of a decision mostly share them.
    """
    for row in range(0, rows, TILE_ROWS):
        counts[row // TILE_ROWS] = list_active(hidden, row * depth, depth, largest, active, row * depth)
    for panel in range(width // TILE_COLUMNS):
        start = panel * depth * TILE_COLUMNS
        for row in range(0, rows, TILE_ROWS):
            place = row * width + panel * TILE_COLUMNS
            total = load_tile(target, place, width)
            for i in range(row * depth, row * depth + counts[row // TILE_ROWS]):
                k = active[i]
                total = accumulate_tile(total, hidden, row * depth + k, depth, weights, start + k * TILE_COLUMNS)
            store_tile(target, place, width, total)


@njit_function
def compress_times(near, features, rows):
    """Write asinh of the NEAR_FEATURES times of each row in `near` to its features."""
    for at in range(0, rows * NEAR_FEATURES, LANES):
        store(near, at, asinh(load(near, at)))
    for row in range(rows):
        for i in range(NEAR_FEATURES):
            features[row * FEATURES + i] = near[row * NEAR_FEATURES + i]


@njit_function
def normalise(x, norm, width, rows, target):
    """Write the layer norm of each row; `norm` has the factors, then the biases."""
    share = np.float32(1.0) / np.float32(width)
    for row in range(rows):
        start = row * width
        total = broadcast(ZERO)
        for c in range(0, width, LANES):
            total = add(total, load(x, start + c))
        mean = broadcast(sum_lanes(total) * share)
        total = broadcast(ZERO)
        for c in range(0, width, LANES):
            below = sub(load(x, start + c), mean)
            total = add(total, mul(below, below))
        factor = broadcast(np.float32(1.0) / np.float32(math.sqrt(sum_lanes(total) * share + np.float32(1e-5))))
        for c in range(0, width, LANES):
            scaled = mul(sub(load(x, start + c), mean), mul(factor, load(norm, c)))
            store(target, start + c, add(scaled, load(norm, width + c)))


@njit_function
def embed(
    features, rows, operation, latent, width, table, times, token, token_bias, token_shift, norm, query_key, hidden,
    seen, x, projected, largest, active, counts, block_size,
):  # fmt: skip
    """Compute tokens `x`, their layer norm `seen`, and its queries and keys side by side, `projected`.

    A token is the row of a job's next operation plus its features and the latent's share, through a hidden layer. That
    is as wide as two tokens: `hidden` has it for the last rows, as many as `block_size`, a multiple of TILE_ROWS.
    """
    wide = 2 * width
    for block in range(0, rows, block_size):
        size = scalar_min(block_size, rows - block)
        for row in range(size):
            own, shift = operation[block + row] * wide, latent[block + row] * wide
            for c in range(0, wide, LANES):
                store(hidden, row * wide + c, add(load(table, own + c), load(token_shift, shift + c)))
            for c in range(0, width, LANES):
                store(x, (block + row) * width + c, load(token_bias, c))
        part = offset_floats(features, block * FEATURES)
        multiply(
            part, FEATURES, USED_FEATURES, times, TILE_COLUMNS, USED_FEATURES * TILE_COLUMNS, wide // TILE_COLUMNS,
            hidden, wide, size, True, True,
        )  # fmt: skip
        tokens = offset_floats(x, block * width)
        multiply_active(hidden, wide, token, width, tokens, size, largest, active, counts)
        normals = offset_floats(seen, block * width)
        normalise(tokens, norm, width, size, normals)
        multiply_weights(normals, width, query_key, wide, offset_floats(projected, block * wide), size, False, False)


@njit_function
def add_rows(target, at, source, start, width):
    """Add a row of `source` to one of `target`."""
    for c in range(0, width, LANES):
        store(target, at + c, add(load(target, at + c), load(source, start + c)))


@njit_function
def copy_row(target, at, source, start, width):
    """Copy a row of `source` to one of `target`."""
    for c in range(0, width, LANES):
        store(target, at + c, load(source, start + c))


@njit_function
def scale_row(target, at, width, factor):
    """Multiply a row by a number."""
    for c in range(0, width, LANES):
        store(target, at + c, mul(load(target, at + c), broadcast(factor)))


@njit_function
def mean_row(target, at, source, first, count, width):
    """Write the mean of `count` rows of `source`."""
    copy_row(target, at, source, first * width, width)
    for row in range(first + 1, first + count):
        add_rows(target, at, source, row * width, width)
    scale_row(target, at, width, ONE / np.float32(count))


@njit_function
def transpose_queries(projected, width, first, head_width, count, queries):
    """Write the queries of one head as panels: a row for each channel, and a column for each of the jobs."""
    for block in range(0, count, LANES):
        for c in range(0, head_width, LANES):
            place = (block // TILE_COLUMNS * head_width + c) * TILE_COLUMNS + block % TILE_COLUMNS
            transpose(queries, place, TILE_COLUMNS, projected, block * 2 * width + first + c, 2 * width)


@njit_function
def weigh_rivals(weights, count, padded, column, row_machine, machine, rival):
    """Turn scores of attention into weights for LANES columns, which are jobs that attend; return their reciprocal sums.

    Rows are the jobs that are attended to. Those that wait for the same machine are rivals. Weights are not normalised.
    """
    none, shift, mine = broadcast(ZERO), broadcast(rival), load(machine, column)
    top, total = broadcast(MASKED), broadcast(ZERO)
    for j in range(count):
        bias = where_equal(broadcast(row_machine[j]), mine, shift, none)
        score = add(load(weights, j * padded + column), bias)
        store(weights, j * padded + column, score)
        top = vector_max(top, score)
    for j in range(count):
        weight = exp2(sub(load(weights, j * padded + column), top))
        store(weights, j * padded + column, weight)
        total = add(total, weight)
    return div(broadcast(ONE), total)


@njit_function
def attend(
    projected, width, heads, rival, count, row_machine, chosen, candidate_row, first_row, seen, machine, queries,
    weights, share, picked, glimpses,
):  # fmt: skip
    """Compute what attention reads for the candidates of one rollout, and for the mean of its `count` jobs.

    `glimpses` gets weighted means of `seen`, before the projection to values: one for each candidate and head, then
    those of the mean job. There are few of them, so that the projection of all jobs would be more work.
    `row_machine` has the machine of each job's next operation; `machine` to `picked` are scratch.
    """
    head_width = width // heads
    padded = (count + TILE_COLUMNS - 1) // TILE_COLUMNS * TILE_COLUMNS
    for j in range(padded):
        machine[j] = row_machine[j] if j < count else NOWHERE
        share[padded + j] = ONE / np.float32(count) if j < count else ZERO  # of each job in the mean
    for head in range(heads):
        channel = head * head_width
        transpose_queries(projected, width, channel, head_width, count, queries)
        multiply(
            offset_floats(projected, width + channel), 2 * width, head_width, queries, TILE_COLUMNS,
            head_width * TILE_COLUMNS, padded // TILE_COLUMNS, weights, padded, count, False, False,
        )  # fmt: skip
        for column in range(0, count, LANES):
            store(share, column, weigh_rivals(weights, count, padded, column, row_machine, machine, rival[head]))
        for i in range(chosen):
            column, place = candidate_row[i] - first_row, (i * heads + head) * padded
            for j in range(count):
                picked[place + j] = weights[j * padded + column] * share[column]
        for j in range(count):
            total = broadcast(ZERO)
            for column in range(0, count, LANES):
                of_mean = mul(load(share, column), load(share, padded + column))
                total = add(total, mul(load(weights, j * padded + column), of_mean))
            picked[(chosen * heads + head) * padded + j] = sum_lanes(total)
    multiply(
        picked, padded, count, seen, width, TILE_COLUMNS, width // TILE_COLUMNS, glimpses, width, (chosen + 1) * heads,
        False, False,
    )  # fmt: skip


@njit_function
def score_candidates(
    slots, first_row, first_candidate, candidate_row, shift, width, heads, x, glimpses, value, out, out_bias,
    hidden_weights, hidden_shift, context, score_weights, mixed, joined, compact, means, common, hidden, score,
):  # fmt: skip
    """Compute the scores of all candidates, before the tanh.

    Rollout s has the rows from first_row[s] and the candidates from first_candidate[s] on; `shift` numbers its latent.
    In `glimpses`, `mixed` and `joined` a row for the mean of all its jobs comes behind its candidates: the projections
    of attention are linear, so they may be applied to the mean.
    """
    wide, head_width, candidates = 2 * width, width // heads, first_candidate[slots]
    for head in range(heads):
        channel = head * head_width
        multiply(
            offset_floats(glimpses, head * width), heads * width, width, offset_floats(value, channel * width),
            TILE_COLUMNS, width * TILE_COLUMNS, head_width // TILE_COLUMNS, offset_floats(mixed, channel), width,
            candidates + slots, False, False,
        )  # fmt: skip
    for s in range(slots):
        jobs, row = first_row[s + 1] - first_row[s], (first_candidate[s] + s) * width
        for i in range(first_candidate[s], first_candidate[s + 1]):
            copy_row(joined, row, x, candidate_row[i] * width, width)
            add_rows(joined, row, out_bias, 0, width)
            row += width
        if jobs:
            mean_row(joined, row, x, first_row[s], jobs, width)
            add_rows(joined, row, out_bias, 0, width)
    multiply_weights(mixed, width, out, width, joined, candidates + slots, True, False)
    for s in range(slots):
        first, count = first_candidate[s], first_candidate[s + 1] - first_candidate[s]
        if count:
            copy_row(means, s * wide, joined, (first + count + s) * width, width)
            mean_row(means, s * wide + width, joined, first + s, count, width)
            copy_row(common, s * wide, hidden_shift, shift[s] * wide, wide)
            copy_row(compact, first * width, joined, (first + s) * width, count * width)
    multiply_weights(means, wide, context, wide, common, slots, True, False)
    for s in range(slots):
        for i in range(first_candidate[s], first_candidate[s + 1]):
            copy_row(hidden, i * wide, common, s * wide, wide)
    multiply_weights(compact, width, hidden_weights, wide, hidden, candidates, True, True)
    for i in range(candidates):
        total = broadcast(ZERO)
        for c in range(0, wide, LANES):
            total = add(total, mul(load(hidden, i * wide + c), load(score_weights, c)))
        score[i] = sum_lanes(total)


@njit_function
def squash_scores(score, count):
    """Turn scores into logits, CLIP tanh(score / CLIP)."""
    clip, double, one = broadcast(CLIP), broadcast(np.float32(2.0) * CLIP), broadcast(ONE)
    for i in range(0, count, LANES):
        doubled = mul(load(score, i), broadcast(np.float32(2.0 * LOG2E) / CLIP))
        power = exp2(vector_min(doubled, broadcast(np.float32(100.0))))
        store(score, i, sub(clip, div(double, add(power, one))))
