"""`rhumb check`: plans that already exist are verified and priced."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rhumbline.cli.app import app

EXAMPLES = Path(__file__).parents[2] / "examples"
HARBOUR = EXAMPLES / "harbour100.tsp"
TOUR = EXAMPLES / "harbour100.opt.tour"

SQUARE = "TYPE : TOUR\nTOUR_SECTION\n{}\n-1\nEOF\n"
ROUTES = (
    "NAME : two\nTYPE : CVRP\nDIMENSION : 4\nEDGE_WEIGHT_TYPE : EUC_2D\nCAPACITY : 2.5\n"
    "NODE_COORD_SECTION\n1 0 0\n2 3 4\n3 6 8\n4 0 5\n"
    "DEMAND_SECTION\n1 0\n2 1\n3 1.5\n4 1\nDEPOT_SECTION\n1\n-1\nEOF\n"
)
SHOP = "2 2\n0 3 1 2\n1 4 0 1\n"


def test_the_examples(rhumb: Callable[..., Any]) -> None:
    """A folder with instances and plans: each plan costs what is known as best."""
    found = rhumb("check", EXAMPLES, "--json")
    assert found.exit_code == 0, found.stderr
    results = [json.loads(line) for line in found.stdout.splitlines()]
    assert [(one["name"], one["cost"], one["gap"], one["verified"]) for one in results] == [
        ("bakery80", 11731, 0, True),
        ("harbour100", 5191, 0, True),
        ("workshop12", 550, 0, True),
    ]
    found = rhumb("check", HARBOUR, TOUR)
    assert (
        found.stdout
        == f"harbour100   cost 5,191   gap 0.00% to 5,191 (best known)   verified   {TOUR}\n"
    )


@pytest.mark.parametrize(
    ("plan", "text", "words"),
    [
        ("square.tour", SQUARE.format("10\n20\n30"), ":2: TOUR_SECTION has 3 nodes, square has 4"),
        ("square.tour", SQUARE.format("10\n20\n20\n30"), ":5: node 20 is given twice, first on"),
        ("square.tour", SQUARE.format("10\n20\n50\n30"), ":5: node 50 is not in square"),
        ("a.json", '{"name": "square", "plan": [10, 20, 20, 30]}', "visits city 20 2 times"),
        ("a.json", '{"name": "square", "plan": [10, 20, 50, 30]}', "no plan for square, expected"),
        (
            "a.json",
            '{"name": "square", "plan": [10, 30, 20, 40], "cost": 41}',
            ":1: the cost is said to be 41, the plan costs 40",
        ),
        ("two.sol", "Route #1: 1 2 3\n", ":1: the route carries 3.5, the capacity of two is 2.5"),
        ("two.sol", "Route #1: 1 2\nRoute #2: 1\n", ":2: customer 1 is served twice, first on"),
        ("two.sol", "Route #1: 1 2\n", "customer 3 is visited 0 times"),
        ("two.sol", "Route #1: 1 2\nRoute #2: 3\nCost 40\n", ":3: the cost is said to be 40"),
        ("shop.sched", "Job 1: 0 3\nJob 2: 0 4\n", "is no schedule for shop"),
        ("shop.sched", "Job 1: 0 4\n", "job 2 is missing"),
        ("shop.sched", "Job 1: 0 4\nJob 2: 0 4\nMakespan 9\n", ":3: the makespan is said to be 9"),
    ],
)
def test_a_violated_rule(
    rhumb: Callable[..., Any], square: Path, tmp_path: Path, plan: str, text: str, words: str
) -> None:
    """The exit code is 5, and the message names the line and the rule."""
    (tmp_path / "two.vrp").write_text(ROUTES)
    (tmp_path / "shop.jsp").write_text(SHOP)
    (tmp_path / plan).write_text(text)
    instance = {".tour": square, ".json": square, ".sol": tmp_path / "two.vrp"}
    file = instance.get(Path(plan).suffix, tmp_path / "shop.jsp")
    found = rhumb("check", file, tmp_path / plan, "--json")
    assert found.exit_code == 5
    result = json.loads(found.stdout)
    assert not result["verified"]
    assert words in result["violation"]
    assert plan in result["violation"]
    found = rhumb("check", file, tmp_path / plan)
    assert found.exit_code == 5
    assert f"INVALID: {result['violation']}" in found.stdout


def test_several_pairs(rhumb: Callable[..., Any], square: Path, tmp_path: Path) -> None:
    """Plans are matched by name; one instance may have several, and another none."""
    (tmp_path / "two.vrp").write_text(ROUTES)
    (tmp_path / "shop.jsp").write_text(SHOP)
    (tmp_path / "two.best.sol").write_text("Route #1: 1 2\nRoute #2: 3\nCost 30\n")
    (tmp_path / "two.2.sol").write_text("Route #1: 2\nRoute #2: 1 3\n")
    (tmp_path / "all.jsonl").write_text('{"name": "square", "plan": [10, 30, 20, 40]}\n')
    pairs = [tmp_path / name for name in ("two.vrp", "two.best.sol", "two.2.sol", "all.jsonl")]
    for words in ([tmp_path], [square, tmp_path / "shop.jsp", *pairs]):
        found = rhumb("check", *words, "--json")
        assert found.exit_code == 0, found.stdout
        results = [json.loads(line) for line in found.stdout.splitlines()]
        costs = {Path(one["plan_file"]).name: one["cost"] for one in results}
        assert costs == {"all.jsonl": 40, "two.2.sol": 33, "two.best.sol": 30}
        assert "no plan for 1 of 3 instances: shop" in found.stderr


def test_limits_of_options(rhumb: Callable[..., Any], tmp_path: Path) -> None:
    """They replace those of the file; a fleet that is too large leaves the cost."""
    (tmp_path / "two.vrp").write_text(ROUTES)
    (tmp_path / "two.json").write_text('{"name": "two", "plan": [[1], [2], [3]], "cost": 40}')
    files = (tmp_path / "two.vrp", tmp_path / "two.json")
    assert rhumb("check", *files).exit_code == 0
    found = rhumb("check", *files, "--vehicles", 2)
    assert found.exit_code == 5
    assert "the plan needs 3 vehicles, 2 are allowed" in found.stdout
    found = rhumb("check", *files, "--capacity", 1)
    assert found.exit_code == 3
    assert "customer 2 demands 1.5, more than the capacity 1" in found.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((HARBOUR,), "there is no plan in"),
        ((TOUR,), "there is no instance in"),
        ((HARBOUR, "nosuch.tour"), "nosuch.tour: there is no such file"),
        ((HARBOUR, "nosuch.txt"), "nosuch.txt: there is no such file"),
        (("nosuch.tsp", TOUR), "nosuch.tsp: there is no such file"),
        ((HARBOUR, EXAMPLES / "bakery80.best.sol"), "holds a plan for cvrp, but harbour100 is"),
        ((HARBOUR, EXAMPLES / "optima.json"), "optima.json"),
    ],
)
def test_what_cannot_be_read(rhumb: Callable[..., Any], words: Any, expected: str) -> None:
    """Files that are no plans are errors of input, not violations."""
    found = rhumb("check", *words)
    assert found.exit_code == 3
    assert expected in found.stderr


def test_a_plan_from_standard_input(square: Path) -> None:
    """`rhumb solve FILE --json | rhumb check FILE -`; the content says which of both it is."""
    result = '{"name": "square", "plan": [10, 30, 20, 40], "cost": 40}\n'
    words = ["check", str(square), "-"]
    found = CliRunner().invoke(app, words, input=result)
    assert found.stdout.endswith("verified   standard input\n"), found.stderr
    found = CliRunner().invoke(app, words, input=result.replace("40}", "41}"))
    assert found.exit_code == 5
    assert "INVALID: standard input:1: the cost is said to be 41" in found.stdout
