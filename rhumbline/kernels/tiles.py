"""numba: rollouts on the CPU as they are compiled. `run_tiles` is the kernel; `cpu` calls it.

The rollouts of a tile sit in the lanes of the vectors. Table entries are then broadcast operands, reductions run along
the nodes without horizontal operations, no sum is reordered, and the number of nodes needs no multiple of anything.
Nodes that the whole tile has visited leave the list that all loops run over.

The vectors are explicit, through the intrinsics below. Left to itself LLVM vectorises such short loops badly: the same
algorithm in plain loops is six times slower. The kernel sees pointers, not arrays, calls neither min nor max of numba,
and has one specialisation: that halves the time to compile it, for which the very first solve waits. Everything that is
compiled is in this file, because numba's cache looks at the date of the kernel's file only.
"""

from collections.abc import Callable, Iterable
from inspect import signature
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.cgutils import get_or_insert_function
from numba.core.registry import cpu_target
from numba.extending import intrinsic, models, register_model

from rhumbline import noise
from rhumbline.kernels import HEAD_WIDTH, HEADS

WIDTH = HEADS * HEAD_WIDTH
BLOCK = 8  # vectors that are accumulated side by side: enough to hide latency, few enough for 16 registers
LANES = 16 if "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2] else 8

LOG2E = 1.4426950408889634
CLOSED = np.float32(-1.0e9)  # added to the scores of nodes that a rollout may not visit now
GONE = np.float32(-2.0e9)  # the same for visited nodes, which stay closed
BELOW_ONE = np.float32(1.0 - 2.0**-22)  # as in decoding.choose
ZERO, ONE = np.float32(0.0), np.float32(1.0)
WORD, HALF, ROUNDS = np.uint64(noise.WORD), np.uint64(32), noise.ROUNDS
M0, M1, W0, W1 = (np.uint64(x) for x in (*noise.MULTIPLIERS, *noise.WEYL))


# --- explicit vectors
#
# Each operation is a function that emits instructions through LLVM's builder; `emits` gives it to numba.

FLOAT, INT, LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
FLOATS, INTS, LONGS = (ir.VectorType(kind, LANES) for kind in (FLOAT, INT, LONG))
FUSE = ("contract",)  # lets a product and a sum become one instruction; nothing is reordered


class Vector(types.Type):
    """One number of each rollout of a tile, or a block of such vectors that are worked on side by side."""

    def __init__(self, name: str, layout: ir.Type):
        super().__init__(name=name)
        self.layout = layout


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """Kept as it is; LLVM takes blocks apart into registers."""

    def __init__(self, manager: Any, kind: Vector):
        super().__init__(manager, kind, kind.layout)


lanes, block = Vector("lanes", FLOATS), Vector("block", ir.ArrayType(FLOATS, BLOCK))
number, scalar, anything = types.int64, types.float32, None


def emits(result: types.Type, *operands: types.Type | None) -> Callable[[Callable[..., Any]], Any]:
    """Make an intrinsic of a function that takes the builder and operands of these types."""

    def decorate(emit: Callable[..., Any]) -> Any:
        def typed(_, *given):
            def build(context, builder, _, args):
                value = emit(builder, *args)
                return context.get_dummy_value() if value is None else value

            return result(*(wanted or kind for wanted, kind in zip(operands, given, strict=True))), build

        typed.__signature__ = signature(emit)  # where numba counts the arguments
        return intrinsic(typed)

    return decorate


def constant(x: float) -> ir.Constant:
    """A number in every lane."""
    return ir.Constant(FLOATS, [float(np.float32(x))] * LANES)


def spread(builder: Any, x: Any) -> Any:
    """A scalar in every lane."""
    nothing = ir.Constant(FLOATS, ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(nothing, x, INT(0)), nothing, ir.Constant(INTS, [0] * LANES))


def fused(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z."""
    return builder.fadd(builder.fmul(x, y, flags=FUSE), z, flags=FUSE)


def where(builder: Any, x: Any, y: Any, then: Any, other: Any) -> Any:
    """`then` in lanes where x > y, else `other`, also where x or y is no number."""
    return builder.select(builder.fcmp_ordered(">", x, y), then, other)


def element(builder: Any, start: Any, *offsets: Any) -> Any:
    """Address of an element."""
    for offset in offsets:
        start = builder.gep(start, [offset if isinstance(offset, ir.Value) else LONG(offset)])
    return start


def vector(builder: Any, start: Any, *offsets: Any) -> Any:
    """Address of the vector that begins with an element."""
    return builder.bitcast(element(builder, start, *offsets), FLOATS.as_pointer())


def together(builder: Any, vectors: Iterable[Any]) -> Any:
    """Vectors as a block."""
    whole = ir.Constant(block.layout, ir.Undefined)
    for i, x in enumerate(vectors):
        whole = builder.insert_value(whole, x, i)
    return whole


def apart(builder: Any, whole: Any) -> list[Any]:
    """The vectors of a block; one alone counts as a block of one."""
    return [whole] if whole.type == FLOATS else [builder.extract_value(whole, i) for i in range(BLOCK)]


def accumulated(builder: Any, total: Any, x: Any, addresses: Iterable[Any]) -> Any:
    """Each vector of a block plus x times the number at its address."""
    pairs = zip(apart(builder, total), addresses, strict=True)
    return together(builder, [fused(builder, x, spread(builder, builder.load(at)), y) for y, at in pairs])


def listed(builder: Any, nodes: Any, j: Any, stride: Any) -> list[Any]:
    """Where the rows of the nodes listed from `j` begin in a table."""
    return [builder.mul(builder.load(element(builder, nodes, j, i)), stride) for i in range(BLOCK)]


def entries(builder: Any, table: Any, index: Any, stride: Any, offset: Any) -> Any:
    """table[stride * index + offset] for the index of each lane."""
    x = ir.Constant(FLOATS, ir.Undefined)
    for i in range(LANES):
        row = builder.mul(builder.load(element(builder, index, i)), stride)
        x = builder.insert_element(x, builder.load(element(builder, table, row, offset)), INT(i))
    return x


everywhere = emits(lanes, scalar)(spread)
add = emits(lanes, lanes, lanes)(lambda builder, x, y: builder.fadd(x, y, flags=FUSE))
sub = emits(lanes, lanes, lanes)(lambda builder, x, y: builder.fsub(x, y, flags=FUSE))
mul = emits(lanes, lanes, lanes)(lambda builder, x, y: builder.fmul(x, y, flags=FUSE))
div = emits(lanes, lanes, lanes)(lambda builder, x, y: builder.fdiv(x, y))
larger = emits(lanes, lanes, lanes)(lambda builder, x, y: where(builder, x, y, x, y))
smaller = emits(lanes, lanes, lanes)(lambda builder, x, y: where(builder, x, y, y, x))
where_above = emits(lanes, lanes, lanes, lanes, lanes)(where)
load = emits(lanes, anything, number)(lambda builder, start, at: builder.load(vector(builder, start, at), align=4))
across = emits(lanes, anything, anything, number, number)(entries)
zeros = emits(block)(lambda builder: together(builder, [constant(0.0)] * BLOCK))
lesser = emits(number, number, number)(lambda builder, x, y: builder.select(builder.icmp_signed("<", x, y), x, y))
shifted = emits(types.CPointer(types.int64), anything, number)(lambda builder, start, at: builder.gep(start, [at]))
take = emits(number, anything)(lambda builder, counter: builder.atomic_rmw("add", counter, LONG(1), "monotonic"))


@emits(types.void, anything, number, anything)
def store(builder, target, offset, value):
    """Write a vector, or the vectors of a block one after the other."""
    for i, x in enumerate(apart(builder, value)):
        builder.store(x, vector(builder, target, offset, i * LANES), align=4)


@emits(types.void, anything, anything, anything, anything, number, number)
def add_turned(builder, target, source, table, index, start, channel):
    """target = source + table[start + WIDTH * index] for LANES channels, turned from the table's rows into lanes."""
    offsets = [builder.mul(builder.load(element(builder, index, i)), LONG(WIDTH)) for i in range(LANES)]
    turned = [builder.load(vector(builder, table, start, channel, at), align=4) for at in offsets]
    for half in (1, 2, 4, 8)[: LANES.bit_length() - 1]:  # exchanges one bit of row and column at a time
        low = ir.Constant(INTS, [LANES + k - half if k & half else k for k in range(LANES)])
        high = ir.Constant(INTS, [LANES + k if k & half else k + half for k in range(LANES)])
        for i in (i for i in range(LANES) if not i & half):
            pair = turned[i], turned[i + half]
            turned[i], turned[i + half] = builder.shuffle_vector(*pair, low), builder.shuffle_vector(*pair, high)
    first = builder.mul(channel, LONG(LANES))
    for i, x in enumerate(turned):
        x = builder.fadd(builder.load(vector(builder, source, first, i * LANES), align=4), x)
        builder.store(x, vector(builder, target, first, i * LANES), align=4)


@emits(lanes, lanes)
def exp2(builder, x):
    """2**x up to 2**127, relative error below 2e-7, exactly 0 for x <= -127."""
    low, magic = constant(-127.0), constant(1.5 * 2**23)
    x = where(builder, x, low, x, low)
    shifted = builder.fadd(x, magic)  # rounds to the nearest integer
    rest = builder.fsub(x, builder.fsub(shifted, magic))
    power = constant(1.3264727e-03)
    for coefficient in (9.671513e-03, 5.5507336e-02, 2.4022242e-01, 6.93147e-01, 1.0):
        power = fused(builder, power, rest, constant(coefficient))
    exponent = builder.shl(builder.bitcast(shifted, INTS), ir.Constant(INTS, [23] * LANES))
    return builder.bitcast(builder.add(builder.bitcast(power, INTS), exponent), FLOATS)


@emits(lanes, anything, number, anything, anything)
def distance(builder, xy, plane, here, there):
    """Between two nodes of each lane; the instance's coordinates begin at `plane`."""
    squares = constant(0.0)
    for axis in range(2):
        start = element(builder, xy, plane, axis)
        difference = builder.fsub(*(entries(builder, start, index, LONG(2), LONG(0)) for index in (here, there)))
        squares = fused(builder, difference, difference, squares)
    root = get_or_insert_function(builder.module, ir.FunctionType(FLOATS, [FLOATS]), f"llvm.sqrt.v{LANES}f32")
    return builder.call(root, [squares])


@emits(types.boolean, anything, number)
def somewhere_open(builder, mask, at):
    """Whether the node whose row begins there is open in some lane."""
    open_ = builder.fcmp_ordered(">", builder.load(vector(builder, mask, at), align=4), constant(CLOSED))
    return builder.icmp_unsigned("!=", builder.bitcast(open_, ir.IntType(LANES)), ir.IntType(LANES)(0))


@emits(types.void, anything, number, anything, number, anything)
def fit(builder, mask, at, demand, node, left):
    """Open an unserved node to the lanes that have its demand left, in whole numbers, and close it to the others."""
    row, none = vector(builder, mask, at), ir.Constant(LONGS, ir.Undefined)
    wanted = builder.insert_element(none, builder.load(element(builder, demand, node)), INT(0))
    wanted = builder.shuffle_vector(wanted, none, ir.Constant(INTS, [0] * LANES))
    room = builder.load(builder.bitcast(left, LONGS.as_pointer()), align=8)
    fits = builder.select(builder.icmp_signed("<=", wanted, room), constant(ZERO), constant(CLOSED))
    old = builder.load(row, align=4)
    builder.store(where(builder, constant(1.5 * CLOSED), old, old, fits), row, align=4)


@emits(lanes, block)
def highest(builder, whole):
    """The largest of a block's vectors, lane by lane."""
    left = apart(builder, whole)
    while len(left) > 1:
        left = [where(builder, x, y, x, y) for x, y in zip(left[::2], left[1::2], strict=True)]
    return left[0]


@emits(block, block, lanes)
def scaled(builder, whole, x):
    """A block times a vector."""
    return together(builder, [builder.fmul(y, x) for y in apart(builder, whole)])


@emits(block, anything, anything, number)
def rows(builder, source, nodes, j):
    """The vectors of the nodes listed from `j`."""
    starts = listed(builder, nodes, j, LONG(LANES))
    return together(builder, [builder.load(vector(builder, source, at), align=4) for at in starts])


@emits(block, block, lanes, anything, number, anything, number, number)
def accumulate_rows(builder, total, x, table, offset, nodes, j, stride):
    """total[i] + x * table[stride * node + offset] for the nodes listed from `j`."""
    starts = listed(builder, nodes, j, stride)
    return accumulated(builder, total, x, [element(builder, table, at, offset) for at in starts])


@emits(block, block, lanes, anything, number)
def accumulate(builder, total, x, table, offset):
    """total[i] + x * table[offset + i]."""
    return accumulated(builder, total, x, [element(builder, table, offset, i) for i in range(BLOCK)])


# --- one step of a tile
#
# Buffers are flat and hold a row of LANES numbers for each channel (query, glimpse) or node (mask, preference); `score`
# has a row for each listed node. The list's last block is filled up with node N: closed in every lane, zero in tables.

step = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


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
    """Open the customers that fit, and the depot unless the vehicle is there while somebody waits.

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
        keys, values, pointers, query_last, query_context, query_shift, pointer_shift, xy, starts, identity,
        demands, capacity, actions, cost,
        query, glimpse, fixed, mask, preference, score, lane, nodes, latent, first, last, following, left, waiting,
    ):  # fmt: skip
        """Carry out tiles until the counter, which the threads share, has passed the last one."""
        count_of_tiles = (tried * per + LANES - 1) // LANES  # of an instance
        while True:
            tile = take(counter)
            b, r0 = tile // count_of_tiles, tile % count_of_tiles * LANES
            if b >= instances:
                return
            live = lesser(LANES, tried * per - r0)  # lanes beyond it repeat the last rollout
            out, table, plane = b * tried * per + r0, b * (size + 1) * WIDTH, b * size * 2
            for i in range(LANES):
                r = r0 + lesser(i, live - 1)
                latent[i] = b * tried + r // per
                first[i] = last[i] = starts[b * per + r % per]
                if i < live:
                    actions[(out + i) * horizon] = last[i]
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
                    node = following[i] = nodes[lesser(np.int64(lane[i]), count - 1)]
                    mask[node * LANES + i] = GONE  # a depot's is set anew
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

    run_tiles.__qualname__ = "cvrp_tiles" if vehicles else "tsp_tiles"  # names the file of numba's cache
    return run_tiles


FLOAT_ARRAY, LONG_ARRAY, WORD_ARRAY, SHORT_ARRAY = (
    types.CPointer(kind) for kind in (types.float32, types.int64, types.uint64, types.int16)
)
SIGNATURE = types.void(
    *[types.int64] * 5, types.uint64, types.int64, types.float32, LONG_ARRAY,
    *[FLOAT_ARRAY] * 8, LONG_ARRAY, WORD_ARRAY, *[LONG_ARRAY] * 2, SHORT_ARRAY, FLOAT_ARRAY,
    *[FLOAT_ARRAY] * 7, *[LONG_ARRAY] * 7,
)  # fmt: skip


def scratch(size: int) -> list[np.ndarray]:
    """What one thread works on: the last row of arguments of `run_tiles`."""
    floats = (WIDTH, WIDTH, WIDTH, size + 1, size + 1, size + BLOCK, 1)
    longs = (size + BLOCK, *[LANES] * 6)
    return [np.empty(n * LANES, np.float32) for n in floats] + [np.empty(n, np.int64) for n in longs]
