"""Tabu search: every move gives a schedule, small shops are solved, elite schedules differ."""

import time
from dataclasses import replace
from threading import Event
from typing import Any

import numpy as np
import pytest

from rhumbline import improvers
from rhumbline.external import cpsat
from rhumbline.kernels.numba.local_search import schedule_tabu as tabu_kernel
from rhumbline.local_search import schedule_tabu, threads
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
        now = make_schedule(instance, walk.times[0][:-1])
        now.check(instance)
        least = min(least, now.cost(instance))
        best = make_schedule(instance, walk.starts)
        best.check(instance)
        assert best.cost(instance) == walk.makespan == least
        if not going:
            break


def test_heads_and_tails() -> None:
    """Worked by hand: two jobs on two machines, the first job first on both."""
    instance = shop([[3, 2], [2, 4]], [[0, 1], [1, 0]])
    walk = start_walk(instance)
    walk.run_moves(0)
    assert walk.times[0].tolist() == [0, 3, 5, 7, 0]
    assert walk.times[1].tolist() == [8, 6, 4, 0, 0]
    assert walk.makespan == 11


def test_a_move_and_its_ban() -> None:
    """Job 2's first operation waits for job 1's second on machine 1.

    The swap is made, and its reversal forbidden.
    """
    instance = shop([[3, 2], [2, 4]], [[0, 1], [1, 0]])
    walk = start_walk(instance)
    assert walk.run_moves(1)
    assert (walk.makespan, walk.idle) == (7, 0)
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
        passed.append(walk.times[0].tolist())
    return passed


def test_all_moves_of_a_block() -> None:
    """With everything forbidden any move is made: operations to the ends, and ends anywhere."""
    instance = shop([[1], [2], [3], [4], [5]], [[0]] * 5)
    found = set[tuple[int, ...]]()
    for seed in range(1, 400):
        walk = start_walk(instance, np.array([seed * 2**40], np.uint64))
        walk.run_moves(0)
        walk.until[:], walk.state[tabu_kernel.BEST_MAKESPAN] = 2**60, 0
        assert walk.run_moves(1)
        found.add(tuple(np.argsort(walk.times[0][:-1]).tolist()))
    block, wanted = list(range(5)), set[tuple[int, ...]]()
    for one in block:
        rest = block[:one] + block[one + 1 :]
        wanted |= {(one, *rest), (*rest, one)}
        wanted |= {(*block[1 : one + 1], 0, *block[one + 1 :]), (*block[:one], 4, *block[one:-1])}
    assert found == wanted - {tuple(block)}


@pytest.mark.parametrize("size", range(2, 7))
def test_no_move_comes_twice(size: int) -> None:
    """Of all kinds at all places of a block, the moves that are not left out differ."""
    made = []
    for one in range(size):
        for kind in range(4):
            source, target = tabu_kernel.block_move.py_func(kind, one, 0, size - 1)
            if source != target and not tabu_kernel.is_duplicate.py_func(kind, one, 0, size - 1):
                order = list(range(size))
                order.insert(target, order.pop(source))
                made.append(tuple(order))
    assert len(made) == len(set(made))


@pytest.mark.parametrize("forward", [True, False])
def test_a_ban_is_for_the_reversal(forward: bool) -> None:
    """Operation 0 has passed 1 and 2, or they have passed it: only the reversal is forbidden."""
    until, slot = np.zeros((4, 4), np.int64), np.arange(4)
    now, back = (
        (np.array([1, 2, 0]), np.array([0, 1, 2]))
        if forward
        else (np.array([0, 1, 2]), np.array([1, 2, 0]))
    )
    tabu_kernel.make_tabu.py_func(until, slot, now, 3, forward, 20)
    cells = {(0, 1), (0, 2)} if forward else {(1, 0), (2, 0)}
    assert {tuple(cell) for cell in np.argwhere(until).tolist()} == cells
    forbidden = tabu_kernel.is_tabu.py_func
    assert forbidden(until, slot, back, 3, not forward, 19)
    assert not forbidden(until, slot, back, 3, not forward, 20)
    assert not forbidden(until, slot, now, 3, forward, 19)
    assert not forbidden(until, slot, np.array([3, 1]), 2, not forward, 19)


def test_what_beats_the_best_is_never_forbidden() -> None:
    """With everything forbidden the same move is made, since it beats all before."""
    rng = np.random.default_rng(5)
    instance = shop(rng.integers(1, 30, (6, 5)), rng.random((6, 5)).argsort(1))
    for seed in range(1, 20):
        free, bound = (start_walk(instance, np.array([seed * 2**40], np.uint64)) for _ in range(2))
        bound.until[:] = 2**60
        assert free.run_moves(1)
        assert bound.run_moves(1)
        assert free.makespan == bound.makespan
        assert free.times[0].tolist() == bound.times[0].tolist()


def test_critical_paths_are_taken_at_random() -> None:
    """After the first operation, job and machine are equally critical; only one has a move."""
    instance = shop([[3, 3], [3]], [[0, 1], [0]])
    start = np.array([0, 3, 3])
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


@pytest.mark.parametrize("seed", range(4))
def test_small_shops_are_solved(seed: int) -> None:
    """Schedules are as short as CP-SAT proves, from the worst one, also with zero durations."""
    instance = uneven_shop(seed, seed % 2)
    best, bound = cpsat.solve_with_bound(instance, 20.0)
    assert best.cost(instance) == bound
    reported: list[Schedule] = []
    rounds = schedule_tabu.TabuSearch(instance, seed, Event(), reported.append)
    rounds.end, noise = float("inf"), threads.generator_state(seed)
    rounds.add_to_elite(
        rounds.run_round(np.concatenate(sequential_schedule(instance).starts), noise)
    )
    for _ in range(20):
        rounds.add_to_elite(rounds.run_round(rounds.times_between(), noise))
    reported[-1].check(instance)
    assert reported[-1].cost(instance) == rounds.shortest == bound


def elite_schedule(makespan: int, following: list[int]) -> schedule_tabu.EliteSchedule:
    return schedule_tabu.EliteSchedule(makespan, np.array(following), np.array(following))


def test_elite_schedules_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of similar schedules the shorter one stays; of different ones the shortest stay."""
    tuning = replace(schedule_tabu.TUNING, elite_schedules=2)
    monkeypatch.setattr(schedule_tabu, "TUNING", tuning)
    rounds = schedule_tabu.TabuSearch(uneven_shop(0, 1), 0, Event(), lambda _: None)
    long, short, other, worse = (
        elite_schedule(9, [0] * 10),
        elite_schedule(8, [0] * 9 + [1]),
        elite_schedule(7, [1] * 10),
        elite_schedule(10, [2] * 10),
    )
    states: list[Any] = []
    for found in (long, short, long, other, worse):
        rounds.add_to_elite(found)
        states.append(([one.makespan for one in rounds.elite], rounds.idle_rounds))
    assert states == [([9], 0), ([8], 0), ([8], 1), ([7, 8], 0), ([7, 8], 1)]
    rounds.add_to_elite(elite_schedule(8, [3] * 10))
    assert ([one.following[0] for one in rounds.elite], rounds.idle_rounds) == (
        [1, 3],
        0,
    )  # the newest of equals
    for _ in range(schedule_tabu.TUNING.idle_rounds):
        rounds.add_to_elite(worse)
    assert rounds.idle_rounds == schedule_tabu.TUNING.idle_rounds
    rounds.add_to_elite(worse)  # that was the round that began farther away
    assert rounds.idle_rounds == 0


def test_from_farther_away() -> None:
    """Two schedules are mixed; one alone, or two after idle rounds, are mixed with random times."""
    rounds = schedule_tabu.TabuSearch(uneven_shop(1, 1), 0, Event(), lambda _: None)
    size = rounds.shop.size
    one, two = (schedule_tabu.EliteSchedule(9, np.full(size, x), np.full(size, x)) for x in (0, 1))
    rounds.elite = [one, two]
    for _ in range(20):
        mixed = rounds.times_between()
        assert np.ptp(mixed) == 0
        assert 0.3 <= mixed[0] <= 0.7
    rounds.idle_rounds = schedule_tabu.TUNING.idle_rounds
    assert np.ptp(rounds.times_between()) > 0
    rounds.elite, rounds.idle_rounds = [one], 0
    assert np.ptp(rounds.times_between()) > 0


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
    assert reported[-1].cost(instance) == rounds.elite[0].makespan


def test_rounds_begin_with_each_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only afterwards they begin between two schedules."""
    instance, event = uneven_shop(3, 1), Event()
    rounds, begun_with = (
        schedule_tabu.TabuSearch(instance, 0, event, lambda _: None),
        list[list[float]](),
    )

    def run_round(start: np.ndarray, random: np.ndarray) -> schedule_tabu.EliteSchedule:
        begun_with.append(start.tolist())
        if len(begun_with) == 3:
            event.set()
        return schedule_tabu.EliteSchedule(9, start, start)

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
