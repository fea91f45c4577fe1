"""Polish: local search that takes a plan to a local optimum, with the compiled moves.

Each function takes an instance and returns a function from plans to plans, which prepares its
arrays once. A polished plan is never worse, and the search has no time limit.
"""

from collections.abc import Callable

import numpy as np

from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.jssp import JSSPInstance, Schedule
from rhumbline.problems.tsp import Tour, TSPInstance


def tour_polisher(instance: TSPInstance) -> Callable[[Tour], Tour]:
    """Return a local search by 2-opt and Or-opt."""
    from rhumbline.kernels.numba.local_search import launch as local_moves

    distance = np.ascontiguousarray(instance.distances)
    neighbours = local_moves.nearest_nodes(distance)

    def polish(tour: Tour) -> Tour:
        order, _ = local_moves.shorten_tour(distance, neighbours, tour.order)
        shorter = tuple(order)
        return Tour(shorter)

    return polish


def route_polisher(instance: CVRPInstance) -> Callable[[Routes], Routes]:
    """Return a local search by relocate, swap, 2-opt* and 2-opt."""
    from rhumbline.kernels.numba.local_search import launch as local_moves

    distance = np.ascontiguousarray(instance.distances)
    demand = np.asarray(instance.demands, dtype=np.int64)
    neighbours = local_moves.nearest_customers(distance)
    capacity = instance.capacity
    vehicles = instance.vehicles

    def polish(plan: Routes) -> Routes:
        given = [route for route in plan.routes if route]
        routes, _ = local_moves.shorten_routes(
            distance, neighbours, demand, capacity, given, vehicles
        )
        shorter = tuple(tuple(route) for route in routes)
        return Routes(shorter)

    return polish


def schedule_polisher(instance: JSSPInstance) -> Callable[[Schedule], Schedule]:
    """Return a local search by moves within critical blocks."""
    from rhumbline.kernels.numba.local_search import launch as local_moves

    def polish(schedule: Schedule) -> Schedule:
        starts, _ = local_moves.shorten_schedule(
            instance.durations, instance.machines, schedule.starts
        )
        return Schedule(tuple(tuple(row) for row in starts))

    return polish
