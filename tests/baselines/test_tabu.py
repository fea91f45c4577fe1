"""The tabu search: every move gives a schedule, small shops are solved, and what is kept differs."""

from threading import Event
from typing import Any

import numpy as np
import pytest

from rhumbline import baselines
from rhumbline.baselines import cpsat, tabu
from rhumbline.problems.schedule import JSSPInstance, Schedule
from rhumbline.problems.schedule import from_arrays as shop

ONES = np.array([1], dtype=np.uint64)


def uneven(seed: int, shortest: int) -> JSSPInstance:
    """Five jobs of 2 to 6 operations that may come to one of three machines again, also at once."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 7, 5)
    return shop([rng.integers(shortest, 9, n) for n in lengths], [rng.integers(0, 3, n) for n in lengths])


def one_after_the_other(instance: JSSPInstance) -> Schedule:
    """No two operations at a time."""
    starts, now = [], 0
    for row in instance.durations:
        starts.append(tuple(now + sum(row[:k]) for k in range(len(row))))
        now += sum(row)
    return Schedule(tuple(starts))


def begun(instance: JSSPInstance, random: np.ndarray = ONES) -> tabu.Walk:
    """A walk from the worst sensible schedule."""
    start = np.concatenate(one_after_the_other(instance).starts)
    return tabu.Walk(tabu.Shop(instance), start, random.copy())


def scheduled(instance: JSSPInstance, starts: np.ndarray) -> Schedule:
    """Starts of all operations as a schedule."""
    rows = np.split(starts, np.cumsum([len(row) for row in instance.durations])[:-1])
    return Schedule(tuple(tuple(row.tolist()) for row in rows))


@pytest.mark.parametrize("shortest", [0, 1])
@pytest.mark.parametrize("seed", range(8))
def test_every_move_leaves_a_schedule(seed: int, shortest: int) -> None:
    """After each of a hundred moves starts are feasible; the best so far is the least makespan that there was."""
    instance = uneven(seed, shortest)
    walk, least = begun(instance), instance.horizon + 1
    for _ in range(100):
        going = walk.go(1)
        now = scheduled(instance, walk.times[0][:-1])
        now.check(instance)
        least = min(least, now.cost(instance))
        best = scheduled(instance, walk.starts)
        best.check(instance)
        assert best.cost(instance) == walk.makespan == least
        if not going:
            break


def test_heads_and_tails() -> None:
    """Worked by hand: two jobs on two machines, the first job first on both."""
    instance = shop([[3, 2], [2, 4]], [[0, 1], [1, 0]])
    walk = begun(instance)
    walk.go(0)
    assert walk.times[0].tolist() == [0, 3, 5, 7, 0]
    assert walk.times[1].tolist() == [8, 6, 4, 0, 0]
    assert walk.makespan == 11


def test_a_move_and_its_ban() -> None:
    """Job 2's first operation waits for job 1's second on machine 1; the swap is made, and its way back forbidden."""
    instance = shop([[3, 2], [2, 4]], [[0, 1], [1, 0]])
    walk = begun(instance)
    assert walk.go(1)
    assert (walk.makespan, walk.idle) == (7, 0)
    # On machine 1 operation 1 has place 0 and operation 2 place 1: that 1 comes before 2 must not come back soon.
    assert 1 + 10 + 1 <= walk.until[1, 1] <= 1 + 11 + 4
    assert np.count_nonzero(walk.until) == 1


def test_nothing_to_move() -> None:
    """One job, and jobs that take no time at all, are over at once."""
    for instance in (shop([[3, 2, 1]], [[0, 1, 0]]), shop([[0, 0], [0, 0]], [[0, 1], [1, 0]])):
        told: list[Schedule] = []
        baselines.improve("tabu", instance, [one_after_the_other(instance)], 60.0, 0, told.append)
        assert told[-1].cost(instance) == instance.lower_bound


def test_moves_repeat_under_a_seed() -> None:
    """The same random numbers give the same schedules, others give others."""
    rng = np.random.default_rng(0)
    instance = shop(rng.integers(1, 30, (8, 6)), rng.random((8, 6)).argsort(1))
    ends = [begun(instance, np.array([seed], np.uint64)) for seed in (1, 1, 7)]
    for walk in ends:
        assert walk.go(500)
    assert ends[0].times[0].tolist() == ends[1].times[0].tolist() != ends[2].times[0].tolist()


@pytest.mark.parametrize("seed", range(4))
def test_small_shops_are_solved(seed: int) -> None:
    """As short as CP-SAT proves them to be, from the worst schedule; also with operations that take no time."""
    instance = uneven(seed, seed % 2)
    best, bound = cpsat.bounded(instance, 20.0)
    assert best.cost(instance) == bound
    told: list[Schedule] = []
    rounds = tabu.Rounds(instance, seed, Event(), told.append)
    rounds.end = float("inf")
    rounds.keep(rounds.round(np.concatenate(one_after_the_other(instance).starts)))
    for _ in range(20):
        rounds.keep(rounds.round(rounds.between()))
    told[-1].check(instance)
    assert told[-1].cost(instance) == rounds.shortest == bound


def kept(makespan: int, following: list[int]) -> tabu.Kept:
    return tabu.Kept(makespan, np.array(following), np.array(following))


def test_what_is_kept_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of schedules that are alike the shorter one stays, wherever it comes from; of the others the shortest."""
    monkeypatch.setattr(tabu, "KEPT", 2)
    rounds = tabu.Rounds(uneven(0, 1), 0, Event(), lambda _: None)
    long, short, other, worse = kept(9, [0] * 10), kept(8, [0] * 9 + [1]), kept(7, [1] * 10), kept(10, [2] * 10)
    states: list[Any] = []
    for found in (long, short, long, other, worse):
        rounds.keep(found)
        states.append(([one.makespan for one in rounds.kept], rounds.in_vain))
    assert states == [([9], 0), ([8], 0), ([8], 1), ([7, 8], 0), ([7, 8], 0)]


def test_from_farther_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two schedules are mixed; one by itself, or two after rounds in vain, is mixed with random times."""
    rounds = tabu.Rounds(uneven(1, 1), 0, Event(), lambda _: None)
    size = rounds.shop.size
    one, two = (tabu.Kept(9, np.full(size, x), np.full(size, x)) for x in (0, 1))
    rounds.kept = [one, two]
    assert np.ptp(rounds.between()) == 0
    rounds.in_vain = tabu.IN_VAIN
    assert np.ptp(rounds.between()) > 0
    rounds.kept, rounds.in_vain = [one], 0
    assert np.ptp(rounds.between()) > 0


def test_it_stops_when_it_is_told() -> None:
    """Without time, or after Ctrl-C, each plan gets a few moves and no round follows."""
    instance = uneven(2, 1)
    for seconds, stopped in ((0.0, False), (60.0, True)):
        event, told = Event(), list[Schedule]()
        if stopped:
            event.set()
        rounds = tabu.Rounds(instance, 0, event, told.append)
        rounds.run([one_after_the_other(instance)], seconds)
        assert len(rounds.kept) == 1
        assert told[-1].cost(instance) == rounds.kept[0].makespan
