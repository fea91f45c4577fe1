"""TSPLIB files: hand-worked files of every metric and layout, and round trips."""

from pathlib import Path

import numpy as np
import pytest

from rhumbline.errors import Infeasible, InputError
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
# One matrix, five ways to write it: the tour 1 2 3 4 costs 2 + 6 + 8 + 10 = 26.
MATRIX = np.array([[0, 2, 9, 10], [2, 0, 6, 4], [9, 6, 0, 8], [10, 4, 8, 0]])
LAYOUTS = {
    "FULL_MATRIX": "0 2 9 10\n2 0 6 4\n9 6 0 8\n10 4 8 0",
    "UPPER_ROW": "2 9 10\n6 4\n8",
    "LOWER_ROW": "2\n9 6\n10 4 8",
    "UPPER_DIAG_ROW": "0 2 9 10\n0 6 4\n0 8\n0",
    "LOWER_DIAG_ROW": "0\n2 0\n9 6 0\n10 4 8 0",
}


def put(folder: Path, text: str, name: str = "case.tsp") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def planar(metric: str, *points: tuple[float, float]) -> str:
    rows = "\n".join(f"{number} {x} {y}" for number, (x, y) in enumerate(points, 1))
    head = f"TYPE: TSP\nDIMENSION: {len(points)}\nEDGE_WEIGHT_TYPE: {metric}\n"
    return f"{head}NODE_COORD_SECTION\n{rows}\nEOF\n"


def explicit(layout: str, numbers: str, size: int = 4, rest: str = "") -> str:
    head = (
        f"TYPE: TSP\nDIMENSION: {size}\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: {layout}\n"
    )
    return f"{head}EDGE_WEIGHT_SECTION\n{numbers}\n{rest}EOF\n"


def cost_in_file_order(path: Path) -> int | float:
    instance = read_tsp(path)
    return Tour(tuple(range(instance.size))).cost(instance)


def test_the_house_costs_16(tmp_path: Path) -> None:
    """EUC_2D rounds each edge: 4 + 3 + 3 (2.83) + 3 (2.83) + 3 = 16."""
    instance = read_tsp(put(tmp_path, HOUSE))
    assert (instance.name, instance.metric, instance.size, instance.numbers) == (
        "five",
        "EUC_2D",
        5,
        (),
    )
    assert cost_in_file_order(tmp_path / "case.tsp") == 16


@pytest.mark.parametrize(
    ("metric", "points", "cost"),
    [
        ("EUC_2D", [(0, 0), (1, 1), (0, 2)], 1 + 1 + 2),  # 1.41, 1.41, 2
        ("EUC_2D", [(0, 0), (1.5, 2), (0, 0)], 3 + 3 + 0),  # 2.5 is rounded up
        ("CEIL_2D", [(0, 0), (1, 1), (0, 2)], 2 + 2 + 2),
        ("ATT", [(0, 0), (10, 0), (0, 20)], 4 + 8 + 7),  # sqrt of 10, 50, 40: 3.16, 7.07, 6.32
        ("ATT", [(0, 0), (30, 10)], 10 + 10),  # sqrt of 100 is whole and stays
        ("GEO", [(0, 0), (0, 90)], 10020 + 10020),  # 6378.388 * 3.141592 / 2 = 10019.1, plus 1, cut
        (
            "GEO",
            [(0, 0), (0, 0.30), (-0.30, 0)],
            56 + 79 + 56,
        ),  # 30 minutes are 55.66 km; 55.66 * sqrt(2) = 78.7
        ("GEO", [(1.30, 7), (0, 7)], 167 + 167),  # one degree and a half: 166.99 km
    ],
)
def test_each_metric_costs_what_the_hand_computes(
    tmp_path: Path, metric: str, points: list[tuple[float, float]], cost: int
) -> None:
    """The closed tour in file order costs the sum written beside its points."""
    assert cost_in_file_order(put(tmp_path, planar(metric, *points))) == cost


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_gives_the_same_matrix(tmp_path: Path, layout: str) -> None:
    """Five layouts give one matrix: 1 2 3 4 costs 26, 1 2 4 3 costs 2 + 4 + 8 + 9 = 23."""
    instance = read_tsp(put(tmp_path, explicit(layout, LAYOUTS[layout])))
    np.testing.assert_array_equal(instance.distances, MATRIX)
    assert [Tour((0, 1, 2, 3)).cost(instance), Tour((0, 1, 3, 2)).cost(instance)] == [26, 23]


def test_line_breaks_in_a_matrix_mean_nothing(tmp_path: Path) -> None:
    """The numbers of a matrix may be wrapped anywhere."""
    instance = read_tsp(put(tmp_path, explicit("UPPER_ROW", "2\n9 10 6 4\n\n8")))
    np.testing.assert_array_equal(instance.distances, MATRIX)


def test_the_diagonal_of_a_matrix_is_zero_whatever_the_file_says(tmp_path: Path) -> None:
    """Fillers such as 9999 or -1 on the diagonal are read as 0."""
    instance = read_tsp(put(tmp_path, explicit("FULL_MATRIX", "9999 5\n5 -1", size=2)))
    np.testing.assert_array_equal(instance.distances, [[0, 5], [5, 0]])


def test_weights_need_not_be_whole(tmp_path: Path) -> None:
    """A matrix with fractions has a cost with fractions: 0.5 + 1.25 + 2e-1 = 1.95."""
    assert cost_in_file_order(
        put(tmp_path, explicit("UPPER_ROW", "0.5 2e-1 1.25", size=3))
    ) == pytest.approx(1.95)


def test_display_data_are_the_picture_of_a_matrix(tmp_path: Path) -> None:
    """DISPLAY_DATA_SECTION gives `xy` in matrix order and changes neither distances nor numbers."""
    display = "DISPLAY_DATA_SECTION\n2 10 20\n1 0 0\n4 5 6\n3 7 8\n"
    instance = read_tsp(put(tmp_path, explicit("UPPER_ROW", LAYOUTS["UPPER_ROW"], rest=display)))
    np.testing.assert_array_equal(instance.xy, [[0, 0], [10, 20], [7, 8], [5, 6]])
    np.testing.assert_array_equal(instance.distances, MATRIX)
    assert instance.numbers == ()


def test_a_matrix_without_display_data_has_no_picture(tmp_path: Path) -> None:
    """`xy` is None where the file gives no positions."""
    assert read_tsp(put(tmp_path, explicit("LOWER_ROW", LAYOUTS["LOWER_ROW"]))).xy is None


@pytest.mark.parametrize(
    "text",
    [
        HOUSE.replace(" :", ":"),
        HOUSE.replace(" : ", ":"),
        HOUSE.lower(),
        HOUSE.replace("EOF\n", ""),
        HOUSE.replace("EOF\n", "EOF\nanything: follows\n1 2 3"),
        HOUSE.replace("\n", "\r\n"),
        HOUSE.replace("\n", "\r"),
        HOUSE.replace("\n", "\n\n  \n"),
        HOUSE.replace("TYPE : TSP\n", ""),
        HOUSE.replace("TYPE : TSP", "TYPE : TSP (M. Hofmeister)"),
        HOUSE.replace(
            "COMMENT : a house",
            "COMMENT : one\nCOMMENT : two\nCOMMENT:\nDISPLAY_DATA_TYPE: NO_DISPLAY",
        ),
        HOUSE.replace("NODE_COORD_SECTION", "NODE_COORD_SECTION :"),
        HOUSE.replace("2 4 0", "\t 2\t4.0e+00   0E0"),
        "\ufeff" + HOUSE,
    ],
)
def test_notation_does_not_matter(tmp_path: Path, text: str) -> None:
    """Colons, case, line ends, blank lines, EOF, TYPE and scientific notation do not matter."""
    path = tmp_path / "five.tsp"
    path.write_bytes(text.encode())
    instance = read_tsp(path)
    assert (instance.name, cost_in_file_order(path)) == ("five", 16)


def test_latin_1_comments_are_read(tmp_path: Path) -> None:
    """Old files with umlauts in Latin-1 are text."""
    path = tmp_path / "old.tsp"
    path.write_bytes(HOUSE.replace("a house", "14 Städte (Grötschel)").encode("latin-1"))
    assert cost_in_file_order(path) == 16


def test_node_numbers_are_kept_in_file_order(tmp_path: Path) -> None:
    """Numbers other than 1..N in order are kept; those leave `numbers` empty."""
    text = planar("EUC_2D", (0, 0), (3, 0), (3, 4)).replace(
        "\n1 0 0\n2 3 0\n3 3 4", "\n30 0 0\n0 3 0\n7 3 4"
    )
    instance = read_tsp(put(tmp_path, text))
    assert instance.numbers == (30, 0, 7)
    assert Tour((2, 0, 1)).to_file_numbers(instance) == [7, 30, 0]


def test_the_name_falls_back_to_that_of_the_file(tmp_path: Path) -> None:
    """Without NAME the file's stem names the instance, and a NAME loses its '.tsp'."""
    assert read_tsp(put(tmp_path, planar("EUC_2D", (0, 0)), "lonely.tsp")).name == "lonely"
    assert read_tsp(put(tmp_path, HOUSE.replace("five", "ulysses22.tsp"))).name == "ulysses22"


@pytest.mark.parametrize(
    "text",
    [planar("EUC_2D", (5, 5)), explicit("FULL_MATRIX", "7", 1), explicit("UPPER_ROW", "", 1)],
)
def test_one_city_is_an_instance(tmp_path: Path, text: str) -> None:
    """The smallest size is 1, and its tour costs nothing."""
    assert cost_in_file_order(put(tmp_path, text)) == 0


def test_a_thousand_cities_are_read(tmp_path: Path) -> None:
    """The largest size is 1000: a line of cities at distance 1 costs 999 there and 999 back."""
    assert (
        cost_in_file_order(put(tmp_path, planar("EUC_2D", *((i, 0) for i in range(1000)))))
        == 2 * 999
    )


def test_best_known_cost_comes_from_optima_json(tmp_path: Path) -> None:
    """`read_best_known` is the entry under the instance's name, None without entry or file."""
    path = put(tmp_path, HOUSE)
    assert read_tsp(path).best_known is None
    put(tmp_path, '{"other": 3}', "optima.json")
    assert read_tsp(path).best_known is None
    put(tmp_path, '{"other": "not ours to judge", "five": 16}', "optima.json")
    assert read_tsp(path).best_known == 16.0


def test_a_tour_file_reads_as_it_says(tmp_path: Path) -> None:
    """A tour is given in the file's own node numbers and read back as indices."""
    path = put(tmp_path, planar("EUC_2D", (0, 0), (3, 0), (3, 4)).replace("\n1 0", "\n30 0"))
    tour = Tour((2, 0, 1))
    write_tour(tmp_path / "case.tour", tour, read_tsp(path), "cost 12,\nby hand")
    assert (tmp_path / "case.tour").read_text() == (
        "NAME : case\nCOMMENT : cost 12, by hand\nTYPE : TOUR\nDIMENSION : 3\n"
        "TOUR_SECTION\n3\n30\n2\n-1\nEOF\n"
    )
    assert read_tour(tmp_path / "case.tour", read_tsp(path)) == tour


@pytest.mark.parametrize(
    "body", ["1 2 3\n4 5 -1\nEOF", "1\n2\n3\n4\n5\n-1\n-1\n", "1 2 3 4 5", "1 2 3 4 5\n-1\nEOF\n"]
)
def test_tours_may_be_wrapped_anywhere(tmp_path: Path, body: str) -> None:
    """Line breaks, a second -1, and the ends that some programs leave out do not matter."""
    house = read_tsp(put(tmp_path, HOUSE))
    assert read_tour(put(tmp_path, f"TOUR_SECTION\n{body}", "t.tour"), house) == Tour(
        (0, 1, 2, 3, 4)
    )


def test_tours_of_every_size_survive_writing(tmp_path: Path) -> None:
    """Random tours over random node numbers come back equal."""
    rng = np.random.default_rng(3)
    for size in (1, 2, 3, 50, 1000):
        numbers = tuple(int(n) for n in rng.permutation(10 * size)[:size])
        instance = TSPInstance("random", "EUC_2D", xy=rng.random((size, 2)), numbers=numbers)
        tour = Tour(tuple(int(c) for c in rng.permutation(size)))
        write_tour(tmp_path / "t.tour", tour, instance, "")
        assert read_tour(tmp_path / "t.tour", instance) == tour


def test_an_infeasible_tour_is_not_written(tmp_path: Path) -> None:
    """A tour that misses a city is refused and no file appears."""
    house = read_tsp(put(tmp_path, HOUSE))
    with pytest.raises(Infeasible, match="city 4 0 times"):
        write_tour(tmp_path / "t.tour", Tour((0, 1, 2, 4, 4)), house, "")
    assert [p.name for p in tmp_path.iterdir()] == ["case.tsp"]


@pytest.mark.parametrize("metric", ["EUC_2D", "CEIL_2D", "ATT", "GEO"])
def test_written_coordinates_read_back_equal(tmp_path: Path, metric: str) -> None:
    """Coordinates, metric and node numbers survive writing to the last bit."""
    xy = np.random.default_rng(1).normal(0, 40, (30, 2))
    before = TSPInstance("bits", metric, xy=xy, numbers=tuple(range(30)))  # type: ignore[arg-type]
    write_tsp(tmp_path / "bits.tsp", before, "a comment\nof two lines")
    after = read_tsp(tmp_path / "bits.tsp")
    np.testing.assert_array_equal(after.xy, xy)
    np.testing.assert_array_equal(after.distances, before.distances)
    assert (after.name, after.metric, after.numbers) == ("bits", metric, before.numbers)


@pytest.mark.parametrize("xy", [None, np.array([[0.5, 0], [1, 1], [2, 2], [3, 1e-9]])])
def test_written_matrices_read_back_equal(tmp_path: Path, xy: np.ndarray | None) -> None:
    """A matrix and its picture survive writing, whole numbers or not."""
    for matrix in (MATRIX, MATRIX / 3):
        write_tsp(tmp_path / "m.tsp", TSPInstance("m", "EXPLICIT", xy=xy, matrix=matrix))
        after = read_tsp(tmp_path / "m.tsp")
        np.testing.assert_array_equal(after.distances, matrix)
        np.testing.assert_array_equal(after.xy, xy) if xy is not None else None


def test_the_unrounded_metric_cannot_be_written(tmp_path: Path) -> None:
    """TSPLIB has no name for EXACT_2D, so writing it as something else is refused."""
    with pytest.raises(
        InputError, match=r"out\.tsp: TSPLIB has no word for the metric EXACT_2D.*dataset"
    ):
        write_tsp(tmp_path / "out.tsp", TSPInstance("x", "EXACT_2D", xy=np.zeros((3, 2))))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [2, 17, 60])
def test_vrplib_reads_the_same_coordinates(tmp_path: Path, size: int) -> None:
    """The vrplib package, which does not round, agrees with our EUC_2D after rounding half up."""
    vrplib = pytest.importorskip("vrplib")
    xy = np.random.default_rng(size).integers(0, 1000, (size, 2)).astype(float)
    write_tsp(tmp_path / "v.tsp", TSPInstance("v", "EUC_2D", xy=xy))
    theirs = vrplib.read_instance(tmp_path / "v.tsp")
    np.testing.assert_array_equal(
        read_tsp(tmp_path / "v.tsp").distances, np.floor(theirs["edge_weight"] + 0.5)
    )


@pytest.mark.parametrize("layout", ["FULL_MATRIX", "LOWER_ROW"])
def test_vrplib_reads_the_same_matrix(tmp_path: Path, layout: str) -> None:
    """The vrplib package agrees on the explicit layouts that it knows."""
    vrplib = pytest.importorskip("vrplib")
    path = put(tmp_path, explicit(layout, LAYOUTS[layout]))
    np.testing.assert_array_equal(
        read_tsp(path).distances, vrplib.read_instance(path)["edge_weight"]
    )
