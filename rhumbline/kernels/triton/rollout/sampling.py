"""Triton: choice of a node from its logits: the best one, or the one that the uniform selects."""

import triton
import triton.language as tl

from rhumbline.kernels.triton.rollout.masks import MASKED, columns

BELOW_ONE = tl.constexpr(1.0 - 2.0**-22)  # the same as decoding.BELOW_ONE


@triton.jit
def prefix_sum_tables(C: tl.constexpr, W: tl.constexpr, G: tl.constexpr, DT: tl.constexpr):
    """Return 0/1 matrices [W, 16] whose products with weights are running sums.

    `groups` (one matrix for each part) sums over 16 groups of G columns, `places` over the G columns of a group.
    """
    sixteen = tl.arange(0, 16)
    groups = ()
    for c in tl.static_range(C):
        groups = groups + ((columns(c, W)[:, None] // G <= sixteen[None, :]).to(DT),)
    places = (tl.arange(0, W)[:, None] % G <= sixteen[None, :]).to(DT)
    return groups, places


@triton.jit
def argmax_column(parts, C: tl.constexpr, W: tl.constexpr):
    """Return the largest entry of each row and its column, the first one of equal entries."""
    most = tl.max(parts[0], 1)
    best = tl.argmax(parts[0], 1)
    for c in tl.static_range(1, C):
        other = tl.max(parts[c], 1)
        best = tl.where(other > most, c * W + tl.argmax(parts[c], 1), best)
        most = tl.maximum(most, other)
    return most, best.to(tl.int32)


@triton.jit
def select_node(
    logits, uniform, sharpness, groups, places, C: tl.constexpr, W: tl.constexpr, G: tl.constexpr,
    GREEDY: tl.constexpr, WARM: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Return the chosen column of each row and its probability: the best one, or the one that the uniform selects.

    If GREEDY, the second value is no probability and must not be used. Running sums of the weights come from tensor
    cores in two stages: first which group of columns, then which column in it. Equal terms give equal sums, so a masked
    column never raises a sum and is never selected, whatever the rounding.
    """
    squashed = ()
    for c in tl.static_range(C):
        value = -20.0 / (tl.exp2(logits[c]) + 1.0)  # 10 tanh - 10
        squashed = squashed + (tl.where(logits[c] < 0.5 * MASKED, MASKED, value),)
    if GREEDY:
        return argmax_column(squashed, C, W)[1], uniform  # no probability is needed then
    else:
        top = tl.zeros_like(uniform)
        if not WARM:  # at a low temperature all weights would underflow
            top = argmax_column(squashed, C, W)[0]
        weight = ()
        cumulative = tl.zeros([uniform.shape[0], 16], tl.float32)
        for c in tl.static_range(C):
            weight = weight + (tl.exp2((squashed[c] - top[:, None]) * sharpness).to(DT),)
            cumulative = tl.dot(weight[c], groups[c], cumulative, input_precision=PREC)
        total = tl.max(cumulative, 1)
        limit = uniform * (total * BELOW_ONE)
        passed = cumulative <= limit[:, None]
        group = tl.sum(passed.to(tl.int32), 1)
        # The compiler may contract this to one rounding, so that it falls just below zero.
        rest = tl.maximum(limit - tl.max(tl.where(passed, cumulative, 0.0), 1), 0.0)
        inside = tl.where((columns(0, W) // G)[None, :] == group[:, None], weight[0], 0.0)
        for c in tl.static_range(1, C):  # no group spans two parts, and places are the same in every part
            inside = tl.where((columns(c, W) // G)[None, :] == group[:, None], weight[c], inside)
        cumulative = tl.dot(inside, places, input_precision=PREC)
        short = (cumulative <= rest[:, None]) & (cumulative < tl.max(cumulative, 1)[:, None])
        hit = tl.min(tl.where(short, float("inf"), cumulative), 1) - tl.max(tl.where(short, cumulative, 0.0), 1)
        return group * G + tl.sum(short.to(tl.int32), 1), hit / total
