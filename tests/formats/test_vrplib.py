"""VRPLIB files: a hand-worked file in every metric and layout, and solutions in and out."""

from pathlib import Path

import numpy as np
import pytest

from rhumbline.errors import Infeasible
from rhumbline.files import plan_suffix_for, read, read_many, write_plan
from rhumbline.formats.vrplib import read_sol, read_vrp, write_sol
from rhumbline.problems.cvrp import CVRPInstance, Routes

# Ways from the depot: 5, 3, 13, 5. Between customers: 1-2 is 4, 1-4 is 3.16 (root of 10), 3-4 is
# 8.60 (root of 74).
FOUR = """NAME : four
COMMENT : (by hand, No of trucks: 2)
TYPE : CVRP
DIMENSION : 5
EDGE_WEIGHT_TYPE : EUC_2D
CAPACITY : 10
NODE_COORD_SECTION
1 0 0
2 3 4
3 3 0
4 -5 12
5 0 5
DEMAND_SECTION
1 0
2 4
3 3
4 6
5 4
DEPOT_SECTION
 1
 -1
EOF
"""
PAIRS = Routes(((1, 2), (3, 4)))  # loads 7 and 10; 5 + 4 + 3 = 12, and 13 + 8.60 + 5 = 26.60
SINGLES = Routes(
    ((1, 4), (2,), (3,))
)  # loads 8, 3 and 6; 5 + 3.16 + 5 = 13.16, 3 + 3 = 6, and 13 + 13 = 26

# The same demands with distances that no plane has: the pairs cost 2 + 6 + 9 = 17 and 10 + 7 + 1 =
# 18.
MATRIX = np.array(
    [[0, 2, 9, 10, 1], [2, 0, 6, 4, 3], [9, 6, 0, 8, 5], [10, 4, 8, 0, 7], [1, 3, 5, 7, 0]]
)
LAYOUTS = {
    "FULL_MATRIX": lambda m, i: m[i],
    "LOWER_ROW": lambda m, i: m[i, :i],
    "UPPER_ROW": lambda m, i: m[i, i + 1 :],
    "LOWER_DIAG_ROW": lambda m, i: m[i, : i + 1],
    "UPPER_DIAG_ROW": lambda m, i: m[i, i:],
}


def put(folder: Path, text: str, name: str = "four.vrp") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def explicit(layout: str, order: tuple[int, ...] = (0, 1, 2, 3, 4), rest: str = "") -> str:
    """Return a file whose node k + 1 is node `order[k]` of the matrix above."""
    demands = "\n".join(f"{k + 1} {(0, 4, 3, 6, 4)[node]}" for k, node in enumerate(order))
    turned = MATRIX[np.ix_(order, order)]
    rows = "\n".join(" ".join(map(str, LAYOUTS[layout](turned, i))) for i in range(5))
    return (
        "NAME: four\nTYPE: CVRP\nDIMENSION: 5\n"
        f"EDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: {layout}\n"
        f"CAPACITY: 10\nEDGE_WEIGHT_SECTION\n{rows}\n{rest}"
        f"DEMAND_SECTION\n{demands}\nDEPOT_SECTION\n{order.index(0) + 1}\n-1\nEOF\n"
    )


def check_four(instance: object) -> None:
    """Fail unless this is the file above, in any notation."""
    assert isinstance(instance, CVRPInstance)
    assert (instance.name, instance.metric, instance.size) == ("four", "EUC_2D", 5)
    assert (instance.demands, instance.capacity, instance.vehicles) == ((0, 4, 3, 6, 4), 10, None)
    assert instance.xy is not None
    assert instance.xy.tolist() == [[0, 0], [3, 4], [3, 0], [-5, 12], [0, 5]]


def test_four_customers_are_read_as_written(tmp_path: Path) -> None:
    """The depot is 0, customers are 1 to 4; the number of trucks in a comment is no limit."""
    check_four(read_vrp(put(tmp_path, FOUR)))


@pytest.mark.parametrize(
    ("metric", "pairs", "singles"),
    [
        ("EUC_2D", 12 + 27, 13 + 6 + 26),  # 8.60 is 9, 3.16 is 3
        ("CEIL_2D", 12 + 27, 14 + 6 + 26),  # 9 and 4
        ("FLOOR_2D", 12 + 26, 13 + 6 + 26),  # 8 and 3
        ("EXACT_2D", 12 + 18 + 74**0.5, 10 + 10**0.5 + 6 + 26),
    ],
)
def test_each_metric_costs_what_the_hand_computes(
    tmp_path: Path, metric: str, pairs: float, singles: float
) -> None:
    """Routes cost the sums beside them: whole numbers, except in the unrounded metric."""
    instance = read_vrp(put(tmp_path, FOUR.replace("EUC_2D", metric)))
    costs = [plan.cost(instance) for plan in (PAIRS, SINGLES)]
    assert costs == [pytest.approx(pairs, rel=1e-14), pytest.approx(singles, rel=1e-14)]
    assert {type(cost) for cost in costs} == {float if metric == "EXACT_2D" else int}


def test_halves_are_rounded_up(tmp_path: Path) -> None:
    """A customer at 1.5, 2 is 2.5 away from the depot: 3."""
    instance = read_vrp(put(tmp_path, FOUR.replace("2 3 4", "2 1.5 2")))
    assert instance.distances[0, 1] == 3


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (1, 2, 0, 3, 4), (1, 2, 3, 4, 0)])
def test_each_layout_gives_the_same_matrix(
    tmp_path: Path, layout: str, order: tuple[int, ...]
) -> None:
    """The matrix is reordered so that the depot comes first: the pairs cost 17 + 18."""
    instance = read_vrp(put(tmp_path, explicit(layout, order)))
    np.testing.assert_array_equal(instance.distances, MATRIX)
    assert (instance.demands, instance.xy) == ((0, 4, 3, 6, 4), None)
    assert PAIRS.cost(instance) == 17 + 18


@pytest.mark.parametrize("section", ["NODE_COORD_SECTION", "DISPLAY_DATA_SECTION"])
def test_a_matrix_may_have_a_picture(tmp_path: Path, section: str) -> None:
    """Coordinates beside a matrix serve drawings, in the order of the instance."""
    rows = f"{section}\n5 50 0\n4 40 0\n3 30 0\n2 20 0\n1 10 0\n"
    instance = read_vrp(put(tmp_path, explicit("LOWER_ROW", (1, 2, 0, 3, 4), rows)))
    assert instance.xy is not None
    assert instance.xy[:, 0].tolist() == [30, 10, 20, 40, 50]
    np.testing.assert_array_equal(instance.distances, MATRIX)


@pytest.mark.parametrize(
    ("nodes", "demands", "depot"),
    [
        (
            "1 3 4\n2 3 0\n3 0 0\n4 -5 12\n5 0 5",
            "1 4\n2 3\n3 0\n4 6\n5 4",
            "3",
        ),  # depot in the middle
        ("1 3 4\n2 3 0\n3 -5 12\n4 0 5\n5 0 0", "1 4\n2 3\n3 6\n4 4\n5 0", "5"),  # depot last
        ("0 0 0\n1 3 4\n2 3 0\n3 -5 12\n4 0 5", "0 0\n1 4\n2 3\n3 6\n4 4", "0"),  # numbered from 0
        (
            "70 0 0\n9 3 4\n800 3 0\n1 -5 12\n33 0 5",
            "1 6\n9 4\n33 4\n70 0\n800 3",
            "70",
        ),  # any numbers, any order
    ],
)
def test_numbers_and_depot_are_where_the_file_puts_them(
    tmp_path: Path, nodes: str, demands: str, depot: str
) -> None:
    """The depot goes to the front, customers keep their order, demands find their nodes."""
    head = FOUR[: FOUR.index("1 0 0")]
    text = f"{head}{nodes}\nDEMAND_SECTION\n{demands}\nDEPOT_SECTION\n{depot}\n-1\nEOF\n"
    check_four(read_vrp(put(tmp_path, text)))


@pytest.mark.parametrize(
    "text",
    [
        FOUR.replace(" :", ":"),
        FOUR.replace(" : ", " : \t").replace("\n", "\t\n").replace("2 4", "2\t4"),  # as on CVRPLIB
        FOUR.lower(),
        FOUR.replace("EOF\n", ""),
        FOUR.replace(" -1\nEOF\n", ""),
        FOUR.replace("\n", "\r\n"),
        FOUR.replace("\n", "\n\n"),
        FOUR.replace("TYPE : CVRP\n", ""),
        FOUR.replace("NAME : four", "NAME : four.vrp"),
        FOUR.replace("NAME : four\n", ""),
        FOUR.replace(
            "CAPACITY", "EDGE_WEIGHT_FORMAT : FUNCTION\nNODE_COORD_TYPE : TWOD_COORDS\nCAPACITY"
        ),
        FOUR.replace("NODE_COORD_SECTION", "NODE_COORD_SECTION :"),
        "\ufeff" + FOUR,
    ],
)
def test_notation_does_not_matter(tmp_path: Path, text: str) -> None:
    """Colons, case, tabs, line ends, EOF, -1, TYPE, NAME and unused headers do not matter."""
    check_four(read_vrp(put(tmp_path, text)))


def test_a_fleet_may_be_limited(tmp_path: Path) -> None:
    """VEHICLES is the most routes of a plan; 2 vehicles of 10 just carry the demand of 17."""
    instance = read_vrp(put(tmp_path, FOUR.replace("CAPACITY", "VEHICLES : 2\nCAPACITY")))
    assert instance.vehicles == 2
    PAIRS.check(instance)
    with pytest.raises(Infeasible, match="needs 3 vehicles, 2 are allowed"):
        SINGLES.check(instance)


def test_the_k_of_a_name_is_no_limit(tmp_path: Path) -> None:
    """X-n5-k1 tells how few vehicles might do, not how many may drive."""
    instance = read_vrp(put(tmp_path, FOUR.replace("NAME : four", "NAME : X-n5-k1")))
    assert (instance.name, instance.vehicles) == ("X-n5-k1", None)


def test_customers_may_demand_nothing_or_everything(tmp_path: Path) -> None:
    """Demands of 0 and of the whole capacity are read."""
    instance = read_vrp(put(tmp_path, FOUR.replace("\n2 4\n3 3\n", "\n2 0\n3 10\n")))
    assert instance.demands == (0, 0, 10, 6, 4)


def test_one_customer_is_an_instance(tmp_path: Path) -> None:
    """The smallest size is a depot and a customer: 5 there and 5 back."""
    text = (
        "TYPE: CVRP\nDIMENSION: 2\nEDGE_WEIGHT_TYPE: EUC_2D\nCAPACITY: 1\n"
        "NODE_COORD_SECTION\n1 0 0\n2 3 4\n"
    )
    instance = read_vrp(put(tmp_path, f"{text}DEMAND_SECTION\n1 0\n2 1\nDEPOT_SECTION\n1\n-1\n"))
    assert Routes(((1,),)).cost(instance) == 10


def test_a_thousand_customers_are_read(tmp_path: Path) -> None:
    """The largest size is 1000 customers: on a line at distance 1 they cost 1000 each way."""
    head = "DIMENSION: 1001\nEDGE_WEIGHT_TYPE: EUC_2D\nCAPACITY: 1000\nNODE_COORD_SECTION\n"
    nodes = "".join(f"{k} {k} 0\n" for k in range(1001))
    demands = "".join(f"{k} {int(k > 0)}\n" for k in range(1001))
    instance = read_vrp(
        put(tmp_path, f"{head}{nodes}DEMAND_SECTION\n{demands}DEPOT_SECTION\n0\n-1\n")
    )
    assert Routes((tuple(range(1, 1001)),)).cost(instance) == 2000


def test_best_known_costs_come_from_either_file(tmp_path: Path) -> None:
    """`optima.json` is asked first, `best_known.json` where it has no entry."""
    path = put(tmp_path, FOUR)
    assert read_vrp(path).best_known is None
    put(tmp_path, '{"four": 39}', "best_known.json")
    assert read_vrp(path).best_known == 39.0
    put(tmp_path, '{"other": 1}', "optima.json")
    assert read_vrp(path).best_known == 39.0
    put(tmp_path, '{"four": 38}', "optima.json")
    assert read_vrp(path).best_known == 38.0


# --- which reader, which writer


@pytest.mark.parametrize("name", ["a.vrp", "a.VRP", "a.txt", "a"])
def test_files_of_any_ending_are_read(tmp_path: Path, name: str) -> None:
    """The suffix, or for other suffixes the TYPE, says that a file is a CVRP."""
    put(tmp_path, FOUR, name)
    check_four(read(str(tmp_path / name)))
    assert [i.size for i in read_many(tmp_path / name)] == [5]


def test_the_type_of_a_comment_does_not_decide(tmp_path: Path) -> None:
    """Only the header TYPE counts, not comments or what stands behind it."""
    put(
        tmp_path,
        FOUR.replace("(by hand", "TYPE : TSP (by hand").replace(
            "TYPE : CVRP", "TYPE : CVRP (1995)"
        ),
        "a",
    )
    assert read(tmp_path / "a").problem == "cvrp"


def test_plans_know_their_format(tmp_path: Path) -> None:
    """Routes are written as .sol."""
    four = read(put(tmp_path, FOUR))
    write_plan(str(tmp_path / "four.sol"), PAIRS, four, "a comment")
    assert (tmp_path / "four.sol").read_text() == "Route #1: 1 2\nRoute #2: 3 4\nCost 39\n"
    assert plan_suffix_for(four) == ".sol"


# --- solutions


def test_routes_of_every_size_survive_writing(tmp_path: Path) -> None:
    """Random routes come back equal, in order and direction."""
    rng = np.random.default_rng(3)
    for size in (1, 2, 5, 50, 1000):
        instance = CVRPInstance(
            "random", "EUC_2D", (0, *[1] * size), size, xy=rng.random((size + 1, 2)) * 1000
        )
        pieces = np.split(
            1 + rng.permutation(size), np.unique(rng.integers(0, size, size // 5)[1:] + 1)
        )
        plan = Routes(tuple(tuple(int(c) for c in piece) for piece in pieces if len(piece)))
        write_sol(tmp_path / "r.sol", plan, instance, "")
        assert read_sol(tmp_path / "r.sol", instance) == plan


def test_an_unrounded_cost_is_written_in_full(tmp_path: Path) -> None:
    """The cost of EXACT_2D reads back to the last bit."""
    exact = read_vrp(put(tmp_path, FOUR.replace("EUC_2D", "EXACT_2D")))
    write_sol(tmp_path / "four.sol", PAIRS, exact, "")
    assert float((tmp_path / "four.sol").read_text().split()[-1]) == PAIRS.cost(exact)


def test_routes_without_customers_are_not_written(tmp_path: Path) -> None:
    """A vehicle that stays at home has no line, and routes are counted without it."""
    four = read_vrp(put(tmp_path, FOUR))
    write_sol(tmp_path / "four.sol", Routes(((1, 2), (), (3, 4))), four, "")
    assert (tmp_path / "four.sol").read_text() == "Route #1: 1 2\nRoute #2: 3 4\nCost 39\n"


def test_an_infeasible_plan_is_not_written(tmp_path: Path) -> None:
    """A plan that overloads a vehicle is refused and no file appears."""
    four = read_vrp(put(tmp_path, FOUR))
    with pytest.raises(Infeasible, match="four: route 1 carries 13, the capacity is 10"):
        write_sol(tmp_path / "four.sol", Routes(((1, 2, 3), (4,))), four, "")
    assert [p.name for p in tmp_path.iterdir()] == ["four.vrp"]


@pytest.mark.parametrize(
    "text",
    [
        "Route #1: 1 2\nRoute #2: 3 4\nCost 39\n",
        "Route #1: 1 2\nRoute #2: 3 4\n",
        "Route #1: 1 2\nRoute #2: 3 4\nCost 41.5\ntime: 3.2 s\n",
        "NAME : four\nCOMMENT : by a friend\n\nroute #1 : 1\t2\r\nROUTE 2: 3 4\r\ncost: 39\r\n",
        "Route #1: 1 2\nRoute #2:\nRoute #3: 3 4\nCost 39",
    ],
)
def test_notation_of_a_solution_does_not_matter(tmp_path: Path, text: str) -> None:
    """Case, blanks, notes, costs and a vehicle without customers do not change the routes."""
    four = read_vrp(put(tmp_path, FOUR))
    assert read_sol(put(tmp_path, text, "four.sol"), four) == PAIRS


# --- the vrplib package as a second opinion


@pytest.mark.parametrize("metric", ["EUC_2D", "FLOOR_2D", "CEIL_2D", "EXACT_2D"])
def test_vrplib_reads_the_same_file(tmp_path: Path, metric: str) -> None:
    """Distances, demands and capacity agree with the package vrplib.

    It leaves EUC_2D unrounded and gives EXACT_2D in whole thousandths.
    """
    vrplib = pytest.importorskip("vrplib")
    xy = np.random.default_rng(0).integers(0, 1000, (40, 2))
    nodes = "".join(f"{k} {x} {y}\n" for k, (x, y) in enumerate(xy, 1))
    demands = "".join(f"{k} {0 if k == 1 else k}\n" for k in range(1, 41))
    head = f"TYPE : CVRP\nDIMENSION : 40\nEDGE_WEIGHT_TYPE : {metric}\nCAPACITY : 50\n"
    text = f"{head}NODE_COORD_SECTION\n{nodes}"
    path = put(tmp_path, f"{text}DEMAND_SECTION\n{demands}DEPOT_SECTION\n1\n-1\nEOF\n")
    ours, theirs = read_vrp(path), vrplib.read_instance(path)
    expected = ours.distances
    if metric == "EUC_2D":
        np.testing.assert_array_equal(expected, np.floor(theirs["edge_weight"] + 0.5))
    elif metric == "EXACT_2D":
        np.testing.assert_array_equal(np.round(1000 * expected), theirs["edge_weight"])
    else:
        np.testing.assert_array_equal(expected, theirs["edge_weight"])
    assert (list(ours.demands), ours.capacity) == (theirs["demand"].tolist(), theirs["capacity"])


@pytest.mark.parametrize("layout", ["FULL_MATRIX", "LOWER_ROW"])
def test_vrplib_reads_the_same_matrix(tmp_path: Path, layout: str) -> None:
    """The vrplib package agrees on the explicit layouts that it knows."""
    vrplib = pytest.importorskip("vrplib")
    path = put(tmp_path, explicit(layout))
    np.testing.assert_array_equal(
        read_vrp(path).distances, vrplib.read_instance(path)["edge_weight"]
    )


def test_vrplib_reads_our_solutions(tmp_path: Path) -> None:
    """What we write, others read."""
    vrplib = pytest.importorskip("vrplib")
    write_sol(tmp_path / "four.sol", PAIRS, read_vrp(put(tmp_path, FOUR)), "a comment")
    assert vrplib.read_solution(tmp_path / "four.sol") == {"routes": [[1, 2], [3, 4]], "cost": 39}
