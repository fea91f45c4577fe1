"""A policy for vehicles that several searches are tested with."""

import pytest
import torch

from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy


@pytest.fixture(scope="session")
def driver() -> CVRPPolicy:
    """A policy that has learnt nothing."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(3)
        return CVRPPolicy(Architecture(width=16, heads=2, layers=1, hidden=16, latent=4)).eval()
