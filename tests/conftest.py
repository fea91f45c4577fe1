"""Small policies and batches for all tests.

One thread, so that the suite is quick on a shared machine.
"""

# ruff: noqa: E402 (the environment and the hook come before the imports they are for)

import os
import signal

# Before anything imports triton; tests/kernels/conftest.py sets the same.
os.environ["TRITON_INTERPRET"] = "1"

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from interpreting import hasten
from jaxtyping import install_import_hook
from torch.utils._python_dispatch import TorchDispatchMode

# Shapes in signatures are checked while the tests run. Not in kernels, which are not Python, and
# not in `record`, whose `Self` beartype cannot check.
CHECKED = (
    "api",
    "checkpoint",
    "decoding.completion",
    "decoding.engines",
    "decoding.neighbourhoods",
    "decoding.rollouts",
    "decoding.scoring",
    "decoding.request",
    "inputs",
    "noise",
    "pipeline",
    "formats.values.coordinates",
    "formats.vrplib",
    "policies.attention",
    "policies.cvrp",
    "policies.jssp",
    "policies.jssp_l2d",
    "policies.jssp_machines",
    "policies.population",
    "policies.latent_space",
    "policies.tsp",
    "problems.costs",
    "problems.cvrp",
    "problems.distributions",
    "problems.edges",
    "problems.jssp.edges",
    "problems.jssp.dispatch_rules",
    "problems.jssp.left_shift_rules",
    "problems.jssp.machine_rules",
    "problems.jssp.rules",
    "problems.standard_sets",
    "problems.symmetry",
    "problems.tsp",
    "search.cma_es",
    "search.driver",
    "search.plan_sets.diverse",
    "search.plan_sets.similarity",
    "search.solution",
    "search.strategies.cmaes",
    "search.strategies.cmaes_eas",
    "search.strategies.eas",
    "search.strategies.greedy_sampling",
    "search.strategies.population",
    "search.strategies.sgbs",
    "search.strategies.start_bandit",
    "search.strategy",
    "search.task",
    "training.critic",
    "training.loop",
    "training.objectives",
    "training.parallel",
    "training.trainer",
)
PACKAGE = Path(__file__).parents[1] / "rhumbline"
for name in CHECKED:  # the hook ignores names of modules that are not there
    place = PACKAGE / name.replace(".", "/")
    assert place.is_dir() or place.with_suffix(".py").is_file(), name
install_import_hook([f"rhumbline.{name}" for name in CHECKED], "beartype.beartype")

from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.tsp import TSP, TSPBatch, TSPInstance

torch.set_num_threads(1)
hasten()
# A shell's background jobs begin with SIGINT ignored, and tests that interrupt something would wait
# for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


def tiny_policy(latent: int = 4, seed: int = 0, **sizes: int) -> TSPPolicy:
    """Return a random policy whose logits are neither flat nor saturated and whose
    latents matter.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        small = {"width": 32, "heads": 2, "layers": 1, "hidden": 32, "latent": latent}
        policy = TSPPolicy(Architecture(**small | sizes))
        for name, weight in policy.decoder.named_parameters():
            if name.endswith("_latent"):
                weight.data.normal_(0, 0.01)  # times the amplification of 100
            elif name.endswith("_bias"):
                weight.data.normal_(0, 0.3)
    return policy.requires_grad_(False)


@pytest.fixture(scope="session")
def make_policy() -> Callable[..., TSPPolicy]:
    return tiny_policy


@pytest.fixture(scope="session")
def policy() -> TSPPolicy:
    return tiny_policy()


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(1)


@pytest.fixture
def make_batch(rng: torch.Generator) -> Callable[[int, int], TSPBatch]:
    return lambda count, size: TSP().sample(count, size, rng)


@pytest.fixture
def make_instances() -> Callable[..., list[TSPInstance]]:
    """Return a function that makes instances in the unrounded metric, in any unit."""

    def make(count: int, size: int, seed: int = 0, scale: float = 1.0) -> list[TSPInstance]:
        xy = scale * np.random.default_rng(seed).random((count, size, 2))
        return [TSPInstance(f"random-{i}", "EXACT_2D", xy=x) for i, x in enumerate(xy)]

    return make


class ForbidHostSync(TorchDispatchMode):
    """Fail on operations that read device memory on the host, or size a tensor by it."""

    FORBIDDEN = (
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "unique",
        "is_nonzero",
        "item",
        "repeat_interleave",
    )
    INDEXING = ("index", "index_put", "index_put_")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in self.FORBIDDEN, func
        if name in self.INDEXING:
            indices = [index for index in args[1] if index is not None]
            assert all(index.dtype != torch.bool for index in indices), func
        return func(*args, **(kwargs or {}))


@pytest.fixture
def forbid_host_sync() -> TorchDispatchMode:
    return ForbidHostSync()
