"""Kernels run in Triton's interpreter here.

Triton reads the environment when it is imported, so this file sets it before any other import.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from rhumbline.decoding import Rollouts
from rhumbline.kernels.triton.rollout import tables as rollout_tables
from rhumbline.testing.engines import Decoder, Parity, check_choices


def assert_choices_of_torch(
    problem, policy, batch, latents, actions, temperature: float, seed: int, attempt: int
) -> None:
    """Check that each action of a kernel, given those before it, is what the same uniform selects
    in torch, or a near tie.
    """
    rolled = Rollouts(torch.empty(actions.shape[:3]), actions)
    decoder = Decoder(problem, policy, batch, latents)
    check_choices(decoder, rolled, temperature, Parity(seed=seed, attempt=attempt))


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
