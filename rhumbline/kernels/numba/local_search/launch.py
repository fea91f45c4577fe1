"""Local search on the CPU: prepares the arrays of the compiled moves, and calls them.

Each kernel is compiled when it is first needed, and stored on disk if possible.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
from numba import njit
from numba.core.compiler_lock import global_compiler_lock

from rhumbline.kernels.background import run_in_background

UNLIMITED = 2**62  # moves


@dataclass(frozen=True)
class MoveTuning:
    """Settings of the moves."""

    neighbours: int = 16  # nodes that a move may join a node to
    # Share of the largest distance; an apparent gain below it is rounding.
    relative_tolerance: float = 1e-10


TUNING = MoveTuning()


@dataclass(frozen=True)
class KernelSource:
    """Where a kernel is defined."""

    module: str  # in this package
    function: str
    signature: str = "SIGNATURE"  # its name in the module
    # numba counts the references of arrays; where a kernel passes them often, this takes longer
    # than its work.
    counts_references: bool = True


KERNELS = {
    "tour moves": KernelSource("local_search.tour_moves", "improve_tour"),
    "near cities": KernelSource("tour_search.near", "find_near"),
    "tour search": KernelSource("tour_search.exchanges", "search_tour"),
    "route moves": KernelSource("local_search.route_moves", "improve_routes"),
    "route search": KernelSource("route_search.kernel", "search_routes"),
    "schedule moves": KernelSource("local_search.schedule_moves", "improve_shop"),
    "schedule tabu": KernelSource(
        "local_search.schedule_tabu", "search_shop", counts_references=False
    ),
    "partition prices": KernelSource("set_partitioning", "values_at_prices", "PRICES_SIGNATURE"),
    "partition": KernelSource("set_partitioning", "cheapest_partition"),
}


@cache
def load_kernel(name: str) -> Callable[..., Any]:
    """Return a compiled kernel, from the cache on disk or compiled now and stored if possible."""
    return run_in_background(partial(compile_kernel, name))


def compile_kernel(name: str) -> Callable[..., Any]:
    """Compile a kernel, or load it if numba's cache has it."""
    source = KERNELS[name]
    module: Any = import_module(f"rhumbline.kernels.numba.{source.module}")
    signature = getattr(module, source.signature)
    function = getattr(module, source.function)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    if not source.counts_references:
        options["_nrt"] = False
    with global_compiler_lock:
        try:
            return njit(signature, cache=True, **options)(function)
        except Exception:  # no writable folder, a full disk, a damaged file: for this process only
            return njit(signature, **options)(function)


def nearest_nodes(distance: np.ndarray, count: int = TUNING.neighbours) -> np.ndarray:
    """Return the nearest nodes of each node, [N, count] at most, in order; ties by number."""
    size = len(distance)
    infinite = np.full(size, np.inf)
    others = distance + np.diag(infinite)
    order = np.argsort(others, axis=1, kind="stable")
    most = min(count, size - 1)
    near = order[:, :most]
    return near.astype(np.int32)


def nearest_customers(distance: np.ndarray, count: int = TUNING.neighbours) -> np.ndarray:
    """Return the nearest customers of each customer; the row of the depot has no meaning."""
    customers = distance[1:, 1:]
    near = nearest_nodes(customers, count)
    near = near + np.int32(1)
    depot = np.zeros_like(near[:1])
    return np.concatenate([depot, near])


def improvement_tolerance(distance: np.ndarray) -> float:
    """Return the least change that counts as an improvement."""
    largest = float(distance.max(initial=0.0))
    return TUNING.relative_tolerance * largest


def shorten_tour(
    distance: np.ndarray, near: np.ndarray, order: Sequence[int], most: int = UNLIMITED
) -> tuple[list[int], int]:
    """Improve a tour to an optimum of 2-opt and Or-opt together, or by at most `most` moves.

    Returns the tour and the number of moves.
    """
    size = len(order)
    tour = np.asarray(order, dtype=np.int32)
    place = np.empty(size, np.int32)
    scratch = np.empty(8, np.int32)
    tolerance = improvement_tolerance(distance)
    made = 0
    while size > 3:  # until a whole pass finds no move
        place[tour] = np.arange(size, dtype=np.int32)
        waiting = np.ones(size, np.bool_)
        queue_state = np.array([0, size], np.int64)
        moves = load_kernel("tour moves")(
            distance,
            near,
            tour,
            place,
            scratch,
            tour.copy(),
            waiting,
            queue_state,
            tolerance,
            most - made,
        )
        made += moves
        if not moves or made >= most:
            break
    return tour.tolist(), made


def shorten_routes(
    distance: np.ndarray,
    near: np.ndarray,
    demand: np.ndarray,
    capacity: int,
    routes: Sequence[Sequence[int]],
    vehicles: int | None = None,
    most: int = UNLIMITED,
) -> tuple[list[list[int]], int]:
    """Improve routes to an optimum of all moves together, or by at most `most` moves.

    Returns the routes and the number of moves.
    """
    size = len(distance)
    tolerance = improvement_tolerance(distance)
    made = 0
    while True:
        may_open = vehicles is None or len(routes) < vehicles
        rows, length = pack_routes(routes, len(routes) + may_open, size)
        load = np.zeros(len(rows), np.int64)
        moves = load_kernel("route moves")(
            distance,
            near,
            demand,
            capacity,
            rows,
            length,
            load,
            *route_scratch(size),
            tolerance,
            most - made,
        )
        made += moves
        pairs = zip(rows, length, strict=True)
        routes = [row[:count].tolist() for row, count in pairs if count]
        if not moves or made >= most:
            return routes, made


def pack_routes(
    routes: Sequence[Sequence[int]], count: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pack routes into `count` rows of one array of width `size`; return it and their lengths."""
    rows = np.zeros((count, size), np.int32)
    length = np.zeros(count, np.int32)
    for r, route in enumerate(routes):
        rows[r, : len(route)] = route
        length[r] = len(route)
    return rows, length


def route_scratch(size: int) -> list[np.ndarray]:
    """Allocate what `improve_routes` works on: places, loads, the queue, room for two routes."""
    return [
        np.zeros(size, np.int32),  # the route of each customer
        np.zeros(size, np.int32),  # its place there
        np.zeros(size, np.int64),  # the load up to it
        np.zeros(size, np.int32),  # the queue
        np.zeros(size, np.bool_),  # customers that wait in it
        np.zeros(size, np.int32),  # room for a route
        np.zeros(size, np.int32),  # and for another
    ]


def shorten_schedule(
    durations: Sequence[Sequence[int]],
    machines: Sequence[Sequence[int]],
    starts: Sequence[Sequence[int]],
    most: int = UNLIMITED,
) -> tuple[list[list[int]], int]:
    """Improve a schedule by moves in critical blocks to an optimum, or by at most `most` moves.

    Returns the starts and the number of moves.
    """
    duration, before, behind = flatten_jobs(durations)
    size = len(duration)
    machine = np.concatenate(machines).astype(np.int64)
    start = np.concatenate(starts).astype(np.int64)
    sequence = machine_orders(machine, start, start + duration)
    opening = np.diff(machine[sequence], prepend=-1) != 0
    place = np.argsort(sequence).astype(np.int32)
    head = np.zeros(size, np.int64)
    trial = np.zeros(size, np.int64)
    due = np.zeros(size, np.int32)
    stack = np.zeros(size, np.int32)
    made = load_kernel("schedule moves")(
        duration, before, behind, sequence, opening, place, head, trial, due, stack, most
    )
    return split_by_job(head, durations), made


def split_by_job(times: np.ndarray, durations: Sequence[Sequence[int]]) -> list[list[int]]:
    """Split the times of all operations, job after job, into a row for each job."""
    lengths = [len(row) for row in durations]
    ends = np.cumsum(lengths)
    rows = np.split(times, ends[:-1])
    return [row.tolist() for row in rows]


def flatten_jobs(
    durations: Sequence[Sequence[int]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the durations of all operations, job after job, and their neighbours.

    The neighbours are the operations before and behind in the same job, or -1.
    """
    lengths = [len(row) for row in durations]
    jobs = np.arange(len(durations))
    job = np.repeat(jobs, lengths)  # of each operation
    size = len(job)
    before = np.arange(-1, size - 1, dtype=np.int32)
    behind = np.arange(1, size + 1, dtype=np.int32)
    step = np.diff(job, prepend=-1)
    before[step != 0] = -1
    step = np.diff(job, append=-1)
    behind[step != 0] = -1
    duration = np.concatenate(durations)
    return duration.astype(np.int64), before, behind


def machine_orders(machine: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the operations machine after machine, on each in order of their starts.

    Operations that take no time come first among equal starts. All orders then agree, also those
    within the jobs.
    """
    number = np.arange(len(machine))
    keys = (number, end, start, machine)
    order = np.lexsort(keys)
    return order.astype(np.int32)


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
    """Find the cheapest plan of at most `depth` routes below `ceiling`; empty if there is none.

    `routes` has four arrays: where the members of each route begin, the members of all routes
    (counted from 0), costs relative to the best plan, and codes that identify sets of customers.
    `best` marks the routes of the best plan. `descent` are the rounds, step size, momentum and patience of the
    search for prices. The beam has `width` places, with `spare` candidates for each.
    """
    begin, members, cost, code = routes
    count = len(best)
    words = -(-customers // 64)
    prices = tuple(np.empty(customers) for _ in range(4))
    value = np.empty(count)
    paid = load_kernel("partition prices")(begin, members, cost, best, *descent, prices, value)
    order = np.argsort(value, kind="stable")
    bits = np.zeros((count, words), np.uint64)
    beam = make_beam(width, words, customers)
    onward = make_beam(width, words, customers)
    room = spare * width
    listed = (np.empty(room), np.empty(room, np.int32), np.empty(room, np.int32))
    scratch = [np.empty(size, np.int32) for size in (count, customers, 2)]
    power_of_two = 4 << (width - 1).bit_length()
    noted = np.empty(power_of_two, np.int64)
    tracks = [np.empty((depth, width), np.int32) for _ in range(2)]
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


def make_beam(width: int, words: int, customers: int) -> tuple[np.ndarray, ...]:
    """Allocate a beam: customers served as bits, sums, codes, and how many are missing."""
    return (
        np.zeros((width, words), np.uint64),
        np.zeros(width),
        np.zeros(width, np.int64),
        np.full(width, customers, np.int64),
    )


def reorder_routes(
    begin: np.ndarray, members: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the routes in another order: where each begins, and the members of all."""
    sizes = np.diff(begin)
    sizes = sizes[order]
    zero = np.zeros(1, begin.dtype)
    begins = np.concatenate([zero, sizes.cumsum()])
    moved_by = begin[order] - begins[:-1]
    place = np.arange(len(members))
    place = place + np.repeat(moved_by, sizes)
    return begins, members[place]
