"""Triton: the state of rollouts: rows of a tile, positions, loads, noise, and given actions."""

import triton
import triton.language as tl


@triton.jit
def tile_rows(K, S, ID, COUNTERS, b, M: tl.constexpr):
    """Rollouts of this program: number, whether it exists, latent, start; and the words of its noise counter."""
    r = tl.program_id(1) * M + tl.arange(0, M)  # rollout r: latent r // S from start r % S
    valid = r < K * S
    r = tl.minimum(r, K * S - 1)
    latent = r // S
    attempt = (tl.load(COUNTERS + 1) + latent).to(tl.uint32)
    instance = tl.load(ID + b).to(tl.uint32) + tl.zeros([M], tl.uint32)
    return r, valid, latent, r % S, attempt, instance


@triton.jit
def place(XY, node):
    """Coordinates of nodes."""
    return tl.load(XY + node * 2), tl.load(XY + node * 2 + 1)


@triton.jit
def distance(x, y, to_x, to_y):
    """Straight lines."""
    return tl.sqrt((to_x - x) * (to_x - x) + (to_y - y) * (to_y - y))


@triton.jit
def noise(seed, step, attempt, instance):
    """The uniform of a decision; `noise.py` is its twin."""
    word, _, _, _ = tl.philox(seed, step.to(tl.uint32), attempt, instance, tl.zeros_like(attempt))
    return tl.uint_to_uniform_float(word)


@triton.jit
def gone_to(XY, node, x, y, cost):
    """Where everybody is after the next node, and how far that was in all."""
    x1, y1 = place(XY, node)
    return x1, y1, cost + distance(x, y, x1, y1)


@triton.jit
def cvrp_step(DEMAND, node, capacity, left, waiting):
    """The load that is left after a node and the customers that wait."""
    left = tl.where(node == 0, capacity, left - tl.load(DEMAND + node))
    return left, waiting - (node > 0).to(tl.int32)


@triton.jit
def imposed(ACTION, LENGTH, t, R, row, node):
    """The action of a step: the one that was given, which stands where actions go, or `node` where none was.

    Other threads may have stored there what this one reads: the same action, or one that does not count.
    """
    given = tl.load(ACTION + t * R + row).to(tl.int32)
    return tl.where(t < tl.load(LENGTH + row), given, node)


@triton.jit
def imposed_on_all(LENGTH, row):
    """How many actions of every rollout of the tile are given."""
    return tl.min(tl.load(LENGTH + row), 0)


@triton.jit
def marked(node, share, certain, MARK: tl.constexpr):
    """What is stored for a decision: the node, or its complement where it was all but certain."""
    return (tl.where(share >= certain, -1 - node, node) if MARK else node).to(tl.int16)
