"""Messages for files that cannot be used: the file, the line if there is one, and the words."""

import os
from pathlib import Path

import pytest
from damaging import attempt, damage, damaged
from hypothesis import given, settings
from hypothesis import strategies as st

from rhumbline.errors import InputError
from rhumbline.files import read
from rhumbline.formats.tsplib import read_tour, read_tsp, write_tour, write_tsp
from rhumbline.problems.tsp import Tour, TSPInstance

HOUSE = """NAME : five
COMMENT : a house
TYPE : TSP
DIMENSION : 5
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 4 0
3 4 3
4 2 5
5 0 3
EOF
"""
MATRIX = """NAME : three
TYPE : TSP
DIMENSION : 3
EDGE_WEIGHT_TYPE : EXPLICIT
EDGE_WEIGHT_FORMAT : FULL_MATRIX
EDGE_WEIGHT_SECTION
0 1 2
1 0 3
2 3 0
DISPLAY_DATA_SECTION
1 0 0
2 1 0
3 0 1
"""
TOUR = "NAME : five\nTYPE : TOUR\nDIMENSION : 5\nTOUR_SECTION\n1\n2\n3\n4\n5\n-1\nEOF\n"


def refusal(path: Path, text: str | bytes | None = None, house: Path | None = None) -> str:
    """Return the message that refuses a file, without its folder.

    With `house`, the file is a tour of that instance.
    """
    if text is not None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(InputError) as caught:
        read(path) if house is None else read_tour(path, read_tsp(house))
    return str(caught.value).replace(f"{path.parent}{os.sep}", "")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("5 0 3\n", "", 6, "NODE_COORD_SECTION has 4 rows, DIMENSION says 5"),
        ("5 0 3\n", "5 0 3\n6 1 1\n", 6, "NODE_COORD_SECTION has 6 rows, DIMENSION says 5"),
        ("4 2 5", "2 2 5", 10, "node 2 is given twice, first on line 8"),
        ("4 2 5", "4 nan 5", 10, "read 'nan', expected a finite number"),
        ("4 2 5", "4 2 -inf", 10, "read '-inf', expected a finite number"),
        ("4 2 5", "4 2 1e400", 10, "read '1e400', expected a finite number"),
        ("4 2 5", "4 2 1e13", 10, "read '1e13', expected a finite number of size up to 1e+12"),
        ("4 2 5", "4 2 five", 10, "read 'five', expected a finite number"),
        ("4 2 5", "4 2 1_0", 10, "read '1_0', expected a finite number"),
        ("4 2 5", "4 2 5 7", 10, "read 4 words, expected three: a node number, x and y"),
        ("4 2 5", "4 2", 10, "read 2 words, expected three"),
        ("4 2 5", "4.0 2 5", 10, "read '4.0', expected a node number: a whole number"),
        ("4 2 5", "-4 2 5", 10, "read '-4', expected a node number: a whole number, not negative"),
        ("DIMENSION : 5", "DIMENSION : 0", 4, "DIMENSION is 0, expected 1 to 10000 cities"),
        (
            "DIMENSION : 5",
            "DIMENSION : 10001",
            4,
            "DIMENSION is 10001, expected 1 to 10000 cities, the limit",
        ),
        (
            "DIMENSION : 5",
            "DIMENSION : -5",
            4,
            "read '-5', expected the number of cities after DIMENSION",
        ),
        (
            "DIMENSION : 5",
            "DIMENSION : five",
            4,
            "read 'five', expected the number of cities after DIMENSION",
        ),
        (
            "DIMENSION : 5",
            "DIMENSION :",
            4,
            "read '', expected the number of cities after DIMENSION",
        ),
        ("DIMENSION : 5", "DIMENSION : 5\nDIMENSION : 5", 5, "DIMENSION is given twice"),
        ("DIMENSION : 5\n", "", None, "DIMENSION is missing"),
        (
            "EUC_2D",
            "EUC_3D",
            5,
            "'EUC_3D' is not supported, expected one of EUC_2D, CEIL_2D, ATT, GEO, EXPLICIT",
        ),
        (
            "EUC_2D",
            "MAN_2D",
            5,
            "'MAN_2D' is not supported, expected one of EUC_2D, CEIL_2D, ATT, GEO, EXPLICIT",
        ),
        ("EUC_2D", "EXACT_2D", 5, "'EXACT_2D' is not supported"),
        (
            "EDGE_WEIGHT_TYPE : EUC_2D\n",
            "",
            None,
            "EDGE_WEIGHT_TYPE is missing, expected one of EUC_2D, CEIL_2D",
        ),
        (
            "TYPE : TSP",
            "TYPE : ATSP",
            3,
            "TYPE ATSP: distances that depend on the direction are not supported",
        ),
        (
            "TYPE : TSP",
            "TYPE : CVRP",
            3,
            "TYPE is 'CVRP', expected TSP; rhumb reads symmetric TSP files here",
        ),
        ("TYPE : TSP", "TYPE : TOUR", 3, "TYPE is 'TOUR', expected TSP"),
        (
            "EOF",
            "FIXED_EDGES_SECTION\n1 2\n-1\nEOF",
            12,
            "FIXED_EDGES_SECTION: fixed edges are not supported",
        ),
        ("EOF", "FIXED_EDGES\n1 2\n-1\nEOF", 12, "FIXED_EDGES is not supported here"),
        (
            "EOF",
            "DEPOT_SECTION:\n1\n-1\nEOF",
            12,
            "DEPOT_SECTION is not supported here, expected numbers or one of",
        ),
        ("EOF", "NODE_COORD_SECTION\n1 0 0", 12, "NODE_COORD_SECTION is given twice"),
        (
            "NODE_COORD_SECTION\n",
            "",
            6,
            "read '1 0 0', expected 'KEY : value' or one of NODE_COORD_SECTION",
        ),
        (HOUSE[HOUSE.index("NODE") :], "", None, "NODE_COORD_SECTION is missing"),
        ("NAME : five", "NAME five", 1, "read 'NAME five', expected 'KEY : value'"),
    ],
)
def test_a_bad_planar_file_is_refused_at_its_line(
    tmp_path: Path, old: str, new: str, line: int | None, words: str
) -> None:
    """Each fault of a coordinate file has file, line, what was read and what was expected."""
    assert old in HOUSE
    where = f"bad.tsp:{line}: " if line else "bad.tsp: "
    message = refusal(tmp_path / "bad.tsp", HOUSE.replace(old, new, 1))
    assert message.startswith(where)
    assert words in message


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        (
            "1 0 3",
            "1 0",
            6,
            "EDGE_WEIGHT_SECTION has 8 numbers, FULL_MATRIX of DIMENSION 3 needs 9",
        ),
        (
            "1 0 3",
            "1 0 3 4",
            6,
            "EDGE_WEIGHT_SECTION has 10 numbers, FULL_MATRIX of DIMENSION 3 needs 9",
        ),
        ("1 0 3", "1 0 x", 8, "read 'x', expected a finite number"),
        ("1 0 3", "1 0\nnan", 9, "read 'nan', expected a finite number"),
        ("0 1 2\n1 0 3", "0 -1 2\n-1 0 3", 7, "weight -1 is negative"),
        (
            "0 1 2",
            "0 1 4",
            7,
            "weight 4 is not symmetric, the way back has 2; only symmetric problems",
        ),
        (
            "FULL_MATRIX",
            "UPPER_COL",
            5,
            "'UPPER_COL' is not supported, expected one of FULL_MATRIX, UPPER_ROW",
        ),
        (
            "FULL_MATRIX",
            "UPPER_ROW",
            6,
            "EDGE_WEIGHT_SECTION has 9 numbers, UPPER_ROW of DIMENSION 3 needs 3",
        ),
        (
            "EDGE_WEIGHT_FORMAT : FULL_MATRIX\n",
            "",
            None,
            "EDGE_WEIGHT_FORMAT is missing, expected one of FULL_MATRIX",
        ),
        ("3 0 1\n", "", 10, "DISPLAY_DATA_SECTION has 2 rows, DIMENSION says 3"),
        (MATRIX[MATRIX.index("EDGE_WEIGHT_SECTION") :], "", None, "EDGE_WEIGHT_SECTION is missing"),
    ],
)
def test_a_bad_matrix_file_is_refused_at_its_line(
    tmp_path: Path, old: str, new: str, line: int | None, words: str
) -> None:
    """Each fault of a matrix file is named with file, line, what was read and what was expected."""
    assert old in MATRIX
    where = f"bad.tsp:{line}: " if line else "bad.tsp: "
    message = refusal(tmp_path / "bad.tsp", MATRIX.replace(old, new, 1))
    assert message.startswith(where)
    assert words in message


def test_a_negative_weight_of_a_triangle_is_refused(tmp_path: Path) -> None:
    """Weights are checked in every layout, not in full matrices only."""
    text = MATRIX.replace("FULL_MATRIX", "UPPER_ROW").replace("0 1 2\n1 0 3\n2 3 0", "1 2\n-3")
    assert "bad.tsp:8: weight -3 is negative" in refusal(tmp_path / "bad.tsp", text)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("4\n5\n-1", "4\n-1", 4, "TOUR_SECTION has 4 nodes, five has 5 cities"),
        ("4\n5\n-1", "4\n4\n-1", 9, "node 4 is given twice, first on line 8"),
        ("4\n5\n-1", "4\n6\n-1", 9, "node 6 is not in five; is this the tour of another instance?"),
        (
            "4\n5\n-1",
            "4\nx5\n-1",
            9,
            "X5 is not supported here, expected numbers or one of TOUR_SECTION",
        ),
        ("4\n5\n-1", "4\n5.0\n-1", 9, "read '5.0', expected a node number or -1"),
        (
            "-1\n",
            "-1\n5 4 3 2 1 -1\n",
            11,
            "read '5' behind the -1 that ends the tour, expected a single tour",
        ),
        ("TOUR_SECTION\n1\n2\n3\n4\n5\n-1\n", "", None, "TOUR_SECTION is missing"),
        ("TYPE : TOUR", "TYPE : TSP", 2, "TYPE is 'TSP', expected TOUR; name a tour file"),
    ],
)
def test_a_bad_tour_file_is_refused_at_its_line(
    tmp_path: Path, old: str, new: str, line: int | None, words: str
) -> None:
    """Each fault of a tour file is named with file, line, what was read and what was expected."""
    house = tmp_path / "house.tsp"
    house.write_text(HOUSE)
    where = f"bad.tour:{line}: " if line else "bad.tour: "
    message = refusal(tmp_path / "bad.tour", TOUR.replace(old, new, 1), house)
    assert message.startswith(where)
    assert words in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no such file"),
        (b"", "the file is empty"),
        (b" \n\t\r\n", "the file is empty"),
        (b"\x89PNG\x00\x00", "is a binary file"),
        (HOUSE.encode("utf-16"), "is a binary file (or UTF-16 text)"),
        (b"\xff\xfe\x80\x81 noise", "expected 'KEY : value'"),
        (b"%PDF-1.4\n%\xe2\xe3", "read '%PDF-1.4', expected 'KEY : value'"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes | None, words: str) -> None:
    """Missing, empty and binary files are named as such."""
    message = refusal(tmp_path / "odd.tsp", content)
    assert message.startswith("odd.tsp")
    assert words in message


def test_a_directory_is_refused(tmp_path: Path) -> None:
    """A folder in the place of a file is named as such."""
    (tmp_path / "folder.tsp").mkdir()
    assert (
        refusal(tmp_path / "folder.tsp")
        == "folder.tsp: is a directory, expected a file; name a file in it"
    )


@pytest.mark.parametrize("name", ["no\0name.tsp", "file.txt/x.tsp", "x" * 300 + ".tsp"])
def test_impossible_paths_are_refused(tmp_path: Path, name: str) -> None:
    """Paths that the system itself rejects are input errors too."""
    (tmp_path / "file.txt").write_text("text")
    assert "cannot be read" in refusal(tmp_path / name)


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without read permission is refused with the system's reason."""

    def deny(self: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    (tmp_path / "secret.tsp").write_text(HOUSE)
    monkeypatch.setattr(Path, "open", deny)  # the tests may run as root, who can read anything
    assert refusal(tmp_path / "secret.tsp") == "secret.tsp: cannot be read: Permission denied"


@pytest.mark.parametrize(
    ("content", "where", "words"),
    [
        (b'{\n"five": 16,\n}', "optima.json:3: ", "is not JSON"),
        (b"", "optima.json: ", "the file is empty"),
        (b"[16]", "optima.json: ", "expected a JSON object of instance names and costs"),
        (b'{"five": "16"}', "optima.json: ", "'five' has '16', expected its best known cost"),
        (b'{"five": true}', "optima.json: ", "'five' has 'True', expected its best known cost"),
        (b'{"five": null}', "optima.json: ", "'five' has 'None', expected its best known cost"),
        (b'{"five": NaN}', "optima.json: ", "'five' has 'nan', expected its best known cost"),
        (b'{"five": -1}', "optima.json: ", "'five' has '-1', expected its best known cost"),
        (b'{"five": 1' + b"0" * 400 + b"}", "optima.json: ", "expected its best known cost"),
        (b'{"five": ' + b"9" * 9000 + b"}", "optima.json: ", "is not JSON"),
        (b"[" * 100_000, "optima.json: ", "is not JSON"),
        (b'{"five\xff": 1}', "optima.json: ", "is not JSON"),
    ],
)
def test_a_malformed_optima_json_is_refused(
    tmp_path: Path, content: bytes, where: str, words: str
) -> None:
    """A broken file of best known costs is an error that names it, not a missing cost."""
    (tmp_path / "optima.json").write_bytes(content)
    message = refusal(tmp_path / "house.tsp", HOUSE)
    assert message.startswith(where)
    assert words in message


@pytest.mark.parametrize("write", ["tour", "tsp"])
def test_a_failed_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    """Without permission the error has path and reason; the old file stays, no temporary does."""
    (tmp_path / "house.tsp").write_text(HOUSE)
    (tmp_path / "out").write_text("old")
    house = read_tsp(tmp_path / "house.tsp")

    def deny(source: object, target: object) -> None:
        raise PermissionError(13, "Permission denied", str(source))

    monkeypatch.setattr(os, "replace", deny)
    with pytest.raises(
        InputError, match=r"out: cannot be written: Permission denied; choose another place"
    ):
        save(write, tmp_path / "out", house)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["house.tsp", "out"]
    assert (tmp_path / "out").read_text() == "old"


@pytest.mark.parametrize("write", ["tour", "tsp"])
@pytest.mark.parametrize("name", ["missing/out", "house.tsp/out", "folder", "no\0name"])
def test_places_that_cannot_be_written_are_refused(tmp_path: Path, write: str, name: str) -> None:
    """A missing folder, a file used as a folder and a folder in place of the file are named."""
    (tmp_path / "house.tsp").write_text(HOUSE)
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot be written: ") as caught:
        save(write, tmp_path / name, read_tsp(tmp_path / "house.tsp"))
    assert name.replace("\0", r"\x00") in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "house.tsp"]


def save(kind: str, path: Path, instance: TSPInstance) -> None:
    if kind == "tour":
        write_tour(path, Tour(tuple(range(instance.size))), instance, "")
    else:
        write_tsp(path, instance)


GOOD = [
    HOUSE,
    MATRIX,
    HOUSE.replace("EUC_2D", "GEO"),
    HOUSE.replace("EUC_2D", "ATT"),
    MATRIX.replace("FULL_MATRIX", "UPPER_ROW").replace("0 1 2\n1 0 3\n2 3 0", "1 2\n3"),
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
    path = tmp_path_factory.getbasetemp() / "damaged.tsp"
    path.write_bytes(damaged(good, changes, cut))
    outcome = attempt(read, path)
    if isinstance(outcome, InputError):
        assert str(outcome).startswith(str(path))
        return
    instance, distances = outcome, outcome.distances
    assert distances.shape == (instance.size, instance.size)
    assert (distances >= 0).all()
    assert (distances == distances.T).all()


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(changes=damage, cut=st.integers(0, 120))
def test_damaged_tours_give_a_tour_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int, bool]], cut: int
) -> None:
    """A tour that is read from a damaged file is feasible; nothing but `InputError` escapes."""
    folder = tmp_path_factory.getbasetemp()
    (folder / "house.tsp").write_text(HOUSE)
    (folder / "damaged.tour").write_bytes(damaged(TOUR, changes, cut))
    house = read_tsp(folder / "house.tsp")
    outcome = attempt(read_tour, folder / "damaged.tour", house)
    if isinstance(outcome, InputError):
        assert str(outcome).startswith(str(folder / "damaged.tour"))
    else:
        outcome.check(house)
