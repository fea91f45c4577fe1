"""numba: vector arithmetic with one number for each rollout of a tile, for `kernel`.

The vectors are explicit, because LLVM's own vectorisation of such short loops is poor: the same
algorithm in plain loops is six times slower. Each operation is a function that emits instructions
through LLVM's builder; `emits` makes it a numba intrinsic.
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
BLOCK = 8  # vectors accumulated at a time: enough to hide latency, few enough for 16 registers
LANES = 16 if "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2] else 8

MASKED = np.float32(-1.0e9)  # added to the scores of nodes that a rollout must not visit at this step
ZERO, ONE = np.float32(0.0), np.float32(1.0)

FLOAT, INT, LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
FLOATS, INTS, LONGS = (ir.VectorType(kind, LANES) for kind in (FLOAT, INT, LONG))
FUSE = ("contract",)  # lets a product and a sum become one instruction; nothing is reordered


class Vector(types.Type):
    """A vector with one number for each rollout of a tile, or a block of such vectors."""

    def __init__(self, name: str, layout: ir.Type):
        super().__init__(name=name)
        self.layout = layout


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """The data model: the LLVM type itself; LLVM splits blocks into registers."""

    def __init__(self, manager: Any, kind: Vector):
        super().__init__(manager, kind, kind.layout)


lanes, block = Vector("lanes", FLOATS), Vector("block", ir.ArrayType(FLOATS, BLOCK))
number, scalar, anything = types.int64, types.float32, None


def emits(result: types.Type, *operands: types.Type | None) -> Callable[[Callable[..., Any]], Any]:
    """Make a numba intrinsic of a function that takes the builder and operands of the given types.

    An operand type of None accepts any type.
    """

    def decorate(emit: Callable[..., Any]) -> Any:
        def typed(_, *given):
            def build(context, builder, _, args):
                value = emit(builder, *args)
                return context.get_dummy_value() if value is None else value

            return result(*(wanted or kind for wanted, kind in zip(operands, given, strict=True))), build

        typed.__signature__ = signature(emit)  # numba reads the number of arguments here
        return intrinsic(typed)

    return decorate


def constant_vector(x: float) -> ir.Constant:
    """Return a constant in every lane."""
    return ir.Constant(FLOATS, [float(np.float32(x))] * LANES)


def emit_broadcast(builder: Any, x: Any) -> Any:
    """Return a scalar in every lane."""
    nothing = ir.Constant(FLOATS, ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(nothing, x, INT(0)), nothing, ir.Constant(INTS, [0] * LANES))


def emit_fma(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """Return x * y + z, which may become one instruction."""
    return builder.fadd(builder.fmul(x, y, flags=FUSE), z, flags=FUSE)


def emit_where(builder: Any, x: Any, y: Any, then: Any, other: Any) -> Any:
    """Return `then` in lanes where x > y, else `other`, also where x or y is NaN."""
    return builder.select(builder.fcmp_ordered(">", x, y), then, other)


def element_at(builder: Any, start: Any, *offsets: Any) -> Any:
    """Return the address of an element; the offsets add up."""
    for offset in offsets:
        start = builder.gep(start, [offset if isinstance(offset, ir.Value) else LONG(offset)])
    return start


def vector_at(builder: Any, start: Any, *offsets: Any) -> Any:
    """Return the address of the vector that begins with an element."""
    return builder.bitcast(element_at(builder, start, *offsets), FLOATS.as_pointer())


def pack_block(builder: Any, vectors: Iterable[Any]) -> Any:
    """Return vectors as a block."""
    whole = ir.Constant(block.layout, ir.Undefined)
    for i, x in enumerate(vectors):
        whole = builder.insert_value(whole, x, i)
    return whole


def unpack_block(builder: Any, whole: Any) -> list[Any]:
    """Return the vectors of a block; a single vector counts as a block of one."""
    return [whole] if whole.type == FLOATS else [builder.extract_value(whole, i) for i in range(BLOCK)]


def emit_accumulate(builder: Any, total: Any, x: Any, addresses: Iterable[Any]) -> Any:
    """Return each vector of a block plus x times the number at its address."""
    pairs = zip(unpack_block(builder, total), addresses, strict=True)
    return pack_block(builder, [emit_fma(builder, x, emit_broadcast(builder, builder.load(at)), y) for y, at in pairs])


def row_offsets(builder: Any, nodes: Any, j: Any, stride: Any) -> list[Any]:
    """Return the offsets in a table of the rows of the BLOCK nodes listed from `j`."""
    return [builder.mul(builder.load(element_at(builder, nodes, j, i)), stride) for i in range(BLOCK)]


def emit_gather(builder: Any, table: Any, index: Any, stride: Any, offset: Any) -> Any:
    """Return table[stride * index + offset] for the index of each lane."""
    x = ir.Constant(FLOATS, ir.Undefined)
    for i in range(LANES):
        row = builder.mul(builder.load(element_at(builder, index, i)), stride)
        x = builder.insert_element(x, builder.load(element_at(builder, table, row, offset)), INT(i))
    return x


def emit_transposed(builder: Any, rows: Iterable[Any]) -> list[Any]:
    """Return the columns of LANES vectors of LANES numbers."""
    transposed = list(rows)
    for half in (1, 2, 4, 8)[: LANES.bit_length() - 1]:  # exchanges one bit of row and column at a time
        low = ir.Constant(INTS, [LANES + k - half if k & half else k for k in range(LANES)])
        high = ir.Constant(INTS, [LANES + k if k & half else k + half for k in range(LANES)])
        for i in (i for i in range(LANES) if not i & half):
            pair = transposed[i], transposed[i + half]
            transposed[i], transposed[i + half] = builder.shuffle_vector(*pair, low), builder.shuffle_vector(*pair, high)
    return transposed


broadcast = emits(lanes, scalar)(emit_broadcast)
add = emits(lanes, lanes, lanes)(lambda builder, x, y: builder.fadd(x, y, flags=FUSE))
sub = emits(lanes, lanes, lanes)(lambda builder, x, y: builder.fsub(x, y, flags=FUSE))
mul = emits(lanes, lanes, lanes)(lambda builder, x, y: builder.fmul(x, y, flags=FUSE))
div = emits(lanes, lanes, lanes)(lambda builder, x, y: builder.fdiv(x, y))
vector_max = emits(lanes, lanes, lanes)(lambda builder, x, y: emit_where(builder, x, y, x, y))
vector_min = emits(lanes, lanes, lanes)(lambda builder, x, y: emit_where(builder, x, y, y, x))
where_above = emits(lanes, lanes, lanes, lanes, lanes)(emit_where)
load = emits(lanes, anything, number)(lambda builder, start, at: builder.load(vector_at(builder, start, at), align=4))
gather = emits(lanes, anything, anything, number, number)(emit_gather)
zero_block = emits(block)(lambda builder: pack_block(builder, [constant_vector(0.0)] * BLOCK))
scalar_min = emits(number, number, number)(lambda builder, x, y: builder.select(builder.icmp_signed("<", x, y), x, y))
offset_pointer = emits(types.CPointer(types.int64), anything, number)(lambda builder, start, at: builder.gep(start, [at]))
fetch_add = emits(number, anything)(lambda builder, counter: builder.atomic_rmw("add", counter, LONG(1), "monotonic"))


@emits(types.void, anything, number, anything)
def store(builder, target, offset, value):
    """Write a vector, or the vectors of a block one after the other."""
    for i, x in enumerate(unpack_block(builder, value)):
        builder.store(x, vector_at(builder, target, offset, i * LANES), align=4)


@emits(types.void, anything, anything, anything, anything, number, number)
def add_transposed(builder, target, source, table, index, start, channel):
    """Set target = source + table[start + WIDTH * index] for LANES channels, transposed from table rows to lanes."""
    offsets = [builder.mul(builder.load(element_at(builder, index, i)), LONG(WIDTH)) for i in range(LANES)]
    transposed = [builder.load(vector_at(builder, table, start, channel, at), align=4) for at in offsets]
    transposed = emit_transposed(builder, transposed)
    first = builder.mul(channel, LONG(LANES))
    for i, x in enumerate(transposed):
        x = builder.fadd(builder.load(vector_at(builder, source, first, i * LANES), align=4), x)
        builder.store(x, vector_at(builder, target, first, i * LANES), align=4)


@emits(lanes, lanes)
def exp2(builder, x):
    """Return 2**x up to 2**127, with a relative error below 2e-7, and exactly 0 for x <= -127."""
    low, magic = constant_vector(-127.0), constant_vector(1.5 * 2**23)
    x = emit_where(builder, x, low, x, low)
    offset_pointer = builder.fadd(x, magic)  # rounds to the nearest integer
    rest = builder.fsub(x, builder.fsub(offset_pointer, magic))
    power = constant_vector(1.3264727e-03)
    for coefficient in (9.671513e-03, 5.5507336e-02, 2.4022242e-01, 6.93147e-01, 1.0):
        power = emit_fma(builder, power, rest, constant_vector(coefficient))
    exponent = builder.shl(builder.bitcast(offset_pointer, INTS), ir.Constant(INTS, [23] * LANES))
    return builder.bitcast(builder.add(builder.bitcast(power, INTS), exponent), FLOATS)


@emits(lanes, anything, number, anything, anything)
def distance(builder, xy, plane, here, there):
    """Return the distance of two nodes of each lane; the instance's coordinates begin at `plane`."""
    squares = constant_vector(0.0)
    for axis in range(2):
        start = element_at(builder, xy, plane, axis)
        difference = builder.fsub(*(emit_gather(builder, start, index, LONG(2), LONG(0)) for index in (here, there)))
        squares = emit_fma(builder, difference, difference, squares)
    root = get_or_insert_function(builder.module, ir.FunctionType(FLOATS, [FLOATS]), f"llvm.sqrt.v{LANES}f32")
    return builder.call(root, [squares])


@emits(types.boolean, anything, number)
def any_lane_open(builder, mask, at):
    """Return whether the node whose row begins at `at` is open in some lane."""
    open_ = builder.fcmp_ordered(">", builder.load(vector_at(builder, mask, at), align=4), constant_vector(MASKED))
    return builder.icmp_unsigned("!=", builder.bitcast(open_, ir.IntType(LANES)), ir.IntType(LANES)(0))


@emits(types.void, anything, number, anything, number, anything)
def mask_by_demand(builder, mask, at, demand, node, left):
    """Open an unvisited node in lanes whose load left is at least its demand (integers), and mask it in the others."""
    row, none = vector_at(builder, mask, at), ir.Constant(LONGS, ir.Undefined)
    wanted = builder.insert_element(none, builder.load(element_at(builder, demand, node)), INT(0))
    wanted = builder.shuffle_vector(wanted, none, ir.Constant(INTS, [0] * LANES))
    room = builder.load(builder.bitcast(left, LONGS.as_pointer()), align=8)
    fits = builder.select(builder.icmp_signed("<=", wanted, room), constant_vector(ZERO), constant_vector(MASKED))
    old = builder.load(row, align=4)
    builder.store(emit_where(builder, constant_vector(1.5 * MASKED), old, old, fits), row, align=4)


@emits(lanes, block)
def block_max(builder, whole):
    """Return the elementwise maximum of a block's vectors."""
    left = unpack_block(builder, whole)
    while len(left) > 1:
        left = [emit_where(builder, x, y, x, y) for x, y in zip(left[::2], left[1::2], strict=True)]
    return left[0]


@emits(block, block, lanes)
def scale_block(builder, whole, x):
    """Return a block times a vector."""
    return pack_block(builder, [builder.fmul(y, x) for y in unpack_block(builder, whole)])


@emits(block, anything, anything, number)
def load_block(builder, source, nodes, j):
    """Load the vectors of the BLOCK nodes listed from `j`."""
    starts = row_offsets(builder, nodes, j, LONG(LANES))
    return pack_block(builder, [builder.load(vector_at(builder, source, at), align=4) for at in starts])


@emits(block, block, lanes, anything, number, anything, number, number)
def accumulate_rows(builder, total, x, table, offset, nodes, j, stride):
    """Return total[i] + x * table[stride * node + offset] for the nodes listed from `j`."""
    starts = row_offsets(builder, nodes, j, stride)
    return emit_accumulate(builder, total, x, [element_at(builder, table, at, offset) for at in starts])


@emits(block, block, lanes, anything, number)
def accumulate(builder, total, x, table, offset):
    """Return total[i] + x * table[offset + i]."""
    return emit_accumulate(builder, total, x, [element_at(builder, table, offset, i) for i in range(BLOCK)])
