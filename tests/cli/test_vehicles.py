"""`rhumb solve --vehicles`: within the fleet, or exit 5 without a loss for the other files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rhumbline.checkpoint import TrainingFacts, save
from rhumbline.files import read
from rhumbline.formats.vrplib import read_sol
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy

Run = Callable[..., Any]
# Demands 6, 6, 4, 4 and vehicles of 10: two must cross over (80), three need not (60); see
# tests/search/test_fleet.py.
SIDES = {1: (10, 0, 0), 2: (0, 0, 6), 3: (0, 0, 6), 4: (20, 0, 4), 5: (20, 0, 4)}
THIRDS = {1: (0, 0, 0), 2: (1, 0, 6), 3: (2, 0, 6), 4: (3, 0, 6), 5: (4, 0, 0)}


@pytest.fixture(scope="module")
def routing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a checkpoint of an untrained policy for CVRP."""
    path = tmp_path_factory.mktemp("policy") / "routing.safetensors"
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(3)
        save(path, CVRPPolicy(Architecture(16, 2, 1, 16, 4)), TrainingFacts("cvrp", 20, 7))
    return path


def vrp(folder: Path, name: str, nodes: dict[int, tuple[int, int, int]], header: str = "") -> Path:
    lines = [
        f"NAME : {name}",
        "TYPE : CVRP",
        f"DIMENSION : {len(nodes)}",
        "EDGE_WEIGHT_TYPE : EUC_2D",
        "CAPACITY : 10",
    ]
    lines += [header] if header else []
    lines += ["NODE_COORD_SECTION", *(f"{n} {x} {y}" for n, (x, y, _) in nodes.items())]
    lines += [
        "DEMAND_SECTION",
        *(f"{n} {q}" for n, (_, _, q) in nodes.items()),
        "DEPOT_SECTION",
        "1",
        "-1",
        "EOF",
        "",
    ]
    path = folder / f"{name}.vrp"
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize(
    ("header", "words", "cost"),
    [
        ("", [], 60),
        ("", ["--vehicles", 2], 80),
        ("VEHICLES : 2", [], 80),
        ("VEHICLES : 2", ["--vehicles", 3], 60),
    ],
)
def test_a_limit_is_kept(
    rhumb: Run, routing: Path, tmp_path: Path, header: str, words: list[Any], cost: int
) -> None:
    """The option takes precedence over the file; the header names the limit."""
    file = vrp(tmp_path, "sides", SIDES, header)
    done = rhumb(
        "solve", file, "--policy", routing, "--attempts", 64, "--device", "cpu", "--json", *words
    )
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["cost"] == cost == sum(route["length"] for route in found["routes"])
    assert [route["customers"] for route in found["routes"]] == found["plan"]
    assert sum(route["load"] for route in found["routes"]) == 20
    assert max(route["load"] for route in found["routes"]) <= found["capacity"] == 10
    limit = words[-1] if words else header[-1:]
    assert (f"   at most {limit} vehicles   " in done.stderr) == bool(limit)


def test_a_limit_that_is_not_reached_is_exit_5(rhumb: Run, routing: Path, tmp_path: Path) -> None:
    """The best plan is printed and written, marked as over the limit; the error names the file and
    its numbers. The other file has no such mark.
    """
    files = [vrp(tmp_path, "thirds", THIRDS), vrp(tmp_path, "sides", SIDES)]
    words = (
        "--policy",
        routing,
        "--attempts",
        64,
        "--device",
        "cpu",
        "--vehicles",
        2,
        "--output",
        tmp_path,
        "--quiet",
    )
    done = rhumb("solve", *files, *words, "--json")
    assert done.exit_code == 5
    assert done.stderr == (
        "error: thirds: the plan needs 3 vehicles, 2 are allowed; "
        "64 attempts found none within the limit: search longer, or allow more\n"
    )
    thirds, sides = [json.loads(line) for line in done.stdout.splitlines()]
    assert (thirds["name"], thirds["verified"], thirds["cost"]) == ("thirds", False, 14)
    assert thirds["over_limit"] == "needs 3 vehicles, limit 2"
    assert sorted(map(sorted, thirds["plan"])) == [[1], [2], [3, 4]]
    assert (sides["verified"], "over_limit" in sides) == (True, False)
    note = "COMMENT : over the limit: needs 3 vehicles, limit 2\n"
    assert (tmp_path / "thirds.sol").read_text().endswith(f"Cost 14\n{note}")
    assert "COMMENT" not in (tmp_path / "sides.sol").read_text()
    read_sol(tmp_path / "thirds.sol", read(vrp(tmp_path, "free", THIRDS)))


def test_people_see_that_a_plan_is_over_the_limit(
    rhumb: Run, routing: Path, tmp_path: Path
) -> None:
    """The line of the result says by how much, and does not call the plan verified; a picture is
    drawn.
    """
    file = vrp(tmp_path, "thirds", THIRDS, "VEHICLES : 2")
    words = ("--policy", routing, "--attempts", 8, "--device", "cpu", "--quiet", "--plot")
    done = rhumb("solve", file, *words, "--output", tmp_path)
    assert done.exit_code == 5
    assert "   OVER THE LIMIT: needs 3 vehicles, limit 2   -> " in done.stdout
    assert "verified" not in done.stdout
    assert (tmp_path / "thirds.png").stat().st_size


def test_too_few_vehicles_are_refused_before_the_search(
    rhumb: Run, routing: Path, tmp_path: Path
) -> None:
    """A demand of 20 needs two vehicles of 10: exit 3 with the numbers. No vehicle at all is wrong
    usage.
    """
    words = (
        "solve",
        vrp(tmp_path, "sides", SIDES),
        "--policy",
        routing,
        "--attempts",
        1,
        "--device",
        "cpu",
    )
    done = rhumb(*words, "--vehicles", 1)
    assert (done.exit_code, done.stdout) == (3, "")
    assert (
        "sides: 1 vehicles are allowed, but the demand of 20 needs at least 2 of capacity 10"
        in done.stderr
    )
    assert rhumb(*words, "--vehicles", 0).exit_code == 2


def test_tours_have_no_vehicles(rhumb: Run, policy: Path, square: Path) -> None:
    """The option is refused for TSP files."""
    done = rhumb("solve", square, "--policy", policy, "--vehicles", 2)
    assert done.exit_code == 3
    assert "square: a number of vehicles is for vehicle routing, this is 'tsp'" in done.stderr
