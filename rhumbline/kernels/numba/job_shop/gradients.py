"""numba: gradients of the scores of given schedules with respect to the table of operations.

A search learns on an instance by changing that table (`policies.jssp.JSSPPolicy.adjustable`), and
needs no other gradient. The functions here are the backward pass of those of `network`; they read
their results and recompute the weights of attention. Weights come transposed, in panels.
"""

import math

import numpy as np

from rhumbline.kernels.numba.job_shop.network import (
    CLIP,
    LOG2E,
    add_rows,
    copy_row,
    multiply,
    multiply_weights,
    njit_function,
    scale_row,
    transpose_queries,
    weigh_rivals,
)
from rhumbline.kernels.numba.job_shop.simd import (
    TILE_COLUMNS,
    log,
    offset_floats,
    sum_lanes,
    transpose,
)
from rhumbline.kernels.numba.rollout.simd import (
    LANES,
    ONE,
    ZERO,
    add,
    broadcast,
    exp2,
    load,
    mul,
    store,
    sub,
    where_above,
)

LN2 = np.float32(0.6931471805599453)


@njit_function
def score_decision(logits, first, count, chosen, weight, slopes, probabilities):
    """Return the log-probability of a candidate, and write the gradient of `weight` times it to `slopes`.

    Gradients are those with respect to the scores before the tanh. `probabilities` is scratch.
    """
    top = logits[first]
    for i in range(first + 1, first + count):
        top = logits[i] if logits[i] > top else top
    total = ZERO
    for i in range(0, count, LANES):
        below = mul(sub(load(logits, first + i), broadcast(top)), broadcast(np.float32(LOG2E)))
        store(probabilities, i, exp2(below))
    for i in range(count):
        total += probabilities[i]
    for i in range(count):
        share = probabilities[i] / total
        squashed = logits[first + i] / CLIP
        difference = (ONE if i == chosen else ZERO) - share
        slopes[first + i] = weight * difference * (ONE - squashed * squashed)
    store(probabilities, 0, log(broadcast(total)))
    return logits[first + chosen] - top - probabilities[0]


@njit_function
def clear(target, count):
    """Write zeros to whole vectors."""
    for i in range(0, count, LANES):
        store(target, i, broadcast(ZERO))


@njit_function
def go_back_to_glimpses(
    slots, first_row, first_candidate, candidate_row, width, heads, slopes, score_weights, hidden, hidden_t, context_t,
    out_t, value_t, hidden_slope, compact, common, means, joined, mixed, glimpses, x_slope,
):  # fmt: skip
    """Compute the gradients of the glimpses, and those of tokens that do not come through attention, `x_slope`.

    `hidden` has the second hidden layer of each candidate. The other arrays from `hidden_slope` on are results.
    """
    wide, head_width, candidates = 2 * width, width // heads, first_candidate[slots]
    for s in range(slots):
        clear(offset_floats(common, s * wide), wide)
        for i in range(first_candidate[s], first_candidate[s + 1]):
            slope = broadcast(slopes[i])
            for c in range(0, wide, LANES):
                part = mul(slope, load(score_weights, c))
                part = where_above(load(hidden, i * wide + c), broadcast(ZERO), part, broadcast(ZERO))
                store(hidden_slope, i * wide + c, part)
            add_rows(common, s * wide, hidden_slope, i * wide, wide)
    multiply_weights(hidden_slope, wide, hidden_t, width, compact, candidates, False, False)
    multiply_weights(common, wide, context_t, wide, means, slots, False, False)
    clear(x_slope, first_row[slots] * width)
    for s in range(slots):
        first, count = first_candidate[s], first_candidate[s + 1] - first_candidate[s]
        mean = (first + count + s) * width
        copy_row(joined, mean, means, s * wide, width)
        scale_row(means, s * wide + width, width, ONE / np.float32(count))
        for i in range(first, first + count):
            copy_row(joined, (i + s) * width, compact, i * width, width)
            add_rows(joined, (i + s) * width, means, s * wide + width, width)
            add_rows(x_slope, candidate_row[i] * width, joined, (i + s) * width, width)
        scale_row(means, s * wide, width, ONE / np.float32(first_row[s + 1] - first_row[s]))
        for row in range(first_row[s], first_row[s + 1]):
            add_rows(x_slope, row * width, means, s * wide, width)
    multiply_weights(joined, width, out_t, width, mixed, candidates + slots, False, False)
    for head in range(heads):
        multiply(
            offset_floats(mixed, head * head_width), width, head_width,
            offset_floats(value_t, head * head_width * width), TILE_COLUMNS, head_width * TILE_COLUMNS,
            width // TILE_COLUMNS, offset_floats(glimpses, head * width), heads * width, candidates + slots, False,
            False,
        )  # fmt: skip


@njit_function
def go_back_through_attention(
    projected, width, heads, rival, count, row_machine, chosen, candidate_row, first_row, seen, machine, queries,
    weights, share, picked, glimpse_slope, picked_slope, turned, slope, seen_slope, projected_slope,
):  # fmt: skip
    """Compute the gradients of what one rollout's attention reads: queries and keys, and the normalised tokens.

    The weights are computed again. `machine` to `picked` and `picked_slope` to `slope` are scratch.
    """
    head_width, reads = width // heads, (chosen + 1) * heads
    padded = (count + TILE_COLUMNS - 1) // TILE_COLUMNS * TILE_COLUMNS
    for block in range(0, count, LANES):
        for c in range(0, width, LANES):
            place = (block // TILE_COLUMNS * width + c) * TILE_COLUMNS + block % TILE_COLUMNS
            transpose(turned, place, TILE_COLUMNS, seen, block * width + c, width)
    multiply(
        glimpse_slope, width, width, turned, TILE_COLUMNS, width * TILE_COLUMNS, padded // TILE_COLUMNS, picked_slope,
        padded, reads, False, False,
    )  # fmt: skip
    part = ONE / np.float32(count)  # of each job in the mean
    for j in range(padded):
        machine[j] = row_machine[j] if j < count else np.float32(-1.0)
    for head in range(heads):
        channel, of_mean = head * head_width, (chosen * heads + head) * padded
        transpose_queries(projected, width, channel, head_width, count, queries)
        multiply(
            offset_floats(projected, width + channel), 2 * width, head_width, queries, TILE_COLUMNS,
            head_width * TILE_COLUMNS, padded // TILE_COLUMNS, weights, padded, count, False, False,
        )  # fmt: skip
        for column in range(0, count, LANES):
            store(share, column, weigh_rivals(weights, count, padded, column, row_machine, machine, rival[head]))
        for j in range(count):
            mean = ZERO
            for i in range(count):
                weights[j * padded + i] *= share[i]
                mean += weights[j * padded + i]
            turned[j * reads + chosen * heads + head] = mean * part
            for column in range(0, count, LANES):
                store(slope, j * padded + column, broadcast(picked_slope[of_mean + j] * part))
        for i in range(chosen):
            column, place = candidate_row[i] - first_row, (i * heads + head) * padded
            for j in range(count):
                turned[j * reads + i * heads + head] = weights[j * padded + column]
                slope[j * padded + column] += picked_slope[place + j]
        for column in range(0, count, LANES):
            total = broadcast(ZERO)
            for j in range(count):
                at = j * padded + column
                total = add(total, mul(load(weights, at), load(slope, at)))
            for j in range(count):
                at = j * padded + column
                changed = mul(load(weights, at), sub(load(slope, at), total))
                store(slope, at, mul(changed, broadcast(LN2)))
        multiply(
            slope, padded, count, offset_floats(projected, channel), 2 * width, TILE_COLUMNS,
            head_width // TILE_COLUMNS, offset_floats(projected_slope, width + channel), 2 * width, count, False,
            False,
        )  # fmt: skip
        for block in range(0, count, LANES):
            for column in range(0, count, LANES):
                transpose(weights, column * padded + block, padded, slope, block * padded + column, padded)
        multiply(
            weights, padded, count, offset_floats(projected, width + channel), 2 * width, TILE_COLUMNS,
            head_width // TILE_COLUMNS, offset_floats(projected_slope, channel), 2 * width, count, False, False,
        )  # fmt: skip
    multiply(
        turned, reads, reads, glimpse_slope, width, TILE_COLUMNS, width // TILE_COLUMNS, seen_slope, width, count,
        False, False,
    )  # fmt: skip


@njit_function
def go_back_through_norm(x, norm, width, rows, slope, x_slope):
    """Add to `x_slope` the gradients of tokens from those of their layer norm, `slope`."""
    share = np.float32(1.0) / np.float32(width)
    for row in range(rows):
        start = row * width
        total, square = broadcast(ZERO), broadcast(ZERO)
        for c in range(0, width, LANES):
            total = add(total, load(x, start + c))
        mean = broadcast(sum_lanes(total) * share)
        for c in range(0, width, LANES):
            below = sub(load(x, start + c), mean)
            square = add(square, mul(below, below))
        factor = broadcast(ONE / np.float32(math.sqrt(sum_lanes(square) * share + np.float32(1e-5))))
        plain, along = broadcast(ZERO), broadcast(ZERO)
        for c in range(0, width, LANES):
            scaled = mul(load(slope, start + c), load(norm, c))
            plain = add(plain, scaled)
            along = add(along, mul(scaled, mul(sub(load(x, start + c), mean), factor)))
        common, along_mean = (broadcast(sum_lanes(plain) * share), broadcast(sum_lanes(along) * share))
        for c in range(0, width, LANES):
            normal = mul(sub(load(x, start + c), mean), factor)
            scaled = sub(mul(load(slope, start + c), load(norm, c)), common)
            change = mul(factor, sub(scaled, mul(normal, along_mean)))
            store(x_slope, start + c, add(load(x_slope, start + c), change))


@njit_function
def add_to_table(x_slope, rows, width, token_t, hidden, hidden_slope, operation, gradient):
    """Add the gradients of the first hidden layer to those of the operations in the table."""
    wide = 2 * width
    multiply_weights(x_slope, width, token_t, wide, hidden_slope, rows, False, False)
    for row in range(rows):
        place = operation[row] * wide
        for c in range(0, wide, LANES):
            part = load(hidden_slope, row * wide + c)
            part = where_above(load(hidden, row * wide + c), broadcast(ZERO), part, broadcast(ZERO))
            store(gradient, place + c, add(load(gradient, place + c), part))
