"""Triton: attention among all nodes of an instance, with gradient, as the encoder has it in training.

A program does one head of one instance. Its keys and values fit into a tile, so softmax needs no running maximum, the
backward pass recomputes weights instead of reading them, and no sum crosses programs. Centring the keys (`policies`
says why) costs nothing here. Tensors are read and written as the products around them have them: nothing is copied.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def rows_of(TABLE, rows, N, stride, C: tl.constexpr):
    """Rows of a head, [rows, C]; zero beyond the last node."""
    return tl.load(TABLE + rows[:, None] * stride + tl.arange(0, C)[None, :], mask=rows[:, None] < N, other=0.0)


@triton.jit
def centred(x, rows, N):
    """Rows [NP, C] without their mean; zero beyond the last node, as they came."""
    return tl.where(rows[:, None] < N, x - (tl.sum(x, 0) / N)[None, :], 0.0)


@triton.jit
def softmax(query, key, cols, N, scale, PREC: tl.constexpr):
    """Attention weights [M, NP]; `scale` includes log2(e)."""
    scores = tl.dot(query, tl.trans(key), input_precision=PREC) * scale
    scores = tl.where(cols[None, :] < N, scores, float("-inf"))
    weight = tl.exp2(scores - tl.max(scores, 1)[:, None])
    return weight * (1.0 / tl.sum(weight, 1))[:, None]


@triton.jit
def attend_kernel(
    QKV, OUT, N, scale, H: tl.constexpr, C: tl.constexpr, NP: tl.constexpr, M: tl.constexpr, PREC: tl.constexpr
):
    E: tl.constexpr = H * C
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    QKV += b * N * 3 * E + h * C
    OUT += b * N * E + h * C
    cols = tl.arange(0, NP)
    value = rows_of(QKV + 2 * E, cols, N, 3 * E, C)
    key = centred(rows_of(QKV + E, cols, N, 3 * E, C).to(tl.float32), cols, N).to(value.dtype)
    for begin in range(0, N, M):
        rows = begin + tl.arange(0, M)
        weight = softmax(rows_of(QKV, rows, N, 3 * E, C), key, cols, N, scale, PREC)
        mixed = tl.dot(weight.to(value.dtype), value, input_precision=PREC)
        place = OUT + rows[:, None] * E + tl.arange(0, C)[None, :]
        tl.store(place, mixed.to(value.dtype), mask=rows[:, None] < N)


@triton.jit
def attend_backward_kernel(
    QKV, GRAD, DQKV, N, scale, H: tl.constexpr, C: tl.constexpr, NP: tl.constexpr, M: tl.constexpr,
    PREC: tl.constexpr,
):  # fmt: skip
    E: tl.constexpr = H * C
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    QKV += b * N * 3 * E + h * C
    DQKV += b * N * 3 * E + h * C
    GRAD += b * N * E + h * C
    cols, c = tl.arange(0, NP), tl.arange(0, C)
    value = rows_of(QKV + 2 * E, cols, N, 3 * E, C)
    key = centred(rows_of(QKV + E, cols, N, 3 * E, C).to(tl.float32), cols, N).to(value.dtype)
    dkey = tl.zeros([NP, C], tl.float32)
    dvalue = tl.zeros([NP, C], tl.float32)
    for begin in range(0, N, M):
        rows = begin + tl.arange(0, M)
        query, grad = rows_of(QKV, rows, N, 3 * E, C), rows_of(GRAD, rows, N, E, C)
        weight = softmax(query, key, cols, N, scale, PREC)
        dweight = tl.dot(grad, tl.trans(value), input_precision=PREC)
        dscores = weight * (dweight - tl.sum(weight * dweight, 1)[:, None]) * (scale / LOG2E)
        dscores = dscores.to(value.dtype)
        dquery = tl.dot(dscores, key, input_precision=PREC)
        tl.store(DQKV + rows[:, None] * (3 * E) + c[None, :], dquery.to(value.dtype), mask=rows[:, None] < N)
        dkey = tl.dot(tl.trans(dscores), query, dkey, input_precision=PREC)
        dvalue = tl.dot(tl.trans(weight.to(value.dtype)), grad, dvalue, input_precision=PREC)
    place = cols[:, None] * (3 * E) + c[None, :]
    tl.store(DQKV + E + place, centred(dkey, cols, N).to(value.dtype), mask=cols[:, None] < N)
    tl.store(DQKV + 2 * E + place, dvalue.to(value.dtype), mask=cols[:, None] < N)


def launch_options(qkv: Tensor, heads: int) -> dict[str, int | str]:
    """Sizes and tiles of both kernels: so many rows at a time that scores and their gradients stay in registers."""
    nodes, width = qkv.shape[1], qkv.shape[2] // (3 * heads)
    padded = max(16, triton.next_power_of_2(nodes))
    rows = min(64, padded) if padded <= 128 else 32
    return {"H": heads, "C": width, "NP": padded, "M": rows, "PREC": "ieee", "num_warps": 4, "num_stages": 1}


def score_scale(qkv: Tensor, heads: int) -> float:
    return LOG2E.value / math.sqrt(qkv.shape[2] // (3 * heads))


@torch.library.custom_op("rhumbline::attend", mutates_args=())
def triton_attend(qkv: Tensor, heads: int) -> Tensor:
    """Attention [B, N, E] of queries, keys and values [B, N, 3 E], each cut into heads; keys are centred."""
    qkv = qkv.contiguous()
    count, nodes, width = qkv.shape
    out = qkv.new_empty(count, nodes, width // 3)
    attend_kernel[(count, heads)](qkv, out, nodes, score_scale(qkv, heads), **launch_options(qkv, heads))
    return out


@torch.library.custom_op("rhumbline::attend_backward", mutates_args=())
def triton_attend_backward(qkv: Tensor, grad: Tensor, heads: int) -> Tensor:
    """The gradient of `attend` in its argument."""
    qkv, grad = qkv.contiguous(), grad.contiguous()
    out = torch.empty_like(qkv)
    attend_backward_kernel[(len(qkv), heads)](
        qkv, grad, out, qkv.shape[1], score_scale(qkv, heads), **launch_options(qkv, heads)
    )
    return out


@triton_attend.register_fake
def _(qkv: Tensor, heads: int) -> Tensor:
    return qkv.new_empty(*qkv.shape[:2], qkv.shape[2] // 3)


@triton_attend_backward.register_fake
def _(qkv: Tensor, grad: Tensor, heads: int) -> Tensor:
    return torch.empty_like(qkv, memory_format=torch.contiguous_format)


def save_input(ctx, inputs: tuple[Tensor, int], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.heads = inputs[1]


def gradient(ctx, grad: Tensor) -> tuple[Tensor, None]:
    return triton_attend_backward(ctx.saved_tensors[0], grad, ctx.heads), None


triton_attend.register_autograd(gradient, setup_context=save_input)
