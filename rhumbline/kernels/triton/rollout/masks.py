"""Triton: masks of nodes that are visited, or that a vehicle's load forbids for the moment.

Up to 128 nodes a mask is a tile of numbers to be added to scores. Beyond, columns are worked on in
parts, and tiles would take half of the registers. There each node has a bit in words of 32, and the
tile of a part is made when it is needed.
"""

import triton
import triton.language as tl

CLOSED = tl.constexpr(-1.0e9)


@triton.jit
def columns(c, W: tl.constexpr):
    """Nodes of a part."""
    return c * W + tl.arange(0, W)


@triton.jit
def served_first(first, N, C: tl.constexpr, W: tl.constexpr):
    """Who is closed before the first step: nodes that do not exist, and the first one.

    Where one part has all columns this is a tile [M, W] to be added, one addition wherever it is used. Tiles of several
    parts would take half of the registers, so there it is a bit of each node, in words [M] of 32 nodes.
    """
    if C == 1:
        there = (columns(0, W)[None, :] < N) & (columns(0, W)[None, :] != first[:, None])
        return (tl.where(there, 0.0, 2.0 * CLOSED),)
    else:
        return first_words(first, N, C * W // 32)


@triton.jit
def first_words(first, N, COUNT: tl.constexpr):
    """The same in words."""
    words = ()
    for w in tl.static_range(COUNT):
        missing = tl.where(32 * w + 32 <= N, 0, -1 << tl.minimum(tl.maximum(N - 32 * w, 0), 31))
        words = words + (bit_of(first, w) | missing,)
    return words


@triton.jit
def words_too(words, node, COUNT: tl.constexpr):
    """One more node in the words."""
    more = ()
    for w in tl.static_range(COUNT):
        more = more + (words[w] | bit_of(node, w),)
    return more


@triton.jit
def served_by(words, C: tl.constexpr, W: tl.constexpr):
    """What `served_first` makes, after any number of actions that were kept in words."""
    return (2.0 * mask_of(words, 0, W),) if C == 1 else words


@triton.jit
def bit_of(node, w: tl.constexpr):
    """The word w of a set that has nothing but the node."""
    return tl.where((node >> 5) == w, 1 << (node & 31), 0)


@triton.jit
def served_too(served, last, t, C: tl.constexpr, W: tl.constexpr):
    """Who is closed for good after an action.

    The value of a tile changes with t: for a constant the compiler keeps predicates instead, and spills twice as much.
    """
    if C == 1:
        return (tl.where(columns(0, W)[None, :] == last[:, None], CLOSED * (1 + t), served[0]),)
    else:
        return words_too(served, last, C * W // 32)


@triton.jit
def affordable(served, DEMAND, left, depot, N, W: tl.constexpr):
    """The mask of one part with all columns after a look at the load: integers, so no epsilon; the depot as given.

    Served customers stay what they are: beyond 1.5 CLOSED.
    """
    demand = tl.load(DEMAND + columns(0, W), mask=columns(0, W) < N, other=0)
    fits = tl.where(demand[None, :] <= left[:, None], 0.0, CLOSED)
    mask = tl.where(served < 1.5 * CLOSED, served, fits)
    return tl.where(columns(0, W)[None, :] == 0, depot[:, None], mask)


@triton.jit
def mask_of(words, c, W: tl.constexpr):
    """The additive mask of a part, from the bits of its nodes."""
    column = tl.arange(0, W)[None, :]
    word = words[c * (W // 32)][:, None]
    for i in tl.static_range(1, W // 32):
        word = tl.where(column < 32 * i, word, words[c * (W // 32) + i][:, None])
    return tl.where(((word >> (column & 31)) & 1) != 0, CLOSED, 0.0)


@triton.jit
def unknown(words, nought, COUNT: tl.constexpr):
    """The same words, which the compiler cannot know: it would keep their masks instead of making them again."""
    same = ()
    for w in tl.static_range(COUNT):
        same = same + (words[w] + nought,)
    return same


@triton.jit
def affordable_words(served, DEMAND, left, depot, N, COUNT: tl.constexpr):
    """The same in words: the bits of customers who do not fit are added up, and the depot's is as given."""
    words = ()
    for w in tl.static_range(COUNT):
        column = 32 * w + tl.arange(0, 32)
        demand = tl.load(DEMAND + column, mask=column < N, other=0)
        word = served[w] | tl.sum(tl.where(demand[None, :] > left[:, None], 1 << (column & 31)[None, :], 0), 1)
        if w == 0:
            word = tl.where(depot < 0, word | 1, word & -2)
        words = words + (word,)
    return words


@triton.jit
def closed_now(served, DEMAND, left, depot, N, C: tl.constexpr, W: tl.constexpr):
    """Who is closed for good, and who is at this step, the depot as given; in a tile both are one to save registers."""
    if C == 1:
        mask = affordable(served[0], DEMAND, left, depot, N, W)
        return (mask,), (mask,)
    else:
        return served, affordable_words(served, DEMAND, left, depot, N, C * W // 32)
