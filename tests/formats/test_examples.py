"""The bundled example."""

import runpy
from pathlib import Path

import numpy as np

from rhumbline.formats import read
from rhumbline.formats.tsplib import read_tour

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_harbour_is_a_hundred_different_cities() -> None:
    """The example has 100 cities at different whole places between 0 and 1000, and a best known cost."""
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
