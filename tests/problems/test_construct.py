"""Constructed plans: by hand, against the checks of random instances, and in other units."""

from dataclasses import replace

import numpy as np
import pytest

from rhumbline.problems.cvrp import CVRPInstance, Routes, cvrp_from_arrays
from rhumbline.problems.cvrp.construct import construct_routes
from rhumbline.problems.jssp import jssp_from_arrays
from rhumbline.problems.jssp.construct import construct_schedule
from rhumbline.problems.tsp import Tour, TSPInstance, tsp_from_array
from rhumbline.problems.tsp.construct import (
    construct_tour,
    greedy_order,
    nearest_neighbour_order,
)

# On a line, from city 0 at 0: 1 is at 2, 2 at -1, 3 at 5.
LINE = np.array([[0.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [5.0, 0.0]])


def test_the_nearest_neighbour_by_hand() -> None:
    """From 0 to 2 (1 away), to 1 (3 away), to 3 (3 away), and 5 back."""
    instance = tsp_from_array(LINE)
    assert construct_tour(instance) == Tour((0, 2, 1, 3))
    assert construct_tour(instance).cost(instance) == 12.0


def test_a_matrix_needs_no_plane() -> None:
    """The nearest by the matrix, which no points in a plane have."""
    matrix = np.array([[0, 9, 1, 9], [9, 0, 9, 1], [1, 9, 0, 100], [9, 1, 100, 0]])
    assert construct_tour(tsp_from_array(matrix)) == Tour((0, 2, 1, 3))


@pytest.mark.parametrize("size", [1, 2, 3, 40])
def test_tours_are_feasible_in_any_unit_and_metric(size: int) -> None:
    """Scaling and shifting by powers of two changes no tour; coincident cities are visited once."""
    xy = np.random.default_rng(size).integers(0, 6, (size, 2)).astype(float)
    instance = TSPInstance("a", "EXACT_2D", xy=xy)
    tour = construct_tour(instance)
    tour.check(instance)
    assert construct_tour(TSPInstance("a", "EXACT_2D", xy=8.0 * xy + 64.0)) == tour
    for metric in ("EUC_2D", "CEIL_2D", "ATT", "GEO"):
        other = replace(instance, metric=metric)
        construct_tour(other).check(other)


def test_the_greedy_tour_by_hand() -> None:
    """0-2 is the shortest edge, then 0-1; 3 is near 1. From the end 2: 0, 1, 3, and 6 back."""
    assert greedy_order(tsp_from_array(LINE)) == [2, 0, 1, 3]


@pytest.mark.parametrize("metric", ["EXACT_2D", "CEIL_2D", "GEO", "EXPLICIT"])
def test_greedy_tours_are_feasible_in_any_metric(metric) -> None:
    """Cities that coincide and towns far apart: each is visited once, also without a plane."""
    rng = np.random.default_rng(2)
    towns = [rng.integers(0, 4, (60, 2)) + 20 * town for town in range(4)]
    xy = np.concatenate(towns).astype(float)
    matrix = TSPInstance("a", "EUC_2D", xy=xy).distances if metric == "EXPLICIT" else None
    instance = TSPInstance("a", metric, xy=xy, matrix=matrix)
    Tour(tuple(greedy_order(instance))).check(instance)


def test_many_cities_get_a_greedy_tour() -> None:
    """The greedy tour is shorter than that of the nearest neighbour; both need no table."""
    xy = np.random.default_rng(4).random((2500, 2))
    instance = tsp_from_array(xy)
    tour = construct_tour(instance)
    tour.check(instance)
    cities = np.arange(2500)
    nearest = nearest_neighbour_order(2500, lambda here: instance.legs(here, cities))
    assert tour.cost(instance) < 0.95 * Tour(tuple(nearest)).cost(instance)


# --- routes


def test_savings_by_hand() -> None:
    """Two towns on either side of the depot, with two customers each: a route for each town.

    Distances to the depot are 10 and 11 in the east, 10 and 12 in the west. Joining saves 20 there
    and nothing across. A capacity of 2 allows no more; one of 4 joins all, at no cost.
    """
    customers = [[10.0, 0.0], [11.0, 0.0], [-10.0, 0.0], [-12.0, 0.0]]
    instance = cvrp_from_arrays([0.0, 0.0], customers, [1, 1, 1, 1], 2)
    plan = construct_routes(instance)
    assert sorted(map(sorted, plan.routes)) == [[1, 2], [3, 4]]
    assert plan.cost(instance) == 22.0 + 24.0
    large = replace(instance, capacity=4)
    assert construct_routes(large).cost(large) == 46.0


def test_one_customer_has_one_route() -> None:
    """There is nothing to join."""
    instance = cvrp_from_arrays([0.0, 0.0], [[3.0, 4.0]], [1], 1)
    assert construct_routes(instance) == Routes(((1,),))


@pytest.mark.parametrize("seed", range(6))
def test_routes_are_feasible(seed: int) -> None:
    """Tight capacities, coincident points, demands of 0: all rules are obeyed, in any unit."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 60))
    xy = rng.integers(0, 8, (size + 1, 2)).astype(float)
    demands = rng.integers(0, 10, size)
    instance = cvrp_from_arrays(xy[0], xy[1:], demands, int(rng.integers(9, 30)))
    plan = construct_routes(instance)
    plan.check(instance)
    assert construct_routes(replace(instance, xy=4.0 * xy + 32.0)) == plan
    alone = sum(instance.distances[0]) * 2
    assert plan.cost(instance) <= alone


def test_a_fleet_that_savings_exceed_is_met_by_moving_customers() -> None:
    """Two pairs of 4 and one customer of 4: savings leave three routes, two vehicles of 6 do.

    The route of one pair is dissolved: its customers of 2 fit into the other routes.
    """
    customers = [[10.0, 0.0], [10.5, 0.0], [-10.0, 0.0], [-10.5, 0.0], [0.0, 10.0]]
    instance = cvrp_from_arrays([0.0, 0.0], customers, [2, 2, 2, 2, 4], 6)
    assert len(construct_routes(instance).routes) == 3
    limited = replace(instance, vehicles=2)
    plan = construct_routes(limited)
    plan.check(limited)
    assert len(plan.routes) == 2


@pytest.mark.parametrize("seed", range(4))
def test_tight_fleets_are_met(seed: int) -> None:
    """Vehicles that a hidden plan fills to the last unit, and one to spare."""
    rng = np.random.default_rng(seed)
    cuts = [np.sort(rng.choice(np.arange(1, 100), 4, replace=False)) for _ in range(8)]
    demands = np.concatenate([np.diff(cut, prepend=0, append=100) for cut in cuts])
    xy = rng.random((len(demands) + 1, 2))
    order = rng.permutation(len(demands))
    instance = cvrp_from_arrays(xy[0], xy[1:], demands[order], 100, vehicles=9)
    construct_routes(instance).check(instance)


def test_a_fleet_that_cannot_be_met_gets_the_fewest_routes() -> None:
    """Three customers of 6 need three vehicles of 10, though two could carry the sum."""
    xy = [[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]
    instance = cvrp_from_arrays([0.0, 0.0], xy, [6, 6, 6], 10, vehicles=2)
    assert len(construct_routes(instance).routes) == 3


def test_a_thousand_nodes_need_no_table_of_pairs() -> None:
    """Only near customers are joined; the routes are still 25 % shorter than stars of two."""
    rng = np.random.default_rng(0)
    xy = rng.random((1001, 2))
    instance = cvrp_from_arrays(xy[0], xy[1:], rng.integers(1, 10, 1000), 50)
    plan = construct_routes(instance)
    plan.check(instance)
    stars = instance.distances[0].sum()  # of pairs at the same place
    assert plan.cost(instance) < 0.75 * stars


def test_a_fleet_of_many_customers_is_met() -> None:
    """3,000 customers, and one vehicle fewer than savings take."""
    rng = np.random.default_rng(1)
    xy = rng.random((3001, 2))
    instance = cvrp_from_arrays(xy[0], xy[1:], rng.integers(1, 10, 3000), 40)
    routes = len(construct_routes(instance).routes)
    limited = replace(instance, vehicles=routes - 1)
    plan = construct_routes(limited)
    plan.check(limited)
    assert len(plan.routes) < routes


def test_a_matrix_without_the_triangle_inequality() -> None:
    """Joining would lengthen the plan, so every customer keeps a route of its own."""
    matrix = np.full((4, 4), 50.0) - 50.0 * np.eye(4)
    matrix[0, 1:] = matrix[1:, 0] = 1.0
    instance = CVRPInstance("far", "EXPLICIT", (0, 1, 1, 1), 9, matrix=matrix)
    assert len(construct_routes(instance).routes) == 3
    limited = replace(instance, vehicles=1)
    plan = construct_routes(limited)
    plan.check(limited)
    assert len(plan.routes) == 1


# --- schedules


def test_most_work_remaining_by_hand() -> None:
    """Work is 4, 3 and 9: job 3 has machine 0 first, then job 1, then job 2."""
    shop = jssp_from_arrays([[4], [2, 1], [3, 6]], [[0], [0, 1], [0, 1]])
    assert construct_schedule(shop).starts == ((3,), (7, 9), (0, 3))
