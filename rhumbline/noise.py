"""Counter-based random numbers: the torch twin of the Philox-4x32-10 generator in the kernels.

The numbers of a rollout depend on (seed, instance, attempt, start, step) and on nothing else: not
on the other instances of the batch, on chunking, on the device or on the engine. Latents are drawn
in the same way from a stream of their own.
"""

import math
from enum import IntEnum

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.philox import MULTIPLIERS, ROUNDS, WEYL, WORD


class Stream(IntEnum):
    """What random numbers are for: the fourth word of the counter."""

    DECODING = 0
    LATENTS = 1


def philox(seed: int, c0: Tensor, c1: Tensor, c2: Tensor, c3: Tensor) -> tuple[Tensor, Tensor]:
    """Return two 32-bit words (as int64) for each counter (Salmon et al. 2011).

    The four words of the counter broadcast against each other.
    """
    k0 = seed & WORD
    k1 = (seed >> 32) & WORD
    for _ in range(ROUNDS):
        # int64 products wrap, but have the bits of the unsigned product: masking gives both halves.
        left = c0 * MULTIPLIERS[0]
        right = c2 * MULTIPLIERS[1]
        c0 = ((right >> 32) & WORD) ^ c1 ^ k0
        c2 = ((left >> 32) & WORD) ^ c3 ^ k1
        c1 = right & WORD
        c3 = left & WORD
        k0 = (k0 + WEYL[0]) & WORD
        k1 = (k1 + WEYL[1]) & WORD
    return c0, c1


def to_unit_interval(word: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Convert words to float32 in [0, 1), bit for bit as Triton does."""
    is_upper_half = word > WORD >> 1
    folded = torch.where(is_upper_half, WORD - word, word)
    return folded.to(torch.float32) * 4.6566127342e-10


def decoding_uniforms(
    seed: int, key: Int[Tensor, "B"], attempt: Int[Tensor, "K"], starts: int, steps: int
) -> Float[Tensor, "B K S T"]:
    """Return the uniform behind each decision of a rollout.

    `key` holds instance ids; `attempt` counts the latents tried on an instance, from 0.
    """
    position = torch.arange(starts * steps, device=key.device)
    words, _ = _stream_words(seed, Stream.DECODING, key, attempt, position)
    uniforms = to_unit_interval(words)
    instances = len(key)
    attempts = len(attempt)
    return uniforms.view(instances, attempts, starts, steps)


def latent_uniforms(
    seed: int, key: Int[Tensor, "B"], attempt: Int[Tensor, "K"], size: int
) -> Float[Tensor, "B K Z 2"]:
    """Return two independent uniforms for each coordinate of each latent."""
    position = torch.arange(size, device=key.device)
    words = _stream_words(seed, Stream.LATENTS, key, attempt, position)
    return to_unit_interval(torch.stack(words, dim=-1))


def _stream_words(
    seed: int, stream: Stream, key: Tensor, attempt: Tensor, position: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the two Philox words of each (instance, attempt, position): [B, K, positions]."""
    c0 = position[None, None]
    c1 = attempt[None, :, None]
    c2 = key[:, None, None] & WORD
    c3 = torch.full_like(c0, stream)
    return philox(seed, c0, c1, c2, c3)


def box_muller(uniforms: Float[Tensor, "*shape 2"]) -> Float[Tensor, "*shape"]:
    """Return one standard normal for each pair of uniforms (Box and Muller)."""
    first, second = uniforms.unbind(-1)
    radius = torch.sqrt(-2.0 * torch.log1p(-first))
    angle = 2.0 * math.pi * second
    return radius * torch.cos(angle)
