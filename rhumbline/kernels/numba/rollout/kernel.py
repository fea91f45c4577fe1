"""numba: the CPU rollout kernel, `run_tiles`; `launch` calls it.

The rollouts of a tile are the lanes of the vectors. So table entries are broadcast operands,
reductions run along the nodes without horizontal operations, no sum is reordered, and the number of
nodes is arbitrary. Nodes that the whole tile has visited leave the list that all loops run over.

The kernel takes pointers, not arrays, does not call numba's min or max, and has one specialisation.
That halves the time to compile it, which the first solve on a machine waits for. The compiled code
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
    LANES,
    MASKED,
    ONE,
    WIDTH,
    ZERO,
    accumulate,
    accumulate_rows,
    add,
    add_transposed,
    any_lane_open,
    block_max,
    broadcast,
    distance,
    div,
    exp2,
    fetch_add,
    gather,
    load,
    load_block,
    mask_by_demand,
    mul,
    offset_pointer,
    scalar_min,
    scale_block,
    store,
    sub,
    vector_max,
    vector_min,
    where_above,
    zero_block,
)

LOG2E = 1.4426950408889634
VISITED = np.float32(2.0) * MASKED  # the mask of visited nodes, below that of nodes masked at this step
BELOW_ONE = np.float32(1.0 - 2.0**-22)  # the same as decoding.BELOW_ONE
WORD, HALF, ROUNDS = np.uint64(philox.WORD), np.uint64(32), philox.ROUNDS
M0, M1, W0, W1 = (np.uint64(x) for x in (*philox.MULTIPLIERS, *philox.WEYL))


# --- one step of a tile
#
# Buffers are flat and hold a row of LANES numbers for each channel (query, glimpse) or node (mask, preference); `score`
# has a row for each listed node. The list's last block is filled up with node N: masked in every lane, zero in tables.

njit_function = njit(
    nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, no_rewrites=True, _nrt=False
)


@njit_function
def attend(query, keys, values, table, nodes, count, size, mask, score, glimpse):
    """Compute the glimpse by attention over the listed nodes, head by head; `score` is scratch."""
    for head in range(HEADS):
        channel, first = head * HEAD_WIDTH, table + head * HEAD_WIDTH * (size + 1)
        top = broadcast(MASKED)
        for j in range(0, count, BLOCK):
            total = load_block(mask, nodes, j)
            for c in range(HEAD_WIDTH):
                x = load(query, (channel + c) * LANES)
                total = accumulate_rows(total, x, keys, first + c, nodes, j, HEAD_WIDTH)
            store(score, j * LANES, total)
            top = vector_max(top, block_max(total))
        weights = broadcast(ZERO)
        for j in range(count):
            weight = exp2(sub(load(score, j * LANES), top))
            weights = add(weights, weight)
            store(score, j * LANES, weight)
        share = div(broadcast(ONE), weights)
        for c in range(0, HEAD_WIDTH, BLOCK):
            total = zero_block()
            for j in range(count):
                total = accumulate(total, load(score, j * LANES), values, first + nodes[j] * HEAD_WIDTH + c)
            store(glimpse, (channel + c) * LANES, scale_block(total, share))


@njit_function
def pointer_scores(glimpse, pointers, table, preference, nodes, count, score):
    """Write the pointer scores of the listed nodes, before the tanh, to `score`."""
    for j in range(0, count, BLOCK):
        total = load_block(preference, nodes, j)
        for c in range(WIDTH):
            total = accumulate_rows(total, load(glimpse, c * LANES), pointers, table + c, nodes, j, WIDTH)
        store(score, j * LANES, total)


@njit_function
def squash_logits(score, mask, nodes, count, lane):
    """Turn pointer scores into masked logits; return the best logit of each lane.

    `lane` gets its place in the list, the first one of equal logits.
    """
    top, place = broadcast(np.float32(2.0) * MASKED), broadcast(ZERO)
    one, clip, double = broadcast(ONE), broadcast(np.float32(10.0)), broadcast(np.float32(20.0))
    for j in range(count):
        doubled = mul(load(score, j * LANES), broadcast(np.float32(2.0 * LOG2E)))
        power = exp2(vector_min(doubled, broadcast(np.float32(100.0))))
        logit = sub(clip, div(double, add(power, one)))  # 10 tanh
        logit = add(logit, load(mask, nodes[j] * LANES))
        store(score, j * LANES, logit)
        place = where_above(logit, top, broadcast(np.float32(j)), place)
        top = vector_max(top, logit)
    store(lane, 0, place)
    return top


@njit_function
def sample(score, top, mask, nodes, count, sharpness, lane):
    """Replace the uniforms in `lane` by the places in the list that they select: the rule of `decoding`.

    It is the inverse of the cumulative weights. `top` is the best logit of each lane, and `score` has the logits.
    """
    none, one, total = broadcast(ZERO), broadcast(ONE), broadcast(ZERO)
    for j in range(count):
        weight = exp2(mul(sub(load(score, j * LANES), top), broadcast(sharpness)))
        masked = load(mask, nodes[j] * LANES)  # at a high temperature the weight of a masked node would not be 0
        total = add(total, where_above(none, masked, none, weight))
        store(score, j * LANES, total)
    limit = mul(load(lane, 0), mul(total, broadcast(BELOW_ONE)))
    place = none
    for j in range(count):  # count the sums up to the limit; they grow at open nodes only, and the last one exceeds it
        place = add(place, where_above(load(score, j * LANES), limit, none, one))
    store(lane, 0, place)


@njit_function
def draw_uniform(seed, c0, c1, c2):
    """Return the uniform of `rhumbline.noise.decoding_uniforms` for a counter: Philox-4x32-10 on 64-bit integers."""
    k0, k1, c3 = seed & WORD, seed >> HALF, np.uint64(0)
    for _ in range(ROUNDS):
        left, right = c0 * M0, c2 * M1
        c0, c2 = (right >> HALF) ^ c1 ^ k0, (left >> HALF) ^ c3 ^ k1
        c1, c3 = right & WORD, left & WORD
        k0, k1 = (k0 + W0) & WORD, (k1 + W1) & WORD
    folded = WORD - c0 if c0 > WORD >> np.uint64(1) else c0  # as in noise.to_unit_interval
    return np.float32(folded) * np.float32(4.6566127342e-10)


# --- whole rollouts


@njit_function
def start_tile(size, query_shift, pointer_shift, latent, last, fixed, preference, mask):
    """Set queries, preferences and masks of a tile whose rollouts are at their first nodes."""
    for c in range(WIDTH):
        store(fixed, c * LANES, gather(query_shift, latent, WIDTH, c))
    for j in range(size):
        store(preference, j * LANES, gather(pointer_shift, latent, size, j))
        store(mask, j * LANES, broadcast(ZERO))
    store(preference, size * LANES, broadcast(ZERO))
    store(mask, size * LANES, broadcast(MASKED))
    for i in range(LANES):
        mask[last[i] * LANES + i] = VISITED


@njit_function
def mask_by_load(demand, size, left, unserved, last, mask):
    """Mask customers whose demand exceeds the load left, and the depot if the vehicle is there and some are unserved.

    Returns whether any vehicle is still under way.
    """
    is_underway = False
    for i in range(LANES):
        mask[i] = MASKED if last[i] == 0 and unserved[i] > 0 else ZERO
        if last[i] + unserved[i] > 0:
            is_underway = True
    for j in range(1, size):
        mask_by_demand(mask, j * LANES, demand, j, left)
    return is_underway


@njit_function
def list_open(mask, size, nodes):
    """List the nodes that are open to some rollout and fill up the last block; return their number."""
    count = 0
    for j in range(size):
        if any_lane_open(mask, j * LANES):
            nodes[count] = j
            count += 1
    if count == 0:  # with a policy of NaN nodes are visited twice, but no access is out of bounds
        count = 1
    for j in range(count, count + BLOCK):
        nodes[j] = size
    return count


def define_kernel(kernel: str) -> Callable[..., None]:
    """Return the kernel for "routes" (CVRP) or "tours" (TSP): numba drops the branches that it does not need."""
    vehicles = kernel == "routes"

    def run_tiles(
        instances, size, horizon, tried, per, seed, attempt, sharpness, counter,
        keys, values, pointers, query_last, query_context, query_shift, pointer_shift, xy, imposed, identity,
        demands, capacity, actions, cost,
        query, glimpse, fixed, mask, preference, score, lane, nodes, latent, place, first, last, following, left,
        unserved,
    ):  # fmt: skip
        """Run tiles until the counter, which the threads share, has passed the last one.

        `actions` holds the given prefix of each rollout. The policy is not evaluated before some lane has a choice.
        """
        count_of_tiles = (tried * per + LANES - 1) // LANES  # of an instance
        while True:
            tile = fetch_add(counter)
            b, r0 = tile // count_of_tiles, tile % count_of_tiles * LANES
            if b >= instances:
                return
            live = scalar_min(LANES, tried * per - r0)  # further lanes repeat the last rollout
            out, table, plane = b * tried * per + r0, b * (size + 1) * WIDTH, b * size * 2
            common_prefix = horizon
            for i in range(LANES):
                place[i] = out + scalar_min(i, live - 1)
                latent[i] = b * tried + (r0 + scalar_min(i, live - 1)) // per
                first[i] = last[i] = actions[place[i] * horizon]
                common_prefix = scalar_min(common_prefix, imposed[place[i]])
            start_tile(size, query_shift, pointer_shift, latent, last, fixed, preference, mask)
            length = broadcast(ZERO)
            if vehicles:
                demand = offset_pointer(demands, b * size)
                for i in range(LANES):
                    first[i], left[i], unserved[i] = 0, capacity[b] - demand[last[i]], size - 2
                length = distance(xy, plane, first, last)
            else:
                for c in range(0, WIDTH, LANES):
                    add_transposed(fixed, fixed, query_context, first, b * size * WIDTH, c)
            for t in range(1, horizon):
                if t >= common_prefix:
                    if vehicles and not mask_by_load(demand, size, left, unserved, last, mask):
                        break
                    count = list_open(mask, size, nodes)
                    for c in range(0, WIDTH, LANES):
                        add_transposed(query, fixed, query_last, last, b * size * WIDTH, c)
                    if vehicles:
                        for i in range(LANES):
                            lane[i] = left[i]
                        for c in range(WIDTH):
                            load_part = mul(load(lane, 0), broadcast(query_context[b * WIDTH + c]))
                            store(query, c * LANES, add(load(query, c * LANES), load_part))
                    attend(query, keys, values, table, nodes, count, size, mask, score, glimpse)
                    pointer_scores(glimpse, pointers, table, preference, nodes, count, score)
                    top = squash_logits(score, mask, nodes, count, lane)
                    if sharpness > ZERO:
                        for i in range(LANES):
                            r = r0 + scalar_min(i, live - 1)
                            c0, c1 = np.uint64(r % per * horizon + t), np.uint64(attempt + r // per)
                            lane[i] = draw_uniform(seed, c0, c1, identity[b])
                        sample(score, top, mask, nodes, count, sharpness, lane)
                    for i in range(LANES):
                        following[i] = nodes[scalar_min(np.int64(lane[i]), count - 1)]
                for i in range(LANES):
                    if t < imposed[place[i]]:
                        following[i] = actions[place[i] * horizon + t]
                    node = following[i]
                    mask[node * LANES + i] = VISITED  # the depot's entry is set again at each step
                    if vehicles:
                        left[i] = left[i] - demand[node] if node > 0 else capacity[b]
                        unserved[i] -= node > 0
                    if i < live:
                        actions[(out + i) * horizon + t] = node
                length = add(length, distance(xy, plane, last, following))
                for i in range(LANES):
                    last[i] = following[i]
            store(lane, 0, add(length, distance(xy, plane, last, first)))
            for i in range(live):
                cost[out + i] = lane[i]

    run_tiles.__qualname__ = precompile.cache_name(kernel)  # names the file of numba's cache
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
    """Return the scratch arrays of one thread: the last row of arguments of `run_tiles`."""
    floats = (WIDTH, WIDTH, WIDTH, size + 1, size + 1, size + BLOCK, 1)
    longs = (size + BLOCK, *[LANES] * 7)
    return [np.empty(n * LANES, np.float32) for n in floats] + [np.empty(n, np.int64) for n in longs]
