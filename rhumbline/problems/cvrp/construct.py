"""A cheap plan of routes on the host: savings (Clarke and Wright 1964) over near customers.

It is there before a network has run, for a search that is interrupted or out of time. A plan with
more routes than the fleet allows is mended in two ways: customers of small routes move to others,
then the emptiest routes are packed again, which disregards distances. What still exceeds the limit
is returned; `Routes.check` reports it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from rhumbline.problems.cvrp.instance import CVRPInstance, Routes, route_load
from rhumbline.problems.tsp.construct import nearest_neighbour_order


@dataclass(frozen=True)
class SavingsTuning:
    """Limits of the construction."""

    # Customers that each one may be joined to. With 40 of them, 1,000 customers take 0.1 s, and
    # the lengths differ from those with all pairs by less than 1 %.
    neighbours: int = 40


TUNING = SavingsTuning()

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
    demands = instance.demands
    route_of = [[customer] for customer in range(instance.size)]
    load_of = list(demands)  # of the route of a customer, right at both of its ends
    for one, other in joins_by_saving(instance.distances).tolist():
        first = route_of[one]
        second = route_of[other]
        joint_load = load_of[one] + load_of[other]
        if first is second or joint_load > instance.capacity:
            continue
        if one not in (first[0], first[-1]) or other not in (second[0], second[-1]):
            continue
        if first[-1] != one:
            first.reverse()
        if second[0] != other:
            second.reverse()
        first += second
        for customer in second:
            route_of[customer] = first
        load_of[first[0]] = joint_load
        load_of[first[-1]] = joint_load
    routes = list[Route]()
    for customer in range(1, instance.size):
        route = route_of[customer]
        if route[0] == customer:
            routes.append(route)
    return routes


def joins_by_saving(distances: Float[np.ndarray, "N N"]) -> Int[np.ndarray, "J 2"]:
    """Return pairs of near customers whose union does not lengthen the plan, best first.

    Ties go by number.
    """
    pairs = near_pairs(distances[1:, 1:]) + 1
    one, other = pairs.T
    to_depot = distances[0]
    saving = to_depot[one] + to_depot[other] - distances[one, other]
    ranked = np.argsort(-saving, kind="stable")
    is_useful = saving[ranked] >= 0
    return pairs[ranked[is_useful]]


def near_pairs(distances: Float[np.ndarray, "C C"]) -> Int[np.ndarray, "J 2"]:
    """Return the pairs of which one is among the nearest of the other, in order."""
    count = len(distances)
    most = min(TUNING.neighbours, count - 1)
    if most < 1:
        return np.zeros((0, 2), dtype=np.int64)
    itself = np.full(count, np.inf)
    between = distances + np.diag(itself)
    order = np.argpartition(between, most - 1, axis=1)
    near = order[:, :most].ravel()
    customer = np.arange(count)
    repeated = np.repeat(customer, most)
    ends = np.stack([repeated, near], axis=1)
    pairs = np.sort(ends, axis=1)
    return np.unique(pairs, axis=0)


def dissolve_routes(instance: CVRPInstance, routes: Sequence[Route], limit: int) -> list[Route]:
    """Return at most `limit` routes, if the customers of the smallest ones fit into the others.

    Larger demands go first, each to where it lengthens the plan least. As many routes are dissolved
    as can be.
    """
    kept = sorted(routes, key=lambda route: route_load(instance, route))
    while len(kept) > limit:
        smallest = kept[0]
        others = [list(route) for route in kept[1:]]
        if not insert_customers(instance, smallest, others):
            break
        kept = sorted(others, key=lambda route: route_load(instance, route))
    return kept


def insert_customers(instance: CVRPInstance, customers: Route, routes: list[Route]) -> bool:
    """Insert customers into the routes, which are changed; return whether all of them fit."""
    demands = instance.demands
    room = [instance.capacity - route_load(instance, route) for route in routes]
    for customer in sorted(customers, key=lambda c: -demands[c]):
        best = (float("inf"), 0, 0)
        for number, route in enumerate(routes):
            if room[number] >= demands[customer]:
                change, place = cheapest_place(instance.distances, route, customer)
                best = min(best, (change, number, place))
        change, number, place = best
        if change == float("inf"):
            return False
        routes[number].insert(place, customer)
        room[number] -= demands[customer]
    return True


def cheapest_place(
    distances: Float[np.ndarray, "N N"], route: Route, customer: int
) -> tuple[float, int]:
    """Return the least change of length by a customer in a route, and its place there."""
    before = np.asarray([0, *route])
    after = np.asarray([*route, 0])
    to_customer = distances[customer]
    change = to_customer[before] + to_customer[after] - distances[before, after]
    place = int(change.argmin())
    return float(change[place]), place


def repack_routes(instance: CVRPInstance, routes: Sequence[Route], limit: int) -> list[Route]:
    """Return at most `limit` routes, if the customers of some routes can be packed more tightly.

    These are the emptiest routes, and as few of them as do. If all routes are not enough, the best
    packing of all is returned.
    """
    ranked = sorted(routes, key=lambda route: route_load(instance, route))
    count = 2
    while len(ranked) > limit and count < 2 * len(ranked):
        loose = ranked[:count]
        packed = pack_customers(instance, [customer for route in loose for customer in route])
        left = ranked[count:]
        is_last = count >= len(ranked)
        if len(packed) + len(left) <= limit or (is_last and len(packed) < len(ranked)):
            return [*left, *(shorten_route(instance, route) for route in packed)]
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
    among = instance.distances[nodes[:, None], nodes]
    order = nearest_neighbour_order(among)
    return nodes[order[1:]].tolist()
