"""Ruin and recreate: plans are feasible, rejected steps are undone, small instances are solved."""

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

HIGH_TEMPERATURE = 1.0  # mean legs: almost everything is accepted


def delivery(customers: int, seed: int, capacity: int = 20) -> CVRPInstance:
    """Return an instance with random places and demands of 1 to 9."""
    rng = np.random.default_rng(seed)
    return cvrp(rng.random(2), rng.random((customers, 2)), rng.integers(1, 10, customers), capacity)


def single_routes(instance: CVRPInstance) -> Routes:
    """Return the plan with a vehicle for each customer."""
    return Routes(tuple((c,) for c in range(1, instance.size)))


def make_search(
    instance: CVRPInstance, seed: int = 0, reported: list[Routes] | None = None
) -> route_ruin_recreate.Annealing:
    """Return a search from the most expensive sensible plan."""
    return route_ruin_recreate.Annealing(
        instance,
        single_routes(instance),
        seed,
        Event(),
        (reported if reported is not None else []).append,
    )


def routes_in(rows: np.ndarray, length: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Return the routes in some rows."""
    return tuple(
        tuple(row[:count].tolist()) for row, count in zip(rows, length, strict=True) if count
    )


def current_plan(search: route_ruin_recreate.Annealing) -> Routes:
    """Return the current plan."""
    return Routes(routes_in(*search.plan[:2]))


def check_bookkeeping(search: route_ruin_recreate.Annealing) -> None:
    """Assert that what is recorded of rows and customers is right, and no customer is missing."""
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
@pytest.mark.parametrize("temperature", [0.0, HIGH_TEMPERATURE])
def test_every_step_leaves_a_feasible_plan(seed: int, temperature: float) -> None:
    """After each of 150 steps all customers are served once and no vehicle is overloaded.

    The best plan is the cheapest so far.
    """
    instance, reported = delivery(5 + 5 * seed, seed), list[Routes]()
    search = make_search(instance, seed, reported)
    least = single_routes(instance).cost(instance)
    for _ in range(150):
        better = search.run_steps(temperature, 1)
        now = current_plan(search)
        now.check(instance)
        check_bookkeeping(search)
        assert now.cost(instance) == pytest.approx(search.costs[kernel.CURRENT], rel=1e-12)
        assert better == (now.cost(instance) < least * (1 - 1e-9))
        least = min(least, now.cost(instance))
        assert search.costs[kernel.BEST] == pytest.approx(least, rel=1e-9)
        if better:
            assert reported[-1] == now
    assert len(reported) > 1


def test_rejected_steps_are_undone() -> None:
    """At a low temperature a plan changes only if it gets cheaper, up to rounding.

    Otherwise all rows are as before.
    """
    search, changes, undone = make_search(delivery(30, 3)), 0, 0
    search.run_steps(0.0, 0)
    for _ in range(2000):
        before, cost = [x.copy() for x in search.plan], float(search.costs[kernel.CURRENT])
        search.run_steps(0.0, 1)
        if (
            search.costs[kernel.CURRENT] == cost
            and routes_in(*before[:2]) == current_plan(search).routes
        ):
            undone += 1
            assert all(
                np.array_equal(was, now)
                for was, now in zip(before[1:], search.plan[1:], strict=True)
            )
        else:
            changes += 1
            assert search.costs[kernel.CURRENT] <= cost * (
                1 + 1e-12
            )  # the same route reversed may seem shorter
    assert min(changes, undone) > 10


def brute_force_cost(instance: CVRPInstance, vehicles: int) -> float:
    """Return the least cost by enumeration: the best route of each set, then sets combined."""
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
    """Plans are as cheap as the best of all plans."""
    instance = delivery(7, seed)
    reported = list[Routes]()
    cool(make_search(instance, seed, reported))
    reported[-1].check(instance)
    assert reported[-1].cost(instance) == pytest.approx(brute_force_cost(instance, 7))


def cool(search: route_ruin_recreate.Annealing) -> None:
    """Make forty steps from a high to a low temperature."""
    for share in np.linspace(0, 1, 40):
        search.run_steps(HIGH_TEMPERATURE * 0.001**share)


SHORT_OF_ROOM = Routes(((1, 2), (3, 4), (5, 6)))


def crowded(vehicles: int | None) -> CVRPInstance:
    """Three loads of 3 and three of 2, in pairs of 5: any other three routes overload or omit one.

    Neighbours are 1 and 3, 2 and 4, so with more vehicles the plan would be cheaper.
    """
    xy = np.array([[0.0, 0], [9, 0], [-9, 0], [9, 1], [-9, 1], [0, 9], [1, 9]])
    return CVRPInstance("crowded", "EXACT_2D", (0, 3, 2, 3, 2, 3, 2), 5, xy=xy, vehicles=vehicles)


def test_a_fleet_is_never_exceeded() -> None:
    """If customers do not fit, the step is undone; one vehicle more allows a cheaper plan."""
    costs = []
    for vehicles in (3, 4):
        limited, reported = crowded(vehicles), list[Routes]()
        search = route_ruin_recreate.Annealing(limited, SHORT_OF_ROOM, 0, Event(), reported.append)
        for _ in range(300):
            search.run_steps(HIGH_TEMPERATURE, 1)
            current_plan(search).check(limited)
            check_bookkeeping(search)
        cool(search)
        best = Routes(routes_in(*search.best))
        best.check(limited)
        costs.append(best.cost(limited))
        assert costs[-1] == pytest.approx(brute_force_cost(limited, vehicles))
    assert costs[1] < costs[0] <= SHORT_OF_ROOM.cost(crowded(3)) * (1 + 1e-9)


def test_as_many_rows_as_there_may_be_vehicles() -> None:
    """The rows are the fleet's, or one for each customer, and at most ten more than needed."""
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
        (crowded(3), single_routes(crowded(3)), 6),
    ]
    for instance, plan, rows in cases:
        assert len(route_ruin_recreate.Annealing(instance, plan, 0, Event(), print).plan[1]) == rows


@pytest.mark.parametrize("temperature", [0.2, 0.5])
def test_how_much_more_a_plan_may_cost(temperature: float) -> None:
    """Annealing accepts a change with probability exp(-change / temperature).

    Half of the changes are 0. The mean of those that cost more is about the temperature at most,
    and hardly any is eight times as large.
    """
    search, changes = make_search(delivery(60, 2)), list[float]()
    search.run_steps(temperature, 2000)
    for _ in range(3000):
        before = float(search.costs[kernel.CURRENT])
        search.run_steps(temperature, 1)
        changes.append((float(search.costs[kernel.CURRENT]) - before) / search.mean_leg)
    dearer = [change for change in changes if change > 1e-9]
    assert len(dearer) > 100
    assert 0.2 * temperature < np.mean(dearer) < 1.2 * temperature
    assert temperature < max(dearer) < 12 * temperature


def test_temperatures_are_in_legs() -> None:
    """On another scale the search is the same."""
    instance = delivery(40, 5)
    assert instance.xy is not None
    scaled = CVRPInstance(
        "large", "EXACT_2D", instance.demands, instance.capacity, xy=1024.0 * instance.xy
    )
    one, other = make_search(instance), make_search(scaled)
    for search in (one, other):
        search.run_steps(0.1, 3000)
    assert current_plan(one) == current_plan(other)
    assert (
        route_ruin_recreate.TUNING.last_temperature
        < route_ruin_recreate.TUNING.first_temperature
        < 1.0
    )


class GivenNumbers:
    """Returns given random numbers, then the largest possible ones."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)

    def __call__(self, _: object, count: int) -> int:
        return self.numbers.pop(0) % count if self.numbers else count - 1


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch):
    """Run the kernel's functions in plain Python, with given random numbers."""

    def use(*numbers: int) -> None:
        given = GivenNumbers(*numbers)
        monkeypatch.setattr(kernel, "draw", given)
        monkeypatch.setattr(
            kernel, "draw_uniform", lambda random: (given(random, 1 << 30) + 0.5) / (1 << 30)
        )

    return use


@pytest.mark.parametrize(
    ("length", "place", "longest"), [(1, 0, 10.0), (6, 0, 3.5), (6, 2, 10.0), (6, 5, 2.0)]
)
def test_strings(fixed, length: int, place: int, longest: float) -> None:
    """All strings that hold the place are drawn, also with holes inside; no others."""
    rng, seen = np.random.default_rng(0), set[tuple[int, ...]]()
    for _ in range(6000):
        fixed(
            int(rng.integers(1 << 30)), *(rng.integers(0, 60, 8) * rng.integers(0, 2, 8)).tolist()
        )
        begin, end, hole, hole_end = kernel.draw_string.py_func(length, place, longest, None)
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


def ruin_rows(
    fixed, instance: CVRPInstance, plan: Routes, *numbers: int
) -> tuple[list[int], list[int]]:
    """Return the saved rows and the removed customers, with given random numbers."""
    search = route_ruin_recreate.Annealing(instance, plan, 0, Event(), print)
    search.run_steps(0.0, 0)
    removed = np.zeros(instance.size, np.int32)
    fixed(*numbers)
    with pytest.MonkeyPatch.context() as patch:
        for name in (
            "update_route",
            "save_route",
            "is_saved",
            "row_cost",
            "draw_string",
            "remove_string",
            "count_used_routes",
        ):
            patch.setattr(kernel, name, getattr(kernel, name).py_func)
        count, gone = kernel.ruin.py_func(
            search.distance, search.near, search.demand, search.plan, search.saved, removed, None
        )
    return search.saved[0][:count].tolist(), removed[:gone].tolist()


HALF, ALL, NONE = 1 << 29, (1 << 30) - 1, 0


def test_routes_are_ruined_around_a_customer(fixed) -> None:
    """Routes of two customers on a line are ruin_rows from the drawn customer to its neighbours.

    Strings are as long as an average route, 2 here, so there are up to 4 * 10 / 3 of them, at most
    13.
    """
    size = 41
    xy = np.stack(
        [np.arange(size + 0.0) ** 1.01, np.zeros(size)], 1
    )  # the previous neighbour is the nearer one
    instance = CVRPInstance("line", "EXACT_2D", (0, *[1] * (size - 1)), 2, xy=xy)
    plan = Routes(tuple((c, c + 1) for c in range(1, size, 2)))
    # The number of strings, the seed; then of each string its length and where it begins.
    assert ruin_rows(fixed, instance, plan, NONE, 39, NONE, 0) == (
        [19],
        [40],
    )  # the last customer is one, too
    assert ruin_rows(fixed, instance, plan, NONE, 0, NONE, 0) == ([0], [1])
    lengths = [ALL, 0] * 13
    rows, gone = ruin_rows(fixed, instance, plan, ALL, 20, *lengths)
    assert rows == [10, 9, 11, 8, 12, 7, 13, 6, 14, 5, 15, 4, 16]
    assert sorted(gone) == sorted(c for r in rows for c in plan.routes[r])
    rows, gone = ruin_rows(fixed, instance, plan, HALF, 20, *lengths)
    assert len(rows) == 7


def test_strings_are_no_longer_than_routes_on_average(fixed) -> None:
    """Three customers at most for routes of 4, 4 and 1 customers; ten for one route of thirty."""
    instance = delivery(9, 1, 60)
    uneven = Routes(((1, 2, 3, 4), (5, 6, 7, 8), (9,)))
    assert len(ruin_rows(fixed, instance, uneven, NONE, 0, ALL, 1)[1]) == 3
    large = delivery(30, 1, 300)
    assert len(ruin_rows(fixed, large, Routes((tuple(range(1, 31)),)), NONE, 0, ALL, 1)[1]) == 10


def test_a_string_is_taken_out() -> None:
    """Customers 1 to 5 are a route; of 2, 3 and 4 the middle one stays."""
    instance = delivery(6, 0, 60)
    search = route_ruin_recreate.Annealing(
        instance, Routes(((1, 2, 3, 4, 5), (6,))), 0, Event(), print
    )
    search.run_steps(0.0, 0)
    removed = np.zeros(6, np.int32)
    update_route = kernel.update_route.py_func
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "update_route", update_route)
        gone = kernel.remove_string.py_func(
            search.distance, search.demand, search.plan, 0, (1, 4, 2, 3), removed, 0
        )
    assert (gone, removed[:2].tolist()) == (2, [2, 4])
    assert current_plan(search).routes == ((1, 3, 5), (6,))
    assert search.plan[3].tolist() == [0, 0, -1, 0, -1, 0, 1]
    assert search.plan[2][0] == sum(instance.demands[c] for c in (1, 3, 5))


@pytest.mark.parametrize("kind", range(11))
def test_insertion_orders(fixed, kind: int) -> None:
    """Four of eleven are random, four by demand, two farthest first and one nearest first."""
    away, demand = np.array([[0.0, 3, 1, 2]]), np.array([0, 5, 7, 6])
    removed = np.array([1, 2, 3], np.int32)
    fixed(kind, 20, 30, 10)
    kernel.sort_removed.py_func(away, demand, removed, 3, np.zeros(3), None)
    expected = (
        [3, 1, 2] if kind < 4 else [2, 3, 1] if kind < 8 else [1, 3, 2] if kind < 10 else [2, 3, 1]
    )
    assert removed.tolist() == expected


@pytest.mark.parametrize("seed", range(20))
def test_the_best_place(fixed, seed: int) -> None:
    """It is where the plan with one more customer costs least, of all rows with enough capacity."""
    instance = delivery(9, seed, 15)
    routes = [[1, 2], [3, 4], [5, 6, 7], [8]]
    search = route_ruin_recreate.Annealing(
        instance, Routes(tuple(map(tuple, routes))), 0, Event(), print
    )
    search.run_steps(0.0, 0)
    fixed()  # the largest number: nothing is overlooked
    found = kernel.best_insertion.py_func(search.distance, search.demand, 15, search.plan, 9, None)
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
    """With a file's own distances, customer 2 may be nearer by way of the depot than from 1."""
    matrix = np.array([[0, 1, 1], [1, 0, 9], [1, 9, 0]])
    apart = CVRPInstance("apart", "EXPLICIT", (0, 1, 1), 2, matrix=matrix)
    search = route_ruin_recreate.Annealing(apart, Routes(((1,),)), 0, Event(), print)
    search.run_steps(0.0, 0)
    fixed()
    assert kernel.best_insertion.py_func(
        search.distance, search.demand, 2, search.plan, 2, None
    ) == (
        1,
        0,
    )


def test_one_better_place_in_a_hundred_is_overlooked(fixed) -> None:
    """This includes the place after the last customer; without capacity there is no place."""
    xy = np.array([[0.0, 0], [1, 0], [2, 0], [3, 0]])
    line = CVRPInstance("line", "EXACT_2D", (0, 1, 1, 1), 3, xy=xy, vehicles=1)
    search = route_ruin_recreate.Annealing(line, Routes(((1, 2),)), 0, Event(), print)
    search.run_steps(0.0, 0)
    place = kernel.best_insertion.py_func
    fixed()
    assert place(search.distance, search.demand, 3, search.plan, 3, None) == (
        0,
        1,
    )  # as good as behind both
    fixed(1, 0)
    assert place(search.distance, search.demand, 3, search.plan, 3, None) == (0, 2)
    fixed(0, 0, 0)
    assert place(search.distance, search.demand, 3, search.plan, 3, None)[0] == kernel.NO_ROUTE
    fixed()
    assert place(search.distance, search.demand, 2, search.plan, 3, None)[0] == kernel.NO_ROUTE


def test_customers_go_back_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Customers go back in the order of `sort_removed`; without it the plan differs."""
    instance = delivery(40, 5)
    usual = make_search(instance)
    usual.run_steps(0.1, 300)
    plain = make_search(instance)
    with monkeypatch.context() as patch:
        run_in_python(patch)
        plain.kernel = kernel.search_routes
        plain.run_steps(0.1, 300)
        assert current_plan(plain) == current_plan(usual)  # the compiled kernel does the same
        patch.setattr(kernel, "sort_removed", lambda *_: None)
        other = make_search(instance)
        other.kernel = kernel.search_routes
        other.run_steps(0.1, 300)
    assert current_plan(other) != current_plan(usual)


def run_in_python(patch: pytest.MonkeyPatch) -> None:
    """Run the kernel in plain Python, with the same random numbers."""
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
    """Equal random numbers give equal plans; the search begins with the first plan."""
    instance = delivery(40, 5)
    one, same, other = (make_search(instance, seed) for seed in (1, 1, 2))
    for search in (one, same, other):
        search.run_steps(0.1, 300)
    assert current_plan(one) == current_plan(same) != current_plan(other)
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
        improvers.improve_plans(
            "ruin", instance, [current_plan(one), single_routes(instance)], 0.0, 7, print
        )
    assert (given, seeds) == ([current_plan(one)], [7])


@pytest.mark.parametrize(("seconds", "stopped"), [(0.0, False), (600.0, True)])
def test_it_stops_on_request(seconds: float, stopped: bool) -> None:
    """Without time, or after Ctrl-C, no step is made."""
    search = make_search(delivery(10, 0))
    if stopped:
        search.stopped.set()
    search.run(time.monotonic() + seconds)
    assert current_plan(search) == single_routes(delivery(10, 0))


def test_it_stops_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops after the first of many steps."""
    search, steps = make_search(delivery(10, 0)), list[float]()
    monkeypatch.setattr(
        search,
        "run_steps",
        lambda temperature: bool(steps.append(temperature) or search.stopped.set()),
    )
    search.run(time.monotonic() + 600.0)
    assert len(steps) == 1


def test_time_may_be_up_before_a_round_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then no step is made, and nothing is divided by zero."""
    for late in (10.0, 11.0):
        search, times = make_search(delivery(10, 0)), iter([9.9, late, late, late])
        monkeypatch.setattr(route_ruin_recreate.time, "monotonic", lambda times=times: next(times))
        monkeypatch.setattr(search, "run_steps", lambda temperature: pytest.fail("it is too late"))
        search.run(10.0)


def test_it_ends_when_nothing_is_left_to_find() -> None:
    """Two customers share a vehicle, long before the time is up; one customer needs no search."""
    began = time.monotonic()
    two = cvrp((0.0, 0.0), [(1.0, 0.0), (1.0, 1.0)], (1, 1), 2)
    reported = list[Routes]()
    improvers.improve_plans("ruin", two, [single_routes(two)], 600.0, 0, reported.append)
    assert sorted(reported[-1].routes[0]) == [1, 2]
    one = cvrp((0.0, 0.0), [(1.0, 0.0)], (1,), 2)
    improvers.improve_plans("ruin", one, [single_routes(one)], 600.0, 0, reported.append)
    assert len(reported) == 1
    assert time.monotonic() - began < 300


def record_temperatures(
    search: route_ruin_recreate.Annealing, monkeypatch: pytest.MonkeyPatch, better: list[bool]
) -> list[float]:
    """Return the temperatures of steps that take 2.5 s and succeed as given."""
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
    """From the first to the last temperature, by equal factors in equal times."""
    search = make_search(delivery(10, 1))
    passed = record_temperatures(search, monkeypatch, [True] * 4)
    search.run(10.0)
    assert passed == pytest.approx(at(0, 0.25, 0.5, 0.75))


def test_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """If time is left, the next round begins with the best plan; three failures end the search."""
    search = make_search(delivery(10, 1))
    search.max_round_steps = 2 * route_ruin_recreate.TUNING.steps_between_clock_checks
    passed = record_temperatures(search, monkeypatch, [False, False, True, False, *[False] * 6])
    search.plan[1][:] = 0
    search.run(1000.0)
    assert passed == pytest.approx(at(0, 0.5) * 5)
    assert current_plan(search) == single_routes(delivery(10, 1))


def test_costs_are_those_of_the_plan_that_a_round_begins_with() -> None:
    """This holds after a round that ended with another plan."""
    instance = delivery(20, 1)
    search = make_search(instance)
    search.run_steps(0.0, 2000)
    search.run_steps(HIGH_TEMPERATURE, 50)
    assert search.costs[kernel.CURRENT] > 1.05 * search.costs[kernel.BEST]
    for mine, best in zip(search.plan, search.best, strict=False):
        mine[:] = best
    search.run_steps(0.0, 0)
    assert search.costs[kernel.CURRENT] == pytest.approx(search.costs[kernel.BEST], rel=1e-12)
    check_bookkeeping(search)


def test_the_last_round_is_cold_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five seconds are left for the second round, which is two steps instead of four."""
    search = make_search(delivery(10, 1))
    search.max_round_steps = 4 * route_ruin_recreate.TUNING.steps_between_clock_checks
    passed = record_temperatures(search, monkeypatch, [False] * 6)
    search.run(15.0)
    assert passed == pytest.approx(at(0, 0.25, 0.5, 0.75, 0, 0.5))
