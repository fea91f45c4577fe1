"""A cheap plan of routes on the host: savings (Clarke and Wright 1964) over near customers.

It is there before a network has run, for a search that is interrupted or out of time. A plan with
more routes than the fleet allows is mended in two ways: customers of small routes move to others,
then the emptiest routes are packed again, which disregards distances. What still exceeds the limit
is returned; `Routes.check` reports it.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain

import numpy as np
from jaxtyping import Bool, Float, Int

from rhumbline.problems.construction.neighbours import near_nodes
from rhumbline.problems.construction.paths import JoinedPaths
from rhumbline.problems.cvrp.instance import CVRPInstance, Routes, route_load
from rhumbline.problems.tsp.construct import nearest_neighbour_order

Route = list[int]


def construct_routes(instance: CVRPInstance) -> Routes:
    """Return a plan that respects all capacities, and the vehicle limit if it finds such a plan."""
    routes = join_by_savings(instance)
    limit = instance.vehicles
    if limit is not None and len(routes) > limit:
        routes = dissolve_routes(instance, routes, limit)
        routes = repack_routes(instance, routes, limit)
    return Routes(tuple(tuple(route) for route in routes))


def join_by_savings(instance: CVRPInstance) -> list[Route]:
    """Return routes that were joined at their ends, the largest savings first.

    Every customer has a route of its own at first.
    """
    paths = JoinedPaths(instance.demands, instance.capacity)
    ranked = rank_joins(instance)
    for one, other in ranked.tolist():
        paths.join(one, other)
    depot, *routes = paths.paths()
    assert depot == [0], "the depot is joined to no customer"
    return routes


def rank_joins(instance: CVRPInstance) -> Int[np.ndarray, "J 2"]:
    """Return pairs of near customers whose union does not lengthen the plan, best first.

    Ties go by number.
    """
    pairs = near_pairs(instance)
    one, other = pairs.T
    nodes = np.arange(instance.size)
    to_depot = instance.legs(0, nodes)
    over_depot = to_depot[one] + to_depot[other]
    saving = over_depot - instance.legs(one, other)
    ranked = np.argsort(-saving, kind="stable")
    is_useful = saving[ranked] >= 0
    useful = ranked[is_useful]
    return pairs[useful]


def near_pairs(instance: CVRPInstance) -> Int[np.ndarray, "J 2"]:
    """Return the pairs of customers of which one is among the nearest of the other, in order."""
    customers = np.arange(1, instance.size)
    # Each customer may be joined to 40 others: 10,000 customers take 0.8 s, and the lengths differ
    # from those with all pairs by less than 1 %.
    neighbours = 40
    near = near_nodes(instance, neighbours, customers)
    repeated = np.repeat(customers, near.shape[1])
    ends = np.stack([repeated, near.ravel()], axis=1)
    pairs = np.sort(ends, axis=1)
    return np.unique(pairs, axis=0)


def dissolve_routes(instance: CVRPInstance, routes: Sequence[Route], limit: int) -> list[Route]:
    """Return at most `limit` routes, if the customers of the smallest ones fit into the others.

    Larger demands go first, each to where it lengthens the plan least. As many routes are dissolved
    as can be.
    """
    load = partial(route_load, instance)
    kept = sorted(routes, key=load)
    while len(kept) > limit:
        smallest = kept[0]
        others = [list(route) for route in kept[1:]]
        if not insert_customers(instance, smallest, others):
            break
        kept = sorted(others, key=load)
    return kept


def insert_customers(instance: CVRPInstance, customers: Route, routes: list[Route]) -> bool:
    """Insert customers into the routes, which are changed; return whether all of them fit."""
    demands = instance.demands
    loads = [route_load(instance, route) for route in routes]
    room = instance.capacity - np.asarray(loads)
    largest_first = sorted(customers, key=lambda c: -demands[c])
    for customer in largest_first:
        demand = demands[customer]
        has_room = room >= demand
        if not has_room.any():
            return False
        number, place = cheapest_place(instance, routes, has_room, customer)
        routes[number].insert(place, customer)
        room[number] -= demand
    return True


def cheapest_place(
    instance: CVRPInstance, routes: Sequence[Route], is_open: Bool[np.ndarray, "R"], customer: int
) -> tuple[int, int]:
    """Return the open route that a customer lengthens least, and its place there."""
    walk = [0]
    routes_of_legs = list[int]()
    places = list[int]()
    for number, route in enumerate(routes):
        walk += [*route, 0]
        legs = len(route) + 1
        routes_of_legs += [number] * legs
        places += range(legs)
    nodes = np.asarray(walk)
    before = nodes[:-1]
    behind = nodes[1:]
    added = instance.legs(before, customer) + instance.legs(customer, behind)
    change = added - instance.legs(before, behind)
    is_open_leg = is_open[routes_of_legs]
    change[~is_open_leg] = np.inf
    leg = int(change.argmin())
    return routes_of_legs[leg], places[leg]


def repack_routes(instance: CVRPInstance, routes: Sequence[Route], limit: int) -> list[Route]:
    """Return at most `limit` routes, if the customers of some routes can be packed more tightly.

    These are the emptiest routes, and as few of them as do. If all routes are not enough, the best
    packing of all is returned.
    """
    ranked = sorted(routes, key=lambda route: route_load(instance, route))
    count = 2
    while len(ranked) > limit and count < 2 * len(ranked):
        loose = ranked[:count]
        left = ranked[count:]
        customers = list(chain.from_iterable(loose))
        packed = pack_customers(instance, customers)
        suffices = len(packed) + len(left) <= limit
        is_last = count >= len(ranked)
        if suffices or (is_last and len(packed) < len(ranked)):
            shortened = [shorten_route(instance, route) for route in packed]
            return [*left, *shortened]
        count *= 2
    return ranked


def pack_customers(instance: CVRPInstance, customers: Sequence[int]) -> list[Route]:
    """Return sets of customers by best fit: the largest demand first, to the fullest vehicle."""
    demands = instance.demands
    routes = list[Route]()
    room = list[int]()
    for customer in sorted(customers, key=lambda c: -demands[c]):
        fitting = [number for number, left in enumerate(room) if left >= demands[customer]]
        if fitting:
            number = min(fitting, key=lambda n: room[n])
        else:
            number = len(routes)
            routes.append([])
            room.append(instance.capacity)
        routes[number].append(customer)
        room[number] -= demands[customer]
    return routes


def shorten_route(instance: CVRPInstance, route: Route) -> Route:
    """Return the customers of a route from the depot on, each followed by the nearest one left."""
    nodes = np.asarray([0, *route])

    def lengths_from(place: int) -> Float[np.ndarray, "N"]:
        here = nodes[place]
        return instance.legs(here, nodes)

    order = nearest_neighbour_order(len(nodes), lengths_from)
    return nodes[order[1:]].tolist()
