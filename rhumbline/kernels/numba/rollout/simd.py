"""numba: vector arithmetic with one number for each rollout of a tile, for `kernel`.

The vectors are explicit. LLVM's own vectorisation of such short loops is poor: the same algorithm
in plain loops is six times slower. Each operation is a function that emits instructions through LLVM's
builder; `emits` makes it a numba intrinsic.
"""

from collections.abc import Callable, Iterable
from inspect import signature
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.core.registry import cpu_target
from numba.extending import intrinsic, models, register_model

from rhumbline.kernels import HEAD_WIDTH, HEADS

WIDTH = HEADS * HEAD_WIDTH
BLOCK = 8  # vectors that are accumulated side by side: enough to hide latency, few enough for 16 registers
LANES = 16 if "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2] else 8

CLOSED = np.float32(-1.0e9)  # added to the scores of nodes that a rollout may not visit now
ZERO, ONE = np.float32(0.0), np.float32(1.0)

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
