"""numba: vector arithmetic along the channels of a row, for `network`.

A tile is a part of a matrix: TILE_ROWS rows of TILE_COLUMNS columns, in registers. Elsewhere a
vector has LANES consecutive numbers of a row, and what both kernels of rollouts use is in
`kernels/numba/rollout/simd.py`.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function

from rhumbline.kernels.numba.rollout.simd import (
    FLOATS,
    INTS,
    LANES,
    LONG,
    Vector,
    anything,
    constant_vector,
    element_at,
    emit_broadcast,
    emit_fma,
    emit_transposed,
    emit_where,
    emits,
    lanes,
    number,
    scalar,
    vector_at,
)

TILE_VECTORS = 2  # of a row
TILE_COLUMNS = TILE_VECTORS * LANES
# Sums fill half of the 32 registers of AVX-512, and 12 of the 16 of AVX2.
TILE_ROWS = 8 if LANES == 16 else 6

tile = Vector("tile", ir.ArrayType(FLOATS, TILE_ROWS * TILE_VECTORS))


def pack_tile(builder: Any, vectors: list[Any]) -> Any:
    """Return vectors, row by row, as a tile."""
    whole = ir.Constant(tile.layout, ir.Undefined)
    for i, x in enumerate(vectors):
        whole = builder.insert_value(whole, x, i)
    return whole


def row_vectors(builder: Any, start: Any, at: Any, stride: Any) -> list[Any]:
    """Return the addresses of a tile's vectors in a matrix whose rows are `stride` numbers apart."""
    places = list[Any]()
    for row in range(TILE_ROWS):
        offset = builder.add(at, builder.mul(stride, LONG(row)))
        places += [vector_at(builder, start, offset, i * LANES) for i in range(TILE_VECTORS)]
    return places


zero_tile = emits(tile)(lambda builder: pack_tile(builder, [constant_vector(0.0)] * (TILE_ROWS * TILE_VECTORS)))
where_equal = emits(lanes, lanes, lanes, lanes, lanes)(
    lambda builder, x, y, then, other: builder.select(builder.fcmp_ordered("==", x, y), then, other)
)
offset_floats = emits(types.CPointer(types.float32), anything, number)(
    lambda builder, start, at: builder.gep(start, [at])
)


def call_on_vectors(builder: Any, name: str, x: Any) -> Any:
    """Return the value of one of LLVM's functions on vectors."""
    kind = ir.FunctionType(FLOATS, [FLOATS])
    return builder.call(get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}f32"), [x])


@emits(number, anything, number)
def load_now(builder, source, at):
    """Read a number that another thread may change: it is not kept in a register."""
    return builder.load_atomic(element_at(builder, source, at), "monotonic", 8)


@emits(tile, anything, number, number)
def load_tile(builder, source, at, stride):
    """Load a tile from a matrix."""
    return pack_tile(builder, [builder.load(place, align=4) for place in row_vectors(builder, source, at, stride)])


@emits(types.void, anything, number, number, tile)
def store_tile(builder, target, at, stride, whole):
    """Write a tile to a matrix."""
    for i, place in enumerate(row_vectors(builder, target, at, stride)):
        builder.store(builder.extract_value(whole, i), place, align=4)


@emits(tile, tile)
def relu_tile(builder, whole):
    """Return a tile with zeros in place of negative numbers."""
    zero = constant_vector(0.0)
    vectors = [builder.extract_value(whole, i) for i in range(TILE_ROWS * TILE_VECTORS)]
    return pack_tile(builder, [emit_where(builder, x, zero, x, zero) for x in vectors])


@emits(tile, tile, anything, number, number, anything, number)
def accumulate_tile(builder, total, left, at, stride, right, row):
    """Return a tile plus the product of a column of `left` and a row of `right`.

    The column begins at `left[at]`, with `stride` numbers from one row to the next; the row of `right` is contiguous.
    """
    columns = [builder.load(vector_at(builder, right, row, i * LANES), align=4) for i in range(TILE_VECTORS)]
    vectors = list[Any]()
    for i in range(TILE_ROWS):
        offset = builder.add(at, builder.mul(stride, LONG(i)))
        x = emit_broadcast(builder, builder.load(element_at(builder, left, offset)))
        for k, column in enumerate(columns):
            vectors.append(emit_fma(builder, x, column, builder.extract_value(total, i * TILE_VECTORS + k)))
    return pack_tile(builder, vectors)


@emits(scalar, lanes)
def sum_lanes(builder, x):
    """Return the sum of a vector's numbers: halves are added until one is left."""
    half = LANES // 2
    while half:
        shuffle = ir.Constant(INTS, [(i + half) % LANES for i in range(LANES)])
        x = builder.fadd(x, builder.shuffle_vector(x, x, shuffle))
        half //= 2
    return builder.extract_element(x, ir.IntType(32)(0))


@emits(types.void, anything, number, number, anything, number, number)
def transpose(builder, target, place, target_stride, source, at, stride):
    """Write a square of LANES rows and columns of one matrix to another, with rows and columns exchanged."""
    rows = list[Any]()
    for i in range(LANES):
        offset = builder.add(at, builder.mul(stride, LONG(i)))
        rows.append(builder.load(vector_at(builder, source, offset), align=4))
    for i, x in enumerate(emit_transposed(builder, rows)):
        offset = builder.add(place, builder.mul(target_stride, LONG(i)))
        builder.store(x, vector_at(builder, target, offset), align=4)


def emit_log(builder: Any, x: Any) -> Any:
    """Return the natural logarithm of normal positive numbers, after Cephes: an error of one unit in the last place."""
    bits = builder.bitcast(x, INTS)
    # The power of two that leaves a rest between sqrt(1/2) and sqrt(2), where the series is short.
    exponent = builder.ashr(builder.sub(bits, ir.Constant(INTS, [0x3F3504F3] * LANES)), ir.Constant(INTS, [23] * LANES))
    mantissa = builder.sub(bits, builder.shl(exponent, ir.Constant(INTS, [23] * LANES)))
    rest = builder.fsub(builder.bitcast(mantissa, FLOATS), constant_vector(1.0))
    series = constant_vector(7.0376836292e-2)
    for coefficient in (
        -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1,
        -2.4999993993e-1, 3.3333331174e-1,
    ):  # fmt: skip
        series = emit_fma(builder, series, rest, constant_vector(coefficient))
    square = builder.fmul(rest, rest)
    whole = builder.sitofp(exponent, FLOATS)
    small = builder.fmul(builder.fmul(series, rest), square)
    small = emit_fma(builder, whole, constant_vector(-2.12194440e-4), small)
    small = emit_fma(builder, square, constant_vector(-0.5), small)
    return emit_fma(builder, whole, constant_vector(0.693359375), builder.fadd(rest, small))


log = emits(lanes, lanes)(emit_log)


@emits(lanes, lanes)
def asinh(builder, x):
    """Return the inverse hyperbolic sine by the formula of `policies.jssp.fast_asinh`."""
    sign = builder.and_(builder.bitcast(x, INTS), ir.Constant(INTS, [-(2**31)] * LANES))
    size = builder.bitcast(builder.xor(builder.bitcast(x, INTS), sign), FLOATS)
    length = builder.fadd(builder.fmul(size, size), constant_vector(1.0))
    positive = emit_log(builder, builder.fadd(size, call_on_vectors(builder, "sqrt", length)))
    return builder.bitcast(builder.or_(builder.bitcast(positive, INTS), sign), FLOATS)
