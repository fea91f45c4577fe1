"""Ruin and recreate: every plan obeys the rules, what was tried in vain is undone, and small
instances are solved.
"""

import time
from functools import cache
from itertools import permutations
from threading import Event

import numpy as np
import pytest

from rhumbline import improvers
from rhumbline.kernels.numba.local_search import route_ruin_recreate as kernel
from rhumbline.local_search import route_ruin_recreate
from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.cvrp import cvrp_from_arrays as cvrp

MOLTEN = 1.0  # mean legs: next to everything is accepted


def delivery(customers: int, seed: int, capacity: int = 20) -> CVRPInstance:
    """Random places, demands of 1 to 9."""
    rng = np.random.default_rng(seed)
    return cvrp(rng.random(2), rng.random((customers, 2)), rng.integers(1, 10, customers), capacity)


def alone(instance: CVRPInstance) -> Routes:
    """A vehicle for each customer."""
    return Routes(tuple((c,) for c in range(1, instance.size)))


def begun(
    instance: CVRPInstance, seed: int = 0, told: list[Routes] | None = None
) -> route_ruin_recreate.Annealing:
    """A search from the dearest sensible plan."""
    return route_ruin_recreate.Annealing(
        instance, alone(instance), seed, Event(), (told if told is not None else []).append
    )


def routes_in(rows: np.ndarray, length: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """The routes that some rows are."""
    return tuple(
        tuple(row[:count].tolist()) for row, count in zip(rows, length, strict=True) if count
    )


def present(search: route_ruin_recreate.Annealing) -> Routes:
    """The plan as it is now."""
    return Routes(routes_in(*search.plan[:2]))


def check_notes(search: route_ruin_recreate.Annealing) -> None:
    """What is noted of rows and customers is so, and nobody is left out."""
    rows, length, load, route, place, ahead, home = search.plan
    assert length.sum() == len(route) - 1
    for r, count in enumerate(length):
        row = [0, *rows[r, :count].tolist(), 0]
        assert load[r] == search.demand[row].sum()
        assert home[r] == search.distance[row[-2], 0]
        for i, c in enumerate(row[1:-1]):
            assert (route[c], place[c]) == (r, i)
            assert ahead[c] == search.distance[row[i], c]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("temperature", [0.0, MOLTEN])
def test_every_time_leaves_a_plan(seed: int, temperature: float) -> None:
    """After each of 150 times all customers are served once and nobody is overloaded; the best
    is the least so far.
    """
    instance, told = delivery(5 + 5 * seed, seed), list[Routes]()
    search = begun(instance, seed, told)
    least = alone(instance).cost(instance)
    for _ in range(150):
        better = search.run_steps(temperature, 1)
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
    """When it is cold, a plan changes only if it gets cheaper, or by rounding; else all is as it
    was, in its place.
    """
    search, changes, undone = begun(delivery(30, 3)), 0, 0
    search.run_steps(0.0, 0)
    for _ in range(2000):
        before, cost = [x.copy() for x in search.plan], float(search.costs[kernel.NOW])
        search.run_steps(0.0, 1)
        if search.costs[kernel.NOW] == cost and routes_in(*before[:2]) == present(search).routes:
            undone += 1
            assert all(
                np.array_equal(was, now)
                for was, now in zip(before[1:], search.plan[1:], strict=True)
            )
        else:
            changes += 1
            assert search.costs[kernel.NOW] <= cost * (
                1 + 1e-12
            )  # the same the other way round may seem shorter
    assert min(changes, undone) > 10


def cheapest(instance: CVRPInstance, vehicles: int) -> float:
    """The least cost by trying all: routes of all sets of customers, then sets put together."""
    distance, customers = instance.distances, range(1, instance.size)
    demand = np.asarray(instance.demands)

    @cache
    def route(chosen: frozenset[int]) -> float:
        if demand[list(chosen)].sum() > instance.capacity:
            return np.inf
        return min(
            sum(distance[a, b] for a, b in zip((0, *p), (*p, 0), strict=True))
            for p in permutations(chosen)
        )

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
    """As cheap as the best of all plans."""
    instance = delivery(7, seed)
    told = list[Routes]()
    cool(begun(instance, seed, told))
    told[-1].check(instance)
    assert told[-1].cost(instance) == pytest.approx(cheapest(instance, 7))


def cool(search: route_ruin_recreate.Annealing) -> None:
    """Forty steps from molten to cold."""
    for share in np.linspace(0, 1, 40):
        search.run_steps(MOLTEN * 0.001**share)


SHORT_OF_ROOM = Routes(((1, 2), (3, 4), (5, 6)))


def crowded(vehicles: int | None) -> CVRPInstance:
    """Three loads of 3 and three of 2, in pairs of 5: any other plan of three routes would overload
    one, or leave one.

    Neighbours are 1 and 3, 2 and 4; so with more vehicles it would be cheaper.
    """
    xy = np.array([[0.0, 0], [9, 0], [-9, 0], [9, 1], [-9, 1], [0, 9], [1, 9]])
    return CVRPInstance("crowded", "EXACT_2D", (0, 3, 2, 3, 2, 3, 2), 5, xy=xy, vehicles=vehicles)


def test_a_fleet_is_never_exceeded() -> None:
    """Where customers find no room, all is undone; with one vehicle more they would have a
    cheaper plan.
    """
    costs = []
    for vehicles in (3, 4):
        limited, told = crowded(vehicles), list[Routes]()
        search = route_ruin_recreate.Annealing(limited, SHORT_OF_ROOM, 0, Event(), told.append)
        for _ in range(300):
            search.run_steps(MOLTEN, 1)
            present(search).check(limited)
            check_notes(search)
        cool(search)
        best = Routes(routes_in(*search.best))
        best.check(limited)
        costs.append(best.cost(limited))
        assert costs[-1] == pytest.approx(cheapest(limited, vehicles))
    assert costs[1] < costs[0] <= SHORT_OF_ROOM.cost(crowded(3)) * (1 + 1e-9)


def test_as_many_rows_as_there_may_be_vehicles() -> None:
    """Those of the fleet, or one for each customer; ten more than the plan has at most, and
    never fewer.
    """
    many = Routes(tuple((c,) for c in range(1, 21)))
    cases = {
        (crowded(3), SHORT_OF_ROOM): 3,
        (crowded(5), SHORT_OF_ROOM): 5,
        (crowded(None), SHORT_OF_ROOM): 6,
    }
    large = delivery(50, 0, 60)
    start = Routes((*many.routes[:-1], tuple(range(20, 51))))
    cases = [
        *((*case, rows) for case, rows in cases.items()),
        (large, start, 30),
        (crowded(3), alone(crowded(3)), 6),
    ]
    for instance, plan, rows in cases:
        assert len(route_ruin_recreate.Annealing(instance, plan, 0, Event(), print).plan[1]) == rows


@pytest.mark.parametrize("temperature", [0.2, 0.5])
def test_how_much_dearer_a_plan_may_get(temperature: float) -> None:
    """By no more than annealing allows: the chance of a change is exp(-change / temperature), and
    half of them are 0.

    Of those that made a plan dearer, the mean is about the temperature at most, and hardly any is
    eight times that.
    """
    search, changes = begun(delivery(60, 2)), list[float]()
    search.run_steps(temperature, 2000)
    for _ in range(3000):
        before = float(search.costs[kernel.NOW])
        search.run_steps(temperature, 1)
        changes.append((float(search.costs[kernel.NOW]) - before) / search.mean_leg)
    dearer = [change for change in changes if change > 1e-9]
    assert len(dearer) > 100
    assert 0.2 * temperature < np.mean(dearer) < 1.2 * temperature
    assert temperature < max(dearer) < 12 * temperature


def test_temperatures_are_in_legs() -> None:
    """On another scale it is the same search."""
    instance = delivery(40, 5)
    assert instance.xy is not None
    scaled = CVRPInstance(
        "large", "EXACT_2D", instance.demands, instance.capacity, xy=1024.0 * instance.xy
    )
    one, other = begun(instance), begun(scaled)
    for search in (one, other):
        search.run_steps(0.1, 3000)
    assert present(one) == present(other)
    assert (
        route_ruin_recreate.TUNING.last_temperature
        < route_ruin_recreate.TUNING.first_temperature
        < 1.0
    )


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
        monkeypatch.setattr(
            kernel, "unit", lambda random: (given(random, 1 << 30) + 0.5) / (1 << 30)
        )

    return use


@pytest.mark.parametrize(
    ("length", "place", "longest"), [(1, 0, 10.0), (6, 0, 3.5), (6, 2, 10.0), (6, 5, 2.0)]
)
def test_strings(fixed, length: int, place: int, longest: float) -> None:
    """All that hold the place, as long as allowed, with each hole that leaves an inner customer
    or two; no others.
    """
    rng, seen = np.random.default_rng(0), set[tuple[int, ...]]()
    for _ in range(6000):
        fixed(
            int(rng.integers(1 << 30)), *(rng.integers(0, 60, 8) * rng.integers(0, 2, 8)).tolist()
        )
        begin, end, hole, hole_end = kernel.string_of.py_func(length, place, longest, None)
        seen.add((begin, end, hole_end - hole, hole if hole_end > hole else begin))
    wanted = set[tuple[int, ...]]()
    for begin in range(length):
        for end in range(max(begin, place) + 1, length + 1):
            for left in range(length):
                size = end - begin - left
                if begin <= place and 1 <= size < longest + 1 and (not left or size > 1):
                    holes = range(begin + 1, end - left) if left else [begin]
                    wanted |= {(begin, end, left, hole) for hole in holes}
    assert seen == wanted


def ruined(
    fixed, instance: CVRPInstance, plan: Routes, *numbers: int
) -> tuple[list[int], list[int]]:
    """Rows that are written down and customers that are removed, with given random numbers."""
    search = route_ruin_recreate.Annealing(instance, plan, 0, Event(), print)
    search.run_steps(0.0, 0)
    removed = np.zeros(instance.size, np.int32)
    fixed(*numbers)
    with pytest.MonkeyPatch.context() as patch:
        for name in (
            "link",
            "keep",
            "is_kept",
            "row_cost",
            "string_of",
            "take_out",
            "routes_of",
        ):
            patch.setattr(kernel, name, getattr(kernel, name).py_func)
        count, gone = kernel.ruin.py_func(
            search.distance, search.near, search.demand, search.plan, search.saved, removed, None
        )
    return search.saved[0][:count].tolist(), removed[:gone].tolist()


HALF, ALL, NONE = 1 << 29, (1 << 30) - 1, 0


def test_routes_are_ruined_round_a_customer(fixed) -> None:
    """Of routes of two customers on a line, from the customer that is drawn to its nearest
    neighbours.

    Strings are as long as a route is on average, 2 here, so there are up to 4 * 10 / 3 of them, 13
    at most.
    """
    size = 41
    xy = np.stack(
        [np.arange(size + 0.0) ** 1.01, np.zeros(size)], 1
    )  # the neighbour before is the nearer one
    instance = CVRPInstance("line", "EXACT_2D", (0, *[1] * (size - 1)), 2, xy=xy)
    plan = Routes(tuple((c, c + 1) for c in range(1, size, 2)))
    # The number of strings, the seed; then of each string its length and where it begins.
    assert ruined(fixed, instance, plan, NONE, 39, NONE, 0) == (
        [19],
        [40],
    )  # the last customer is one, too
    assert ruined(fixed, instance, plan, NONE, 0, NONE, 0) == ([0], [1])
    lengths = [ALL, 0] * 13
    rows, gone = ruined(fixed, instance, plan, ALL, 20, *lengths)
    assert rows == [10, 9, 11, 8, 12, 7, 13, 6, 14, 5, 15, 4, 16]
    assert sorted(gone) == sorted(c for r in rows for c in plan.routes[r])
    rows, gone = ruined(fixed, instance, plan, HALF, 20, *lengths)
    assert len(rows) == 7


def test_strings_are_no_longer_than_routes_on_average(fixed) -> None:
    """Ten at most: of three routes of 4, 4 and 1 customers three at most, of one of thirty ten."""
    instance = delivery(9, 1, 60)
    uneven = Routes(((1, 2, 3, 4), (5, 6, 7, 8), (9,)))
    assert len(ruined(fixed, instance, uneven, NONE, 0, ALL, 1)[1]) == 3
    large = delivery(30, 1, 300)
    assert len(ruined(fixed, large, Routes((tuple(range(1, 31)),)), NONE, 0, ALL, 1)[1]) == 10


def test_a_string_is_taken_out() -> None:
    """Customers 1 to 5 in a row; of 2, 3 and 4 the middle one stays."""
    instance = delivery(6, 0, 60)
    search = route_ruin_recreate.Annealing(
        instance, Routes(((1, 2, 3, 4, 5), (6,))), 0, Event(), print
    )
    search.run_steps(0.0, 0)
    removed = np.zeros(6, np.int32)
    link = kernel.link.py_func
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "link", link)
        gone = kernel.take_out.py_func(
            search.distance, search.demand, search.plan, 0, (1, 4, 2, 3), removed, 0
        )
    assert (gone, removed[:2].tolist()) == (2, [2, 4])
    assert present(search).routes == ((1, 3, 5), (6,))
    assert search.plan[3].tolist() == [0, 0, -1, 0, -1, 0, 1]
    assert search.plan[2][0] == sum(instance.demands[c] for c in (1, 3, 5))


@pytest.mark.parametrize("kind", range(11))
def test_the_order_in_which_they_go_back(fixed, kind: int) -> None:
    """Four of eleven times at random, four by demand, two the farthest first and once the
    nearest.
    """
    away, demand = np.array([[0.0, 3, 1, 2]]), np.array([0, 5, 7, 6])
    removed = np.array([1, 2, 3], np.int32)
    fixed(kind, 20, 30, 10)
    kernel.sort.py_func(away, demand, removed, 3, np.zeros(3), None)
    expected = (
        [3, 1, 2] if kind < 4 else [2, 3, 1] if kind < 8 else [1, 3, 2] if kind < 10 else [2, 3, 1]
    )
    assert removed.tolist() == expected


@pytest.mark.parametrize("seed", range(20))
def test_the_best_place(fixed, seed: int) -> None:
    """Where a plan with one more customer costs least, of all rows that can carry it."""
    instance = delivery(9, seed, 15)
    routes = [[1, 2], [3, 4], [5, 6, 7], [8]]
    search = route_ruin_recreate.Annealing(
        instance, Routes(tuple(map(tuple, routes))), 0, Event(), print
    )
    search.run_steps(0.0, 0)
    fixed()  # the largest number: nothing is overlooked
    found = kernel.best_place.py_func(search.distance, search.demand, 15, search.plan, 9, None)
    costs = {}
    for r, row in enumerate([*routes, []]):
        for i in range(len(row) + 1):
            longer = [*routes[:r], [*row[:i], 9, *row[i:]], *routes[r + 1 :]]
            if sum(instance.demands[c] for c in longer[r]) <= 15:
                costs[r if row else len(search.plan[1]) - 1, i] = Routes(
                    tuple(map(tuple, longer))
                ).cost(instance)
    assert costs[found] == pytest.approx(min(costs.values()))


def test_a_route_of_its_own_may_be_cheaper(fixed) -> None:
    """Where a file's distances are no plane's: from customer 1 to 2 it is farther than by way of
    the depot.
    """
    matrix = np.array([[0, 1, 1], [1, 0, 9], [1, 9, 0]])
    apart = CVRPInstance("apart", "EXPLICIT", (0, 1, 1), 2, matrix=matrix)
    search = route_ruin_recreate.Annealing(apart, Routes(((1,),)), 0, Event(), print)
    search.run_steps(0.0, 0)
    fixed()
    assert kernel.best_place.py_func(search.distance, search.demand, 2, search.plan, 2, None) == (
        1,
        0,
    )


def test_one_better_place_in_a_hundred_is_overlooked(fixed) -> None:
    """Also behind the last customer; and where nobody has room there is no place."""
    xy = np.array([[0.0, 0], [1, 0], [2, 0], [3, 0]])
    line = CVRPInstance("line", "EXACT_2D", (0, 1, 1, 1), 3, xy=xy, vehicles=1)
    search = route_ruin_recreate.Annealing(line, Routes(((1, 2),)), 0, Event(), print)
    search.run_steps(0.0, 0)
    place = kernel.best_place.py_func
    fixed()
    assert place(search.distance, search.demand, 3, search.plan, 3, None) == (
        0,
        1,
    )  # as good as behind both
    fixed(1, 0)
    assert place(search.distance, search.demand, 3, search.plan, 3, None) == (0, 2)
    fixed(0, 0, 0)
    assert place(search.distance, search.demand, 3, search.plan, 3, None)[0] == kernel.NOWHERE
    fixed()
    assert place(search.distance, search.demand, 2, search.plan, 3, None)[0] == kernel.NOWHERE


def test_customers_go_back_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is removed goes back in the order of `sort`: without it another plan comes of the
    same random numbers.
    """
    instance = delivery(40, 5)
    usual = begun(instance)
    usual.run_steps(0.1, 300)
    plain = begun(instance)
    with monkeypatch.context() as patch:
        as_written(patch)
        plain.kernel = kernel.search_routes
        plain.run_steps(0.1, 300)
        assert present(plain) == present(usual)  # the compiled kernel does what is written
        patch.setattr(kernel, "sort", lambda *_: None)
        other = begun(instance)
        other.kernel = kernel.search_routes
        other.run_steps(0.1, 300)
    assert present(other) != present(usual)


def as_written(patch: pytest.MonkeyPatch) -> None:
    """The kernel in plain Python, with the same random numbers."""
    for name, function in vars(kernel).items():
        if hasattr(function, "py_func"):
            patch.setattr(kernel, name, function.py_func)

    def draw(random: np.ndarray, count: int) -> int:
        x, mask = int(random[0]), 2**64 - 1
        x ^= x << 13 & mask
        x ^= x >> 7
        x ^= x << 17 & mask
        random[0] = x
        return (x >> 32) * int(count) >> 32

    patch.setattr(kernel, "draw", draw)


def test_plans_repeat_under_a_seed() -> None:
    """The same random numbers give the same plans, others give others; it begins with the first
    plan.
    """
    instance = delivery(40, 5)
    one, same, other = (begun(instance, seed) for seed in (1, 1, 2))
    for search in (one, same, other):
        search.run_steps(0.1, 300)
    assert present(one) == present(same) != present(other)
    given, seeds = list[Routes](), list[int]()

    class Watched(route_ruin_recreate.Annealing):
        def __init__(
            self,
            instance: CVRPInstance,
            plan: Routes,
            seed: int,
            stopped: Event,
            tell: route_ruin_recreate.RoutesListener,
        ) -> None:
            super().__init__(instance, plan, seed, stopped, tell)
            given.append(plan)
            seeds.append(seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(route_ruin_recreate, "Annealing", Watched)
        improvers.improve_plans("ruin", instance, [present(one), alone(instance)], 0.0, 7, print)
    assert (given, seeds) == ([present(one)], [7])


@pytest.mark.parametrize(("seconds", "stopped"), [(0.0, False), (600.0, True)])
def test_it_stops_when_it_is_told(seconds: float, stopped: bool) -> None:
    """Without time, or after Ctrl-C, nothing is tried."""
    search = begun(delivery(10, 0))
    if stopped:
        search.stopped.set()
    search.run(time.monotonic() + seconds)
    assert present(search) == alone(delivery(10, 0))


def test_it_stops_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the first of many steps."""
    search, steps = begun(delivery(10, 0)), list[float]()
    monkeypatch.setattr(
        search,
        "run_steps",
        lambda temperature: bool(steps.append(temperature) or search.stopped.set()),
    )
    search.run(time.monotonic() + 600.0)
    assert len(steps) == 1


def test_time_may_be_up_before_a_round_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is tried, and nothing divided by."""
    for late in (10.0, 11.0):
        search, times = begun(delivery(10, 0)), iter([9.9, late, late, late])
        monkeypatch.setattr(route_ruin_recreate.time, "monotonic", lambda times=times: next(times))
        monkeypatch.setattr(search, "run_steps", lambda temperature: pytest.fail("it is too late"))
        search.run(10.0)


def test_it_ends_when_nothing_is_left_to_find() -> None:
    """Two customers that share a vehicle; far below the seconds that it may take. One customer
    is left alone.
    """
    began = time.monotonic()
    two = cvrp((0.0, 0.0), [(1.0, 0.0), (1.0, 1.0)], (1, 1), 2)
    told = list[Routes]()
    improvers.improve_plans("ruin", two, [alone(two)], 600.0, 0, told.append)
    assert sorted(told[-1].routes[0]) == [1, 2]
    one = cvrp((0.0, 0.0), [(1.0, 0.0)], (1,), 2)
    improvers.improve_plans("ruin", one, [alone(one)], 600.0, 0, told.append)
    assert len(told) == 1
    assert time.monotonic() - began < 300


def timed(
    search: route_ruin_recreate.Annealing, monkeypatch: pytest.MonkeyPatch, better: list[bool]
) -> list[float]:
    """Temperatures, if each step takes 2.5 s and is better as it is said."""
    now, passed = [0.0], list[float]()
    monkeypatch.setattr(route_ruin_recreate.time, "monotonic", lambda: now[0])

    def run_steps(temperature: float) -> bool:
        passed.append(temperature)
        now[0] += 2.5
        return better[len(passed) - 1]

    monkeypatch.setattr(search, "run_steps", run_steps)
    return passed


def at(*shares: float) -> list[float]:
    return [
        route_ruin_recreate.TUNING.first_temperature
        * (
            route_ruin_recreate.TUNING.last_temperature
            / route_ruin_recreate.TUNING.first_temperature
        )
        ** share
        for share in shares
    ]


def test_it_cools_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """From HOT at the beginning to COLD at the end, by equal factors in equal times."""
    search = begun(delivery(10, 1))
    passed = timed(search, monkeypatch, [True] * 4)
    search.run(10.0)
    assert passed == pytest.approx(at(0, 0.25, 0.5, 0.75))


def test_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more time than a round takes, the next begins with the best plan; after three in vain
    it is over.
    """
    search = begun(delivery(10, 1))
    search.max_round_steps = 2 * route_ruin_recreate.TUNING.steps_between_clock_checks
    passed = timed(search, monkeypatch, [False, False, True, False, *[False] * 6])
    search.plan[1][:] = 0
    search.run(1000.0)
    assert passed == pytest.approx(at(0, 0.5) * 5)
    assert present(search) == alone(delivery(10, 1))


def test_costs_are_those_of_the_plan_that_a_round_begins_with() -> None:
    """After a round that ended elsewhere."""
    instance = delivery(20, 1)
    search = begun(instance)
    search.run_steps(0.0, 2000)
    search.run_steps(MOLTEN, 50)
    assert search.costs[kernel.NOW] > 1.05 * search.costs[kernel.BEST]
    for mine, best in zip(search.plan, search.best, strict=False):
        mine[:] = best
    search.run_steps(0.0, 0)
    assert search.costs[kernel.NOW] == pytest.approx(search.costs[kernel.BEST], rel=1e-12)
    check_notes(search)


def test_the_last_round_is_cold_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five seconds are left for the second, which is two steps instead of four."""
    search = begun(delivery(10, 1))
    search.max_round_steps = 4 * route_ruin_recreate.TUNING.steps_between_clock_checks
    passed = timed(search, monkeypatch, [False] * 6)
    search.run(15.0)
    assert passed == pytest.approx(at(0, 0.25, 0.5, 0.75, 0, 0.5))
