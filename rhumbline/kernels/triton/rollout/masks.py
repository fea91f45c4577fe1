"""Triton: masks of visited nodes, and of customers whose demand exceeds the load left.

With up to 128 nodes a mask is an additive tile [M, W]. With more nodes the columns are processed in
parts, and tiles of all parts would take half of the registers. Then a mask is a bitset: a tuple of
32-bit words [M], one bit for each node. The tile of a part is made from the bits when it is needed.
"""

import triton
import triton.language as tl

MASKED = tl.constexpr(-1.0e9)  # added to scores of masked nodes; twice that, or more: masked permanently


@triton.jit
def columns(c, W: tl.constexpr):
    """Return the columns (node numbers) [W] of part c."""
    return c * W + tl.arange(0, W)


@triton.jit
def initial_mask(first, N, C: tl.constexpr, W: tl.constexpr):
    """Return the mask before the first step: padding columns and the first node are masked.

    If one part has all columns (C == 1) this is an additive tile [M, W], which costs one addition wherever it is used.
    Otherwise it is a bitset in 32-bit words [M], as tiles of several parts would take half of the registers.
    """
    if C == 1:
        is_open = (columns(0, W)[None, :] < N) & (columns(0, W)[None, :] != first[:, None])
        return (tl.where(is_open, 0.0, 2.0 * MASKED),)
    else:
        return initial_words(first, N, C * W // 32)


@triton.jit
def initial_words(first, N, COUNT: tl.constexpr):
    """Return `initial_mask` as a bitset of COUNT 32-bit words [M]."""
    words = ()
    for w in tl.static_range(COUNT):
        missing = tl.where(32 * w + 32 <= N, 0, -1 << tl.minimum(tl.maximum(N - 32 * w, 0), 31))
        words = words + (node_bit(first, w) | missing,)
    return words


@triton.jit
def add_to_words(words, node, COUNT: tl.constexpr):
    """Return the bitset with one more node in each row."""
    more = ()
    for w in tl.static_range(COUNT):
        more = more + (words[w] | node_bit(node, w),)
    return more


@triton.jit
def mask_from_words(words, C: tl.constexpr, W: tl.constexpr):
    """Return the mask of `initial_mask` (a tile or a bitset) for a bitset that kept any number of actions."""
    return (2.0 * bits_to_mask(words, 0, W),) if C == 1 else words


@triton.jit
def node_bit(node, w: tl.constexpr):
    """Return word w of the bitset that holds only `node`."""
    return tl.where((node >> 5) == w, 1 << (node & 31), 0)


@triton.jit
def mark_visited(visited, last, t, C: tl.constexpr, W: tl.constexpr):
    """Return the mask of permanently masked nodes after the action `last` of step t.

    The value in a tile depends on t: with a constant the compiler keeps predicates instead, and spills twice as much.
    """
    if C == 1:
        return (tl.where(columns(0, W)[None, :] == last[:, None], MASKED * (1 + t), visited[0]),)
    else:
        return add_to_words(visited, last, C * W // 32)


@triton.jit
def step_tile(visited, DEMAND, left, depot, N, W: tl.constexpr):
    """Return the mask of this step for one part with all columns: demands above the load left are masked, too.

    Loads are integers, so no epsilon is needed. `depot` [M] is the mask value of the depot. Visited customers, whose
    value is below 1.5 MASKED, keep it: this tells permanently masked customers from those masked at this step.
    """
    demand = tl.load(DEMAND + columns(0, W), mask=columns(0, W) < N, other=0)
    fits = tl.where(demand[None, :] <= left[:, None], 0.0, MASKED)
    mask = tl.where(visited < 1.5 * MASKED, visited, fits)
    return tl.where(columns(0, W)[None, :] == 0, depot[:, None], mask)


@triton.jit
def bits_to_mask(words, c, W: tl.constexpr):
    """Return the additive mask [M, W] of part c from the bitset `words`."""
    column = tl.arange(0, W)[None, :]
    word = words[c * (W // 32)][:, None]
    for i in tl.static_range(1, W // 32):
        word = tl.where(column < 32 * i, word, words[c * (W // 32) + i][:, None])
    return tl.where(((word >> (column & 31)) & 1) != 0, MASKED, 0.0)


@triton.jit
def hide_from_compiler(words, zero, COUNT: tl.constexpr):
    """Return the same bitset plus a zero that is known only at run time.

    Without it the compiler would keep the masks in registers instead of making them again from the bits.
    """
    same = ()
    for w in tl.static_range(COUNT):
        same = same + (words[w] + zero,)
    return same


@triton.jit
def step_words(visited, DEMAND, left, depot, N, COUNT: tl.constexpr):
    """Return `step_tile` as a bitset: the bits of customers whose demand exceeds the load left are added.

    The depot's bit is set where its mask value `depot` is negative.
    """
    words = ()
    for w in tl.static_range(COUNT):
        column = 32 * w + tl.arange(0, 32)
        demand = tl.load(DEMAND + column, mask=column < N, other=0)
        word = visited[w] | tl.sum(tl.where(demand[None, :] > left[:, None], 1 << (column & 31)[None, :], 0), 1)
        if w == 0:
            word = tl.where(depot < 0, word | 1, word & -2)
        words = words + (word,)
    return words


@triton.jit
def step_mask(visited, DEMAND, left, depot, N, C: tl.constexpr, W: tl.constexpr):
    """Return the mask of permanently masked nodes and the mask of this step; `depot` is the depot's mask value.

    In a tile both are one object, which saves registers.
    """
    if C == 1:
        mask = step_tile(visited[0], DEMAND, left, depot, N, W)
        return (mask,), (mask,)
    else:
        return visited, step_words(visited, DEMAND, left, depot, N, C * W // 32)
