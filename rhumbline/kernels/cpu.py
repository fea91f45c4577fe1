"""numba: whole rollouts on the CPU. One thread carries a tile of rollouts of one instance through every step.

The rollouts of a tile sit in the lanes of the vectors. Table entries are then broadcast operands, reductions run along
the nodes without horizontal operations, no sum is reordered, and the number of nodes needs no multiple of anything.
Nodes that the whole tile has visited leave the list that all loops run over.

The vectors are explicit, through the intrinsics below. Left to itself LLVM vectorises such short loops badly: the same
algorithm in plain loops is six times slower. The kernel sees bare pointers, not arrays, and has one specialisation: that
halves the time to compile it, for which the very first solve waits.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import cfunc, njit, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic, models, register_model
from torch import Tensor

from rhumbline import noise
from rhumbline.kernels import HEAD_WIDTH, HEADS

WIDTH = HEADS * HEAD_WIDTH
BLOCK = 8  # vectors that are accumulated side by side: enough to hide latency, few enough for 16 registers
LANES = 16 if "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2] else 8

LOG2E = 1.4426950408889634
CLOSED = np.float32(-1.0e9)  # added to the scores of visited nodes
BELOW_ONE = np.float32(1.0 - 2.0**-22)  # as in decoding.choose
SHARPEST = 1.0e25  # bounds 1 / temperature, so that no product with CLOSED overflows
ZERO, ONE = np.float32(0.0), np.float32(1.0)


@dataclass(frozen=True)
class Tables:
    """What the kernel reads, in float32: queries times log2(e)/sqrt(head width) for exp2, a row of zeros after the nodes."""

    key: np.ndarray  # [B, H, N + 1, C]
    value: np.ndarray  # [B, H, N + 1, C]
    pointer: np.ndarray  # [B, N + 1, E]
    query_last: np.ndarray  # [B, N, E]
    query_first: np.ndarray  # [B, N, E]
    query_shift: np.ndarray  # [B, K, E]
    pointer_shift: np.ndarray  # [B, K, N]


def tables(memory: Any, shift: Any) -> Tables:
    """Kernel tables from a policy's memory and the shifts of its latents."""
    scale = LOG2E / HEAD_WIDTH**0.5

    def padded(x: Tensor) -> Tensor:
        return torch.nn.functional.pad(x, (0, 0, 0, 1))

    def heads(x: Tensor) -> Tensor:  # a head's keys in one piece: in rows of E they would collide in the cache
        return padded(x).unflatten(-1, (HEADS, HEAD_WIDTH)).transpose(1, 2)

    return Tables(
        key=array(heads(memory.key)),
        value=array(heads(memory.value)),
        pointer=array(padded(memory.pointer)),
        query_last=array(memory.query_last * scale),
        query_first=array(memory.query_first * scale),
        query_shift=array(shift.query * scale),
        pointer_shift=array(shift.pointer),
    )


def array(x: Tensor, dtype: torch.dtype = torch.float32) -> np.ndarray:
    """A tensor as a contiguous array, copied only where it must be."""
    return x.detach().to(dtype).contiguous().numpy()


# --- explicit vectors

FLOAT, INT, LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
FLOATS, INTS = ir.VectorType(FLOAT, LANES), ir.VectorType(INT, LANES)
FUSE = ("contract",)  # lets a product and a sum become one instruction; nothing is reordered


class Lanes(types.Type):
    """One number of each rollout of a tile: a vector."""

    def __init__(self) -> None:
        super().__init__(name=f"float32x{LANES}")


class Block(types.Type):
    """Several vectors that are worked on side by side."""

    def __init__(self) -> None:
        super().__init__(name=f"{BLOCK}xfloat32x{LANES}")


lanes, block = Lanes(), Block()


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):
    """A vector register."""

    def __init__(self, manager: Any, kind: Any):
        super().__init__(manager, kind, FLOATS)


@register_model(Block)
class BlockModel(models.PrimitiveModel):
    """An array of them, which LLVM takes apart."""

    def __init__(self, manager: Any, kind: Any):
        super().__init__(manager, kind, ir.ArrayType(FLOATS, BLOCK))


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


def above(builder: Any, x: Any, y: Any) -> Any:
    """Where x > y; nowhere if one of them is no number."""
    return builder.fcmp_ordered(">", x, y)


def address(builder: Any, start: Any, offset: Any) -> Any:
    """Of the vector that begins `offset` numbers behind `start`."""
    return builder.bitcast(builder.gep(start, [offset]), FLOATS.as_pointer())


def in_block(builder: Any, make: Callable[[int], Any]) -> Any:
    """A block of the vectors that `make` gives for each place."""
    whole = ir.Constant(ir.ArrayType(FLOATS, BLOCK), ir.Undefined)
    for i in range(BLOCK):
        whole = builder.insert_value(whole, make(i), i)
    return whole


def accumulated(builder: Any, total: Any, x: Any, entry: Callable[[int], Any]) -> Any:
    """A block plus a vector times numbers, whose addresses `entry` gives for each place."""

    def one(i: int) -> Any:
        return fused(builder, x, spread(builder, builder.load(entry(i))), builder.extract_value(total, i))

    return in_block(builder, one)


def on_lanes(operation: Callable[..., Any]) -> Any:
    """An intrinsic that takes vectors, or scalars for all lanes."""

    @intrinsic
    def call(_, a, b):
        def build(context, builder, signature, args):
            kinds = zip(signature.args, args, strict=True)
            return operation(builder, *(x if isinstance(kind, Lanes) else spread(builder, x) for kind, x in kinds))

        return lanes(*(x if isinstance(x, Lanes) else types.float32 for x in (a, b))), build

    return call


add = on_lanes(lambda builder, x, y: builder.fadd(x, y, flags=FUSE))
sub = on_lanes(lambda builder, x, y: builder.fsub(x, y, flags=FUSE))
mul = on_lanes(lambda builder, x, y: builder.fmul(x, y, flags=FUSE))
div = on_lanes(lambda builder, x, y: builder.fdiv(x, y))
larger = on_lanes(lambda builder, x, y: builder.select(above(builder, x, y), x, y))
smaller = on_lanes(lambda builder, x, y: builder.select(above(builder, y, x), x, y))


@intrinsic
def everywhere(_, x):
    """A scalar in every lane."""
    return lanes(types.float32), lambda context, builder, signature, args: spread(builder, args[0])


@intrinsic
def where_above(_, x, y, then, other):
    """`then` in lanes where x > y, else `other`."""

    def build(context, builder, signature, args):
        return builder.select(above(builder, *args[:2]), *args[2:])

    return lanes(lanes, lanes, lanes, lanes), build


@intrinsic
def load(_, source, offset):
    """The vector at an offset."""

    def build(context, builder, signature, args):
        return builder.load(address(builder, *args), align=4)

    return lanes(source, types.int64), build


@intrinsic
def store(_, target, offset, value):
    """Write a vector, or the vectors of a block one after the other."""

    def build(context, builder, signature, args):
        at = address(builder, *args[:2])
        if isinstance(signature.args[2], Lanes):
            builder.store(args[2], at, align=4)
        else:
            for i in range(BLOCK):
                builder.store(builder.extract_value(args[2], i), builder.gep(at, [INT(i)]), align=4)
        return context.get_dummy_value()

    return types.void(target, types.int64, value), build


@intrinsic
def exp2(_, x):
    """2**x up to 2**127, relative error below 2e-7, exactly 0 for x <= -127."""

    def build(context, builder, signature, args):
        low, magic = constant(-127.0), constant(1.5 * 2**23)
        x = builder.select(above(builder, args[0], low), args[0], low)
        shifted = builder.fadd(x, magic)  # rounds to the nearest integer
        rest = builder.fsub(x, builder.fsub(shifted, magic))
        power = constant(1.3264727e-03)
        for coefficient in (9.671513e-03, 5.5507336e-02, 2.4022242e-01, 6.93147e-01, 1.0):
            power = fused(builder, power, rest, constant(coefficient))
        exponent = builder.shl(builder.bitcast(shifted, INTS), ir.Constant(INTS, [23] * LANES))
        return builder.bitcast(builder.add(builder.bitcast(power, INTS), exponent), FLOATS)

    return lanes(lanes), build


@intrinsic
def zeros(_):
    """A block of zeros."""
    return block(), lambda context, builder, signature, args: in_block(builder, lambda i: constant(0.0))


@intrinsic
def highest(_, values):
    """The largest of a block's vectors, lane by lane."""

    def build(context, builder, signature, args):
        left = [builder.extract_value(args[0], i) for i in range(BLOCK)]
        while len(left) > 1:
            pairs = zip(left[::2], left[1::2], strict=True)
            left = [builder.select(above(builder, x, y), x, y) for x, y in pairs]
        return left[0]

    return lanes(block), build


@intrinsic
def scaled(_, values, x):
    """A block times a vector."""

    def build(context, builder, signature, args):
        return in_block(builder, lambda i: builder.fmul(builder.extract_value(args[0], i), args[1]))

    return block(block, lanes), build


def row_starts(builder: Any, nodes: Any, j: Any, stride: Any) -> list[Any]:
    """Where the rows of the nodes listed from `j` begin in a table."""
    listed = (builder.load(builder.gep(nodes, [builder.add(j, LONG(i))])) for i in range(BLOCK))
    return [builder.mul(node, stride) for node in listed]


@intrinsic
def rows(_, source, nodes, j):
    """A block: the vectors of the nodes listed from `j`."""

    def build(context, builder, signature, args):
        starts = row_starts(builder, args[1], args[2], LONG(LANES))
        return in_block(builder, lambda i: builder.load(address(builder, args[0], starts[i]), align=4))

    return block(source, nodes, types.int64), build


@intrinsic
def accumulate_rows(_, total, x, table, offset, nodes, j, stride):
    """total[i] + x * table[offset + stride * node] for the nodes listed from `j`."""

    def build(context, builder, signature, args):
        total, x, table, offset, nodes, j, stride = args
        starts = row_starts(builder, nodes, j, stride)
        return accumulated(builder, total, x, lambda i: builder.gep(table, [builder.add(starts[i], offset)]))

    return block(block, lanes, table, types.int64, nodes, types.int64, types.int64), build


@intrinsic
def accumulate(_, total, x, table, offset):
    """total[i] + x * table[offset + i]."""

    def build(context, builder, signature, args):
        total, x, table, offset = args
        return accumulated(builder, total, x, lambda i: builder.gep(table, [builder.add(offset, LONG(i))]))

    return block(block, lanes, table, types.int64), build


@intrinsic
def behind(_, start, offset):
    """The pointer moved on."""
    return start(start, types.int64), lambda context, builder, signature, args: builder.gep(args[0], [args[1]])


@intrinsic
def take(_, counter):
    """The number in a shared counter, which is then one higher."""

    def build(context, builder, signature, args):
        return builder.atomic_rmw("add", args[0], LONG(1), "monotonic")

    return types.int64(counter), build


# --- one step of a tile
#
# Buffers are flat and hold a row of LANES numbers for each channel (query, glimpse) or node (mask, preference); `score`
# has a row for each listed node. The list's last block is filled up with node N: closed in every lane, zero in tables.

step = njit(nogil=True, error_model="numpy")


@step
def attend(query, keys, values, nodes, count, size, mask, score, glimpse):
    """Attention over the listed nodes, head by head."""
    for head in range(HEADS):
        channel, table = head * HEAD_WIDTH, head * HEAD_WIDTH * (size + 1)
        top = everywhere(CLOSED)
        for j in range(0, count, BLOCK):
            total = rows(mask, nodes, j)
            for c in range(HEAD_WIDTH):
                x = load(query, (channel + c) * LANES)
                total = accumulate_rows(total, x, keys, table + c, nodes, j, HEAD_WIDTH)
            store(score, j * LANES, total)
            top = larger(top, highest(total))
        weights = everywhere(ZERO)
        for j in range(count):
            weight = exp2(sub(load(score, j * LANES), top))
            weights = add(weights, weight)
            store(score, j * LANES, weight)
        share = div(ONE, weights)
        for c in range(0, HEAD_WIDTH, BLOCK):
            total = zeros()
            for j in range(count):
                total = accumulate(total, load(score, j * LANES), values, table + nodes[j] * HEAD_WIDTH + c)
            store(glimpse, (channel + c) * LANES, scaled(total, share))


@step
def point(glimpse, pointers, preference, nodes, count, score):
    """Pointer scores of the listed nodes before the tanh."""
    for j in range(0, count, BLOCK):
        total = rows(preference, nodes, j)
        for c in range(WIDTH):
            total = accumulate_rows(total, load(glimpse, c * LANES), pointers, c, nodes, j, WIDTH)
        store(score, j * LANES, total)


@step
def best(score, mask, nodes, count, chosen):
    """Turn pointer scores into masked logits; the first place of the highest in each lane, and that logit."""
    top, place = everywhere(np.float32(2.0) * CLOSED), everywhere(ZERO)
    for j in range(count):
        power = exp2(smaller(mul(load(score, j * LANES), np.float32(2.0 * LOG2E)), np.float32(100.0)))
        logit = sub(np.float32(10.0), div(np.float32(20.0), add(power, ONE)))  # 10 tanh
        logit = add(logit, load(mask, nodes[j] * LANES))
        store(score, j * LANES, logit)
        place = where_above(logit, top, everywhere(np.float32(j)), place)
        top = larger(top, logit)
    store(chosen, 0, place)
    return top


@step
def sample(score, top, mask, nodes, count, sharpness, uniform, chosen):
    """The place that the uniform hits in the cumulative weights: the rule of decoding.choose."""
    total, none = everywhere(ZERO), everywhere(ZERO)
    for j in range(count):
        weight = exp2(mul(sub(load(score, j * LANES), top), sharpness))
        closed = load(mask, nodes[j] * LANES)  # at a high temperature CLOSED alone does not bring the weight to 0
        total = add(total, where_above(none, closed, none, weight))
        store(score, j * LANES, total)
    limit = mul(load(uniform, 0), mul(total, BELOW_ONE))
    place = none
    for j in range(count):  # counts the sums up to the limit; they grow at open nodes only, and the last is above it
        place = add(place, where_above(load(score, j * LANES), limit, none, everywhere(ONE)))
    store(chosen, 0, place)


@step
def draw(seed, c0, c1, c2):
    """The uniform of noise.decoding for a counter: Philox-4x32-10 on the low words of 64-bit numbers."""
    word, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    k0, k1, c3 = seed & word, seed >> half, np.uint64(0)
    for _ in range(10):
        left, right = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c2 = (right >> half) ^ c1 ^ k0, (left >> half) ^ c3 ^ k1
        c1, c3 = right & word, left & word
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & word, (k1 + np.uint64(0xBB67AE85)) & word
    folded = min(c0, word - c0)  # words above the middle count down again, as Triton converts them
    return np.float32(folded) * np.float32(4.6566127342e-10)


# --- whole rollouts


@step
def begin(lane, first, size, query_shift, query_first, pointer_shift, last, fixed, preference, mask):
    """Put a rollout into a lane: it stands in its first node."""
    last[lane] = first
    for c in range(WIDTH):
        fixed[lane * WIDTH + c] = query_shift[c] + query_first[first * WIDTH + c]
    for j in range(size):
        preference[j * LANES + lane] = pointer_shift[j]
        mask[j * LANES + lane] = ZERO
    preference[size * LANES + lane] = ZERO
    mask[size * LANES + lane] = CLOSED
    mask[first * LANES + lane] = CLOSED


@step
def ask(last, fixed, query_last, query):
    """The queries of a step, channel by channel."""
    for lane in range(LANES):
        for c in range(WIDTH):
            query[c * LANES + lane] = fixed[lane * WIDTH + c] + query_last[last[lane] * WIDTH + c]


@step
def shorten(nodes, count, due, size):
    """Drop the nodes that the whole tile has visited from the list and fill up its last block; its new length."""
    kept = 0
    for j in range(count):
        if due[nodes[j]] > 0:
            nodes[kept] = nodes[j]
            kept += 1
    kept = max(kept, 1)  # a policy of NaN visits nodes twice, but memory stays whole
    for j in range(kept, kept + BLOCK):
        nodes[j] = size
    return kept


@step
def edge(xy, a, b):
    """Distance of two nodes."""
    x, y = xy[2 * a] - xy[2 * b], xy[2 * a + 1] - xy[2 * b + 1]
    return np.sqrt(x * x + y * y)


def run_tiles(
    instances, size, tried, per, seed, attempt, sharpness, counter,
    keys, values, pointers, query_last, query_first, query_shift, pointer_shift, xy, starts, identity, actions, cost,
    query, glimpse, fixed, mask, preference, score, uniform, chosen, nodes, due, last,
):  # fmt: skip
    """Carry out tiles until the counter, which the threads share, has passed the last one."""
    rollouts = tried * per
    tiles = (rollouts + LANES - 1) // LANES  # of an instance
    while True:
        tile = take(counter)
        b, r0 = tile // tiles, tile % tiles * LANES
        if b >= instances:
            return
        live = min(LANES, rollouts - r0)  # lanes beyond it repeat the last rollout
        table, plane, out = b * (size + 1) * WIDTH, behind(xy, b * size * 2), b * rollouts + r0
        key, value, pointer, move = (
            behind(keys, table),
            behind(values, table),
            behind(pointers, table),
            b * size * WIDTH,
        )
        for j in range(size):
            nodes[j] = j
            due[j] = live  # rollouts that have yet to visit the node
        for i in range(LANES):
            r = r0 + min(i, live - 1)
            latent, first = b * tried + r // per, starts[b * per + r % per]
            shift, preferred = behind(query_shift, latent * WIDTH), behind(pointer_shift, latent * size)
            begin(i, first, size, shift, behind(query_first, move), preferred, last, fixed, preference, mask)
            if i < live:
                due[first] -= 1
                actions[(out + i) * size] = first
                cost[out + i] = ZERO
        count = size
        for t in range(1, size):
            count = shorten(nodes, count, due, size)
            ask(last, fixed, behind(query_last, move), query)
            attend(query, key, value, nodes, count, size, mask, score, glimpse)
            point(glimpse, pointer, preference, nodes, count, score)
            top = best(score, mask, nodes, count, chosen)
            if sharpness > ZERO:
                for i in range(LANES):
                    r = r0 + min(i, live - 1)
                    c0, c1 = np.uint64(r % per * size + t), np.uint64(attempt + r // per)
                    uniform[i] = draw(seed, c0, c1, identity[b])
                sample(score, top, mask, nodes, count, sharpness, uniform, chosen)
            for i in range(LANES):
                node = nodes[min(max(np.int64(chosen[i]), 0), count - 1)]
                mask[node * LANES + i] = CLOSED
                if i < live:
                    due[node] -= 1
                    actions[(out + i) * size + t] = node
                    cost[out + i] += edge(plane, last[i], node)
                last[i] = node
        for i in range(live):
            cost[out + i] += edge(plane, last[i], np.int64(actions[(out + i) * size]))


@cache
def kernel() -> Any:
    """The compiled kernel: from the cache on disk, or made now and stored there if that is possible."""
    floats, longs, words = (types.CPointer(kind) for kind in (types.float32, types.int64, types.uint64))
    signature = types.void(
        *[types.int64] * 4, types.uint64, types.int64, types.float32, longs,
        *[floats] * 8, longs, words, types.CPointer(types.int16), floats,
        *[floats] * 8, longs, longs, longs,
    )  # fmt: skip
    try:
        return cfunc(signature, error_model="numpy", cache=True)(run_tiles)
    except Exception:  # no folder can be written, the disk is full, a stored file is damaged: for this process only
        return cfunc(signature, error_model="numpy")(run_tiles)


def scratch(size: int) -> list[np.ndarray]:
    """What one thread works on: the last row of arguments of `run_tiles`."""
    rows = (WIDTH, WIDTH, WIDTH, size + 1, size + 1, size + BLOCK, 1, 1)
    return [np.empty(n * LANES, np.float32) for n in rows] + [
        np.empty(n, np.int64) for n in (size + BLOCK, size + 1, LANES)
    ]


def tsp_rollout(
    tables: Tables,
    xy: Tensor,
    starts: Tensor,
    key: Tensor,
    seed: int,
    attempt: int,
    *,
    temperature: float = 1.0,
    threads: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Costs [B, K, S] and actions [B, K, S, N] (int16). As many threads as torch uses, unless told otherwise."""
    (count, nodes, _), per, tried = xy.shape, starts.shape[1], tables.query_shift.shape[1]
    assert int(starts.min()) >= 0 and int(starts.max()) < nodes
    actions, cost = np.empty((count, tried, per, nodes), np.int16), np.empty((count, tried, per), np.float32)
    sharpness = min(LOG2E / temperature, SHARPEST) if temperature else 0.0
    numbers = (count, nodes, tried, per, seed, attempt, sharpness)
    identity = array(key, torch.int64).astype(np.uint64) & np.uint64(noise.WORD)
    shared = (
        np.zeros(1, np.int64),
        *vars(tables).values(),
        array(xy),
        array(starts, torch.int64),
        identity,
        actions,
        cost,
    )
    tiles = count * -(-tried * per // LANES)
    in_threads(min(threads or torch.get_num_threads(), tiles), lambda: launch(numbers, (*shared, *scratch(nodes))))
    return torch.from_numpy(cost), torch.from_numpy(actions)


def launch(numbers: tuple[float, ...], arrays: tuple[np.ndarray, ...]) -> None:
    """Call the kernel, without Python's lock."""
    function = kernel().ctypes
    pointers = (x.ctypes.data_as(kind) for x, kind in zip(arrays, function.argtypes[len(numbers) :], strict=True))
    function(*numbers, *pointers)


def in_threads(count: int, work: Callable[[], None]) -> None:
    """Do work in so many threads at once, this one among them."""
    if count == 1:
        return work()
    with ThreadPoolExecutor(count - 1) as pool:
        helpers = [pool.submit(work) for _ in range(count - 1)]
        work()
    for helper in helpers:
        helper.result()
    return None
