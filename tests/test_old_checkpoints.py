"""Checkpoints written before the modules were renamed still load, and find the same solutions.

`tests/data/checkpoints` holds a tiny random policy of every architecture, saved by commit d90c404,
and the cost of its greedy solution there.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rhumbline

FOLDER = Path(__file__).parent / "data" / "checkpoints"
COSTS: dict[str, float] = json.loads((FOLDER / "costs.json").read_text(encoding="utf-8"))


def instance_for(problem: str) -> Any:
    """The instance that the costs belong to."""
    if problem == "tsp":
        return np.random.default_rng(1).random((1, 40, 2))
    if problem == "cvrp":
        rng = np.random.default_rng(2)
        xy = rng.random((1, 41, 2))[0]
        return xy[0], xy[1:], rng.integers(1, 10, (1, 40))[0], 20
    rng = np.random.default_rng(3)
    durations = rng.integers(1, 100, (8, 6))
    machines = np.stack([rng.permutation(6) for _ in range(8)])
    return {"durations": durations.tolist(), "machines": machines.tolist()}


@pytest.mark.parametrize("name", COSTS)
def test_a_checkpoint_of_the_former_modules_finds_the_same_cost(name: str) -> None:
    """Costs differ between policies, so equal costs mean equal weights and equal decisions."""
    (solution,) = rhumbline.solve(
        instance_for(name.split("-", maxsplit=1)[0]),
        policy=str(FOLDER / f"{name}.safetensors"),
        strategy="population" if name.endswith("population") else "greedy",
        attempts=1,
        seed=1,
        device="cpu",
        engine="torch",
    )
    assert solution.cost == pytest.approx(COSTS[name], rel=1e-6)


def test_every_architecture_has_one() -> None:
    """No architecture is left out."""
    assert {"tsp", "cvrp", "jssp", "jssp-machines", "tsp-population"} <= set(COSTS)


def test_costs_tell_policies_apart() -> None:
    """Both job-shop networks solve one instance with different costs."""
    assert COSTS["jssp"] != COSTS["jssp-machines"]
