"""numba: the records that the route search works on, and their types for signatures.

Nodes are unsigned: numba checks every signed index for negative values, which count from the end of
an array. The checks took a tenth of the time of a step.

Memory grows with customers times neighbours, plus routes; the length of routes does not matter.
"""

from typing import NamedTuple

import numpy as np
from numba import types

from rhumbline.kernels.numba.legs import LEGS, Legs

DEPOT = 0
BEFORE, BEHIND = 0, 1  # directions along a route
NO_ROUTE = -1
SAVED, STEP = 0, 1  # indices of `RouteLog.counts`
NEXT, WAITING = 0, 1  # indices of `Queue.state`
MAX_SEGMENT = 3  # customers that are relocated together
MAX_SWAPPED = 2  # customers on each side of a swap


class Customers(NamedTuple):
    """What never changes. Near customers are in order of their distances, `near_leg`."""

    legs: Legs
    near: np.ndarray
    near_leg: np.ndarray
    demand: np.ndarray
    capacity: int


class RoutePlan(NamedTuple):
    """Routes as linked lists.

    `link[BEFORE]` and `link[BEHIND]` are the neighbours of each customer on its route, the depot at both ends;
    `leg_to` are the distances to them. `place` counts from 0 along the route, and `head` is the load up to and
    including the customer. `ends` are the first and the last customer of each route. `order` lists all routes, the
    `used[0]` routes with customers first; `slot` is the position of a route in it.
    """

    link: np.ndarray
    leg_to: np.ndarray
    route: np.ndarray
    place: np.ndarray
    head: np.ndarray
    ends: np.ndarray
    size: np.ndarray
    load: np.ndarray
    order: np.ndarray
    slot: np.ndarray
    used: np.ndarray


class RouteLog(NamedTuple):
    """Routes as they were before a step changed them, one behind the other in `customers`.

    `stamp` is the last step that saved a route; `counts` has the number of saved routes and the number of the step.
    """

    stamp: np.ndarray
    routes: np.ndarray
    begin: np.ndarray
    customers: np.ndarray
    counts: np.ndarray


class BestPlan(NamedTuple):
    """The best plan as linked lists: the customer behind each one, and the first of each route.

    `stale` lists the `counts[0]` routes that the current plan has changed since this one was copied.
    """

    behind: np.ndarray
    first: np.ndarray
    is_stale: np.ndarray
    stale: np.ndarray
    counts: np.ndarray


class Queue(NamedTuple):
    """A ring of customers whose moves are to be examined; `state` has its begin and its length."""

    customers: np.ndarray
    is_waiting: np.ndarray
    state: np.ndarray


class Segments(NamedTuple):
    """Up to three segments from a customer on: last customer, the one beyond it, the leg between both, load.

    `saved` is by how much a route gets shorter at the far end and across the gap if the segment leaves it.
    """

    end: np.ndarray
    beyond: np.ndarray
    far_leg: np.ndarray
    saved: np.ndarray
    load: np.ndarray


class Scratch(NamedTuple):
    """Room for the best move and its change of length, for segments, routes and removed customers."""

    move: np.ndarray
    change: np.ndarray
    segments: Segments
    old: np.ndarray
    new: np.ndarray
    removed: np.ndarray
    key: np.ndarray


class Settings(NamedTuple):
    """How a step removes and accepts; the temperature and the tolerance are lengths."""

    temperature: float
    tolerance: float
    mean_removed: float
    longest_string: float


INTS, LONGS, FLOATS, FLAGS = types.int32[::1], types.int64[::1], types.float64[::1], types.boolean[::1]
NODES, NODE_ROWS, FLOAT_ROWS = types.uint32[::1], types.uint32[:, ::1], types.float64[:, ::1]
CUSTOMERS = types.NamedTuple([LEGS, NODE_ROWS, FLOAT_ROWS, LONGS, types.int64], Customers)
ROUTE_PLAN = types.NamedTuple(
    [NODE_ROWS, FLOAT_ROWS, INTS, INTS, LONGS, NODE_ROWS, INTS, LONGS, INTS, INTS, LONGS], RoutePlan
)
ROUTE_LOG = types.NamedTuple([LONGS, INTS, LONGS, NODES, LONGS], RouteLog)
BEST_PLAN = types.NamedTuple([NODES, NODES, FLAGS, INTS, LONGS], BestPlan)
QUEUE = types.NamedTuple([NODES, FLAGS, LONGS], Queue)
SEGMENTS = types.NamedTuple([NODES, NODES, FLOATS, FLOATS, LONGS], Segments)
SCRATCH = types.NamedTuple([LONGS, FLOATS, SEGMENTS, NODES, NODES, NODES, FLOATS], Scratch)
SETTINGS = types.NamedUniTuple(types.float64, 4, Settings)
