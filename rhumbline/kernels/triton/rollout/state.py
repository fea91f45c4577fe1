"""Triton: the state of rollouts: rows of a tile, positions, loads, random numbers and given prefixes of actions."""

import triton
import triton.language as tl


@triton.jit
def tile_rows(K, S, ID, COUNTERS, b, M: tl.constexpr):
    """Return the rollouts [M] of this program: index, whether it exists, latent, start, and two counter words.

    The words, attempt and instance, are those that `draw_uniform` takes. Rows past the last rollout repeat it.
    """
    r = tl.program_id(1) * M + tl.arange(0, M)  # rollout r has latent r // S and start r % S
    valid = r < K * S
    r = tl.minimum(r, K * S - 1)
    latent = r // S
    attempt = (tl.load(COUNTERS + 1) + latent).to(tl.uint32)
    instance = tl.load(ID + b).to(tl.uint32) + tl.zeros([M], tl.uint32)
    return r, valid, latent, r % S, attempt, instance


@triton.jit
def coordinates(XY, node):
    """Return the coordinates x and y of nodes."""
    return tl.load(XY + node * 2), tl.load(XY + node * 2 + 1)


@triton.jit
def distance(x, y, to_x, to_y):
    """Return the Euclidean distance."""
    return tl.sqrt((to_x - x) * (to_x - x) + (to_y - y) * (to_y - y))


@triton.jit
def draw_uniform(seed, step, attempt, instance):
    """Return the uniform [M] of a decision, the same number as `rhumbline.noise.decoding_uniforms`."""
    word, _, _, _ = tl.philox(seed, step.to(tl.uint32), attempt, instance, tl.zeros_like(attempt))
    return tl.uint_to_uniform_float(word)


@triton.jit
def move_to(XY, node, x, y, cost):
    """Move to the next node; return its coordinates, and the cost with the distance added."""
    x1, y1 = coordinates(XY, node)
    return x1, y1, cost + distance(x, y, x1, y1)


@triton.jit
def cvrp_step(DEMAND, node, capacity, left, unserved):
    """Return the load left after a visit (full at the depot), and the number of unserved customers."""
    left = tl.where(node == 0, capacity, left - tl.load(DEMAND + node))
    return left, unserved - (node > 0).to(tl.int32)


@triton.jit
def apply_prefix(ACTION, LENGTH, t, R, row, node):
    """Return the action of step t: the given one within the rollout's prefix, else `node`.

    Prefixes are read from ACTION itself. Another thread may already have stored there: the same action in the prefix,
    or one beyond it, which is not used.
    """
    given = tl.load(ACTION + t * R + row).to(tl.int32)
    return tl.where(t < tl.load(LENGTH + row), given, node)


@triton.jit
def common_prefix_length(LENGTH, row):
    """Return the number of actions that are given for every rollout of the tile."""
    return tl.min(tl.load(LENGTH + row), 0)


@triton.jit
def mark_certain(node, share, certain, MARK: tl.constexpr):
    """Return what is stored for a decision: the node, or its complement -1 - node if its probability is near 1."""
    return (tl.where(share >= certain, -1 - node, node) if MARK else node).to(tl.int16)
