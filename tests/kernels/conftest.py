"""Kernels run in Triton's interpreter here.

Triton reads the environment when it is imported, so this file sets it before any other import.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from rhumbline import noise
from rhumbline.decoding import BELOW_ONE, choose
from rhumbline.kernels.triton.rollout import tables as rollout_tables

NEAR_TIE = 1e-5  # of the total weight, or of a logit: float32 sums in another order


def assert_choices_of_torch(
    problem, policy, batch, latents, actions, temperature: float, seed: int, attempt: int
) -> None:
    """Check that each action of a kernel, given those before it, is what the same uniform selects
    in torch, or a near tie.
    """
    _, tried, per, horizon = actions.shape
    sequences = actions.flatten(1, 2).long()
    memory, state = policy.encode(batch), problem.replay(batch, sequences)
    shift = policy.condition(memory, latents.repeat_interleave(per * (horizon - 1), 1))
    allowed = problem.mask(state)
    logits = policy.logits(memory, shift, state, allowed)
    uniform = noise.decoding_uniforms(seed, batch.key, attempt + torch.arange(tried), per, horizon)[
        ..., 1:
    ].flatten(1)
    taken = sequences[:, :, 1:].flatten(1)
    different = taken != choose(logits, allowed, uniform, temperature)
    logits = logits.double().masked_fill(~allowed, -torch.inf)
    if temperature == 0:
        tie = logits.amax(-1) - logits.gather(-1, taken[..., None])[..., 0]
    else:
        sums = (logits / temperature).softmax(-1).cumsum(-1)
        tie = (sums - uniform[..., None] * BELOW_ONE).abs().amin(-1)
    assert (tie[different] < NEAR_TIE).all()
    assert (
        different.double().mean() < 0.002
    )  # so the rule is the same, and not all decisions are near ties


@pytest.fixture(scope="session")
def assert_choices() -> Callable[..., None]:
    return assert_choices_of_torch


@pytest.fixture
def small_parts(monkeypatch) -> None:
    """Work on columns in parts of 32, so that few nodes make several parts; a part has two groups
    of the choice (64 columns have four).
    """
    tuning = replace(rollout_tables.TUNING, whole_columns=32, part_columns=32)
    monkeypatch.setattr(rollout_tables, "TUNING", tuning)
