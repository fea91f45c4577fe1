"""Tabu search: every move gives a schedule, small shops are solved, elite schedules differ."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, permutations, product
from threading import Event
from typing import Any

import numpy as np
import pytest

from rhumbline import improvers
from rhumbline.external import cpsat
from rhumbline.kernels.numba.local_search import schedule_tabu as tabu_kernel
from rhumbline.local_search import schedule_tabu, threads
from rhumbline.local_search.schedule_population import EliteSchedule
from rhumbline.problems.jssp import JSSPInstance, Schedule
from rhumbline.problems.jssp import jssp_from_arrays as shop

ONES = np.array([1], dtype=np.uint64)


def uneven_shop(seed: int, shortest: int) -> JSSPInstance:
    """Return five jobs of 2 to 6 operations that may visit one of three machines repeatedly."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 7, 5)
    return shop(
        [rng.integers(shortest, 9, n) for n in lengths], [rng.integers(0, 3, n) for n in lengths]
    )


def sequential_schedule(instance: JSSPInstance) -> Schedule:
    """Return a schedule without any two operations at a time."""
    starts, now = [], 0
    for row in instance.durations:
        starts.append(tuple(now + sum(row[:k]) for k in range(len(row))))
        now += sum(row)
    return Schedule(tuple(starts))


def start_walk(instance: JSSPInstance, random: np.ndarray = ONES) -> schedule_tabu.TabuWalk:
    """Return a walk from the worst sensible schedule."""
    start = np.concatenate(sequential_schedule(instance).starts)
    return schedule_tabu.TabuWalk(schedule_tabu.ShopTables(instance), start, random.copy())


def make_schedule(instance: JSSPInstance, starts: np.ndarray) -> Schedule:
    """Return the starts of all operations as a schedule."""
    rows = np.split(starts, np.cumsum([len(row) for row in instance.durations])[:-1])
    return Schedule(tuple(tuple(row.tolist()) for row in rows))


@pytest.mark.parametrize("shortest", [0, 1])
@pytest.mark.parametrize("seed", range(8))
def test_every_move_leaves_a_schedule(seed: int, shortest: int) -> None:
    """After each of a hundred moves starts are feasible; the best has the least makespan so far."""
    instance = uneven_shop(seed, shortest)
    walk = start_walk(instance)
    walk.run_moves(0)
    least = walk.makespan
    for _ in range(100):
        going = walk.run_moves(1)
        now = make_schedule(instance, walk.current_starts)
        now.check(instance)
        least = min(least, now.cost(instance))
        best = make_schedule(instance, walk.starts)
        best.check(instance)
        assert best.cost(instance) == walk.makespan == least
        if not going:
            break


def test_ends_and_rests() -> None:
    """Worked by hand: two jobs on two machines, the first job first on both."""
    instance = shop([[3, 2], [2, 4]], [[0, 1], [1, 0]])
    walk = start_walk(instance)
    walk.run_moves(0)
    assert walk.times[0].tolist() == [3, 5, 7, 11, 0]
    assert walk.times[1].tolist() == [11, 8, 6, 4, 0]
    assert walk.makespan == 11


def test_a_move_and_its_ban() -> None:
    """Job 2's first operation waits for job 1's second on machine 1.

    The swap is made, and its reversal forbidden.
    """
    instance = shop([[3, 2], [2, 4]], [[0, 1], [1, 0]])
    walk = start_walk(instance)
    assert walk.run_moves(1)
    assert (walk.makespan, walk.idle_moves) == (7, 0)
    # On machine 1 operation 1 has place 0 and operation 2 place 1: the order 1 before 2 is
    # forbidden for a while.
    assert 1 + 10 + 1 <= walk.until[1, 1] <= 1 + 11 + 4
    assert np.count_nonzero(walk.until) == 1


def test_nothing_to_move() -> None:
    """One job, and jobs without any duration, end at once."""
    began = time.monotonic()
    for instance in (shop([[3, 2, 1]], [[0, 1, 0]]), shop([[0, 0], [0, 0]], [[0, 1], [1, 0]])):
        reported: list[Schedule] = []
        improvers.improve_plans(
            "tabu", instance, [sequential_schedule(instance)], 600.0, 0, reported.append
        )
        assert reported[-1].cost(instance) == instance.lower_bound
    assert time.monotonic() - began < 300


def test_moves_repeat_under_a_seed() -> None:
    """Equal random numbers give equal sequences of schedules, others do not."""
    rng = np.random.default_rng(0)
    instance = shop(rng.integers(1, 30, (8, 6)), rng.random((8, 6)).argsort(1))
    one, same, other = (trace(instance, seed) for seed in (2**40, 2**40, 2**41))
    assert one == same != other


def trace(instance: JSSPInstance, seed: int) -> list[list[int]]:
    """Return the starts after each of two hundred moves."""
    walk, passed = start_walk(instance, np.array([seed], np.uint64)), list[list[int]]()
    for _ in range(200):
        assert walk.run_moves(1)
        passed.append(walk.current_starts.tolist())
    return passed


def block_orders(size: int, is_first: bool, is_last: bool) -> list[tuple[int, ...]]:
    """Return the orders that the kernel's moves make of a block of operations 0, 1, 2, ..."""
    sources, targets = np.zeros((2, 4 * size), np.int64)
    count = tabu_kernel.list_block_moves.py_func(
        0, size - 1, is_first, is_last, sources, targets, 0
    )
    orders = []
    for source, target in zip(sources[:count], targets[:count], strict=True):
        order = list(range(size))
        order.insert(target, order.pop(source))
        orders.append(tuple(order))
    return orders


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("size", range(2, 7))
def test_all_moves_of_a_block(size: int, is_first: bool, is_last: bool) -> None:
    """Operations go to the ends, and ends anywhere; each move is listed once.

    The first block of a path must get another last operation, the last block another first one.
    """
    block, wanted = list(range(size)), set[tuple[int, ...]]()
    for one in block:
        rest = block[:one] + block[one + 1 :]
        wanted |= {(one, *rest), (*rest, one)}
        wanted |= {(*block[1 : one + 1], 0, *block[one + 1 :])}
        wanted |= {(*block[:one], size - 1, *block[one:-1])}
    wanted -= {tuple(block)}
    if is_first:
        wanted = {order for order in wanted if order[-1] != size - 1}
    if is_last:
        wanted = {order for order in wanted if order[0] != 0}
    if is_first and is_last:  # one block from beginning to end: no schedule is shorter
        wanted = set()
    made = block_orders(size, is_first, is_last)
    assert len(made) == len(set(made))
    assert set(made) == wanted


@pytest.mark.parametrize("forward", [True, False])
def test_a_ban_is_for_the_reversal(forward: bool) -> None:
    """Operation 0 has passed 1 and 2, or they have passed it: only the reversal is forbidden."""
    until, slot = np.zeros((4, 4), np.int64), np.arange(4)
    path, back = np.array([0, 1, 2]), np.array([1, 2, 0])
    if not forward:
        path, back = back, path
    move, reversal = ((0, 2), (2, 0)) if forward else ((2, 0), (0, 2))
    tabu_kernel.make_tabu.py_func(until, slot, path, *move, 20)
    cells = {(0, 1), (0, 2)} if forward else {(1, 0), (2, 0)}
    assert {tuple(cell) for cell in np.argwhere(until).tolist()} == cells
    forbidden = tabu_kernel.is_tabu.py_func
    assert forbidden(until, slot, back, *reversal, 19)
    assert not forbidden(until, slot, back, *reversal, 20)
    assert not forbidden(until, slot, path, *move, 19)
    assert not forbidden(until, slot, np.array([3, 1]), 0, 1, 19)


def test_what_beats_the_best_is_never_forbidden() -> None:
    """With everything forbidden the same move is made, since it beats all before."""
    rng = np.random.default_rng(5)
    instance = shop(rng.integers(1, 30, (6, 5)), rng.random((6, 5)).argsort(1))
    for seed in range(1, 20):
        free, bound = (start_walk(instance, np.array([seed * 2**40], np.uint64)) for _ in range(2))
        bound.until[:] = 2**30
        assert free.run_moves(1)
        assert bound.run_moves(1)
        assert free.makespan == bound.makespan
        assert free.times[0].tolist() == bound.times[0].tolist()


def test_critical_paths_are_taken_at_random() -> None:
    """After two operations, job and machine are equally critical; only one has a move."""
    instance = shop([[1, 3, 3], [3]], [[2, 0, 1], [0]])
    start = np.array([0, 1, 4, 4])
    walks = [
        schedule_tabu.TabuWalk(
            schedule_tabu.ShopTables(instance), start, np.array([seed * 2**40], np.uint64)
        )
        for seed in range(1, 20)
    ]
    assert {walk.run_moves(1) for walk in walks} == {True, False}


def test_a_ban_grows_with_the_jobs_of_a_machine() -> None:
    """Ten moves, plus the number of jobs divided by the number of machines."""
    assert [
        schedule_tabu.ShopTables(shop(np.ones((jobs, 4), int), [[0, 1, 2, 3]] * jobs)).ban
        for jobs in (3, 4, 12)
    ] == [
        10,
        11,
        13,
    ]


def make_rounds(search: schedule_tabu.TabuSearch, count: int) -> None:
    """Run rounds without a clock, from the worst sensible schedule, until a bound is met."""
    search.end = float("inf")
    noise = threads.generator_state(search.seed)
    given = deque([np.concatenate(sequential_schedule(search.instance).starts)])
    for _ in range(count):
        points = search.next_starts(given)
        if not points:
            break
        schedule = search.run_round(points, noise)
        search.population.add(schedule, schedule_tabu.TUNING.first_distance)


@pytest.mark.parametrize("seed", range(4))
def test_small_shops_are_solved(seed: int) -> None:
    """Schedules are as short as CP-SAT proves, from the worst one, also with zero durations."""
    instance = uneven_shop(seed, seed % 2)
    best, bound = cpsat.solve_with_bound(instance, 20.0)
    assert best.cost(instance) == bound
    reported: list[Schedule] = []
    search = schedule_tabu.TabuSearch(instance, seed, Event(), reported.append)
    make_rounds(search, 20)
    reported[-1].check(instance)
    assert reported[-1].cost(instance) == search.shortest == bound


def longest_path(instance: JSSPInstance, orders: Sequence[Sequence[tuple[int, int]]]) -> int | None:
    """Return the makespan of machine orders of (job, step) by repeated relaxation.

    None if they contain a cycle.
    """
    ends = {(job, step): 0 for job, step, _, _ in instance.operations}
    pairs = [pair for order in orders for pair in pairwise(order)]
    pairs += [((job, step - 1), (job, step)) for job, step in ends if step]
    for _ in range(len(ends) + 1):
        earlier = ends.copy()
        for job, step, _, duration in instance.operations:
            begin = max((ends[a] for a, b in pairs if b == (job, step)), default=0)
            ends[job, step] = begin + duration
        if ends == earlier:
            return max(ends.values())
    return None if any(duration for *_, duration in instance.operations) else 0


@pytest.mark.parametrize("seed", range(6))
def test_optimum_of_tiny_shops(seed: int) -> None:
    """Three jobs on three machines: the best of all combinations of machine orders is found."""
    rng = np.random.default_rng(seed)
    durations = rng.integers(seed % 2, 10, (3, 3))
    instance = shop(durations, rng.random((3, 3)).argsort(1))
    rows = [list[tuple[int, int]]() for _ in range(3)]
    for job, step, machine, _ in instance.operations:
        rows[machine].append((job, step))
    makespans = (longest_path(instance, orders) for orders in product(*map(permutations, rows)))
    best = min(makespan for makespan in makespans if makespan is not None)
    search = schedule_tabu.TabuSearch(instance, seed, Event(), lambda _: None)
    make_rounds(search, 5)
    assert search.shortest == best


def test_ten_thousand_moves() -> None:
    """Times that are updated move after move equal those of a simple recomputation."""
    rng = np.random.default_rng(7)
    for shortest in (0, 1):
        durations = rng.integers(shortest, 50, (12, 8))
        instance = shop(durations, rng.random((12, 8)).argsort(1))
        walk = start_walk(instance)
        for _ in range(10):
            walk.run_moves(500)
            rows = machine_rows(instance, walk.current_starts)
            assert longest_path(instance, rows) == walk.times[1].max() == walk.times[0].max()


def machine_rows(instance: JSSPInstance, starts: np.ndarray) -> list[list[tuple[int, int]]]:
    """Return (job, step) of the operations of each machine in order of their times."""
    rows: list[list[Any]] = [[] for _ in range(instance.machine_count)]
    for start, (job, step, machine, duration) in zip(starts, instance.operations, strict=True):
        rows[machine].append((start, start + duration, job, step))
    return [[(job, step) for _, _, job, step in sorted(row)] for row in rows]


@pytest.mark.parametrize("shortest", [0, 1])
@pytest.mark.parametrize("seed", range(10))
def test_moves_make_no_cycle(seed: int, shortest: int) -> None:
    """Every move that passes the test of safety leaves orders without a cycle.

    The estimate of a swap of neighbours is a lower bound on the makespan.
    """
    rng = np.random.default_rng(seed)
    instance = uneven_shop(seed, shortest)
    walk = start_walk(instance)
    for _ in range(6):
        walk.run_moves(int(rng.integers(1, 8)))
        rows = machine_rows(instance, walk.current_starts)
        makespan = longest_path(instance, rows)
        assert makespan == walk.times[1].max()
        for row in rows:
            for low, high in critical_blocks(instance, walk, row):
                check_block(instance, walk, rows, row, low, high)


def operation_numbers(instance: JSSPInstance) -> dict[tuple[int, int], int]:
    """Return the number of each operation (job, step)."""
    return {(job, step): k for k, (job, step, _, _) in enumerate(instance.operations)}


def critical_blocks(
    instance: JSSPInstance, walk: schedule_tabu.TabuWalk, row: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return first and last place of all runs of critical operations without gaps in an order."""
    number = operation_numbers(instance)
    end, rest = walk.times
    makespan = rest.max()
    blocks = []
    for low in range(len(row)):
        high = low
        while high < len(row) and is_critical(number[row[high]], walk, makespan):
            if high > low:
                blocks.append((low, high))
            here = number[row[high]]
            high += 1
            if high < len(row) and makespan - rest[number[row[high]]] != end[here]:
                break
    return blocks


def is_critical(o: int, walk: schedule_tabu.TabuWalk, makespan: int) -> bool:
    """Return whether a longest path leads through an operation."""
    return walk.times[0][o] + walk.times[1][o] - walk.shop.tables[0][o] == makespan


def check_block(
    instance: JSSPInstance,
    walk: schedule_tabu.TabuWalk,
    rows: list[list[tuple[int, int]]],
    row: list[tuple[int, int]],
    low: int,
    high: int,
) -> None:
    """Make the moves of one operation over the others of a block, and look for cycles."""
    number = operation_numbers(instance)
    for source, target in ((low, high), (high, low)):
        o, goal = number[row[source]], number[row[target]]
        forward = source < target
        if not tabu_kernel.is_safe.py_func(o, goal, forward, walk.shop.tables, walk.times):
            continue
        order = row.copy()
        order.insert(target, order.pop(source))
        changed = [order if other is row else other for other in rows]
        made = longest_path(instance, changed)
        assert made is not None
        if high == low + 1:
            assert swap_estimate(walk, o, goal, forward) <= made


def swap_estimate(walk: schedule_tabu.TabuWalk, o: int, goal: int, forward: bool) -> int:
    """Return the estimate of moving an operation over its neighbour on the machine."""
    duration, before, behind = walk.shop.tables
    previous, following = walk.links
    end, rest = walk.times
    path = [o, goal] if forward else [goal, o]
    data = [duration[path], end[before[path]], rest[behind[path]], np.zeros(2, np.int64)]
    earliest, latest = end[previous[path[0]]], rest[following[path[1]]]
    if forward:
        return tabu_kernel.estimate_forward.py_func(data, 0, 1, earliest, latest, 10**9)
    return tabu_kernel.estimate_backward.py_func(data, 1, 0, earliest, latest, 10**9)


def test_estimates_by_hand() -> None:
    """Operations of 3, 2 and 4 on one machine, begun at 5, with 7 behind them.

    Moving the first to the end: 2 begins at 6 when its job allows, 4 at 8, 3 at 12; 7 follow.
    Moving the last to the front: 4 begins at 5, 3 at 9, 2 at 12; at the end 7 follow, or 9 of the
    job of 2.
    """
    span, ready = np.array([3, 2, 4]), np.array([0, 6, 0])
    data = (span, ready, np.array([0, 9, 0]), np.zeros(3, np.int64))
    assert tabu_kernel.estimate_forward.py_func(data, 0, 2, 5, 7, 99) == 12 + 3 + 7
    assert tabu_kernel.estimate_backward.py_func(data, 2, 0, 5, 7, 99) == 12 + 2 + 9


def test_rounds_repeat_under_a_seed() -> None:
    """Equal seeds give equal populations, another one does not."""
    rng = np.random.default_rng(3)
    instance = shop(rng.integers(1, 30, (8, 6)), rng.random((8, 6)).argsort(1))
    made = []
    for seed in (5, 5, 6):
        search = schedule_tabu.TabuSearch(instance, seed, Event(), lambda _: None)
        make_rounds(search, 4)
        made.append([member.starts.tolist() for member in search.population.members])
    assert made[0] == made[1] != made[2]


def test_points_between_two_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times are weighted means of those of two members; one member alone is not enough."""
    tuning = replace(schedule_tabu.TUNING, path_points=3)
    monkeypatch.setattr(schedule_tabu, "TUNING", tuning)
    search = schedule_tabu.TabuSearch(uneven_shop(1, 1), 0, Event(), lambda _: None)
    search.end = float("inf")
    size = search.shop.size
    one, two = (EliteSchedule(9, np.full(size, x), np.full(size, x)) for x in (0, 1))
    search.population.members = [one, two]
    for _ in range(20):
        points = search.mix_times()
        assert len(points) == 3
        for times in points:
            assert np.ptp(times) == 0
            assert 0.3 <= times[0] <= 0.7
    search.population.members = [one]
    (times,) = search.next_starts(deque())
    assert np.ptp(times) > 0


@pytest.mark.parametrize(("seconds", "stopped"), [(0.0, False), (600.0, True)])
def test_it_stops_on_request(
    seconds: float, stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without time, or after Ctrl-C, the first plan gets a few moves and nothing follows."""
    tuning = replace(schedule_tabu.TUNING, operations_between_clock_checks=1)
    monkeypatch.setattr(schedule_tabu, "TUNING", tuning)
    instance, event, reported = uneven_shop(2, 1), Event(), list[Schedule]()
    if stopped:
        event.set()
    rounds = schedule_tabu.TabuSearch(instance, 0, event, reported.append)
    calls, run_moves = list[int](), schedule_tabu.TabuWalk.run_moves
    monkeypatch.setattr(
        schedule_tabu.TabuWalk,
        "run_moves",
        lambda walk, moves: calls.append(moves) or run_moves(walk, moves),
    )
    rounds.run([sequential_schedule(instance)] * 3, seconds)
    assert calls == [10]
    assert reported[-1].cost(instance) == rounds.population.members[0].makespan


def test_rounds_begin_with_each_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only afterwards they begin between two schedules."""
    tuning = replace(schedule_tabu.TUNING, population=2, path_points=1)
    monkeypatch.setattr(schedule_tabu, "TUNING", tuning)
    instance, event = uneven_shop(3, 1), Event()
    rounds, begun_with = (
        schedule_tabu.TabuSearch(instance, 0, event, lambda _: None),
        list[list[float]](),
    )

    def run_round(starts: list[np.ndarray], random: np.ndarray) -> EliteSchedule:
        (start,) = starts
        begun_with.append(start.tolist())
        if len(begun_with) == 3:
            event.set()
        return EliteSchedule(9, start, start)

    monkeypatch.setattr(rounds, "run_round", run_round)
    one = sequential_schedule(instance)
    two = Schedule(tuple(tuple(t + 1 for t in row) for row in one.starts))
    rounds.run([one, two], 600.0)
    assert begun_with[:2] == [np.concatenate(plan.starts).tolist() for plan in (one, two)]
    assert len(begun_with) == 3
    assert (
        np.ptp(np.array(begun_with[2]) - begun_with[0]) < 1e-9
    )  # one and two differ by a constant


def test_looks_at_the_clock() -> None:
    """If all operations share a machine, moves cost more, so fewer are made at once."""
    crowded, usual = (
        shop(np.ones((30, 4), int), [[0] * 4] * 30),
        shop(np.ones((30, 4), int), [[0, 1, 2, 3]] * 30),
    )
    assert (
        schedule_tabu.ShopTables(crowded).effort > 10 * schedule_tabu.ShopTables(usual).effort > 120
    )
