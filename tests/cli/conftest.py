"""A tiny policy, small files, and two ways to run the command: in this process or in its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rhumbline.checkpoint import TrainingFacts, save
from rhumbline.cli.app import app
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.tsp import TSPPolicy

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(ROOT),
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "100",
    "TERM": "xterm",
}
RECIPE = """problem = "tsp"
size = 8
batch = 4
updates = 3
report = 0.0
[policy]
width = 16
heads = 2
layers = 1
hidden = 16
latent = 4
[objective]
latents = 4
starts = 4
[validation]
count = 4
latents = 2
"""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a checkpoint of an untrained policy."""
    path = tmp_path_factory.mktemp("policy") / "tiny.safetensors"
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(3)
        save(
            path,
            TSPPolicy(Architecture(16, 2, 1, 16, 4)),
            TrainingFacts("tsp", 20, 7, validation={"greedy": 4.5}),
        )
    return path


@pytest.fixture
def tsp(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes TSPLIB files with random cities."""

    def make(name: str, size: int = 6, title: str = "", first: int = 1) -> Path:
        points = np.random.default_rng(len(name) + size).integers(0, 100, (size, 2))
        rows = [f"{first + i} {x} {y}" for i, (x, y) in enumerate(points)]
        head = [
            f"NAME : {title or name}",
            f"DIMENSION : {size}",
            "EDGE_WEIGHT_TYPE : EUC_2D",
            "NODE_COORD_SECTION",
        ]
        path = tmp_path / f"{name}.tsp"
        path.write_text("\n".join([*head, *rows, "EOF", ""]))
        return path

    return make


@pytest.fixture
def square(tmp_path: Path) -> Path:
    """Write the corners of a square, numbered 10 to 40; its best tour of 40 is in `optima.json`."""
    (tmp_path / "optima.json").write_text('{"square": 40}')
    head = "NAME : square\nDIMENSION : 4\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n"
    path = tmp_path / "square.tsp"
    path.write_text(head + "10 0 0\n20 10 10\n30 0 10\n40 10 0\nEOF\n")
    return path


@pytest.fixture
def rhumb() -> Callable[..., Any]:
    """Return a function that runs the command in this process: exit_code, stdout and stderr."""
    return lambda *words: CliRunner().invoke(app, [str(w) for w in words], env={"COLUMNS": "200"})


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts the command as a process of its own, in `tmp_path`."""
    running: list[subprocess.Popen[str]] = []

    def begin(*words: object, **more: Any) -> subprocess.Popen[str]:
        command = more.pop("args", [sys.executable, "-m", "rhumbline", *map(str, words)])
        defaults = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "cwd": tmp_path,
            "env": ENVIRONMENT,
        }
        running.append(subprocess.Popen(command, **(defaults | more)))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return path
