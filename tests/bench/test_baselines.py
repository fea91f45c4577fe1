"""Baselines: our heuristics against brute force, other solvers through their adapters."""

import stat
import sys
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rhumbline.bench.baselines import (
    BASELINES,
    Baseline,
    SolverTask,
    jobs_by_start,
    nearest_order,
    two_opt,
)
from rhumbline.errors import Infeasible, InputError, MissingExtra
from rhumbline.external import integer_distances
from rhumbline.external import pyvrp as vrp
from rhumbline.problems.cvrp import Routes, cvrp_from_arrays, with_fleet
from rhumbline.problems.jssp import JSSPInstance
from rhumbline.problems.metrics import euclidean_distances
from rhumbline.problems.tsp import Tour, TSPInstance, tsp_from_array

LINE = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [7.0, 0.0]])


def cities(seed: int, count: int) -> TSPInstance:
    return TSPInstance("t", "EXACT_2D", xy=np.random.default_rng(seed).random((count, 2)))


def customers(seed: int, count: int, capacity: int = 10) -> Any:
    rng = np.random.default_rng(seed)
    return cvrp_from_arrays(
        rng.random(2), rng.random((count, 2)), rng.integers(1, 6, count), capacity
    )


def work(instance: Any, seconds: float | None = None, **settings: int) -> SolverTask:
    return SolverTask(instance, seconds, 0, settings)


def optimum(instance: TSPInstance) -> float:
    orders = permutations(range(1, instance.size))
    return min(Tour((0, *order)).cost(instance) for order in orders)


def test_the_nearest_neighbour_is_next() -> None:
    """On a line, the order from 3 is 1 (distance 2), then 0, and 7 at last."""
    assert nearest_order(euclidean_distances(LINE), 2).tolist() == [2, 1, 0, 3]


def test_two_opt_uncrosses() -> None:
    """The corners of a square in crossed order become its outline."""
    square = euclidean_distances(np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]))
    tour = two_opt(np.arange(4), square)
    assert square[tour, np.roll(tour, -1)].sum() == 4.0


@pytest.mark.parametrize("seed", range(5))
def test_two_opt_ends_where_no_reversal_helps(seed: int) -> None:
    """No reversal of a single segment makes the tour shorter. The test tries all of them."""
    distances = euclidean_distances(np.random.default_rng(seed).random((12, 2)))
    tour = two_opt(nearest_order(distances, 0), distances)
    length = distances[tour, np.roll(tour, -1)].sum()
    for i in range(12):
        for j in range(i + 2, 13):
            other = np.concatenate([tour[:i], tour[i:j][::-1], tour[j:]])
            assert distances[other, np.roll(other, -1)].sum() >= length - 1e-9


def test_more_starts_are_never_worse() -> None:
    """All starts together find the optimum of a small instance."""
    instance, solver = cities(1, 7), BASELINES["nearest"]
    one, all_ = (solver.solve(work(instance, starts=n)).cost(instance) for n in (1, 7))
    assert optimum(instance) == pytest.approx(all_)
    assert all_ <= one


@pytest.mark.parametrize("count", [1, 2, 3])
def test_tiny_instances(count: int) -> None:
    """One, two and three cities have a tour, too."""
    instance = cities(0, count)
    assert sorted(BASELINES["nearest"].solve(work(instance)).to_file_numbers(instance)) == list(
        range(1, count + 1)
    )


@pytest.mark.parametrize("seed", range(5))
def test_nearest_routes_obey_the_rules(seed: int) -> None:
    """Every customer is served once and no vehicle is overloaded, as the plan's checker says.

    No vehicle returns while a customer still fits.
    """
    instance = customers(seed, 20)
    plan = BASELINES["nearest"].solve(work(instance))
    assert isinstance(plan, Routes)
    loads = [sum(instance.demands[c] for c in route) for route in plan.routes]
    waiting = [instance.demands[c] for route in plan.routes[1:] for c in route]
    assert loads[0] + min(waiting) > instance.capacity


def test_integer_distances_stay_and_others_are_scaled() -> None:
    """LKH and OR-Tools need whole numbers.

    The largest distance becomes a million; whole distances do not change.
    """
    assert integer_distances(tsp_from_array(LINE)).max() == 1_000_000
    np.testing.assert_array_equal(
        integer_distances(tsp_from_array(LINE))[0],
        np.rint(LINE[:, 0] / 7 * 1_000_000),
    )
    whole = TSPInstance("w", "EUC_2D", xy=LINE)
    np.testing.assert_array_equal(integer_distances(whole)[0], [0, 1, 3, 7])
    assert integer_distances(TSPInstance("w", "EUC_2D", xy=LINE * 1e9)).max() == 1_000_000


class Library(ModuleType):
    """A stand-in for the library of a solver, which keeps what it is given."""

    given: Any = None


def test_lkh_gets_nested_lists_of_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """elkai truncates floats silently and refuses arrays.

    It repeats the first city at the end, which is removed.
    """
    library = Library("elkai")

    def matrix(rows: Any) -> Any:
        library.given = rows
        return SimpleNamespace(solve_tsp=lambda runs: [0, 2, 1, 3, 4, 0])

    library.DistanceMatrix = matrix  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "elkai", library)
    instance = cities(0, 5)
    assert BASELINES["lkh"].solvers["tsp"](work(instance, runs=3)) == [0, 2, 1, 3, 4]
    assert all(type(x) is int for row in library.given for x in row)
    np.testing.assert_array_equal(library.given, integer_distances(instance))


def test_hgs_does_not_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The distances are those of the metric of the file, with the depot first.

    Only the clock ends the search.
    """
    library, given = Library("hygese"), dict[str, Any]()

    def solve(data: dict[str, Any], rounding: bool) -> Any:
        given.update(data, rounding=rounding)
        return SimpleNamespace(routes=[[2, 1], [3]])

    library.AlgorithmParameters = lambda **p: given.update(p)  # type: ignore[attr-defined]
    library.Solver = lambda parameters, verbose: SimpleNamespace(solve_cvrp=solve)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hygese", library)
    instance = cvrp_from_arrays(
        np.zeros(2), np.array([[1, 0], [0, 2], [3, 3]]), np.array([1, 2, 3]), 4
    )
    assert BASELINES["hgs"].solvers["cvrp"](work(instance, 2.0)) == [2, 1, 0, 3, 0]
    np.testing.assert_array_equal(given["distance_matrix"], instance.distances)
    assert (given["demands"], given["vehicle_capacity"], given["rounding"]) == (
        [0, 1, 2, 3],
        4,
        False,
    )
    assert (given["timeLimit"], given["nbIter"]) == (2.0, 10**9)


REAL = [
    ("lkh", "elkai", "tsp"),
    ("hgs", "hygese", "cvrp"),
    ("pyvrp", "pyvrp", "tsp"),
    ("pyvrp", "pyvrp", "cvrp"),
    ("ortools", "ortools", "tsp"),
    ("ortools", "ortools", "cvrp"),
]
HERE = [case for case in REAL if find_spec(case[1])]  # the adapters above are tested everywhere


@pytest.mark.parametrize(("name", "package", "problem"), HERE)
def test_installed_solvers_find_the_optimum_of_small_instances(
    name: str, package: str, problem: str
) -> None:
    """On seven cities, or five customers, every solver is as good as brute force."""
    solver = BASELINES[name]
    instance = cities(2, 7) if problem == "tsp" else customers(2, 5, 30)
    seconds = 0.1 if solver.needs_seconds else None
    cost = solver.solve(work(instance, seconds)).cost(instance)
    whole_tour = TSPInstance("t", "EXACT_2D", xy=instance.xy)  # one vehicle can carry everything
    assert cost == pytest.approx(optimum(whole_tour), rel=1e-5)


def test_the_order_of_a_schedule_is_that_of_its_starts() -> None:
    """Jobs are sorted by start.

    An operation without duration comes before one that starts with it.
    """
    assert jobs_by_start([[0, 4], [2, 4]], [[2, 3], [1, 0]]) == [0, 0, 1, 1, 0]


SHOP = JSSPInstance(
    "shop", ((3, 2), (2, 4)), ((0, 1), (0, 1)), 2
)  # two jobs that share both machines


@pytest.mark.parametrize(
    ("rule", "order"),
    [
        (
            "spt",
            [1, 0, 1, 0],
        ),  # 2 is shorter than 3; at time 2 both can start, and 3 is shorter than 4
        ("mwkr", [1, 0, 1, 0]),  # job 1 has 6 left, job 0 has 5; at 2 it is 4 against 5
        (
            "mopnr",
            [0, 1, 0, 1],
        ),  # equal numbers: the first job; at 3 job 1 has two left and job 0 one
        ("fifo", [0, 1, 0, 1]),  # at 3 job 1 has waited since 0
    ],
)
def test_dispatching_rules_choose_as_documented(rule: str, order: list[int]) -> None:
    """The orders are computed by hand. A schedule starts with 0."""
    assert BASELINES[rule].solvers["jssp"](work(SHOP)) == [0, *order]


@pytest.mark.skipif(find_spec("ortools") is None, reason="CP-SAT is an optional solver")
def test_cp_sat_finds_the_shortest_schedule() -> None:
    """With job 1 first, machine 1 works from 2 to 8. The other order takes 9."""
    assert BASELINES["cpsat"].solvers["jssp"](work(SHOP, 5.0))[1] == 1


@pytest.mark.skipif(find_spec("pyvrp") is None, reason="PyVRP is an optional solver")
def test_pyvrp_gets_distances_that_its_penalties_can_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """With capacities, distances go up to 10,000.

    Up to a million, overload would cost less than another route.
    """
    seen = list[Any]()
    monkeypatch.setattr(
        vrp, "solve_routes", lambda data, seconds, seed: seen.append(data) or [[1, 2, 3, 4, 5]]
    )
    BASELINES["pyvrp"].solve(work(customers(2, 5, 30), 0.1))
    BASELINES["pyvrp"].solve(work(cities(2, 6), 0.1))
    assert [data.distance_matrix(0).max() for data in seen] == [10_000, 1_000_000]


@pytest.mark.skipif(find_spec("pyvrp") is None, reason="PyVRP is an optional solver")
def test_overloaded_pyvrp_routes_are_not_a_plan() -> None:
    """Three customers of demand 6 do not fit into two vehicles of capacity 10."""
    where = np.random.default_rng(0).random((4, 2))
    instance = with_fleet(
        cvrp_from_arrays(where[0], where[1:], np.array([6, 6, 6]), 10, "tight"), 2
    )
    with pytest.raises(
        Infeasible, match=r"tight: PyVRP found no plan that obeys the rules in 0\.1 s"
    ):
        BASELINES["pyvrp"].solve(work(instance, 0.1))


def test_missing_libraries_and_programs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the command that installs them."""
    absent = Baseline("X", {}, "no_such_library", "pip install 'rhumbline[x]'")
    with pytest.raises(
        MissingExtra, match=r"X needs no_such_library; get it with: pip install 'rhumbline\[x\]'"
    ):
        absent.require()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingExtra, match="Concorde needs the program 'concorde' on the path"):
        BASELINES["concorde"].require()


CONCORDE = """#!/bin/sh
[ "$1" = "-x" ] && grep -q "DIMENSION: 6" problem.tsp && printf '6\\n0 2 4\\n1 3 5\\n' > tour.sol
"""


def test_concorde_is_called_if_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name gets a TSPLIB file, and its tour is read.

    Without a tour, its output is shown.
    """
    program = tmp_path / "concorde"
    program.write_text(CONCORDE)
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    BASELINES["concorde"].require()
    assert BASELINES["concorde"].solve(work(cities(0, 6))) == Tour((0, 2, 4, 1, 3, 5))
    program.write_text("#!/bin/sh\necho no licence >&2\n")
    with pytest.raises(Infeasible, match=r"t: concorde wrote no tour \(it said: no licence\)"):
        BASELINES["concorde"].solve(work(cities(0, 6)))


def test_wrong_plans_do_not_pass() -> None:
    """The checker of the plan finds that a solver leaves out a city."""
    liar = Baseline("liar", {"tsp": lambda w: [0, 0, 1]})
    with pytest.raises(Infeasible, match="visits city 1 2 times"):
        liar.solve(work(cities(0, 3)))


def test_bad_settings_are_refused() -> None:
    """The message names a number that makes no sense."""
    with pytest.raises(
        InputError, match=r"settings\.starts is 0; expected a whole number of at least 1"
    ):
        BASELINES["nearest"].solve(work(cities(0, 5), starts=0))
