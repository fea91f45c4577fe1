"""Tables of places: CSV files, DataFrames and lists of mappings."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhumbline.errors import InputError
from rhumbline.files import read
from rhumbline.files.discovery import find_instance_files
from rhumbline.inputs import instances_from

ROWS = [
    {"x": 0, "y": 0, "demand": 0},
    {"x": 3, "y": 4, "demand": 2.5},
    {"x": 6, "y": 8, "demand": 4},
]


class Frame:
    """What pandas and polars have in common."""

    def __init__(self, **columns: object) -> None:
        self.columns = list(columns)
        self.values = columns

    def __getitem__(self, name: str) -> object:
        return self.values[name]

    def to_dict(self) -> dict[str, object]:
        return self.values


def csv(folder: Path, text: str, name: str = "places.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "x,y\n0,0\n3,4\n0,4\n",
        "Y;X\n0;0\n4;3\n4;0\n",
        "# a comment\nX\tname\tY\n0\ta\t0\n3\tb\t4,0\n\n0,0\tc\t4\n",
        '"x","y"\n"0","0"\n3.0,4\n# between\n0,4',
        "x\ty\tnote\n0\t0\t\n3\t4\t\n0\t4\tlast\n",
        "\ufeffx, y\r\n0, 0\r\n 3, 4\r\n0, 4\r\n",
    ],
)
def test_tours_from_csv(tmp_path: Path, text: str) -> None:
    """Separators, capitals, quotes, comments and decimal commas: always the same three cities."""
    instance = read(csv(tmp_path, text))
    assert (instance.problem, instance.name, instance.metric) == ("tsp", "places", "EXACT_2D")
    assert sorted(map(tuple, instance.xy.tolist())) == [(0, 0), (0, 4), (3, 4)]
    assert instance.distances[0, 1] == 5


def test_whole_ids_number_the_cities(tmp_path: Path) -> None:
    """Plans then name cities as the user does; other ids are left out."""
    assert read(csv(tmp_path, "id,x,y\n30,0,0\n10,1,1\n20,2,2\n")).node_numbers == (30, 10, 20)
    assert read(csv(tmp_path, "id,x,y\na,0,0\n10,1,1\n10,2,2\n")).node_numbers == (1, 2, 3)


@pytest.mark.parametrize(
    "text",
    [
        "# capacity: 7.5\n# vehicles: 2\nx,y,demand\n0,0,0\n3,4,2.5\n6,8,4\n",
        "# VEHICLES = 2\nx;y;Demand;capacity\n0;0;;7,5\n3;4;2,5;\n6;8;4;\n",
        "# vehicles: 2\n# capacity: 7.5\ndepot,x,y,demand\nno,3,4,2.5\nYES,0,0,0\n,6,8,4\n",
    ],
)
def test_routes_from_csv(tmp_path: Path, text: str) -> None:
    """The capacity is a comment or a column, the depot the first or the marked row."""
    instance = read(csv(tmp_path, text))
    assert instance.problem == "cvrp"
    assert instance.xy.tolist() == [[0, 0], [3, 4], [6, 8]]
    assert (instance.demands, instance.capacity, instance.load_factor) == ((0, 5, 8), 15, 2)
    assert instance.vehicles == 2


def test_the_capacity_of_an_option_has_priority(tmp_path: Path) -> None:
    """It replaces that of the file, and serves where there is none."""
    for line in ("", "# capacity: 1\n"):
        path = csv(tmp_path, f"{line}x,y,demand\n0,0,0\n1,1,3\n")
        (instance,) = instances_from(path, capacity=5)
        assert (instance.demands, instance.capacity) == ((0, 3), 5)
    (vrp,) = instances_from(([0, 0], [[1, 1]], [2.5], 10), capacity=4)
    assert (vrp.demands, vrp.capacity, vrp.load_factor) == ((0, 5), 8, 2)
    with pytest.raises(InputError, match="a capacity is for vehicle routing, this is 'tsp'"):
        instances_from(np.zeros((3, 2)), capacity=5)


def test_tables_in_python() -> None:
    """A DataFrame and a list of mappings are the same table."""
    frame = Frame(X=np.array([0, 3.0, 6]), Y=[0, 4, 8], demand=np.array([np.nan, 2.5, 4]))
    for source in (frame, ROWS, [{**row, "capacity": 7.5} for row in ROWS]):
        (instance,) = instances_from(source, capacity=7.5)
        assert (instance.demands, instance.capacity) == ((0, 5, 8), 15)
    (tour,) = instances_from([{"x": 0, "y": 0}, {"x": 3, "y": 4}])
    assert (tour.problem, tour.distances[0, 1]) == ("tsp", 5)


def test_a_real_data_frame() -> None:
    """Columns of pandas have types and indices of their own."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, index=[7, 8, 9]).astype({"x": "float32", "y": "int16"})
    (instance,) = instances_from(frame, capacity=10)
    assert (instance.demands, instance.capacity) == ((0, 5, 8), 20)
    assert instance.xy.tolist() == [[0, 0], [3, 4], [6, 8]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x,y\n1,2\n3\n", ":3: read 1 cells, expected 2 as in the first line"),
        ("x,y\n1,2\n3,b\n", ":3: y is 'b', expected a number"),
        ("x,y\n1,2\n3,\n", ":3: y is empty, expected a number"),
        ("x,y\n1,2\n3,1e400\n", ":3: y is '1e400', expected a number"),
        ("x,y\n1,2\n3,1_0\n", ":3: y is '1_0', expected a number"),
        ("1,2\n3,4\n", ":1: read numbers, expected the names of the columns"),
        ("x,z\n1,2\n", ": column y is missing; there are 'x', 'z'; expected x and y"),
        ("x,y,X\n1,2,3\n", ":1: column 'x' is there twice"),
        ("x,y\n", ": has no rows"),
        ('x,y\n"1,2\n', ":2: is no row of a table"),
        ("name,lat,lon\na,1,2\n", ": lat and lon are degrees, between which straight lines"),
        ("x,y,demnd\n1,2,3\n", r": column 'demnd' is not known \(did you mean 'demand'\?\)"),
        ("x,y,demand\n1,2,0\n3,4,5\n", ": has demands but no capacity of the vehicles"),
        ("# capacity: 9\nx,y\n1,2\n3,4\n", ": has a capacity but no column demand"),
        ("x,y,depot\n1,2,1\n3,4,0\n", ": has a depot but no column demand"),
        (
            "# capacity: 9\nx,y,demand\n1,2,0\n3,4,10\n",
            ":4: demand is 10, more than the capacity 9",
        ),
        ("# capacity: 9\nx,y,demand\n1,2,0\n3,4,-1\n", ":4: demand is -1, expected a number of 0"),
        ("# capacity: 9\nx,y,demand\n1,2,4\n3,4,1\n", ":3: the depot demands '4', expected 0"),
        ("# capacity: 0\nx,y,demand\n1,2,0\n3,4,0\n", ": the capacity is 0, expected more than 0"),
        ("# vehicles: two\nx,y,demand\n1,2,0\n", ": vehicles is 'two', expected a whole number"),
        (
            "x,y,demand,capacity\n1,2,0,3\n1,1,1,4\n",
            ": the column capacity has 2 values; vehicles of different capacity are not",
        ),
        (
            "# capacity: 9\nx,y,demand,depot\n1,2,0,1\n3,4,1,yes\n",
            ":4: 2 rows are marked in the column depot, expected one; several depots are not",
        ),
        ("# capacity: 9\nx,y,demand,depot\n1,2,0,maybe\n", ":3: depot is 'maybe', expected 1"),
        ("# name: " + "n" * 201 + "\nx,y\n0,0\n3,4\n", ": 'name' has 201 characters, expected"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, text: str, words: str) -> None:
    """The message names the file, the line and what was expected."""
    path = csv(tmp_path, text)
    with pytest.raises(InputError, match=f"^{path}{words}"):
        read(path)


def test_columns_without_use_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A user who meant one of them reads it."""
    read(csv(tmp_path, "x,y,colour\n1,2,red\n"))
    assert "places.csv: columns that are not used: 'colour'" in capsys.readouterr().err


def test_tables_are_found_by_content(tmp_path: Path) -> None:
    """In a folder only a CSV file of places is an instance; elsewhere no suffix is needed."""
    csv(tmp_path, "x,y\n0,0\n1,1\n", "good.csv")
    csv(tmp_path, "cost,gap\n0,0\n1,1\n", "results.csv")
    assert find_instance_files(tmp_path) == [tmp_path / "good.csv"]
    assert read(csv(tmp_path, "x;y\n0;0\n1;1\n", "places")).size == 2


numbers = st.floats(-1e6, 1e6, allow_nan=False) | st.integers(-(10**6), 10**6)
loads = st.integers(0, 10**4).map(lambda load: load / 100)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(st.tuples(numbers, numbers, loads), min_size=1, max_size=5),
    separator=st.sampled_from([",", ";", "\t"]),
    quote=st.sampled_from(["", '"']),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows, separator: str, quote: str
) -> None:
    """Any table keeps its positions and the ratio of loads, whatever it is written with."""
    rows = [(0, 0, 0), *rows]
    lines = ["# capacity: 100", separator.join(["x", "y", "demand"])]
    for row in rows:
        lines.append(separator.join(f"{quote}{cell!r}{quote}" for cell in row))
    path = tmp_path_factory.mktemp("csv") / "any.csv"
    path.write_text("\n".join(lines))
    instance = read(path)
    (same,) = instances_from(
        [dict(zip(("x", "y", "demand"), row, strict=True)) for row in rows], capacity=100
    )
    assert instance.xy.tolist() == same.xy.tolist() == [list(row[:2]) for row in rows]
    assert instance.demands == same.demands
    assert [load / instance.load_factor for load in instance.demands] == [row[2] for row in rows]
    assert instance.capacity == 100 * instance.load_factor
