"""numba: the CPU rollout kernel, `run_tiles`; `launch` calls it.

The rollouts of a tile sit in the lanes of the vectors. So table entries are broadcast operands,
reductions run along the nodes without horizontal operations, no sum is reordered, and any number of
nodes will do. Nodes that the whole tile has visited leave the list that all loops run over.

The kernel sees pointers, not arrays, does not call numba's min or max, and has one specialisation.
That halves the time to compile it, for which the first solve on a machine waits. The compiled code
comes from here, from `simd` and from `philox`. numba's cache checks the date of one file only, so
`precompile.cache_name` puts a checksum of all of them into the kernel's name.
"""

from collections.abc import Callable

import numpy as np
from numba import njit, types

from rhumbline import philox
from rhumbline.kernels import HEAD_WIDTH, HEADS
from rhumbline.kernels.numba.rollout import precompile
from rhumbline.kernels.numba.rollout.simd import (
    BLOCK,
    CLOSED,
    LANES,
    ONE,
    WIDTH,
    ZERO,
    accumulate,
    accumulate_rows,
    across,
    add,
    add_turned,
    distance,
    div,
    everywhere,
    exp2,
    fit,
    highest,
    larger,
    lesser,
    load,
    mul,
    rows,
    scaled,
    shifted,
    smaller,
    somewhere_open,
    store,
    sub,
    take,
    where_above,
    zeros,
)

LOG2E = 1.4426950408889634
GONE = np.float32(2.0) * CLOSED  # the mask of visited nodes, which stay closed
BELOW_ONE = np.float32(1.0 - 2.0**-22)  # as in decoding.choose
WORD, HALF, ROUNDS = np.uint64(philox.WORD), np.uint64(32), philox.ROUNDS
M0, M1, W0, W1 = (np.uint64(x) for x in (*philox.MULTIPLIERS, *philox.WEYL))


# --- one step of a tile
#
# Buffers are flat and hold a row of LANES numbers for each channel (query, glimpse) or node (mask, preference); `score`
# has a row for each listed node. The list's last block is filled up with node N: closed in every lane, zero in tables.

step = njit(
    nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, no_rewrites=True, _nrt=False
)


@step
def attend(query, keys, values, table, nodes, count, size, mask, score, glimpse):
    """Attention over the listed nodes, head by head."""
    for head in range(HEADS):
        channel, first = head * HEAD_WIDTH, table + head * HEAD_WIDTH * (size + 1)
        top = everywhere(CLOSED)
        for j in range(0, count, BLOCK):
            total = rows(mask, nodes, j)
            for c in range(HEAD_WIDTH):
                x = load(query, (channel + c) * LANES)
                total = accumulate_rows(total, x, keys, first + c, nodes, j, HEAD_WIDTH)
            store(score, j * LANES, total)
            top = larger(top, highest(total))
        weights = everywhere(ZERO)
        for j in range(count):
            weight = exp2(sub(load(score, j * LANES), top))
            weights = add(weights, weight)
            store(score, j * LANES, weight)
        share = div(everywhere(ONE), weights)
        for c in range(0, HEAD_WIDTH, BLOCK):
            total = zeros()
            for j in range(count):
                total = accumulate(total, load(score, j * LANES), values, first + nodes[j] * HEAD_WIDTH + c)
            store(glimpse, (channel + c) * LANES, scaled(total, share))


@step
def point(glimpse, pointers, table, preference, nodes, count, score):
    """Pointer scores of the listed nodes before the tanh."""
    for j in range(0, count, BLOCK):
        total = rows(preference, nodes, j)
        for c in range(WIDTH):
            total = accumulate_rows(total, load(glimpse, c * LANES), pointers, table + c, nodes, j, WIDTH)
        store(score, j * LANES, total)


@step
def best(score, mask, nodes, count, lane):
    """Turn pointer scores into masked logits. The place of each lane's first highest goes to `lane`, the logit back."""
    top, place = everywhere(np.float32(2.0) * CLOSED), everywhere(ZERO)
    one, clip, double = everywhere(ONE), everywhere(np.float32(10.0)), everywhere(np.float32(20.0))
    for j in range(count):
        doubled = mul(load(score, j * LANES), everywhere(np.float32(2.0 * LOG2E)))
        power = exp2(smaller(doubled, everywhere(np.float32(100.0))))
        logit = sub(clip, div(double, add(power, one)))  # 10 tanh
        logit = add(logit, load(mask, nodes[j] * LANES))
        store(score, j * LANES, logit)
        place = where_above(logit, top, everywhere(np.float32(j)), place)
        top = larger(top, logit)
    store(lane, 0, place)
    return top


@step
def sample(score, top, mask, nodes, count, sharpness, lane):
    """Replace the uniforms in `lane` by the places they hit in the cumulative weights: the rule of decoding.choose."""
    none, one, total = everywhere(ZERO), everywhere(ONE), everywhere(ZERO)
    for j in range(count):
        weight = exp2(mul(sub(load(score, j * LANES), top), everywhere(sharpness)))
        closed = load(mask, nodes[j] * LANES)  # at a high temperature CLOSED alone does not bring the weight to 0
        total = add(total, where_above(none, closed, none, weight))
        store(score, j * LANES, total)
    limit = mul(load(lane, 0), mul(total, everywhere(BELOW_ONE)))
    place = none
    for j in range(count):  # counts the sums up to the limit; they grow at open nodes only, and the last is above it
        place = add(place, where_above(load(score, j * LANES), limit, none, one))
    store(lane, 0, place)


@step
def draw(seed, c0, c1, c2):
    """The uniform of noise.decoding for a counter: Philox-4x32-10 on the low words of 64-bit numbers."""
    k0, k1, c3 = seed & WORD, seed >> HALF, np.uint64(0)
    for _ in range(ROUNDS):
        left, right = c0 * M0, c2 * M1
        c0, c2 = (right >> HALF) ^ c1 ^ k0, (left >> HALF) ^ c3 ^ k1
        c1, c3 = right & WORD, left & WORD
        k0, k1 = (k0 + W0) & WORD, (k1 + W1) & WORD
    folded = WORD - c0 if c0 > WORD >> np.uint64(1) else c0  # as in noise.unit_interval
    return np.float32(folded) * np.float32(4.6566127342e-10)


# --- whole rollouts


@step
def begin(size, query_shift, pointer_shift, latent, last, fixed, preference, mask):
    """Queries, preferences and masks of a tile that stands in its first nodes."""
    for c in range(WIDTH):
        store(fixed, c * LANES, across(query_shift, latent, WIDTH, c))
    for j in range(size):
        store(preference, j * LANES, across(pointer_shift, latent, size, j))
        store(mask, j * LANES, everywhere(ZERO))
    store(preference, size * LANES, everywhere(ZERO))
    store(mask, size * LANES, everywhere(CLOSED))
    for i in range(LANES):
        mask[last[i] * LANES + i] = GONE


@step
def admit(demand, size, left, waiting, last, mask):
    """Open the customers that fit, and the depot unless the vehicle is there while customers wait.

    Says whether any vehicle is still under way.
    """
    busy = False
    for i in range(LANES):
        mask[i] = CLOSED if last[i] == 0 and waiting[i] > 0 else ZERO
        if last[i] + waiting[i] > 0:
            busy = True
    for j in range(1, size):
        fit(mask, j * LANES, demand, j, left)
    return busy


@step
def list_open(mask, size, nodes):
    """List the nodes that are open to some rollout and fill up the last block; how many they are."""
    count = 0
    for j in range(size):
        if somewhere_open(mask, j * LANES):
            nodes[count] = j
            count += 1
    if count == 0:  # a policy of NaN visits nodes twice, but memory stays whole
        count = 1
    for j in range(count, count + BLOCK):
        nodes[j] = size
    return count


def tiles(vehicles: bool) -> Callable[..., None]:
    """The kernel of a problem, with vehicles or without: numba drops the branches that it does not need."""

    def run_tiles(
        instances, size, horizon, tried, per, seed, attempt, sharpness, counter,
        keys, values, pointers, query_last, query_context, query_shift, pointer_shift, xy, imposed, identity,
        demands, capacity, actions, cost,
        query, glimpse, fixed, mask, preference, score, lane, nodes, latent, place, first, last, following, left,
        waiting,
    ):  # fmt: skip
        """Carry out tiles until the counter, which the threads share, has passed the last one.

        `actions` holds the imposed beginning of each rollout. Nothing is scored before a lane has a choice.
        """
        count_of_tiles = (tried * per + LANES - 1) // LANES  # of an instance
        while True:
            tile = take(counter)
            b, r0 = tile // count_of_tiles, tile % count_of_tiles * LANES
            if b >= instances:
                return
            live = lesser(LANES, tried * per - r0)  # lanes beyond it repeat the last rollout
            out, table, plane = b * tried * per + r0, b * (size + 1) * WIDTH, b * size * 2
            settled = horizon
            for i in range(LANES):
                place[i] = out + lesser(i, live - 1)
                latent[i] = b * tried + (r0 + lesser(i, live - 1)) // per
                first[i] = last[i] = actions[place[i] * horizon]
                settled = lesser(settled, imposed[place[i]])
            begin(size, query_shift, pointer_shift, latent, last, fixed, preference, mask)
            length = everywhere(ZERO)
            if vehicles:
                demand = shifted(demands, b * size)
                for i in range(LANES):
                    first[i], left[i], waiting[i] = 0, capacity[b] - demand[last[i]], size - 2
                length = distance(xy, plane, first, last)
            else:
                for c in range(0, WIDTH, LANES):
                    add_turned(fixed, fixed, query_context, first, b * size * WIDTH, c)
            for t in range(1, horizon):
                if t >= settled:
                    if vehicles and not admit(demand, size, left, waiting, last, mask):
                        break
                    count = list_open(mask, size, nodes)
                    for c in range(0, WIDTH, LANES):
                        add_turned(query, fixed, query_last, last, b * size * WIDTH, c)
                    if vehicles:
                        for i in range(LANES):
                            lane[i] = left[i]
                        for c in range(WIDTH):
                            load_part = mul(load(lane, 0), everywhere(query_context[b * WIDTH + c]))
                            store(query, c * LANES, add(load(query, c * LANES), load_part))
                    attend(query, keys, values, table, nodes, count, size, mask, score, glimpse)
                    point(glimpse, pointers, table, preference, nodes, count, score)
                    top = best(score, mask, nodes, count, lane)
                    if sharpness > ZERO:
                        for i in range(LANES):
                            r = r0 + lesser(i, live - 1)
                            c0, c1 = np.uint64(r % per * horizon + t), np.uint64(attempt + r // per)
                            lane[i] = draw(seed, c0, c1, identity[b])
                        sample(score, top, mask, nodes, count, sharpness, lane)
                    for i in range(LANES):
                        following[i] = nodes[lesser(np.int64(lane[i]), count - 1)]
                for i in range(LANES):
                    if t < imposed[place[i]]:
                        following[i] = actions[place[i] * horizon + t]
                    node = following[i]
                    mask[node * LANES + i] = GONE  # a depot's is set again
                    if vehicles:
                        left[i] = left[i] - demand[node] if node > 0 else capacity[b]
                        waiting[i] -= node > 0
                    if i < live:
                        actions[(out + i) * horizon + t] = node
                length = add(length, distance(xy, plane, last, following))
                for i in range(LANES):
                    last[i] = following[i]
            store(lane, 0, add(length, distance(xy, plane, last, first)))
            for i in range(live):
                cost[out + i] = lane[i]

    run_tiles.__qualname__ = precompile.cache_name("routes" if vehicles else "tours")  # names the file of numba's cache
    return run_tiles


FLOAT_ARRAY, LONG_ARRAY, WORD_ARRAY, SHORT_ARRAY = (
    types.CPointer(kind) for kind in (types.float32, types.int64, types.uint64, types.int16)
)
SIGNATURE = types.void(
    *[types.int64] * 5, types.uint64, types.int64, types.float32, LONG_ARRAY,
    *[FLOAT_ARRAY] * 8, LONG_ARRAY, WORD_ARRAY, *[LONG_ARRAY] * 2, SHORT_ARRAY, FLOAT_ARRAY,
    *[FLOAT_ARRAY] * 7, *[LONG_ARRAY] * 8,
)  # fmt: skip


def scratch(size: int) -> list[np.ndarray]:
    """What one thread works on: the last row of arguments of `run_tiles`."""
    floats = (WIDTH, WIDTH, WIDTH, size + 1, size + 1, size + BLOCK, 1)
    longs = (size + BLOCK, *[LANES] * 7)
    return [np.empty(n * LANES, np.float32) for n in floats] + [np.empty(n, np.int64) for n in longs]
