"""Instances as mappings and as JSON files with the same keys, also those of job_shop_lib."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhumbline.errors import Infeasible, InputError
from rhumbline.files import read
from rhumbline.files.discovery import find_instance_files
from rhumbline.inputs import instances_from
from rhumbline.problems.cvrp import Routes

PLACES = [[0, 0], [3, 4], [6, 8]]
LENGTHS = [[0, 5, 10], [5, 0, 5], [10, 5, 0]]
TOURS = [{"coordinates": PLACES}, {"distances": LENGTHS}, {"matrix": LENGTHS, "name": "mine"}]
LOADS = {"capacity": 7.5, "vehicles": 2}
ROUTES = [
    {"depot": [0, 0], "customers": PLACES[1:], "demands": [2.5, 4], **LOADS},
    {"coordinates": PLACES, "demands": [0, 2.5, 4], **LOADS},
    {"distances": LENGTHS, "demands": [0, 2.5, 4], **LOADS},
    {"matrix": LENGTHS, "demands": [2.5, 4], "best_known": 20, **LOADS},
]
SHOP = {"duration_matrix": [[3, 2], [2, 4]], "machines_matrix": [[[0], [1]], [[1], [0]]]}


def both(tmp_path: Path, facts: dict[str, object]) -> list[object]:
    """Return the instance of a mapping, and that of a JSON file with the same content."""
    path = tmp_path / "own.json"
    path.write_text(json.dumps(facts))
    return [*instances_from(facts), read(path)]


@pytest.mark.parametrize("facts", TOURS, ids=lambda facts: next(iter(facts)))
def test_tours(tmp_path: Path, facts: dict[str, object]) -> None:
    """Coordinates or distances are a TSP."""
    given, file = both(tmp_path, facts)
    assert file.name == facts.get("name", "own")
    for instance in (given, file):
        assert instance.problem == "tsp"
        assert instance.distances.tolist() == LENGTHS


@pytest.mark.parametrize("facts", ROUTES, ids=lambda facts: next(iter(facts)))
def test_routes(tmp_path: Path, facts: dict[str, object]) -> None:
    """Each form gives the same distances and loads; half units are counted exactly."""
    for instance in both(tmp_path, facts):
        assert instance.problem == "cvrp"
        assert instance.distances.tolist() == LENGTHS
        assert (instance.demands, instance.capacity, instance.load_factor) == ((0, 5, 8), 15, 2)
        assert (instance.vehicles, instance.best_known) == (2, facts.get("best_known"))


def test_two_cities_by_their_distance() -> None:
    """Two columns of distances are no coordinates."""
    (instance,) = instances_from({"distances": np.array([[0, 7], [7, 0]])})
    assert instance.distances[0, 1] == 7


@pytest.mark.parametrize("metadata", [{"optimum": 7}, {"optimum": None, "upper_bound": 7}])
def test_job_shop_lib(tmp_path: Path, metadata: dict[str, object]) -> None:
    """Its matrices are read from files and mappings, with the best known makespan."""
    facts = SHOP | {"name": "tiny", "metadata": metadata}
    for instance in both(tmp_path, facts):
        assert (instance.name, instance.best_known) == ("tiny", 7)
        assert instance.durations == ((3, 2), (2, 4))
        assert instance.machines == ((0, 1), (1, 0))
    assert find_instance_files(tmp_path) == [tmp_path / "own.json"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (ROUTES[0] | {"vehicle": 3}, r"'vehicle' is not known \(did you mean 'vehicles'\?\)"),
        ({"coordinate": PLACES}, r"'coordinate' is not known \(did you mean 'coordinates'\?\)"),
        (
            {"distances": LENGTHS, "demand": [1, 2], "capacity": 5},
            r"'demand' is not known \(did you mean 'demands'\?\); a CVRP has distances",
        ),
        ({"durations": [[1]]}, "'machines' is missing"),
        ({"coordinates": [[0, 0, 1]]}, "rows of 3 numbers, expected x and y"),
        ({"coordinates": [[0, 0], [1]]}, "rows of unequal lengths"),
        ({"coordinates": "ab"}, "must be a list of rows of numbers"),
        ({"distances": [[0, 1], [2, 0]]}, "not symmetric"),
        ({"distances": [[0, 1, 2], [1, 0, 2]]}, "must be square"),
        ({"coordinates": PLACES, "name": 5}, "'name' is 5, expected a text"),
        (
            {"coordinates": PLACES, "name": "n" * 201},
            "'name' has 201 characters, expected at most 200",
        ),
        ({"coordinates": PLACES, "best_known": "5"}, "'best_known' is '5', expected a number"),
        (ROUTES[2] | {"demands": [1, 1, 1]}, r"the depot \(row 0\) demands 1, expected 0"),
        (ROUTES[2] | {"demands": [1]}, "has 1 demands of 3 nodes, expected 3"),
        (ROUTES[2] | {"demands": [1, -1]}, "customer 2 demands -1, expected a number of 0"),
        (ROUTES[2] | {"capacity": "7"}, "the capacity is '7', expected a number"),
        (ROUTES[2] | {"capacity": 2**64}, "expected 1 to 1000000000|counted in units of 1/2"),
        (ROUTES[2] | {"vehicles": 0}, "'vehicles' is 0, expected a whole number of 1 or more"),
        (SHOP | {"metadata": {"optimum": "7"}}, "best.known.* has '7'|'best_known' is '7'"),
        (SHOP | {"due_dates_matrix": [[1]]}, "due dates .* are not supported"),
        (
            SHOP | {"machines_matrix": [[[0, 1], [1]], [[1], [0]]]},
            "operation 1 of job 1 may use 2 machines; flexible job shops are not supported",
        ),
        (SHOP | {"metadat": {}}, r"'metadat' is not known.* \(did you mean 'metadata'\?\)"),
    ],
)
def test_bad_mappings_are_refused(tmp_path: Path, facts: dict[str, object], words: str) -> None:
    """With the same words in Python and for a file, whose name comes first."""
    path = tmp_path / "own.json"
    path.write_text(json.dumps(facts))
    with pytest.raises(InputError, match=words):
        instances_from(facts)
    if "durations" in facts:
        words = "'machines' is missing, expected a list of numbers for each job"
    with pytest.raises(InputError, match=f"^{path}: .*({words})"):
        read(path)


def test_other_json_in_a_folder_is_left_out(tmp_path: Path) -> None:
    """Maps in GeoJSON and results have similar keys."""
    (tmp_path / "map.json").write_text('{"type": "Point", "coordinates": [1, 2]}')
    (tmp_path / "result.json").write_text('{"name": "a", "plan": [1], "cost": 3}')
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "own.json").write_text(json.dumps(ROUTES[0]))
    assert find_instance_files(tmp_path) == [tmp_path / "own.json"]


@pytest.mark.parametrize(
    ("durations", "words"),
    [
        ([[1.5, 2], [2, 3.25]], "such as 1.5 have decimals.* scale all durations by 100"),
        ([[1, 2.5], [2, 3]], "scale all durations by 10 .*costs are then in units of 1/10"),
        ([[1, 0.1 + 0.2], [2, 3]], "round the durations"),
    ],
)
def test_durations_with_decimals_are_refused(tmp_path: Path, durations, words: str) -> None:
    """The message names the factor that makes them whole, for mappings and for files."""
    facts = {"durations": durations, "machines": [[0, 1], [1, 0]]}
    with pytest.raises(InputError, match=words):
        instances_from(facts)
    for name, text in {
        "shop.json": json.dumps(facts),
        "shop.jsp": "2 2\n0 {} 1 {}\n1 {} 0 {}\n".format(*durations[0], *durations[1]),
    }.items():
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(InputError, match=f"^{path}.*(scale|round).* (durations|all)"):
            read(path)


TWO = """NAME : two
TYPE : CVRP
DIMENSION : 3
EDGE_WEIGHT_TYPE : EUC_2D
CAPACITY : {capacity}
NODE_COORD_SECTION
1 0 0
2 3 4
3 6 8
DEMAND_SECTION
1 0
2 {first}
3 {second}
DEPOT_SECTION
1
-1
EOF
"""


def test_loads_with_decimals_in_vrp_files(tmp_path: Path) -> None:
    """They are counted in units that make them whole, and shown as the file has them."""
    path = tmp_path / "two.vrp"
    path.write_text(TWO.format(capacity="10.0", first=2, second=3))
    assert (read(path).demands, read(path).load_factor) == ((0, 2, 3), 1)
    path.write_text(TWO.format(capacity="10.5", first="2.25", second=3))
    assert (read(path).demands, read(path).capacity) == ((0, 9, 12), 42)
    path.write_text(TWO.format(capacity="2.5", first="2.25", second=3))
    with pytest.raises(InputError, match=r"two.vrp:13: .* demands 3, more than the CAPACITY 2\.5 "):
        read(path)
    path.write_text(TWO.format(capacity=10**9, first="2.25", second=3))
    with pytest.raises(
        InputError, match=r"two.vrp:5: .*expected at most 250,000,000 in units of 1/4"
    ):
        read(path)


@settings(max_examples=25, deadline=None)
@given(
    demands=st.lists(st.integers(0, 10**4), min_size=1, max_size=6),
    digits=st.integers(0, 3),
    kind=st.sampled_from([float, np.float32, np.float64]),
)
def test_scaled_loads_are_exact(demands: list[int], digits: int, kind) -> None:
    """Loads in units of 0.001 compare with the capacity as the whole numbers do."""
    unit = 10**digits
    decimals = [kind(demand / unit) for demand in demands]
    capacity = max(1, *demands)
    facts = {"depot": [0, 0], "customers": [[1, 1]] * len(demands), "demands": decimals}
    (instance,) = instances_from(facts | {"capacity": capacity / unit})
    assert unit % instance.load_factor == 0
    scale = unit // instance.load_factor
    assert [demand * scale for demand in instance.demands[1:]] == demands
    assert instance.capacity * scale == capacity


def test_loads_in_results_are_those_of_the_user() -> None:
    """Routes carry loads in the unit that the user gave, not in the one that is counted in."""
    (instance,) = instances_from(ROUTES[0])
    assert Routes(((2, 1),)).route_facts(instance) == {
        "capacity": 7.5,
        "routes": [{"customers": [2, 1], "load": 6.5, "length": 20.0}],
    }
    with pytest.raises(Infeasible, match=r"route 1 carries 6\.5, the capacity is 6$"):
        Routes(((2, 1),)).check(instances_from({**ROUTES[0], "vehicles": 2}, capacity=6)[0])


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_capacity_of_hundreds_of_digits_is_not_repeated(digits: int) -> None:
    """Beside decimals it is too large to be counted; Python does not even write 5,000 digits."""
    facts = {"depot": [0, 0], "customers": [[1, 1]], "demands": [1.5], "capacity": 10**digits}
    with pytest.raises(InputError) as caught:
        instances_from(facts)
    assert len(str(caught.value)) < 400
