"""Triton: choice of a node from the scores of all: the best, or the one that the noise selects."""

import triton
import triton.language as tl

from rhumbline.kernels.triton.rollout.masks import CLOSED, columns

BELOW_ONE = tl.constexpr(1.0 - 2.0**-22)  # as in decoding.choose


@triton.jit
def counting_tables(C: tl.constexpr, W: tl.constexpr, G: tl.constexpr, DT: tl.constexpr):
    """Zeros and ones [W, 16]: products with them are running sums of 16 groups of G, and of the places in a group."""
    sixteen = tl.arange(0, 16)
    groups = ()
    for c in tl.static_range(C):
        groups = groups + ((columns(c, W)[:, None] // G <= sixteen[None, :]).to(DT),)
    places = (tl.arange(0, W)[:, None] % G <= sixteen[None, :]).to(DT)
    return groups, places


@triton.jit
def best_column(parts, C: tl.constexpr, W: tl.constexpr):
    """The largest entry of each row and its column, the first of equal ones."""
    most = tl.max(parts[0], 1)
    best = tl.argmax(parts[0], 1)
    for c in tl.static_range(1, C):
        other = tl.max(parts[c], 1)
        best = tl.where(other > most, c * W + tl.argmax(parts[c], 1), best)
        most = tl.maximum(most, other)
    return most, best.to(tl.int32)


@triton.jit
def pick(
    logits, uniform, sharpness, groups, places, C: tl.constexpr, W: tl.constexpr, G: tl.constexpr,
    GREEDY: tl.constexpr, WARM: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """The chosen column of each row, and its probability: the best, or the one that the uniform hits among the weights.

    Running sums come from tensor cores, in two stages: first which group of columns, then which place in it. Equal
    terms give equal sums, so a closed column never raises a sum and is never hit, whatever the rounding.
    """
    squashed = ()
    for c in tl.static_range(C):
        value = -20.0 / (tl.exp2(logits[c]) + 1.0)  # 10 tanh - 10
        squashed = squashed + (tl.where(logits[c] < 0.5 * CLOSED, CLOSED, value),)
    if GREEDY:
        return best_column(squashed, C, W)[1], uniform  # no probability is needed then
    else:
        top = tl.zeros_like(uniform)
        if not WARM:  # cold weights would all vanish
            top = best_column(squashed, C, W)[0]
        weight = ()
        reach = tl.zeros([uniform.shape[0], 16], tl.float32)
        for c in tl.static_range(C):
            weight = weight + (tl.exp2((squashed[c] - top[:, None]) * sharpness).to(DT),)
            reach = tl.dot(weight[c], groups[c], reach, input_precision=PREC)
        total = tl.max(reach, 1)
        limit = uniform * (total * BELOW_ONE)
        passed = reach <= limit[:, None]
        group = tl.sum(passed.to(tl.int32), 1)
        # The difference may be contracted to one rounding and fall just below zero.
        rest = tl.maximum(limit - tl.max(tl.where(passed, reach, 0.0), 1), 0.0)
        inside = tl.where((columns(0, W) // G)[None, :] == group[:, None], weight[0], 0.0)
        for c in tl.static_range(1, C):  # no group lies in two parts, and places are the same in all
            inside = tl.where((columns(c, W) // G)[None, :] == group[:, None], weight[c], inside)
        reach = tl.dot(inside, places, input_precision=PREC)
        short = (reach <= rest[:, None]) & (reach < tl.max(reach, 1)[:, None])
        hit = tl.min(tl.where(short, float("inf"), reach), 1) - tl.max(tl.where(short, reach, 0.0), 1)
        return group * G + tl.sum(short.to(tl.int32), 1), hit / total
