"""Counter-based random numbers: the torch twin of the Philox-4x32-10 generator inside the kernels.

What a rollout sees depends on (seed, instance, attempt, start, step) and on nothing else: not on
the batch around it, nor on chunking, device or engine. Latents are drawn the same way, on their own
stream.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.philox import MULTIPLIERS, ROUNDS, WEYL, WORD

DECODING_STREAM, LATENT_STREAM = 0, 1  # streams


def philox(seed: int, c0: Tensor, c1: Tensor, c2: Tensor, c3: Tensor) -> tuple[Tensor, Tensor]:
    """Two 32-bit words (as int64) for each counter; broadcasts. Salmon et al. 2011."""
    k0 = seed & WORD
    k1 = (seed >> 32) & WORD
    for _ in range(ROUNDS):
        # int64 products wrap, but their bits are those of the unsigned product, so masking recovers
        # both halves.
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
    """A word as a float32 in [0, 1), bit for bit as Triton converts it."""
    folded = torch.where(word > WORD >> 1, WORD - word, word)
    return folded.to(torch.float32) * 4.6566127342e-10


def decoding_uniforms(
    seed: int, key: Int[Tensor, "B"], attempt: Int[Tensor, "K"], starts: int, steps: int
) -> Float[Tensor, "B K S T"]:
    """The uniform behind each decision of a rollout. `attempt` numbers the latents tried on an
    instance from 0.
    """
    position = torch.arange(starts * steps, device=key.device)
    c0 = position[None, None]
    c1 = attempt[None, :, None]
    c2 = key[:, None, None] & WORD
    words, _ = philox(seed, c0, c1, c2, torch.full_like(c0, DECODING_STREAM))
    return to_unit_interval(words).view(len(key), len(attempt), starts, steps)


def latent_uniforms(
    seed: int, key: Int[Tensor, "B"], attempt: Int[Tensor, "K"], size: int
) -> Float[Tensor, "B K Z 2"]:
    """Two independent uniforms for each coordinate of each latent."""
    position = torch.arange(size, device=key.device)
    c0 = position[None, None]
    c1 = attempt[None, :, None]
    c2 = key[:, None, None] & WORD
    words = torch.stack(philox(seed, c0, c1, c2, torch.full_like(c0, LATENT_STREAM)), dim=-1)
    return to_unit_interval(words)


def box_muller(uniforms: Float[Tensor, "*shape 2"]) -> Float[Tensor, "*shape"]:
    """Standard normals from pairs of uniforms (Box and Muller)."""
    first, second = uniforms.unbind(-1)
    return torch.sqrt(-2.0 * torch.log1p(-first)) * torch.cos(2.0 * math.pi * second)
