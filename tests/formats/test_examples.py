"""The bundled examples."""

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np

from rhumbline.files import read
from rhumbline.formats.jsplib import read_schedule
from rhumbline.formats.tsplib import read_tour
from rhumbline.formats.vrplib import read_sol
from rhumbline.problems.jssp import JSSPInstance
from rhumbline.problems.jssp.dispatch_rules import RULES, dispatch

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_harbour_is_a_hundred_different_cities() -> None:
    """The example has 100 cities in different places within 0 to 1000, and a best known cost."""
    harbour = read(EXAMPLES / "harbour100.tsp")
    assert harbour.xy is not None
    assert len({tuple(city) for city in harbour.xy}) == harbour.size == 100
    assert (harbour.xy == np.rint(harbour.xy)).all()
    assert 0 <= harbour.xy.min() <= harbour.xy.max() <= 1000
    assert harbour.best_known is not None


def test_the_script_makes_the_file() -> None:
    """`make_harbour.py` gives the cities that are committed."""
    made = runpy.run_path(str(EXAMPLES / "make_harbour.py"))["harbour"]()
    np.testing.assert_array_equal(made.xy, read(EXAMPLES / "harbour100.tsp").xy)


def test_the_best_known_tour_costs_what_is_said() -> None:
    """The tour that lies beside the instance is feasible and has the cost of `optima.json`."""
    harbour = read(EXAMPLES / "harbour100.tsp")
    tour = read_tour(EXAMPLES / "harbour100.opt.tour", harbour)
    tour.check(harbour)
    assert tour.cost(harbour) == harbour.best_known == 5191


def test_the_script_makes_the_bakery() -> None:
    """`make_bakery.py` gives the file that is committed: 80 shops at different places."""
    script = runpy.run_path(str(EXAMPLES / "make_bakery.py"))
    assert script["text"](script["bakery"]()) == (EXAMPLES / "bakery80.vrp").read_text(
        encoding="utf-8"
    )
    assert len({tuple(place) for place in script["bakery"]().xy}) == 81


def test_the_best_known_routes_cost_what_is_said() -> None:
    """The routes beside the bakery are feasible and have the cost of `optima.json`."""
    bakery = read(EXAMPLES / "bakery80.vrp")
    routes = read_sol(EXAMPLES / "bakery80.best.sol", bakery)
    routes.check(bakery)
    assert routes.cost(bakery) == bakery.best_known == 11731


def workshop() -> JSSPInstance:
    instance = read(EXAMPLES / "workshop12.jsp")
    assert isinstance(instance, JSSPInstance)
    return instance


def test_the_script_makes_the_workshop() -> None:
    """`make_workshop.py` gives the committed jobs; lengths differ, and some revisit a machine."""
    made = runpy.run_path(str(EXAMPLES / "make_workshop.py"))["workshop"]()
    assert replace(made, best_known=550.0) == workshop()
    assert len({len(row) for row in made.machines}) > 1
    assert any(len(set(row)) < len(row) for row in made.machines)


def test_the_optimal_schedule_costs_what_is_said() -> None:
    """The schedule is feasible and has the makespan of `optima.json`; no rule comes near."""
    instance = workshop()
    schedule = read_schedule(EXAMPLES / "workshop12.opt.sched", instance)
    schedule.check(instance)
    assert schedule.cost(instance) == instance.best_known == 550
    assert min(dispatch(instance, rule).cost(instance) for rule in RULES) > 600
