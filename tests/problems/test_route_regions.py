"""Regions of plans of routes: instances of their own, whose plans fit back into the whole."""

from dataclasses import replace

import numpy as np
import pytest

from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.cvrp.construct import construct_routes
from rhumbline.problems.cvrp.regions import TUNING, RouteRegions

RNG = np.random.default_rng(6)
XY = RNG.integers(0, 1000, (601, 2)).astype(float)
WHOLE = CVRPInstance("whole", "EUC_2D", (0, *RNG.integers(1, 10, 600).tolist()), 60, xy=XY)


def matrix_instance() -> CVRPInstance:
    return replace(WHOLE, metric="EXPLICIT", matrix=WHOLE.distances)


@pytest.mark.parametrize("instance", [WHOLE, matrix_instance()], ids=["points", "matrix"])
def test_a_region_is_a_part_of_the_plan(instance: CVRPInstance) -> None:
    """Its distances, demands and costs are those of the whole."""
    plan = construct_routes(instance)
    regions = RouteRegions(instance, plan)
    region = regions.choose(np.random.default_rng(1))
    assert region is not None
    nodes = region.nodes
    assert 0.5 * TUNING.max_customers < len(nodes) - 1 <= TUNING.max_customers
    np.testing.assert_array_equal(region.instance.distances, instance.distances[nodes][:, nodes])
    assert region.instance.demands == tuple(instance.demands[node] for node in nodes)
    place = {node: index for index, node in enumerate(nodes.tolist())}
    routes = [plan.routes[number] for number in region.routes]
    same = Routes(tuple(tuple(place[customer] for customer in route) for route in routes))
    same.check(region.instance)
    assert same.cost(region.instance) == region.cost
    regions.put_back(region, same)
    assert sorted(regions.plan.routes) == sorted(plan.routes)


def test_other_routes_are_put_back() -> None:
    """More routes, then fewer: the plan stays feasible, and its cost changes as the region's."""
    plan = construct_routes(WHOLE)
    regions = RouteRegions(WHOLE, plan)
    rng = np.random.default_rng(2)
    for _ in range(8):
        before = regions.plan.cost(WHOLE)
        region = regions.choose(rng)
        assert region is not None
        alone = Routes(tuple((customer,) for customer in range(1, region.instance.size)))
        other = alone if rng.random() < 0.5 else construct_routes(region.instance)
        regions.put_back(region, other)
        regions.plan.check(WHOLE)
        change = other.cost(region.instance) - region.cost
        assert regions.plan.cost(WHOLE) == before + change


def test_a_region_has_the_vehicles_that_others_leave() -> None:
    """Of two spare vehicles both are its own; of none, none."""
    plan = construct_routes(WHOLE)
    for spare in (0, 2):
        limited = replace(WHOLE, vehicles=len(plan.routes) + spare)
        region = RouteRegions(limited, plan).choose(np.random.default_rng(3))
        assert region is not None
        assert region.instance.vehicles == len(region.routes) + spare


def test_a_route_that_is_too_long_is_no_region() -> None:
    """One vehicle for all: there is nothing that the policy could take."""
    roomy = replace(WHOLE, capacity=10_000)
    plan = Routes((tuple(range(1, 601)),))
    assert RouteRegions(roomy, plan).choose(np.random.default_rng(4)) is None
