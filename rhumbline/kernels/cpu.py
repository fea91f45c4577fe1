"""numba: whole rollouts on the CPU. One thread carries a tile of rollouts of one instance through every step.

The rollouts of a tile sit in the lanes of the vectors. Table entries are then broadcast operands, reductions run along
the nodes without horizontal operations, no sum is reordered, and the number of nodes needs no multiple of anything.
Nodes that the whole tile has visited leave the list that all loops run over.

The vectors are explicit, through the intrinsics below. Left to itself LLVM vectorises such short loops badly: the same
algorithm in plain loops is six times slower. numba's own work is kept small, because the first solve waits for it.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic, models, register_model
from torch import Tensor

HEADS, HEAD_WIDTH = 8, 16
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
    """What the kernel reads, float32: queries times log2(e)/sqrt(head width) for exp2, a row of zeros behind the nodes."""

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

    def heads(x: Tensor) -> Tensor:
        return padded(x).unflatten(-1, (HEADS, HEAD_WIDTH)).transpose(1, 2)

    def padded(x: Tensor) -> Tensor:
        return torch.nn.functional.pad(x, (0, 0, 0, 1))

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

FLOAT, INT = ir.FloatType(), ir.IntType(32)
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
    return ir.Constant(FLOATS, [float(np.float32(x))] * LANES)


def spread(builder: Any, x: Any) -> Any:
    """A scalar in every lane."""
    nothing = ir.Constant(FLOATS, ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(nothing, x, INT(0)), nothing, ir.Constant(INTS, [0] * LANES))


def fused(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z."""
    return builder.fadd(builder.fmul(x, y, flags=FUSE), z, flags=FUSE)


def pointer(tools: tuple[Any, Any, Any], place: int, array: Any, offset: Any, kind: Any) -> Any:
    """Address of an element of the array that is argument number `place`."""
    context, builder, signature = tools
    data = context.make_array(signature.args[place])(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), kind.as_pointer())


def in_block(builder: Any, make: Callable[[int], Any]) -> Any:
    """A block of the vectors that `make` gives for each place."""
    whole = ir.Constant(ir.ArrayType(FLOATS, BLOCK), ir.Undefined)
    for i in range(BLOCK):
        whole = builder.insert_value(whole, make(i), i)
    return whole


def on_lanes(operation: Callable[..., Any]) -> Any:
    """An intrinsic of two vectors or scalars."""

    @intrinsic
    def call(_: Any, a: Any, b: Any):
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = zip(signature.args, args, strict=True)
            return operation(builder, *(x if isinstance(kind, Lanes) else spread(builder, x) for kind, x in kinds))

        return lanes(*(x if isinstance(x, Lanes) else types.float32 for x in (a, b))), build

    return call


add = on_lanes(lambda builder, x, y: builder.fadd(x, y, flags=FUSE))
sub = on_lanes(lambda builder, x, y: builder.fsub(x, y, flags=FUSE))
mul = on_lanes(lambda builder, x, y: builder.fmul(x, y, flags=FUSE))
div = on_lanes(lambda builder, x, y: builder.fdiv(x, y))
larger = on_lanes(lambda builder, x, y: builder.select(builder.fcmp_ordered(">", x, y), x, y))
smaller = on_lanes(lambda builder, x, y: builder.select(builder.fcmp_ordered("<", x, y), x, y))
exceeds = on_lanes(lambda builder, x, y: builder.select(builder.fcmp_ordered(">", x, y), constant(1), constant(0)))


@intrinsic
def everywhere(_, x):
    """A scalar in every lane."""
    return lanes(types.float32), lambda context, builder, signature, args: spread(builder, args[0])


@intrinsic
def pick(_, condition, x, y):
    """x in lanes where the condition is above 0, else y."""

    def build(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered(">", args[0], constant(0)), args[1], args[2])

    return lanes(lanes, lanes, lanes), build


@intrinsic
def load(_, source, offset):
    """The vector at an offset."""

    def build(context, builder, signature, args):
        return builder.load(pointer((context, builder, signature), 0, *args, FLOATS), align=4)

    return lanes(source, types.intp), build


@intrinsic
def store(_, target, offset, value):
    """Write a vector, or the vectors of a block one after the other."""

    def build(context, builder, signature, args):
        at = pointer((context, builder, signature), 0, *args[:2], FLOATS)
        if isinstance(signature.args[2], Lanes):
            builder.store(args[2], at, align=4)
        else:
            for i in range(BLOCK):
                builder.store(builder.extract_value(args[2], i), builder.gep(at, [INT(i)]), align=4)
        return context.get_dummy_value()

    return types.void(target, types.intp, value), build


@intrinsic
def exp2(_, x):
    """2**x up to 2**127, relative error below 2e-7, exactly 0 for x <= -127."""

    def build(context, builder, signature, args):
        low, magic = constant(-127.0), constant(1.5 * 2**23)
        x = builder.select(builder.fcmp_ordered(">", args[0], low), args[0], low)
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
    return block(), lambda context, builder, signature, args: in_block(builder, lambda i: constant(0))


@intrinsic
def highest(_, values):
    """The largest of a block's vectors, lane by lane."""

    def build(context, builder, signature, args):
        left = [builder.extract_value(args[0], i) for i in range(BLOCK)]
        while len(left) > 1:
            pairs = zip(left[::2], left[1::2], strict=True)
            left = [builder.select(builder.fcmp_ordered(">", x, y), x, y) for x, y in pairs]
        return left[0]

    return lanes(block), build


def row_offset(tools: tuple[Any, Any, Any], place: int, nodes: Any, j: Any, stride: Any) -> Callable[[int], Any]:
    """Where the row of the i-th of the nodes listed from `j` begins."""
    builder = tools[1]
    listed = pointer(tools, place, nodes, j, ir.IntType(64))
    return lambda i: builder.mul(builder.load(builder.gep(listed, [INT(i)])), stride)


@intrinsic
def rows(_, source, nodes, j):
    """A block: the vectors of the nodes listed from `j`."""

    def build(context, builder, signature, args):
        tools, (array, listed, j) = (context, builder, signature), args
        offset = row_offset(tools, 1, listed, j, ir.IntType(64)(LANES))
        return in_block(builder, lambda i: builder.load(pointer(tools, 0, array, offset(i), FLOATS), align=4))

    return block(source, nodes, types.intp), build


@intrinsic
def accumulate_rows(_, total, x, table, offset, nodes, j, stride):
    """total[i] + x * table[offset + stride * node] for the nodes listed from `j`, entries in every lane."""

    def build(context, builder, signature, args):
        tools, (total, x, table, at, listed, j, stride) = (context, builder, signature), args
        offset = row_offset(tools, 4, listed, j, stride)

        def one(i: int) -> Any:
            entry = builder.load(pointer(tools, 2, table, builder.add(offset(i), at), FLOAT))
            return fused(builder, x, spread(builder, entry), builder.extract_value(total, i))

        return in_block(builder, one)

    return block(block, lanes, table, types.intp, nodes, types.intp, types.intp), build


@intrinsic
def accumulate(_, total, x, table, offset):
    """total[i] + x * table[offset + i], entries in every lane."""

    def build(context, builder, signature, args):
        total, x, table, offset = args
        first = pointer((context, builder, signature), 2, table, offset, FLOAT)

        def one(i: int) -> Any:
            entry = builder.load(builder.gep(first, [INT(i)]))
            return fused(builder, x, spread(builder, entry), builder.extract_value(total, i))

        return in_block(builder, one)

    return block(block, lanes, table, types.intp), build


@intrinsic
def scaled(_, values, x):
    """A block times a vector."""

    def build(context, builder, signature, args):
        return in_block(builder, lambda i: builder.fmul(builder.extract_value(args[0], i), args[1]))

    return block(block, lanes), build


@intrinsic
def take(_, counter):
    """The number in a shared counter, which is then one higher."""

    def build(context, builder, signature, args):
        at = pointer((context, builder, signature), 0, args[0], INT(0), ir.IntType(64))
        return builder.atomic_rmw("add", at, ir.IntType(64)(1), "monotonic")

    return types.int64(counter), build


# --- one step of a tile
#
# Buffers are flat and hold a row of LANES numbers for each channel (query, glimpse) or node (mask, preference); `score`
# has a row for each listed node. The list's last block is filled up with node N: closed in every lane, zero in tables.


@njit(nogil=True, error_model="numpy")
def attend(query, keys, values, nodes, count, size, mask, score, glimpse):
    """Attention over the listed nodes, head by head."""
    for head in range(HEADS):
        channel, table = head * HEAD_WIDTH, head * (size + 1) * HEAD_WIDTH
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


@njit(nogil=True, error_model="numpy")
def point(glimpse, pointers, preference, nodes, count, score):
    """Pointer scores of the listed nodes before the tanh."""
    for j in range(0, count, BLOCK):
        total = rows(preference, nodes, j)
        for c in range(WIDTH):
            total = accumulate_rows(total, load(glimpse, c * LANES), pointers, c, nodes, j, WIDTH)
        store(score, j * LANES, total)


@njit(nogil=True, error_model="numpy")
def choose(score, mask, nodes, count, sharpness, uniform, chosen):
    """Places in the list, as decoding.choose takes them; a sharpness of 0 takes the best."""
    top, best = everywhere(np.float32(2.0) * CLOSED), everywhere(ZERO)
    for j in range(count):
        e = exp2(smaller(mul(load(score, j * LANES), np.float32(2.0 * LOG2E)), np.float32(100.0)))
        x = sub(np.float32(10.0), div(np.float32(20.0), add(e, ONE)))  # 10 tanh
        x = add(x, load(mask, nodes[j] * LANES))
        best = pick(exceeds(x, top), everywhere(np.float32(j)), best)
        top = larger(top, x)
        store(score, j * LANES, x)
    if sharpness > ZERO:
        total = everywhere(ZERO)
        for j in range(count):
            weight = exp2(mul(sub(load(score, j * LANES), top), sharpness))
            # At high temperatures CLOSED alone would not bring the weight to 0.
            total = add(total, pick(exceeds(ZERO, load(mask, nodes[j] * LANES)), everywhere(ZERO), weight))
            store(score, j * LANES, total)
        limit = mul(load(uniform, 0), mul(total, BELOW_ONE))
        best = everywhere(ZERO)
        for j in range(count):  # how many sums do not reach the limit; sums grow at open nodes only
            best = add(best, sub(ONE, exceeds(load(score, j * LANES), limit)))
    store(chosen, 0, best)


@njit(nogil=True, error_model="numpy")
def draw(seed, c0, c1, c2):
    """The uniform of noise.decoding for a counter: Philox-4x32-10 on the low words of 64-bit numbers."""
    word = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    k0, k1, c3 = seed & word, seed >> half, np.uint64(0)
    for _ in range(10):
        left, right = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c2 = (right >> half) ^ c1 ^ k0, (left >> half) ^ c3 ^ k1
        c1, c3 = right & word, left & word
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & word, (k1 + np.uint64(0xBB67AE85)) & word
    folded = min(c0, word - c0)  # words above the middle count down again, as Triton converts them
    return np.float32(folded) * np.float32(4.6566127342e-10)


# --- whole rollouts


@njit(nogil=True, error_model="numpy")
def shorten(nodes, count, due, size):
    """The list without the nodes that the whole tile has visited, its last block filled up; its new length."""
    kept = 0
    for j in range(count):
        if due[nodes[j]] > 0:
            nodes[kept] = nodes[j]
            kept += 1
    for j in range(kept, kept + BLOCK):
        nodes[j] = size
    return max(kept, 1)  # a policy of NaN may visit nodes twice, but memory stays whole


@njit(nogil=True, error_model="numpy")
def edge(xy, a, b):
    """Distance of two nodes."""
    x, y = xy[a, 0] - xy[b, 0], xy[a, 1] - xy[b, 1]
    return np.sqrt(x * x + y * y)


def run_tiles(
    key, value, pointers, query_last, query_first, query_shift, pointer_shift, xy, starts, identity, seed, attempt,
    sharpness, counter, actions, cost,
):  # fmt: skip
    """Carry out tiles until the counter, which the threads share, has passed the last one."""
    (instances, size), tried, per = xy.shape[:2], query_shift.shape[1], starts.shape[1]
    rollouts = tried * per
    tiles = (rollouts + LANES - 1) // LANES  # of an instance
    query, glimpse = np.empty(WIDTH * LANES, np.float32), np.empty(WIDTH * LANES, np.float32)
    fixed = np.empty((LANES, WIDTH), np.float32)  # the part of the queries that stays
    mask, preference = np.empty((size + 1) * LANES, np.float32), np.zeros((size + 1) * LANES, np.float32)
    score = np.empty((size + BLOCK) * LANES, np.float32)
    nodes, due = np.empty(size + BLOCK, np.int64), np.empty(size + 1, np.int64)
    last, uniform, chosen = np.empty(LANES, np.int64), np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    while True:
        tile = take(counter)
        if tile >= instances * tiles:
            return
        b, begin = tile // tiles, tile % tiles * LANES
        live = min(LANES, rollouts - begin)  # lanes beyond it repeat the last rollout
        keys, values, points = key[b].reshape(-1), value[b].reshape(-1), pointers[b].reshape(-1)
        mask[:] = ZERO
        mask[size * LANES :] = CLOSED
        for j in range(size):
            nodes[j] = j
            due[j] = live  # rollouts that have yet to visit the node
        for i in range(LANES):
            r = begin + min(i, live - 1)
            latent, first = r // per, starts[b, r % per]
            for c in range(WIDTH):
                fixed[i, c] = query_shift[b, latent, c] + query_first[b, first, c]
            for j in range(size):
                preference[j * LANES + i] = pointer_shift[b, latent, j]
            mask[first * LANES + i] = CLOSED
            last[i] = first
            if i < live:
                due[first] -= 1
                actions[b, r, 0] = first
                cost[b, r] = ZERO
        count = size
        for t in range(1, size):
            count = shorten(nodes, count, due, size)
            for i in range(LANES):
                r = begin + min(i, live - 1)
                for c in range(WIDTH):
                    query[c * LANES + i] = fixed[i, c] + query_last[b, last[i], c]
                uniform[i] = draw(seed, np.uint64(r % per * size + t), attempt + np.uint64(r // per), identity[b])
            attend(query, keys, values, nodes, count, size, mask, score, glimpse)
            point(glimpse, points, preference, nodes, count, score)
            choose(score, mask, nodes, count, sharpness, uniform, chosen)
            for i in range(LANES):
                node = nodes[min(max(np.int64(chosen[i]), 0), count - 1)]
                mask[node * LANES + i] = CLOSED
                if i < live:
                    due[node] -= 1
                    actions[b, begin + i, t] = node
                    cost[b, begin + i] += edge(xy[b], last[i], node)
                last[i] = node
        for i in range(live):
            cost[b, begin + i] += edge(xy[b], last[i], np.int64(actions[b, begin + i, 0]))


def signature() -> Any:
    """The one specialisation there is."""
    f, i = types.float32, types.int64
    return types.void(
        f[:, :, :, ::1], f[:, :, :, ::1], *[f[:, :, ::1]] * 6, i[:, ::1], types.uint64[::1], types.uint64, types.uint64,
        f, i[::1], types.int16[:, :, ::1], f[:, ::1],
    )  # fmt: skip


@cache
def compiled() -> Callable[..., None]:
    """The kernel: from the cache on disk, or compiled and stored there if that is possible."""
    try:
        return njit(signature(), nogil=True, error_model="numpy", cache=True)(run_tiles)
    except Exception:  # no folder can be written, the disk is full, a stored file is damaged: compile for this process
        return njit(signature(), nogil=True, error_model="numpy")(run_tiles)


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
    assert 0 <= int(starts.min()) and int(starts.max()) < nodes
    actions, cost = np.empty((count, tried * per, nodes), np.int16), np.empty((count, tried * per), np.float32)
    work = (
        *(getattr(tables, name) for name in tables.__dataclass_fields__), array(xy), array(starts, torch.int64),
        array(key, torch.int64).astype(np.uint64) & np.uint64(0xFFFFFFFF), np.uint64(seed), np.uint64(attempt),
        np.float32(min(LOG2E / temperature, SHARPEST) if temperature else 0.0), np.zeros(1, np.int64), actions, cost,
    )  # fmt: skip
    helpers = min(threads or torch.get_num_threads(), count * -(-tried * per // LANES)) - 1
    in_threads(compiled(), work, helpers)
    shape = (count, tried, per)
    return torch.from_numpy(cost).view(shape), torch.from_numpy(actions).view(*shape, nodes)


def in_threads(kernel: Callable[..., None], work: tuple[Any, ...], helpers: int) -> None:
    """Call the kernel here and in helping threads; they share the counter inside their arguments."""
    if not helpers:
        return kernel(*work)
    with ThreadPoolExecutor(helpers) as pool:
        jobs = [pool.submit(kernel, *work) for _ in range(helpers)]
        kernel(*work)
    for job in jobs:
        job.result()
    return None
