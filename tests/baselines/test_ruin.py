"""Ruin and recreate: every plan obeys the rules, what was tried in vain is undone, and small instances are solved."""

import time
from functools import cache
from itertools import permutations
from threading import Event

import numpy as np
import pytest

from rhumbline import baselines
from rhumbline.baselines import ruin
from rhumbline.kernels import ruin as kernel
from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.cvrp import from_arrays as cvrp

HOT = 1.0  # mean legs: next to everything is accepted


def delivery(customers: int, seed: int, capacity: int = 20) -> CVRPInstance:
    """Random places, demands of 1 to 9."""
    rng = np.random.default_rng(seed)
    return cvrp(rng.random(2), rng.random((customers, 2)), rng.integers(1, 10, customers), capacity)


def alone(instance: CVRPInstance) -> Routes:
    """A vehicle for each customer."""
    return Routes(tuple((c,) for c in range(1, instance.size)))


def begun(instance: CVRPInstance, seed: int = 0, told: list[Routes] | None = None) -> ruin.Annealing:
    """A search from the dearest sensible plan."""
    return ruin.Annealing(instance, alone(instance), seed, Event(), (told if told is not None else []).append)


def present(search: ruin.Annealing) -> Routes:
    """The plan as it is now."""
    rows, length = search.plan[:2]
    return Routes(tuple(tuple(row[:count].tolist()) for row, count in zip(rows, length, strict=True) if count))


def check_notes(search: ruin.Annealing) -> None:
    """What is noted of rows and customers is so."""
    rows, length, load, route, place, ahead, home = search.plan
    for r, count in enumerate(length):
        row = [0, *rows[r, :count].tolist(), 0]
        assert load[r] == search.demand[row].sum()
        assert home[r] == search.distance[row[-2], 0]
        for i, c in enumerate(row[1:-1]):
            assert (route[c], place[c]) == (r, i)
            assert ahead[c] == search.distance[row[i], c]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("temperature", [0.0, HOT])
def test_every_time_leaves_a_plan(seed: int, temperature: float) -> None:
    """After each of 150 times all customers are served once and nobody is overloaded; the best is the least so far."""
    instance, told = delivery(5 + 5 * seed, seed), list[Routes]()
    search = begun(instance, seed, told)
    least = alone(instance).cost(instance)
    for _ in range(150):
        better = search.go(temperature, 1)
        now = present(search)
        now.check(instance)
        check_notes(search)
        assert now.cost(instance) == pytest.approx(search.costs[kernel.NOW], rel=1e-12)
        assert better == (now.cost(instance) < least * (1 - 1e-9))
        least = min(least, now.cost(instance))
        assert search.costs[kernel.BEST] == pytest.approx(least, rel=1e-9)
        if better:
            assert told[-1] == now
    assert len(told) > 1


def test_what_was_in_vain_is_undone() -> None:
    """When it is cold, a plan changes only if it gets no dearer; else everything is as it was, in the same places."""
    search, changes, undone = begun(delivery(30, 3)), 0, 0
    search.go(0.0, 0)
    for _ in range(2000):
        before, cost = [x.copy() for x in search.plan], float(search.costs[kernel.NOW])
        search.go(0.0, 1)
        if search.costs[kernel.NOW] == cost and routes_in(*before[:2]) == present(search).routes:
            undone += 1
            assert all(np.array_equal(was, now) for was, now in zip(before[1:], search.plan[1:], strict=True))
        else:
            changes += 1
            assert search.costs[kernel.NOW] <= cost * (1 + 1e-12)  # as long the other way round, but for rounding
    assert min(changes, undone) > 10


def routes_in(rows: np.ndarray, length: np.ndarray) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row[:count].tolist()) for row, count in zip(rows, length, strict=True) if count)


def cheapest(instance: CVRPInstance, vehicles: int) -> float:
    """The least cost by trying all: routes of all sets of customers, then sets put together."""
    distance, customers = instance.distances, range(1, instance.size)
    demand = np.asarray(instance.demands)

    @cache
    def route(chosen: frozenset[int]) -> float:
        if demand[list(chosen)].sum() > instance.capacity:
            return np.inf
        return min(sum(distance[a, b] for a, b in zip((0, *p), (*p, 0), strict=True)) for p in permutations(chosen))

    @cache
    def served(left: frozenset[int], most: int) -> float:
        if not left or not most:
            return np.inf if left else 0.0
        first, *others = sorted(left)
        sets = [frozenset([first])]
        for c in others:
            sets += [one | {c} for one in sets]
        return min(route(one) + served(left - one, most - 1) for one in sets)

    return served(frozenset(customers), vehicles)


@pytest.mark.parametrize("seed", range(4))
def test_small_instances_are_solved(seed: int) -> None:
    """As cheap as the best of all plans; and with one vehicle fewer than that has, where it can be done."""
    instance = delivery(7, seed)
    told = list[Routes]()
    search = begun(instance, seed, told)
    for share in np.linspace(0, 1, 40):
        search.go(HOT * 0.001**share)
    told[-1].check(instance)
    assert told[-1].cost(instance) == pytest.approx(cheapest(instance, 7))


def test_a_fleet_is_never_exceeded() -> None:
    """From four routes with room for one more, where five would be cheaper: the best of four is found."""
    xy = np.array([[0.0, 0], [9, 0], [9, 1], [-9, 0], [-9, 1], [0, 9], [1, 9], [0, -9]])
    fleet = CVRPInstance("four", "EXACT_2D", (0, 1, 1, 1, 1, 1, 1, 1), 3, xy=xy, vehicles=3)
    start = Routes(((1, 3, 5), (2, 4, 6), (7,)))
    told = list[Routes]()
    search = ruin.Annealing(fleet, start, 0, Event(), told.append)
    assert len(search.plan[1]) == 3
    for share in np.linspace(0, 1, 40):
        search.go(HOT * 0.001**share)
    told[-1].check(fleet)
    assert told[-1].cost(fleet) == pytest.approx(cheapest(fleet, 3))
    free = CVRPInstance("free", "EXACT_2D", fleet.demands, 3, xy=xy)
    assert len(ruin.Annealing(free, start, 0, Event(), told.append).plan[1]) == 8  # one for each node at most
    tight = CVRPInstance("tight", "EXACT_2D", fleet.demands, 3, xy=xy, vehicles=5)
    assert len(ruin.Annealing(tight, start, 0, Event(), told.append).plan[1]) == 5


class Given:
    """Random numbers as they are given; then the largest there are."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)

    def __call__(self, _: object, count: int) -> int:
        return self.numbers.pop(0) % count if self.numbers else count - 1


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch):
    """Functions of the kernel as they stand there, with given random numbers."""

    def use(*numbers: int) -> None:
        given = Given(*numbers)
        monkeypatch.setattr(kernel, "draw", given)
        monkeypatch.setattr(kernel, "unit", lambda random: (given(random, 1 << 30) + 0.5) / (1 << 30))

    return use


def test_strings(fixed) -> None:
    """They hold the place, are as long as allowed, lie in the row, and leave none but inner customers."""
    rng, seen = np.random.default_rng(0), set[tuple[int, int, int, int]]()
    for _ in range(4000):
        length = int(rng.integers(1, 7))
        at, longest = int(rng.integers(length)), float(rng.uniform(1, 8))
        draws = [int(rng.integers(1 << 30)), *(int(rng.integers(2)) for _ in range(2)), 1, 0, 0]
        fixed(*draws)
        begin, end, hole, hole_end = kernel.string_of.py_func(length, at, longest, None)
        taken = [i for i in range(begin, end) if not hole <= i < hole_end]
        assert 0 <= begin <= at < end <= length
        assert 1 <= len(taken) <= length
        assert len(taken) < longest + 1
        assert taken[0] == begin
        assert taken[-1] == end - 1
        seen.add((length, begin, end, hole_end - hole))
    assert {left for *_, left in seen} >= {0, 1}
    assert {begin for length, begin, *_ in seen if length == 6} == set(range(6))


def test_a_string_is_taken_out() -> None:
    """Customers 1 to 5 in a row; of 2, 3 and 4 the middle one stays."""
    instance = delivery(6, 0, 60)
    search = ruin.Annealing(instance, Routes(((1, 2, 3, 4, 5), (6,))), 0, Event(), print)
    search.go(0.0, 0)
    removed = np.zeros(6, np.int32)
    link = kernel.link.py_func
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "link", link)
        gone = kernel.take_out.py_func(search.distance, search.demand, search.plan, 0, (1, 4, 2, 3), removed, 0)
    assert (gone, removed[:2].tolist()) == (2, [2, 4])
    assert present(search).routes == ((1, 3, 5), (6,))
    assert search.plan[3].tolist() == [0, 0, -1, 0, -1, 0, 1]
    assert search.plan[2][0] == sum(instance.demands[c] for c in (1, 3, 5))


@pytest.mark.parametrize("kind", range(11))
def test_the_order_in_which_they_go_back(fixed, kind: int) -> None:
    """Four of eleven times at random, four by demand, two the farthest first and once the nearest."""
    away, demand = np.array([[0.0, 3, 1, 2]]), np.array([0, 5, 7, 6])
    removed = np.array([1, 2, 3], np.int32)
    fixed(kind, 20, 30, 10)
    kernel.sort.py_func(away, demand, removed, 3, np.zeros(3), None)
    expected = [3, 1, 2] if kind < 4 else [2, 3, 1] if kind < 8 else [1, 3, 2] if kind < 10 else [2, 3, 1]
    assert removed.tolist() == expected


@pytest.mark.parametrize("seed", range(20))
def test_the_best_place(fixed, seed: int) -> None:
    """Where a plan with one more customer costs least, of all rows that can carry it."""
    instance = delivery(9, seed, 15)
    routes = [[1, 2], [3, 4], [5, 6, 7], [8]]
    search = ruin.Annealing(instance, Routes(tuple(map(tuple, routes))), 0, Event(), print)
    search.go(0.0, 0)
    fixed()  # the largest number: nothing is overlooked
    found = kernel.best_place.py_func(search.distance, search.demand, 15, search.plan, 9, None)
    costs = {}
    for r, row in enumerate([*routes, []]):
        for i in range(len(row) + 1):
            longer = [*routes[:r], [*row[:i], 9, *row[i:]], *routes[r + 1 :]]
            if sum(instance.demands[c] for c in longer[r]) <= 15:
                costs[r if row else len(search.plan[1]) - 1, i] = Routes(tuple(map(tuple, longer))).cost(instance)
    assert costs[found] == pytest.approx(min(costs.values()))


def test_one_better_place_in_a_hundred_is_overlooked(fixed) -> None:
    """Also behind the last customer; and where nobody has room there is no place."""
    xy = np.array([[0.0, 0], [1, 0], [2, 0], [3, 0]])
    line = CVRPInstance("line", "EXACT_2D", (0, 1, 1, 1), 3, xy=xy, vehicles=1)
    search = ruin.Annealing(line, Routes(((1, 2),)), 0, Event(), print)
    search.go(0.0, 0)
    place = kernel.best_place.py_func
    fixed()
    assert place(search.distance, search.demand, 3, search.plan, 3, None) == (0, 1)  # as good as behind both
    fixed(1, 0)
    assert place(search.distance, search.demand, 3, search.plan, 3, None) == (0, 2)
    fixed(0, 0, 0)
    assert place(search.distance, search.demand, 3, search.plan, 3, None)[0] == kernel.NOWHERE
    fixed()
    assert place(search.distance, search.demand, 2, search.plan, 3, None)[0] == kernel.NOWHERE


def test_plans_repeat_under_a_seed() -> None:
    """The same random numbers give the same plans, others give others."""
    instance = delivery(40, 5)
    one, same, other = (begun(instance, seed) for seed in (1, 1, 2))
    for search in (one, same, other):
        search.go(0.1, 300)
    assert present(one) == present(same) != present(other)


@pytest.mark.parametrize(("seconds", "stopped"), [(0.0, False), (600.0, True)])
def test_it_stops_when_it_is_told(seconds: float, stopped: bool) -> None:
    """Without time, or after Ctrl-C, nothing is tried."""
    search = begun(delivery(10, 0))
    if stopped:
        search.stopped.set()
    search.run(seconds)
    assert present(search) == alone(delivery(10, 0))


def test_it_ends_when_nothing_is_left_to_find() -> None:
    """Two customers that share a vehicle; far below the seconds that it may take. One customer is left alone."""
    began = time.monotonic()
    two = cvrp((0.0, 0.0), [(1.0, 0.0), (1.0, 1.0)], (1, 1), 2)
    told = list[Routes]()
    baselines.improve("ruin", two, [alone(two)], 600.0, 0, told.append)
    assert sorted(told[-1].routes[0]) == [1, 2]
    one = cvrp((0.0, 0.0), [(1.0, 0.0)], (1,), 2)
    baselines.improve("ruin", one, [alone(one)], 600.0, 0, told.append)
    assert len(told) == 1
    assert time.monotonic() - began < 300


def timed(search: ruin.Annealing, monkeypatch: pytest.MonkeyPatch, better: list[bool]) -> list[float]:
    """Temperatures, if each step takes 2.5 s and is better as it is said."""
    now, passed = [0.0], list[float]()
    monkeypatch.setattr(ruin.time, "monotonic", lambda: now[0])

    def go(temperature: float) -> bool:
        passed.append(temperature)
        now[0] += 2.5
        return better[len(passed) - 1]

    monkeypatch.setattr(search, "go", go)
    return passed


def at(*shares: float) -> list[float]:
    return [ruin.HOT * (ruin.COLD / ruin.HOT) ** share for share in shares]


def test_it_cools_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """From HOT at the beginning to COLD at the end, by equal factors in equal times."""
    search = begun(delivery(10, 1))
    passed = timed(search, monkeypatch, [True] * 4)
    search.run(10.0)
    assert passed == pytest.approx(at(0, 0.25, 0.5, 0.75))


def test_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more time than a round takes, the next begins with the best plan; after three in vain it is over."""
    search = begun(delivery(10, 1))
    search.plenty = 2 * ruin.AT_ONCE
    passed = timed(search, monkeypatch, [False, False, False, True, *[False] * 6])
    search.plan[1][:] = 0
    search.run(1000.0)
    assert passed == pytest.approx(at(0, 0.5) * 5)
    assert present(search) == alone(delivery(10, 1))


def test_the_last_round_is_cold_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five seconds are left for the second, which is two steps instead of four."""
    search = begun(delivery(10, 1))
    search.plenty = 4 * ruin.AT_ONCE
    passed = timed(search, monkeypatch, [False] * 6)
    search.run(15.0)
    assert passed == pytest.approx(at(0, 0.25, 0.5, 0.75, 0, 0.5))
