"""Fixtures: small suites that run in a second."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_suites import METHODS, SET

from rhumbline.bench.suite import Suite, read_suite
from rhumbline.checkpoint import TrainingFacts, save
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.tsp import TSPPolicy


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a checkpoint with untrained weights."""
    path = tmp_path_factory.mktemp("policy") / "tiny.safetensors"
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(3)
        save(path, TSPPolicy(Architecture(16, 2, 1, 16, 4)), TrainingFacts("tsp", 20, 7))
    return path


@pytest.fixture
def write(tmp_path: Path, policy: Path) -> Callable[..., Path]:
    """Return a writer of suites. The default has one set of four instances and two methods."""

    def make(text: str = SET + METHODS, name: str = "small") -> Path:
        path = tmp_path / f"{name}.toml"
        path.write_text(text.replace("{policy}", str(policy)))
        return path

    return make


@pytest.fixture
def suite(write: Callable[..., Path]) -> Suite:
    return read_suite(write())
