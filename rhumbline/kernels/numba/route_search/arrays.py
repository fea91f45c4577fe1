"""Route search on the CPU: allocates the records of the kernel, and reads routes from them."""

from collections.abc import Iterator, Sequence

import numpy as np

from rhumbline.kernels.numba.route_search.records import (
    BEFORE,
    BEHIND,
    DEPOT,
    MAX_SEGMENT,
    NO_ROUTE,
    BestPlan,
    Queue,
    RouteLog,
    RoutePlan,
    Scratch,
    Segments,
)

MOVE_NUMBERS = 9  # integers that describe a move


def integers(*shape: int) -> np.ndarray:
    """Return 32-bit zeros."""
    return np.zeros(shape, np.int32)


def node_numbers(*shape: int) -> np.ndarray:
    """Return unsigned 32-bit zeros."""
    return np.zeros(shape, np.uint32)


def long_integers(*shape: int) -> np.ndarray:
    """Return 64-bit zeros."""
    return np.zeros(shape, np.int64)


def make_plan(routes: Sequence[Sequence[int]], count: int, size: int) -> RoutePlan:
    """Return a plan of `count` routes, the given ones first, for `size` nodes.

    The kernel sets everything but the links and ends before its first step.
    """
    links = node_numbers(2, size)
    ends = node_numbers(2, count)
    sizes = integers(count)
    for r, route in enumerate(routes):
        walk = np.asarray([DEPOT, *route, DEPOT], dtype=np.uint32)
        customers = walk[1:-1]
        links[BEFORE, customers] = walk[:-2]
        links[BEHIND, customers] = walk[2:]
        ends[:, r] = walk[1], walk[-2]
        sizes[r] = len(route)
    owner = integers(size)
    owner[:] = NO_ROUTE
    numbers = np.arange(count, dtype=np.int32)
    used = np.array([len(routes)], np.int64)
    place = integers(size)
    head = long_integers(size)
    load = long_integers(count)
    slot = numbers.copy()
    legs = np.zeros((2, size))
    return RoutePlan(links, legs, owner, place, head, ends, sizes, load, numbers, slot, used)


def make_log(count: int, size: int) -> RouteLog:
    """Return an empty log for `count` routes."""
    stamps = long_integers(count)
    begin = long_integers(count + 1)
    nodes = node_numbers(size)
    return RouteLog(stamps, integers(count), begin, nodes, long_integers(2))


def make_best(plan: RoutePlan) -> BestPlan:
    """Return a copy of a plan as the best one."""
    count = len(plan.size)
    behind = plan.link[BEHIND].copy()
    first = plan.ends[BEFORE].copy()
    return BestPlan(behind, first, np.zeros(count, np.bool_), integers(count), long_integers(1))


def make_queue(size: int) -> Queue:
    """Return an empty queue of customers."""
    return Queue(node_numbers(size), np.zeros(size, np.bool_), long_integers(2))


def make_segments() -> Segments:
    """Return room for the segments from one customer on."""
    count = MAX_SEGMENT
    far_leg = np.zeros(count)
    saved = np.zeros(count)
    end = node_numbers(count)
    beyond = node_numbers(count)
    return Segments(end, beyond, far_leg, saved, long_integers(count))


def make_scratch(size: int) -> Scratch:
    """Return room for a step."""
    return Scratch(
        long_integers(MOVE_NUMBERS),
        np.zeros(1),
        make_segments(),
        node_numbers(size),
        node_numbers(size),
        node_numbers(size),
        np.zeros(size),
    )


def linked_routes(behind: np.ndarray, first: np.ndarray) -> Iterator[tuple[int, ...]]:
    """Yield the routes with customers, as linked lists give them."""
    following = behind.tolist()
    for start in first.tolist():
        route = list[int]()
        customer = start
        while customer != DEPOT:
            route.append(customer)
            customer = following[customer]
        if route:
            yield tuple(route)
