"""Messages for CVRP files that cannot be used: the file, the line, and the words."""

import os
from pathlib import Path

import pytest
from damaging import attempt, damage, damaged
from hypothesis import given, settings
from hypothesis import strategies as st

from rhumbline.errors import InputError
from rhumbline.files import read
from rhumbline.formats.vrplib import read_sol, read_vrp, write_sol
from rhumbline.problems.cvrp import CVRP, Routes

FOUR = """NAME : four
TYPE : CVRP
DIMENSION : 5
EDGE_WEIGHT_TYPE : EUC_2D
CAPACITY : 10
NODE_COORD_SECTION
11 0 0
12 3 4
13 3 0
14 -5 12
15 0 5
DEMAND_SECTION
11 0
12 4
13 3
14 6
15 4
DEPOT_SECTION
11
-1
EOF
"""
MATRIX = """NAME : three
TYPE : CVRP
DIMENSION : 3
EDGE_WEIGHT_TYPE : EXPLICIT
EDGE_WEIGHT_FORMAT : LOWER_ROW
CAPACITY : 5
VEHICLES : 2
EDGE_WEIGHT_SECTION
1
2 3
DEMAND_SECTION
1 0
2 5
3 1
DEPOT_SECTION
1
-1
EOF
"""
SOLUTION = "Route #1: 1 2\nRoute #2: 3 4\nCost 39\n"
PAIRS = Routes(((1, 2), (3, 4)))


def refusal(path: Path, text: str | bytes | None = None, four: Path | None = None) -> str:
    """Return the message that refuses a file, without its folder.

    With `four`, the file is a solution of that instance.
    """
    if text is not None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(InputError) as caught:
        read(path) if four is None else read_sol(path, read_vrp(four))
    return str(caught.value).replace(f"{path.parent}{os.sep}", "")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        # demands
        (
            "14 6",
            "14 -6",
            16,
            "read '-6', expected the demand of a node: a whole number, not negative",
        ),
        ("14 6", "14 6e1", 16, "read '6e1', expected the demand of a node: a whole number"),
        ("14 6", "14 6.1234567", 16, "read '6.1234567', which has too many decimals"),
        ("14 6", "14 six", 16, "read 'six', expected the demand of a node"),
        ("14 6", "14 nan", 16, "read 'nan', expected the demand of a node"),
        (
            "14 6",
            "14 11",
            16,
            "customer 3 (node 14) demands 11, more than the CAPACITY 10 of a vehicle",
        ),
        ("14 6", "14 " + "9" * 16, 16, "expected the demand of a node"),
        ("14 6", "13 6", 16, "node 13 is given twice, first on line 15; expected each node once"),
        (
            "14 6",
            "16 6",
            12,
            "node 14 has coordinates but no row in DEMAND_SECTION; expected one for every node",
        ),
        (
            "14 6",
            "1 6",
            16,
            "node 1 has a demand but no coordinates; expected the same nodes in both sections",
        ),
        ("14 6", "14", 16, "read 1 words, expected two: a node number and its demand"),
        ("14 6", "14 6 0", 16, "read 3 words, expected two: a node number and its demand"),
        ("14 6", "14.0 6", 16, "read '14.0', expected a node number"),
        ("15 4\n", "", 12, "(the depot needs a row with demand 0); node 15 has none"),
        (
            "15 4\n",
            "15 4\n16 1\n",
            12,
            "DEMAND_SECTION has 6 rows, DIMENSION says 5 (the depot needs a row with demand 0)",
        ),
        (
            "11 0\n12 4",
            "12 4",
            12,
            "DEMAND_SECTION has 4 rows, DIMENSION says 5 (the depot needs a row with demand 0)",
        ),
        ("11 0\n12 4", "11 1\n12 4", 13, "the depot (node 11) demands 1, expected 0"),
        (FOUR[FOUR.index("DEMAND") : FOUR.index("DEPOT")], "", None, "DEMAND_SECTION is missing"),
        # depots
        (
            "DEPOT_SECTION\n11\n",
            "DEPOT_SECTION\n",
            18,
            "DEPOT_SECTION names no depot, expected the number of one node",
        ),
        ("DEPOT_SECTION\n11\n-1\n", "", None, "DEPOT_SECTION is missing"),
        (
            "11\n-1",
            "11\n12\n-1",
            20,
            "DEPOT_SECTION names 2 depots, expected one; multi-depot is not supported",
        ),
        (
            "11\n-1",
            "11 12 13 -1",
            19,
            "DEPOT_SECTION names 3 depots, expected one; multi-depot is not supported",
        ),
        (
            "11\n-1",
            "1\n-1",
            19,
            "the depot is node 1, which is not in the file; expected one of its nodes",
        ),
        ("11\n-1", "-1\n11", 20, "read '11' behind the -1 that ends the depots"),
        ("11\n-1", "0.5\n-1", 19, "read '0.5', expected the node number of the depot or -1"),
        ("11\n-1", "12\n-1", 14, "the depot (node 12) demands 4, expected 0"),
        # capacity and vehicles
        (
            "CAPACITY : 10",
            "CAPACITY : 0",
            5,
            "CAPACITY is 0, expected the load of a vehicle: 1 to 1000000000",
        ),
        (
            "CAPACITY : 10",
            "CAPACITY : 1000000001",
            5,
            "CAPACITY is 1000000001, expected the load of a vehicle: 1 to",
        ),
        (
            "CAPACITY : 10",
            "CAPACITY : -10",
            5,
            "read '-10', expected the load of a vehicle after CAPACITY",
        ),
        (
            "CAPACITY : 10",
            "CAPACITY : 1e1",
            5,
            "read '1e1', expected the load of a vehicle after CAPACITY",
        ),
        (
            "CAPACITY : 10",
            "CAPACITY :",
            5,
            "read '', expected the load of a vehicle after CAPACITY",
        ),
        (
            "CAPACITY : 10\n",
            "",
            None,
            "CAPACITY is missing, expected 'CAPACITY : ' and the load of a vehicle",
        ),
        (
            "CAPACITY : 10",
            "CAPACITY : 5",
            16,
            "customer 3 (node 14) demands 6, more than the CAPACITY 5 of a vehicle",
        ),
        (
            "CAPACITY",
            "VEHICLES : 0\nCAPACITY",
            5,
            "VEHICLES is 0, expected the number of vehicles: 1 to",
        ),
        (
            "CAPACITY",
            "VEHICLES : some\nCAPACITY",
            5,
            "read 'some', expected the number of vehicles after VEHICLES",
        ),
        (
            "CAPACITY",
            "VEHICLES : 1\nCAPACITY",
            5,
            "VEHICLES is 1, but the demand of 17 needs at least 2 of",
        ),
        # limits that we do not know
        (
            "CAPACITY",
            "DISTANCE : 200\nCAPACITY",
            5,
            "DISTANCE limits the duration of routes, which is not supported",
        ),
        (
            "CAPACITY",
            "SERVICE_TIME : 10\nCAPACITY",
            5,
            "SERVICE_TIME limits the duration of routes, which is not",
        ),
        (
            "EOF",
            "TIME_WINDOW_SECTION\n1 0 9\nEOF",
            21,
            "TIME_WINDOW_SECTION: time windows are not supported",
        ),
        (
            "TYPE : CVRP",
            "TYPE : VRPTW",
            2,
            "TYPE VRPTW: time windows are not supported",
        ),
        ("TYPE : CVRP", "TYPE : TSP", 2, "TYPE is 'TSP', expected CVRP"),
        # what TSPLIB shares
        (
            "DIMENSION : 5",
            "DIMENSION : 1",
            3,
            "DIMENSION is 1, expected 2 to 10001 nodes (the depot and its customers)",
        ),
        ("DIMENSION : 5", "DIMENSION : 10002", 3, "DIMENSION is 10002, expected 2 to 10001 nodes"),
        ("DIMENSION : 5\n", "", None, "DIMENSION is missing"),
        (
            "EUC_2D",
            "GEO",
            4,
            "'GEO' is not supported, expected one of EUC_2D, CEIL_2D, FLOOR_2D, EXACT_2D, EXPLICIT",
        ),
        ("EDGE_WEIGHT_TYPE : EUC_2D\n", "", None, "EDGE_WEIGHT_TYPE is missing"),
        ("13 3 0", "13 3 inf", 9, "read 'inf', expected a finite number"),
        ("13 3 0", "13 3", 9, "read 2 words, expected three: a node number, x and y"),
        ("13 3 0", "12 3 0", 9, "node 12 is given twice, first on line 8"),
        ("13 3 0\n", "", 6, "NODE_COORD_SECTION has 4 rows, DIMENSION says 5"),
        (
            FOUR[FOUR.index("NODE") : FOUR.index("DEMAND")],
            "",
            None,
            "NODE_COORD_SECTION is missing",
        ),
        ("EOF", "CAPACITY : 10", 21, "CAPACITY is given twice"),
        (
            "NAME : four",
            "NAME four",
            1,
            "read 'NAME four', expected 'KEY : value' or one of NODE_COORD_SECTION",
        ),
    ],
)
def test_a_bad_file_is_refused_at_its_line(
    tmp_path: Path, old: str, new: str, line: int | None, words: str
) -> None:
    """Each fault is named with file, line, what was read and what was expected."""
    assert FOUR.count(old) == 1
    where = f"bad.vrp:{line}: " if line else "bad.vrp: "
    message = refusal(tmp_path / "bad.vrp", FOUR.replace(old, new))
    assert message.startswith(where), message
    assert words in message


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        (
            "2 3\nD",
            "2\nD",
            8,
            "EDGE_WEIGHT_SECTION has 2 numbers, LOWER_ROW of DIMENSION 3 needs 3",
        ),
        ("2 3\nD", "2 -3\nD", 10, "weight -3 is negative"),
        ("LOWER_ROW", "LOWER_COL", 5, "'LOWER_COL' is not supported, expected one of FULL_MATRIX"),
        ("1\n2 3\nD", "0 1 2\n1 0 4\n2 3 0\nD", 8, "EDGE_WEIGHT_SECTION has 9 numbers, LOWER_ROW"),
        (
            "2 3\nD",
            "2 3\nNODE_COORD_SECTION\n1 0 0\n2 1 1\n4 2 2\nD",
            18,
            "node 3 has a demand but no coordinates",
        ),
        (
            "VEHICLES : 2",
            "VEHICLES : 1",
            7,
            "VEHICLES is 1, but the demand of 6 needs at least 2 of CAPACITY 5",
        ),
    ],
)
def test_a_bad_matrix_is_refused_at_its_line(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    """Matrices are checked as those of TSPLIB are."""
    assert old in MATRIX
    message = refusal(tmp_path / "bad.vrp", MATRIX.replace(old, new, 1))
    assert message.startswith(f"bad.vrp:{line}: "), message
    assert words in message


def test_an_asymmetric_matrix_is_refused(tmp_path: Path) -> None:
    """Ways that cost more in one direction are not supported."""
    text = MATRIX.replace("LOWER_ROW", "FULL_MATRIX").replace("1\n2 3\nD", "0 1 2\n1 0 4\n2 3 0\nD")
    assert refusal(tmp_path / "bad.vrp", text).startswith(
        "bad.vrp:10: weight 4 is not symmetric, the way back has 3"
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("3 4", "3", None, "is no plan for four: customer 4 is visited 0 times"),
        (
            "3 4",
            "3 4 5",
            2,
            "customer 5 is not in four, expected 1 to 4; is this the solution of another instance?",
        ),
        ("3 4", "0 3 4 0", 2, "customer 0 is not in four, expected 1 to 4"),
        ("3 4", "3 4 3", 2, "customer 3 is served twice, first on line 2"),
        ("3 4", "3 4 1", 2, "customer 1 is served twice, first on line 1"),
        ("3 4", "3 x", 2, "read 'x', expected the number of a customer"),
        (
            "3 4",
            "3 -4",
            2,
            "read '-4', expected the number of a customer: a whole number, not negative",
        ),
        (
            "1 2\nRoute #2: 3 4",
            "1\nRoute #2: 3 2 4",
            2,
            "the route carries 13, the capacity of four is 10",
        ),
        (
            "Route #2",
            "Rout #2",
            2,
            "read 'Rout #2: 3 4', expected 'Route #1: ' and customers, or 'Cost ' and a number",
        ),
        ("Route #2:", "Route #2", 2, "read 'Route #2 3 4', expected 'Route #1: ' and customers"),
        ("Cost 39", "Cost a lot", 3, "read 'Cost a lot', expected 'Route #1: '"),
        ("Cost 39", "Cost much", 3, "read 'much', expected a finite number"),
        (
            "Cost 39",
            "Cost 5",
            3,
            "the cost is said to be 5, in four these routes cost 39; is this the solution of",
        ),
        ("Cost 39", "Cost 1,039", 3, "read '1,039', expected a finite number"),
        ("Cost 39", "Cost 390", 3, "the cost is said to be 390, in four these routes cost 39"),
        (SOLUTION, "Cost 39", None, "is no plan for four: customer 1 is visited 0 times"),
        (SOLUTION, "", None, "the file is empty, expected an instance or a plan"),
        (SOLUTION, "\0", None, "is a binary file"),
    ],
)
def test_a_bad_solution_is_refused_at_its_line(
    tmp_path: Path, old: str, new: str, line: int | None, words: str
) -> None:
    """Each fault of a solution file has file, line, what was read and what was expected."""
    (tmp_path / "four.vrp").write_text(FOUR)
    where = f"bad.sol:{line}: " if line else "bad.sol: "
    message = refusal(tmp_path / "bad.sol", SOLUTION.replace(old, new, 1), tmp_path / "four.vrp")
    assert message.startswith(where), message
    assert words in message


def test_a_solution_of_too_many_vehicles_is_refused(tmp_path: Path) -> None:
    """The file's own limit on vehicles holds for solutions that are read."""
    (tmp_path / "four.vrp").write_text(FOUR.replace("CAPACITY", "VEHICLES : 2\nCAPACITY"))
    message = refusal(
        tmp_path / "bad.sol", "Route #1: 1 2\nRoute #2: 3\nRoute #3: 4\n", tmp_path / "four.vrp"
    )
    assert message == "bad.sol: is no plan for four: the plan needs 3 vehicles, 2 are allowed"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no such file"),
        (b"", "the file is empty"),
        (b"\x89PNG\x00\x00", "is a binary file"),
        (b"%PDF-1.4\n%\xe2\xe3", "read '%PDF-1.4', expected 'KEY : value'"),
    ],
)
@pytest.mark.parametrize("name", ["odd.vrp", "odd"])
def test_what_is_no_text_is_refused(
    tmp_path: Path, content: bytes | None, words: str, name: str
) -> None:
    """Missing, empty and binary files are named as such, by suffix or by content."""
    message = refusal(tmp_path / name, content)
    assert message.startswith(f"{name}:")
    assert words in message


def test_a_directory_is_refused(tmp_path: Path) -> None:
    """A folder in the place of a file is named as such."""
    (tmp_path / "folder").mkdir()
    assert (
        refusal(tmp_path / "folder") == "folder: is a directory, expected a file; name a file in it"
    )


@pytest.mark.parametrize("name", ["optima.json", "best_known.json"])
def test_malformed_best_known_costs_are_refused(tmp_path: Path, name: str) -> None:
    """A file of best known costs that cannot be used is an error that names it."""
    (tmp_path / name).write_text('{\n"four": 16,\n}')
    assert refusal(tmp_path / "four.vrp", FOUR).startswith(f"{name}:3: is not JSON")
    (tmp_path / name).write_text('{"four": "16"}')
    assert refusal(tmp_path / "four.vrp", FOUR).startswith(
        f"{name}: 'four' has '16', expected its best known cost"
    )


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk the error has path and reason; the old file stays, no temporary does."""
    (tmp_path / "four.vrp").write_text(FOUR)
    (tmp_path / "four.sol").write_text("old")
    four = read_vrp(tmp_path / "four.vrp")

    def fail(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InputError, match=r"four\.sol: cannot be written: No space left on device"):
        write_sol(tmp_path / "four.sol", PAIRS, four, "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["four.sol", "four.vrp"]
    assert (tmp_path / "four.sol").read_text() == "old"


GOOD = [
    FOUR,
    MATRIX,
    FOUR.replace("EUC_2D", "EXACT_2D"),
    FOUR.replace("CAPACITY", "VEHICLES : 2\nCAPACITY"),
    MATRIX.replace("LOWER_ROW", "FULL_MATRIX").replace("1\n2 3\nD", "0 1 2\n1 0 3\n2 3 0\nD"),
]


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(good=st.sampled_from(GOOD), changes=damage, cut=st.integers(0, 500))
def test_damaged_files_give_an_instance_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory,
    good: str,
    changes: list[tuple[int, int, bool]],
    cut: int,
) -> None:
    """Whatever bytes change, only `InputError` escapes, and what is read is usable."""
    path = tmp_path_factory.getbasetemp() / "damaged.vrp"
    path.write_bytes(damaged(good, changes, cut))
    outcome = attempt(read_vrp, path)
    if isinstance(outcome, InputError):
        assert str(outcome).startswith(str(path))
        return
    distances = outcome.distances
    assert distances.shape == (outcome.size, outcome.size)
    assert (distances >= 0).all()
    assert (distances == distances.T).all()
    assert outcome.demands[0] == 0
    assert all(0 <= demand <= outcome.capacity for demand in outcome.demands)
    assert CVRP().collate([outcome]).xy.isfinite().all()


def test_a_pipe_without_an_ending_is_called_a_pipe() -> None:
    """`... | rhumb solve /dev/stdin`: its content can be read only once, so it is refused."""
    reading, writing = os.pipe()
    os.write(writing, FOUR.encode())
    os.close(writing)
    with pytest.raises(
        InputError, match=r"is a pipe, expected a file; save it under a name that ends in .*\.vrp"
    ):
        read(f"/dev/fd/{reading}")
    os.close(reading)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(changes=damage, cut=st.integers(0, 60))
def test_damaged_solutions_give_a_plan_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int, bool]], cut: int
) -> None:
    """Routes that are read from a damaged file are feasible; nothing but `InputError` escapes."""
    folder = tmp_path_factory.getbasetemp()
    (folder / "four.vrp").write_text(FOUR)
    (folder / "damaged.sol").write_bytes(damaged(SOLUTION, changes, cut))
    four = read_vrp(folder / "four.vrp")
    outcome = attempt(read_sol, folder / "damaged.sol", four)
    if isinstance(outcome, InputError):
        assert str(outcome).startswith(str(folder / "damaged.sol"))
    else:
        outcome.check(four)
