"""Classical solvers as installed here: their plans are feasible and start from the given ones."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from rhumbline import improvers
from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError
from rhumbline.external import integer_distances, lkh_process
from rhumbline.improvers import SOLVERS
from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.cvrp import cvrp_from_arrays as cvrp
from rhumbline.problems.jssp import Schedule
from rhumbline.problems.jssp import jssp_from_arrays as shop
from rhumbline.problems.tsp import Tour, TSPInstance, tsp_from_array

RNG = np.random.default_rng(0)
XY = RNG.random((12, 2))
CITIES = tsp_from_array(XY)
DELIVERY = cvrp(XY[0], XY[1:], np.full(11, 3), 10)
SINGLE = Routes(tuple((c,) for c in range(1, 12)))


def needs(package: str):
    """Skip a test without a package. CI has PyVRP and OR-Tools; elkai is for research only."""
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


def last_plan(name: str, instance: Any, plans: Sequence[Any], seconds: float, seed: int) -> Any:
    """Return the last plan that a solver reports; each is cheaper than the one before."""
    improvers.prepare_solver(name)  # compiles kernels, which would use up the seconds
    reported: list[Any] = []
    improvers.improve_plans(name, instance, plans, seconds, seed, reported.append)
    costs = [plan.cost(instance) for plan in reported]
    assert costs == sorted(costs, reverse=True)
    return reported[-1] if reported else None


def circle(size: int) -> TSPInstance:
    """Return cities on a circle, numbered at random; the best tour is the polygon."""
    angle = np.random.default_rng(1).permutation(size) * 2 * np.pi / size
    return tsp_from_array(np.stack([np.cos(angle), np.sin(angle)], 1))


@pytest.mark.parametrize("name", ["ils", pytest.param("lkh", marks=needs("elkai")), "pyvrp"])
def test_the_best_tour_of_a_circle(name: str) -> None:
    """From two random tours the regular polygon is found, whose length is known."""
    instance = circle(12)
    plans = [Tour(tuple(np.random.default_rng(k).permutation(12).tolist())) for k in range(2)]
    tour = last_plan(
        name, instance, plans, 1.5 if name == "pyvrp" else 60.0, 0
    )  # the others end by themselves
    tour.check(instance)
    assert tour.cost(instance) == pytest.approx(24 * np.sin(np.pi / 12))


@pytest.mark.parametrize("name", ["pyvrp", "ruin"])
def test_routes(name: str) -> None:
    """From one route for each customer, few routes are left: three customers of 3 fit into 10."""
    routes = last_plan(name, DELIVERY, [SINGLE], 0.5, 0)
    routes.check(DELIVERY)
    assert routes.cost(DELIVERY) < 0.7 * SINGLE.cost(DELIVERY)


@pytest.mark.parametrize("name", ["pyvrp", "ruin"])
def test_a_fleet(name: str) -> None:
    """If the file limits the vehicles, the plan has no more."""
    limited = CVRPInstance("fleet", "EXACT_2D", DELIVERY.demands, 10, xy=XY, vehicles=4)
    start = Routes(((1, 2, 3), (4, 5, 6), (7, 8, 9), (10, 11)))
    routes = last_plan(name, limited, [start], 0.5, 0)
    routes.check(limited)
    assert routes.cost(limited) <= start.cost(limited)


@pytest.mark.parametrize("name", ["pyvrp", "ruin"])
def test_the_start_is_used(name: str) -> None:
    """In almost no time they report no plan that is worse than the given one."""
    best = last_plan(name, DELIVERY, [SINGLE], 0.5, 0)
    again = last_plan(name, DELIVERY, [best, SINGLE], 0.01, 1)
    assert again is None or again.cost(DELIVERY) < best.cost(DELIVERY)


@pytest.mark.parametrize("name", ["tabu", "cpsat"])
def test_schedules(name: str) -> None:
    """Both find the best makespan of a shop of 3 jobs, which is its lower bound."""
    instance = shop([[3, 2, 2], [2, 1, 4], [4, 3, 1]], [[0, 1, 2], [0, 2, 1], [1, 2, 0]])
    one_after_the_other = Schedule(((0, 3, 5), (7, 9, 10), (14, 18, 21)))
    one_after_the_other.check(instance)
    seconds = 60.0 if name == "cpsat" else 0.3  # which ends with a proof
    schedule = last_plan(name, instance, [one_after_the_other], seconds, 0)
    schedule.check(instance)
    assert instance.lower_bound <= schedule.cost(instance) == 11


@pytest.mark.parametrize("name", [pytest.param("lkh", marks=needs("elkai")), "pyvrp"])
def test_too_small_to_improve(name: str) -> None:
    """One city and two cities have one tour, so no solver is called."""
    for size in (1, 2):
        assert (
            last_plan(name, tsp_from_array(XY[:size]), [Tour(tuple(range(size)))], 0.1, 0) is None
        )


@needs("elkai")
def test_lkh_begins_with_the_tour_it_gets(tmp_path) -> None:
    """Without any trial LKH returns the given tour; unknown keywords are errors."""
    distance = integer_distances(CITIES, 10**6)
    first = lkh_process.write_lkh_tour(
        tmp_path / "first.tour", [*range(0, 12, 2), *range(1, 12, 2)]
    )
    text = lkh_process.parameters(first, 1.0, 1, False) + "MAX_TRIALS = 0\n"
    found = lkh_process.run_lkh(distance, text)
    edges = {frozenset(e) for e in zip(found, found[1:] + found[:1], strict=True)}
    assert frozenset((0, 2)) in edges
    assert frozenset((11, 0)) in edges
    with pytest.raises(TypeError, match="Unknown keyword"):
        lkh_process.run_lkh(distance, text + "BOGUS = 1\n")


def test_integer_distances() -> None:
    """Integer metrics do not change; others are scaled to the largest number allowed."""
    rounded = TSPInstance("r", "EUC_2D", xy=np.array([[0.0, 0], [3, 4]]))
    assert integer_distances(rounded, 1000).tolist() == [[0, 5], [5, 0]]
    assert integer_distances(CITIES, 1000).max() == 1000
    assert integer_distances(rounded, 3).max() == 3
    assert integer_distances(tsp_from_array(np.zeros((3, 2))), 1000).max() == 0


def test_every_solver_has_a_module() -> None:
    """Each name has a module with all that is listed, and an extra that installs its package."""
    from pathlib import Path

    text = (Path(improvers.__file__).parents[1] / "pyproject.toml").read_text()
    for name, solver in SOLVERS.items():
        module = improvers.load_solver(name)
        assert callable(module.improve)
        assert callable(module.prepare)
        assert improvers.solved_problems(name)
        assert f"{solver.extra} = [" in text
        assert f'"{solver.package}>=' in text


def test_auto_is_our_own_solver_of_the_problem() -> None:
    """It takes the problem's plans; a problem without one is refused in a sentence."""
    for problem, domain in DOMAINS.items():
        name = improvers.resolve_solver("auto", problem)
        assert domain.plan in SOLVERS[name].plan_types
        assert SOLVERS[name].module.startswith("rhumbline.local_search.")
    assert improvers.resolve_solver("lkh", "tsp") == "lkh"
    assert improvers.resolve_solver("auto", "knapsack") == "auto"
    with pytest.raises(InputError, match="no solver improves plans of knapsack"):
        improvers.require_solver("auto", "knapsack")
