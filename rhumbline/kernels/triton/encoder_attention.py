"""Triton: attention among all nodes of an instance, with gradient, for the encoder in training.

A program computes one head of one instance. Its keys and values fit into a tile, so the softmax
needs no running maximum, the backward pass recomputes weights instead of reading them, and no sum
crosses programs. Keys are centred at no extra cost (`policies/attention/encoder.py` has the
reason). Tensors have the layout of the matrix products before and after: nothing is copied.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_rows(TABLE, rows, N, stride, C: tl.constexpr):
    """Load rows of a head, [rows, C]; zero beyond the last node."""
    return tl.load(TABLE + rows[:, None] * stride + tl.arange(0, C)[None, :], mask=rows[:, None] < N, other=0.0)


@triton.jit
def centre_rows(x, rows, N):
    """Return rows [NP, C] minus their mean; padding rows are zero, before and after."""
    return tl.where(rows[:, None] < N, x - (tl.sum(x, 0) / N)[None, :], 0.0)


@triton.jit
def attention_weights(query, key, cols, N, scale, PREC: tl.constexpr):
    """Return attention weights [M, NP]; `scale` includes log2(e)."""
    scores = tl.dot(query, tl.trans(key), input_precision=PREC) * scale
    scores = tl.where(cols[None, :] < N, scores, float("-inf"))
    weight = tl.exp2(scores - tl.max(scores, 1)[:, None])
    return weight * (1.0 / tl.sum(weight, 1))[:, None]


@triton.jit
def attend_kernel(
    QKV, OUT, N, scale, H: tl.constexpr, C: tl.constexpr, NP: tl.constexpr, M: tl.constexpr, PREC: tl.constexpr
):
    """Store the attention of one head of one instance, M rows at a time; keys are centred."""
    E: tl.constexpr = H * C
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    QKV += b * N * 3 * E + h * C
    OUT += b * N * E + h * C
    cols = tl.arange(0, NP)
    value = load_rows(QKV + 2 * E, cols, N, 3 * E, C)
    key = centre_rows(load_rows(QKV + E, cols, N, 3 * E, C).to(tl.float32), cols, N).to(value.dtype)
    for begin in range(0, N, M):
        rows = begin + tl.arange(0, M)
        weight = attention_weights(load_rows(QKV, rows, N, 3 * E, C), key, cols, N, scale, PREC)
        mixed = tl.dot(weight.to(value.dtype), value, input_precision=PREC)
        place = OUT + rows[:, None] * E + tl.arange(0, C)[None, :]
        tl.store(place, mixed.to(value.dtype), mask=rows[:, None] < N)


@triton.jit
def attend_backward_kernel(
    QKV, GRAD, DQKV, N, scale, H: tl.constexpr, C: tl.constexpr, NP: tl.constexpr, M: tl.constexpr,
    PREC: tl.constexpr,
):  # fmt: skip
    """Store the gradients of queries, keys and values of one head of one instance."""
    E: tl.constexpr = H * C
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    QKV += b * N * 3 * E + h * C
    DQKV += b * N * 3 * E + h * C
    GRAD += b * N * E + h * C
    cols, c = tl.arange(0, NP), tl.arange(0, C)
    value = load_rows(QKV + 2 * E, cols, N, 3 * E, C)
    key = centre_rows(load_rows(QKV + E, cols, N, 3 * E, C).to(tl.float32), cols, N).to(value.dtype)
    dkey = tl.zeros([NP, C], tl.float32)
    dvalue = tl.zeros([NP, C], tl.float32)
    for begin in range(0, N, M):
        rows = begin + tl.arange(0, M)
        query, grad = load_rows(QKV, rows, N, 3 * E, C), load_rows(GRAD, rows, N, E, C)
        weight = attention_weights(query, key, cols, N, scale, PREC)
        dweight = tl.dot(grad, tl.trans(value), input_precision=PREC)
        dscores = weight * (dweight - tl.sum(weight * dweight, 1)[:, None]) * (scale / LOG2E)
        dscores = dscores.to(value.dtype)
        dquery = tl.dot(dscores, key, input_precision=PREC)
        tl.store(DQKV + rows[:, None] * (3 * E) + c[None, :], dquery.to(value.dtype), mask=rows[:, None] < N)
        dkey = tl.dot(tl.trans(dscores), query, dkey, input_precision=PREC)
        dvalue = tl.dot(tl.trans(weight.to(value.dtype)), grad, dvalue, input_precision=PREC)
    place = cols[:, None] * (3 * E) + c[None, :]
    tl.store(DQKV + E + place, centre_rows(dkey, cols, N).to(value.dtype), mask=cols[:, None] < N)
    tl.store(DQKV + 2 * E + place, dvalue.to(value.dtype), mask=cols[:, None] < N)


def launch_options(qkv: Tensor, heads: int) -> dict[str, int | str]:
    """Return sizes and tiles of both kernels.

    So few rows are worked on at a time that scores and their gradients stay in registers.
    """
    _, nodes, width = qkv.shape
    columns = max(16, triton.next_power_of_2(nodes))
    rows = min(64, columns) if columns <= 128 else 32
    return {
        "H": heads,
        "C": width // (3 * heads),
        "NP": columns,
        "M": rows,
        "PREC": "ieee",
        "num_warps": 4,
        "num_stages": 1,
    }


def score_scale(qkv: Tensor, heads: int) -> float:
    """Return the factor of attention scores, 1 / sqrt(head width) for exp2."""
    head_width = qkv.shape[2] // (3 * heads)
    return LOG2E.value / math.sqrt(head_width)


@torch.library.custom_op("rhumbline::attend", mutates_args=())
def triton_attend(qkv: Tensor, heads: int) -> Tensor:
    """Compute attention [B, N, E] of queries, keys and values [B, N, 3 E], split into heads.

    Keys are centred.
    """
    qkv = qkv.contiguous()
    count, nodes, width = qkv.shape
    out = qkv.new_empty(count, nodes, width // 3)
    scale = score_scale(qkv, heads)
    options = launch_options(qkv, heads)
    attend_kernel[(count, heads)](qkv, out, nodes, scale, **options)
    return out


@torch.library.custom_op("rhumbline::attend_backward", mutates_args=())
def triton_attend_backward(qkv: Tensor, grad: Tensor, heads: int) -> Tensor:
    """Compute the gradient of `triton_attend` in its argument."""
    qkv = qkv.contiguous()
    grad = grad.contiguous()
    count, nodes, _ = qkv.shape
    out = torch.empty_like(qkv)
    scale = score_scale(qkv, heads)
    options = launch_options(qkv, heads)
    attend_backward_kernel[(count, heads)](qkv, grad, out, nodes, scale, **options)
    return out


@triton_attend.register_fake
def _(qkv: Tensor, heads: int) -> Tensor:
    count, nodes, width = qkv.shape
    return qkv.new_empty(count, nodes, width // 3)


@triton_attend_backward.register_fake
def _(qkv: Tensor, grad: Tensor, heads: int) -> Tensor:
    return torch.empty_like(qkv, memory_format=torch.contiguous_format)


def save_input(ctx, inputs: tuple[Tensor, int], output: Tensor) -> None:
    """Save what the gradient needs."""
    qkv, heads = inputs
    ctx.save_for_backward(qkv)
    ctx.heads = heads


def gradient(ctx, grad: Tensor) -> tuple[Tensor, None]:
    """Return the gradients of queries, keys and values, and none of the number of heads."""
    (qkv,) = ctx.saved_tensors
    return triton_attend_backward(qkv, grad, ctx.heads), None


triton_attend.register_autograd(gradient, setup_context=save_input)
