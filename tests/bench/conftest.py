"""Fixtures: small suites that run in a second, and the programs of benchmarks/ as modules."""

import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tiny_suites import METHODS, SET

from rhumbline.bench.suite import Suite, read_suite
from rhumbline.checkpoint import TrainingFacts, save
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.tsp import TSPPolicy

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="session")
def load_script() -> Callable[[str], ModuleType]:
    """Return a loader of programs of benchmarks/.

    It finds their neighbours as Python does there.
    """

    def load(name: str) -> ModuleType:
        sys.path.insert(0, str(BENCHMARKS))
        spec = spec_from_file_location(f"{name}_script", BENCHMARKS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.path.remove(str(BENCHMARKS))
        return module

    return load


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
