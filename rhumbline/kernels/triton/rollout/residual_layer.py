"""Triton: a residual layer on the glimpse inside the rollout kernels, one for each instance.

The strategy `eas-lay` trains it. The pointers multiply what the layer adds to the glimpse, so its
second half and the pointers are one table: logits grow by relu(glimpse @ into + bias) @ out.
A layer is a tuple (INTO, INTO_BIAS, OUT): [E, E], [K, E] in float32 and [NP, E]. Its tables and the
pointers are read from the cache at every step, as shared memory has no room for all of them.
"""

import triton
import triton.language as tl

from rhumbline.kernels.triton.rollout.masks import columns


@triton.jit
def layer_hidden(heads, layer, latent, H: tl.constexpr, D: tl.constexpr, DT: tl.constexpr, PREC: tl.constexpr):
    """Return the hidden units [M, E] of the layer, given each head's glimpses [M, D].

    The bias subtracts what the latent has added to the glimpses.
    """
    e = tl.arange(0, H * D)
    hidden = tl.load(layer[1] + latent[:, None] * (H * D) + e[None, :])
    for h in tl.static_range(H):
        into = tl.load(layer[0] + (h * D + tl.arange(0, D))[:, None] * (H * D) + e[None, :])
        hidden = tl.dot(heads[h], into, hidden, input_precision=PREC)
    return tl.maximum(hidden, 0.0).to(DT)


@triton.jit
def layer_logits(
    logits, heads, hidden, POINTER, layer, c, W: tl.constexpr, H: tl.constexpr, D: tl.constexpr, PREC: tl.constexpr
):
    """Add to the logits of part c (mask and bias) the pointer scores of the glimpses and the layer's share."""
    node = columns(c, W)[None, :] * (H * D)
    for h in tl.static_range(H):
        pointer = tl.load(POINTER + node + (h * D + tl.arange(0, D))[:, None])
        logits = tl.dot(heads[h], pointer, logits, input_precision=PREC)
    out = tl.load(layer[2] + node + tl.arange(0, H * D)[:, None])
    return tl.dot(hidden, out, logits, input_precision=PREC)
