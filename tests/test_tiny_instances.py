"""Instances with one plan, or with plans of one cost, are solved at once whatever the budget is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rhumbline.cli.app import app
from rhumbline.pipeline import SolveRequest, solve_groups
from rhumbline.problems.cvrp import Routes, cvrp_from_arrays
from rhumbline.problems.jssp import Schedule, jssp_from_arrays
from rhumbline.problems.tsp import Tour, TSPInstance, tsp_from_array
from rhumbline.search.after_search import AfterSearch
from rhumbline.search.driver import Budget
from rhumbline.search.solution import Solution
from rhumbline.search.strategies import STRATEGIES

HOUR = Budget(seconds=3600.0)
TRIANGLE = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]])
MATRIX = np.array([[0.0, 5.0, 3.0], [5.0, 0.0, 4.0], [3.0, 4.0, 0.0]])
ONE_CITY = tsp_from_array(TRIANGLE[:1], "city")
ONE_CUSTOMER = cvrp_from_arrays([0, 0], [[3, 4]], [10], 10, "customer")
ONE_OPERATION = jssp_from_arrays([[5]], [[0]], "operation")


def solve_one(instance: Any, **more: Any) -> Solution:
    """Return the solution of an instance, on the CPU, without compiling kernels."""
    settings: dict[str, Any] = {"budget": HOUR, "device": "cpu", "engine": "torch"}
    request = SolveRequest(**(settings | more))
    (result,) = solve_groups([instance], request)
    (solution,) = result.solutions
    return solution


@pytest.mark.parametrize(
    ("instance", "plan", "cost"),
    [
        (ONE_CITY, Tour((0,)), 0),
        (tsp_from_array(TRIANGLE[:2], "two"), Tour((0, 1)), 10),
        (tsp_from_array(TRIANGLE, "three"), None, 12),
        (TSPInstance("matrix", "EXPLICIT", matrix=MATRIX), None, 12),
        (ONE_CUSTOMER, Routes(((1,),)), 10),
        (cvrp_from_arrays([0, 0], [[3, 4]], [0], 10, "nothing"), Routes(((1,),)), 10),
        (ONE_OPERATION, Schedule(((0,),)), 5),
        (jssp_from_arrays([[5, 2, 3]], [[0, 1, 0]], "job"), Schedule(((0, 5, 7),)), 10),
        (jssp_from_arrays([[5], [2], [4], [0]], [[0], [1], [0], [2]], "single"), None, 9),
        (jssp_from_arrays([[0]], [[0]], "no time"), Schedule(((0,),)), 0),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_one_attempt_is_enough(instance: Any, plan: Any, cost: float) -> None:
    """The plan is the only one, or as good as any, and an hour is not waited for."""
    phases = AfterSearch(top=2, polish=True, then="auto")
    for after in (AfterSearch(), phases):
        found = solve_one(instance, after=after)
        assert found.attempts == 1
        assert found.cost == pytest.approx(cost)
        assert plan is None or found.plan == plan


@pytest.mark.parametrize("strategy", STRATEGIES.table)
@pytest.mark.parametrize("instance", [ONE_CITY, ONE_CUSTOMER, ONE_OPERATION], ids=lambda x: x.name)
def test_every_strategy_ends_at_once(strategy: str, instance: Any) -> None:
    """Also those that would refuse a budget of one attempt, or need two plans to learn from."""
    assert solve_one(instance, strategy=strategy).attempts == 1


@pytest.mark.parametrize("policy", ["tsp100-single", "tsp100-poppy"])
def test_any_policy_and_symmetric_copies(policy: str) -> None:
    """Policies without a latent space, populations, and symmetric copies of the instance."""
    assert solve_one(ONE_CITY, policy=policy).attempts == 1
    assert solve_one(ONE_CITY, policy=policy, augment=8).cost == 0


@pytest.mark.parametrize(
    ("instance", "cost"),
    [
        # Each customer fills a vehicle: out and back three times.
        (cvrp_from_arrays([0, 0], [[3, 4], [0, 5], [5, 0]], [10] * 3, 10, "full"), 30.0),
        # Customers without demand are visited too; one vehicle serves all.
        (cvrp_from_arrays([0, 0], [[1, 0], [2, 0], [3, 0]], [0] * 3, 1, "empty"), 6.0),
        # The whole demand is exactly what a vehicle holds.
        (cvrp_from_arrays([0, 0], [[1, 0], [2, 0], [3, 0]], [4, 3, 3], 10, "exact"), 6.0),
        # Two jobs of two operations do have a choice.
        (jssp_from_arrays([[3, 2], [2, 4]], [[0, 1], [0, 1]], "shop"), 8.0),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_small_instances_with_a_choice_are_searched(instance: Any, cost: float) -> None:
    """Zero demands, and demands that equal the capacity, are no special case."""
    found = solve_one(instance, budget=Budget(attempts=32))
    assert found.attempts == 32
    assert found.cost == pytest.approx(cost)


def write_cities(folder: Path, count: int) -> Path:
    """Write a TSPLIB file with cities on a line."""
    head = f"NAME : line{count}\nDIMENSION : {count}\nEDGE_WEIGHT_TYPE : EUC_2D\n"
    rows = [f"{city} {city} 0\n" for city in range(1, count + 1)]
    path = folder / f"line{count}.tsp"
    path.write_text(f"{head}NODE_COORD_SECTION\n{''.join(rows)}EOF\n")
    return path


def test_a_folder_with_trivial_files(tmp_path: Path) -> None:
    """The search of the others has the budget; --then leaves the trivial ones alone."""
    for count in (1, 2, 5):
        write_cities(tmp_path, count)
    run: Callable[..., Any] = CliRunner().invoke
    words = ["--attempts", "16", "--json", "--device", "cpu", "--engine", "torch"]
    done = run(app, ["solve", str(tmp_path), *words])
    assert done.exit_code == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["name"], one["cost"], one["attempts"]) for one in found] == [
        ("line1", 0, 1),
        ("line2", 2, 1),
        ("line5", 8, 16),
    ]
    assert found[0]["plan"] == [1]
