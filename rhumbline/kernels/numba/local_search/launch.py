"""Improvement of plans on the CPU: what calls the compiled moves of `tours`, `routes` and `shops`,
and `partition`.

Each kernel is compiled when it is first asked for, and stored on disk if that is possible.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numba import njit
from numba.core.compiler_lock import global_compiler_lock

NEIGHBOURS = 16  # that a node may be joined to
TOLERANCE = 1e-10  # of the largest distance: what rounding can feign as a gain
UNLIMITED = 2**62
SMALLEST_KICKED = 8  # cities

KERNELS = {  # module, function and its signature
    "tsp": ("local_search.tour_moves", "improve_tour", "SIGNATURE"),
    "tsp kicks": ("local_search.tour_moves", "kick_tour", "KICK_SIGNATURE"),
    "cvrp": ("local_search.route_moves", "improve_routes", "SIGNATURE"),
    "cvrp ruin": ("local_search.route_ruin_recreate", "search_routes", "SIGNATURE"),
    "jssp": ("local_search.schedule_moves", "improve_shop", "SIGNATURE"),
    "jssp tabu": ("local_search.schedule_tabu", "search_shop", "SIGNATURE"),
    "prices": ("set_partitioning", "values_at_prices", "PRICES_SIGNATURE"),
    "partition": ("set_partitioning", "cheapest_partition", "SIGNATURE"),
}


@cache
def load_kernel(problem: str) -> Callable[..., Any]:
    """What is compiled of a problem: from the cache on disk, or made now and stored there if
    that is possible.
    """
    place, name, types = KERNELS[problem]
    module: Any = import_module(f"rhumbline.kernels.numba.{place}")
    signature = getattr(module, types)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    with global_compiler_lock:
        try:
            return njit(signature, cache=True, **options)(getattr(module, name))
        # no folder can be written, the disk is full, a stored file is damaged: for this process
        # only
        except Exception:
            return njit(signature, **options)(getattr(module, name))


def nearest_nodes(distance: np.ndarray, count: int = NEIGHBOURS) -> np.ndarray:
    """The nodes nearest to each node, nearest first, [N, count] at most; ties by number."""
    others = distance + np.diag(np.full(len(distance), np.inf))
    return np.argsort(others, axis=1, kind="stable")[:, : min(count, len(distance) - 1)].astype(
        np.int32
    )


def nearest_customers(distance: np.ndarray, count: int = NEIGHBOURS) -> np.ndarray:
    """The same among customers only; the row of the depot means nothing."""
    near = nearest_nodes(distance[1:, 1:], count) + np.int32(1)
    return np.concatenate([np.zeros_like(near[:1]), near])


def improvement_tolerance(distance: np.ndarray) -> float:
    """A change below this is none."""
    return TOLERANCE * float(distance.max(initial=0.0))


def shorten_tour(
    distance: np.ndarray, near: np.ndarray, order: Sequence[int], most: int = UNLIMITED
) -> tuple[list[int], int]:
    """A tour after 2-opt and Or-opt up to an optimum of both, or after `most` moves; and how
    many were made.
    """
    size = len(order)
    made = 0
    tour = np.asarray(order, dtype=np.int32)
    place = np.empty(size, np.int32)
    scratch = np.empty(8, np.int32)
    while size > 3:
        place[tour] = np.arange(size, dtype=np.int32)
        queue = (
            tour.copy(),
            np.ones(size, np.bool_),
            np.array([0, size], np.int64),
        )  # once round again, to be sure
        moves = load_kernel("tsp")(
            distance,
            near,
            tour,
            place,
            scratch,
            *queue,
            improvement_tolerance(distance),
            most - made,
        )
        made += moves
        if not moves or made >= most:
            break
    return tour.tolist(), made


def kick_and_shorten_tour(
    distance: np.ndarray, near: np.ndarray, order: Sequence[int], kicks: int, random: np.ndarray
) -> tuple[list[int], int]:
    """A local optimum after so many kicks, never longer, and how many of them helped; `random`
    is a uint64 above 0.
    """
    size = len(order)
    if size < SMALLEST_KICKED:
        return list(order), 0
    tour = np.asarray(order, dtype=np.int32)
    place = np.empty(size, np.int32)
    place[tour] = np.arange(size, dtype=np.int32)
    queue = (np.zeros(size, np.int32), np.zeros(size, np.bool_), np.zeros(2, np.int64))
    best = tour.copy()
    segment = np.empty(8, np.int32)
    scratch = np.empty(size, np.int32)
    better = load_kernel("tsp kicks")(
        distance,
        near,
        tour,
        place,
        segment,
        *queue,
        improvement_tolerance(distance),
        best,
        scratch,
        random,
        kicks,
    )
    return best.tolist(), better


def shorten_routes(
    distance: np.ndarray,
    near: np.ndarray,
    demand: np.ndarray,
    capacity: int,
    routes: Sequence[Sequence[int]],
    vehicles: int | None = None,
    most: int = UNLIMITED,
) -> tuple[list[list[int]], int]:
    """Routes after all moves of `routes` up to a common optimum, or after `most` moves; and how
    many were made.
    """
    size = len(distance)
    made = 0
    while True:
        spare = (
            vehicles is None or len(routes) < vehicles
        )  # an empty route, where the fleet allows one more
        rows, length = pack_routes(routes, len(routes) + spare, size)
        moves = load_kernel("cvrp")(
            distance,
            near,
            demand,
            capacity,
            rows,
            length,
            np.zeros(len(rows), np.int64),
            *route_scratch(size),
            improvement_tolerance(distance),
            most - made,
        )
        made += moves
        routes = [row[:count].tolist() for row, count in zip(rows, length, strict=True) if count]
        if not moves or made >= most:
            return routes, made


def pack_routes(
    routes: Sequence[Sequence[int]], count: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Routes as rows of one array, and their lengths."""
    rows = np.zeros((count, size), np.int32)
    length = np.zeros(count, np.int32)
    for r, route in enumerate(routes):
        rows[r, : len(route)] = route
        length[r] = len(route)
    return rows, length


def route_scratch(size: int) -> list[np.ndarray]:
    """What `improve_routes` works on besides the routes: places, loads, the queue and room for
    two routes.
    """
    kinds = (np.int32, np.int32, np.int64, np.int32, np.bool_, np.int32, np.int32)
    return [np.zeros(size, kind) for kind in kinds]


def shorten_schedule(
    durations: Sequence[Sequence[int]],
    machines: Sequence[Sequence[int]],
    starts: Sequence[Sequence[int]],
    most: int = UNLIMITED,
) -> tuple[list[list[int]], int]:
    """Starts after moves in critical blocks up to an optimum, or after `most` moves; and how
    many were made.
    """
    duration, before, behind = flatten_jobs(durations)
    machine, start = (np.concatenate(rows).astype(np.int64) for rows in (machines, starts))
    sequence = machine_orders(machine, start, start + duration)
    size = len(duration)
    opening = np.diff(machine[sequence], prepend=-1) != 0
    place = np.argsort(sequence).astype(np.int32)
    head, trial, due, stack = (
        np.zeros(size, kind) for kind in (np.int64, np.int64, np.int32, np.int32)
    )
    made = load_kernel("jssp")(
        duration, before, behind, sequence, opening, place, head, trial, due, stack, most
    )
    return split_by_job(head, durations), made


def split_by_job(times: np.ndarray, durations: Sequence[Sequence[int]]) -> list[list[int]]:
    """Times of all operations, one job behind the other, as a row for each job."""
    return [
        row.tolist() for row in np.split(times, np.cumsum([len(row) for row in durations])[:-1])
    ]


def flatten_jobs(durations: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Durations of all operations, one job behind the other, and each one's neighbours in its
    job, or -1.
    """
    job = np.repeat(np.arange(len(durations)), [len(row) for row in durations])
    size = len(job)
    before = np.arange(-1, size - 1, dtype=np.int32)
    behind = np.arange(1, size + 1, dtype=np.int32)
    before[np.flatnonzero(np.diff(job, prepend=-1))] = -1
    behind[np.flatnonzero(np.diff(job, append=-1))] = -1
    return np.concatenate(durations).astype(np.int64), before, behind


def machine_orders(machine: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The operations of one machine behind those of another, each in order of its start.

    What takes no time comes first where starts are equal; then all orders agree, also those within
    the jobs.
    """
    return np.lexsort((np.arange(len(machine)), end, start, machine)).astype(np.int32)


def find_cheapest_partition(
    routes: Sequence[np.ndarray],
    best: np.ndarray,
    customers: int,
    ceiling: float,
    descent: tuple[int, float, float, int],
    depth: int,
    width: int,
    spare: int,
) -> list[int]:
    """Which routes, `depth` at most, make the cheapest plan that is found below `ceiling`; none if
    there is none.

    `routes` are where each begins among the members of all, these members, counted from 0, costs
    relative to the best plan, and codes that tell sets of customers apart; `best` marks those of
    the best plan. `descent` are rounds, pace, momentum and patience of the search for prices. The
    beam has `width` places, with `spare` candidates for each.
    """
    begin, members, cost, code = routes
    count = len(best)
    words = -(-customers // 64)
    room = spare * width
    prices = tuple(np.empty(customers) for _ in range(4))
    value = np.empty(count)
    paid = load_kernel("prices")(begin, members, cost, best, *descent, prices, value)
    order = np.argsort(value, kind="stable")
    beam, onward = (
        (
            np.zeros((width, words), np.uint64),
            np.zeros(width),
            np.zeros(width, np.int64),
            np.full(width, customers, np.int64),
        )
        for _ in range(2)
    )
    listed = np.empty(room), np.empty(room, np.int32), np.empty(room, np.int32)
    scratch = [np.empty(size, np.int32) for size in (count, customers, 2)]
    noted = np.empty(4 << (width - 1).bit_length(), np.int64)  # a power of two
    tracks = [np.empty((depth, width), np.int32) for _ in range(2)]
    bits = np.zeros((count, words), np.uint64)
    chosen = np.empty(depth, np.int32)
    made = load_kernel("partition")(
        *reorder_routes(begin, members, order),
        value[order],
        code[order],
        ceiling - paid,
        bits,
        beam,
        onward,
        listed,
        *scratch,
        noted,
        *tracks,
        chosen,
    )
    return order[chosen[:made]].tolist()


def reorder_routes(
    begin: np.ndarray, members: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same routes in another order: where each begins, and the members."""
    size = np.diff(begin)[order]
    begins = np.concatenate([np.zeros(1, begin.dtype), size.cumsum()])
    return begins, members[np.repeat(begin[order] - begins[:-1], size) + np.arange(len(members))]
