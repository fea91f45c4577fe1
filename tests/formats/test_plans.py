"""Plans to start from: every kind of file, which instance it belongs to, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rhumbline.errors import InputError
from rhumbline.files import write_plan
from rhumbline.files.plans import match_plan_files, plans_for, resolve_plan
from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.jssp import Schedule
from rhumbline.problems.jssp import jssp_from_arrays as shop
from rhumbline.problems.tsp import Tour, TSPInstance

CITIES = TSPInstance(
    "cities", "EUC_2D", xy=np.array([[0.0, 0], [0, 3], [4, 3], [4, 0]]), numbers=(10, 20, 30, 40)
)
TOUR = Tour((0, 2, 1, 3))
DELIVERY = CVRPInstance(
    "delivery", "EUC_2D", (0, 1, 1, 1), 2, xy=np.array([[0.0, 0], [0, 3], [4, 3], [4, 0]])
)
ROUTES = Routes(((3, 1), (2,)))
SHOP = shop([[2, 3], [4, 1]], [[0, 1], [1, 0]], "shop")
SCHEDULE = Schedule(((0, 4), (0, 4)))
ALL = [(CITIES, TOUR, ".tour"), (DELIVERY, ROUTES, ".sol"), (SHOP, SCHEDULE, ".sched")]


def result(instance, plan, **more) -> str:
    return json.dumps(
        {"name": instance.name, "problem": instance.problem, "plan": plan.to_file_numbers(instance)}
        | more
    )


@pytest.mark.parametrize(("instance", "plan", "ending"), ALL, ids=["tsp", "cvrp", "jssp"])
def test_what_is_written_is_read(tmp_path: Path, instance, plan, ending: str) -> None:
    """A plan comes back equal from its own file format and from a result in JSON."""
    write_plan(tmp_path / f"a{ending}", plan, instance, "")
    assert resolve_plan(tmp_path / f"a{ending}", instance) == plan
    (tmp_path / "a.json").write_text(result(instance, plan, cost=7))
    assert resolve_plan(str(tmp_path / "a.json"), instance) == plan
    assert resolve_plan(plan, instance) is plan


def test_one_of_many_results(tmp_path: Path) -> None:
    """A file with the results of several instances serves each by its name."""
    path = tmp_path / "all.jsonl"
    path.write_text("\n".join(result(instance, plan) for instance, plan, _ in ALL) + "\n")
    assert match_plan_files([i for i, _, _ in ALL], [path]) == [p for _, p, _ in ALL]


@pytest.mark.parametrize("indent", [None, 1])
def test_results_in_any_layout(tmp_path: Path, indent: int | None) -> None:
    """One after the other or in a list, on one line each or many, as `jq` lays them out."""
    found = [json.loads(result(instance, plan)) for instance, plan, _ in ALL]
    texts = [
        json.dumps(found, indent=indent),
        "\n\n".join(json.dumps(one, indent=indent) for one in found),
    ]
    for text in texts:
        (tmp_path / "all.json").write_text(text)
        assert match_plan_files([i for i, _, _ in ALL], [tmp_path / "all.json"]) == [
            p for _, p, _ in ALL
        ]


def test_files_belong_to_instances_by_name(tmp_path: Path) -> None:
    """Among several instances a file is for its namesake; for a single one any name serves."""
    for name in ("cities.tour", "cities.opt.tour", "best.tour"):
        write_plan(tmp_path / name, TOUR, CITIES, "")
    for name in ("cities.tour", "cities.opt.tour"):
        assert match_plan_files([DELIVERY, CITIES], [tmp_path / name]) == [None, TOUR]
    assert match_plan_files(
        [replace(CITIES, name="cities.opt"), CITIES], [tmp_path / "cities.opt.tour"]
    ) == [
        TOUR,
        None,
    ]
    assert match_plan_files([CITIES], [tmp_path / "best.tour"]) == [TOUR]
    with pytest.raises(
        InputError, match=r"best.tour: belongs to none of the 2 instances \(delivery, cities\)"
    ):
        match_plan_files([DELIVERY, CITIES], [tmp_path / "best.tour"])
    with pytest.raises(
        InputError, match=r"none of the 4 instances \(delivery, delivery, delivery, ...\) by name"
    ):
        match_plan_files([DELIVERY] * 4, [tmp_path / "best.tour"])
    with pytest.raises(
        InputError, match=r"tour: belongs to none of the 3 instances \(c, citi, delivery\) by name"
    ):
        match_plan_files(
            [replace(CITIES, name=n) for n in ("c", "citi")] + [DELIVERY],
            [tmp_path / "cities.opt.tour"],
        )
    with pytest.raises(InputError, match="is a second plan for cities, expected one"):
        match_plan_files([CITIES], [tmp_path / "best.tour", tmp_path / "cities.tour"])


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "{", "a.json:1: is not JSON"),
        ("a.json", '{"name": "cities",\n "plan": [10 20]}', "a.json:2: is not JSON"),
        ("a.json", "[" * 100_000, "a.json:1: is not JSON"),
        ("a.json", "[1, 2]", 'a.json: expected an object with "name" and "plan"'),
        ("a.json", "7", 'a.json:1: expected an object with "name" and "plan"'),
        ("a.json", "[]", "a.json: has no plan for tsp cities, nor for any other"),
        (
            "a.json",
            '{"name": "a", "plan": []}\n' * 4,
            "only for instance a, instance a, instance a, ...",
        ),
        ("a.json", '\n{"name": "cities"}', 'a.json:2: expected an object with "name" and "plan"'),
        (
            "a.json",
            '{"name": "other", "plan": [1]}',
            "has no plan for tsp cities, only for instance other",
        ),
        (
            "a.json",
            '{"name": "cities", "problem": "cvrp", "plan": []}',
            "no plan for tsp cities, only for cvrp cities",
        ),
        (
            "a.json",
            '{"name": "cities", "plan": [1, 2, 3, 4]}',
            "no plan for cities, expected a list of whole numbers",
        ),
        (
            "a.json",
            '{"name": "cities", "plan": 5}',
            "no plan for cities, expected a list of whole numbers",
        ),
        (
            "a.json",
            '{"name": "cities", "plan": [[10]]}',
            "no plan for cities, expected a list of whole numbers",
        ),
        (
            "a.json",
            '{"name": "cities", "plan": [10, 20, 30]}',
            "no plan for cities: the tour visits city 40 0 times",
        ),
        ("a.json", "", "the file is empty"),
        ("a.tour", "TOUR_SECTION\n10\n20\n-1\n", "TOUR_SECTION has 2 nodes, cities has 4 cities"),
        (
            "a.tour",
            "TOUR_SECTION\n1\n-1\n",
            "node 1 is not in cities; is this the tour of another instance?",
        ),
        ("a.sol", "Route #1: 1\n", "holds a plan for cvrp, but cities is a tsp"),
        ("a.txt", "1 2 3", "expected one of .tour, .sol, .sched, .json, .jsonl"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    """Each is an error that names the file, the line where there is one, and what was expected."""
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as caught:
        resolve_plan(tmp_path / name, CITIES)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "plan", ["[[1, 2, 3]]", '[[1, 2], ["3"]]', "[[1, 2]]", "[[1.0], [2, 3]]", "null"]
)
def test_bad_routes_are_refused(tmp_path: Path, plan: str) -> None:
    """Overloaded, incomplete and meaningless routes are no plans."""
    (tmp_path / "a.json").write_text(f'{{"name": "delivery", "plan": {plan}}}')
    with pytest.raises(InputError, match=r"a.json:1: .*is no plan for delivery"):
        resolve_plan(tmp_path / "a.json", DELIVERY)


def test_a_missing_file(tmp_path: Path) -> None:
    """A file that is not there is said to be missing."""
    with pytest.raises(InputError, match="there is no such file"):
        plans_for([CITIES], tmp_path / "a.tour")


def test_numbers_of_plans() -> None:
    """One plan is for one instance; a list has an entry for each; no plan is no plan."""
    assert plans_for([CITIES, DELIVERY], None) == [None, None]
    assert plans_for([CITIES, DELIVERY], [None, ROUTES]) == [None, ROUTES]
    assert plans_for([CITIES], TOUR) == [TOUR]
    with pytest.raises(InputError, match="one plan to start from, but 2 instances"):
        plans_for([CITIES, DELIVERY], TOUR)
    with pytest.raises(
        InputError, match="1 plans to start from, but 2 instances; use None for no plan"
    ):
        plans_for([CITIES, DELIVERY], [TOUR])


def test_a_tour_that_names_another_instance_is_refused(tmp_path: Path) -> None:
    """Any order of three cities is feasible, so the name decides; variants of it count."""
    instance = TSPInstance("kroC3", "EXACT_2D", xy=np.array([[0.0, 0], [1, 0], [0, 1]]))
    tour = tmp_path / "a.tour"
    body = "TYPE : TOUR\nDIMENSION : 3\nTOUR_SECTION\n1\n2\n3\n-1\nEOF\n"
    tour.write_text(f"NAME : kroA3\n{body}")
    with pytest.raises(InputError, match=":1: is a tour of kroA3, not of kroC3"):
        plans_for([instance], tour)
    for own in ("kroC3.opt.tour", "KROC3"):
        tour.write_text(f"NAME : {own}\n{body}")
        assert plans_for([instance], tour)[0].order == (0, 1, 2)
