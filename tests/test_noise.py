"""Properties of the counter-based random numbers."""

# ruff: noqa: N803 (kernels name pointers in capitals)

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from rhumbline import noise

WORDS = [
    0,
    1,
    2,
    3,
    0x7FFFFFFF,
    0x80000000,
    0x80000001,
    0xFFFFFFFE,
    0xFFFFFFFF,
    0x6627E8D5,
    0xDEADBEEF,
]
LARGEST = 1.0 - 2.0**-24  # the float32 below 1


@triton.jit
def philox_kernel(SEED, COUNTER, FIRST, SECOND, UNIFORM, M: tl.constexpr):
    at = tl.arange(0, M)
    c0 = tl.load(COUNTER + at).to(tl.uint32)
    c1 = tl.load(COUNTER + M + at).to(tl.uint32)
    c2 = tl.load(COUNTER + 2 * M + at).to(tl.uint32)
    c3 = tl.load(COUNTER + 3 * M + at).to(tl.uint32)
    first, second, _, _ = tl.philox(tl.load(SEED), c0, c1, c2, c3)
    tl.store(FIRST + at, first.to(tl.int64))
    tl.store(SECOND + at, second.to(tl.int64))
    tl.store(UNIFORM + at, tl.uint_to_uniform_float(first))


@triton.jit
def uniform_kernel(WORD, UNIFORM, M: tl.constexpr):
    at = tl.arange(0, M)
    tl.store(UNIFORM + at, tl.uint_to_uniform_float(tl.load(WORD + at).to(tl.uint32)))


@pytest.mark.parametrize(
    ("counter", "seed", "expected"),
    [
        ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D)),
        ((0xFFFFFFFF,) * 4, 0xFFFFFFFFFFFFFFFF, (0x408F276D, 0x41C83B0E)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0A4093822,
            (0xD16CFE09, 0x94FDCCEB),
        ),
    ],
)
def test_published_vectors(counter: tuple[int, ...], seed: int, expected: tuple[int, int]) -> None:
    """The known-answer vectors published with Philox4x32-10 are reproduced (zeros, ones, digits of
    pi).
    """
    first, second = noise.philox(seed, *(torch.tensor([c]) for c in counter))
    assert (first.item(), second.item()) == expected


@pytest.mark.parametrize("seed", [0, 7, (3 << 32) + 12345, (1 << 63) - 1])
def test_words_are_those_of_triton(seed: int) -> None:
    """Words and uniforms equal Triton's bit for bit, for small and for huge counters."""
    counter = torch.from_numpy(np.random.default_rng(0).integers(0, 1 << 32, (4, 64)))
    counter[:, :8] = torch.arange(8)
    first, second, uniform = (
        torch.empty(64, dtype=torch.int64),
        torch.empty(64, dtype=torch.int64),
        torch.empty(64),
    )
    philox_kernel[(1,)](torch.tensor([seed]), counter, first, second, uniform, M=64)
    ours = noise.philox(seed, *counter)
    assert torch.equal(ours[0], first)
    assert torch.equal(ours[1], second)
    assert torch.equal(noise.to_unit_interval(ours[0]), uniform)


def test_uniforms_are_those_of_triton() -> None:
    """The conversion to [0, 1) equals Triton's bit for bit, at both ends of the range too."""
    words = torch.tensor(WORDS + [5] * (16 - len(WORDS)))
    theirs = torch.empty(16)
    uniform_kernel[(1,)](words, theirs, M=16)
    ours = noise.to_unit_interval(words)
    assert torch.equal(ours, theirs)
    assert ours.min() == 0.0
    assert ours.max() == LARGEST


def test_decoding_noise_depends_on_counters_alone() -> None:
    """Each uniform depends on (seed, instance, attempt, start, step), not on its place in the
    batch.
    """
    key, attempt = torch.tensor([5, 0xFFFFFFFF, 9]), torch.tensor([3, 4])
    whole = noise.decoding_uniforms(11, key, attempt, starts=4, steps=6)
    assert torch.equal(noise.decoding_uniforms(11, key[1:2], attempt[1:], 4, 6), whole[1:2, 1:])
    one = [torch.tensor([c]) for c in (2 * 6 + 5, 4, 9, noise.Stream.DECODING)]  # start 2, step 5
    assert noise.to_unit_interval(noise.philox(11, *one)[0]).item() == whole[2, 1, 2, 5].item()


def test_streams_and_seeds_differ() -> None:
    """Latents, decisions and seeds share no random numbers."""
    key, attempt = torch.tensor([1]), torch.arange(4)
    decisions = noise.decoding_uniforms(3, key, attempt, 1, 64)[0, :, 0]
    latents = noise.latent_uniforms(3, key, attempt, 64)[0, ..., 0]
    other, high = (
        noise.decoding_uniforms(4, key, attempt, 1, 64)[0, :, 0],
        noise.decoding_uniforms(3 + (1 << 32), key, attempt, 1, 64)[0, :, 0],
    )
    for a, b in [(decisions, latents), (decisions, other), (decisions, high)]:
        assert (a != b).float().mean() > 0.99
    assert (latents != noise.latent_uniforms(3, key, attempt, 64)[0, ..., 1]).float().mean() > 0.99


def test_normals_have_the_right_moments() -> None:
    """Mean 0, variance 1, no skew, kurtosis 3, and no correlation between coordinates, within
    4.5 standard errors.
    """
    x = noise.box_muller(noise.latent_uniforms(0, torch.arange(50), torch.arange(100), 16)).double()
    n, flat = x.numel(), x.flatten()
    assert torch.isfinite(x).all()
    for moment, expected, variance in [
        (1, 0, 1),
        (2, 1, 2),
        (3, 0, 15),
        (4, 3, 96),
    ]:  # of x^m under N(0, 1)
        assert abs(flat.pow(moment).mean() - expected) < 4.5 * (variance / n) ** 0.5
    correlation = torch.corrcoef(x.reshape(-1, 16).T) - torch.eye(16)
    assert correlation.abs().max() < 4.5 * (n / 16) ** -0.5


def test_normals_of_extreme_uniforms_are_finite() -> None:
    """The ends of the uniform range give finite normals: 0 and about 5.77."""
    ends = torch.tensor([[0.0, 0.3], [LARGEST, 0.0], [LARGEST, LARGEST]])
    values = noise.box_muller(ends)
    assert values[0].abs() == 0.0
    assert values[1].item() == pytest.approx((2 * 24 * np.log(2)) ** 0.5, rel=1e-6)
    assert torch.isfinite(values).all()
