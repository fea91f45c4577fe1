"""Ruin and recreate: plans are feasible, rejected steps are undone, small instances are solved."""

import time
from dataclasses import replace
from functools import cache
from itertools import permutations
from threading import Event
from typing import Any

import numpy as np
import pytest

from rhumbline import improvers
from rhumbline.kernels.numba.route_search import arrays, descent, kernel, moves, routes, ruin
from rhumbline.kernels.numba.route_search.records import BEFORE, BEHIND
from rhumbline.local_search import route_ruin_recreate
from rhumbline.problems import metrics
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


def current_plan(search: route_ruin_recreate.Annealing) -> Routes:
    """Return the current plan."""
    return Routes(tuple(arrays.linked_routes(search.plan.link[BEHIND], search.plan.ends[BEFORE])))


def check_bookkeeping(search: route_ruin_recreate.Annealing, instance: CVRPInstance) -> None:
    """Assert that what is recorded of routes and customers is right, and no customer is missing."""
    plan = search.plan
    used = plan.order[: plan.used[0]].tolist()
    assert sorted(plan.order.tolist()) == list(range(len(plan.order)))
    assert all(plan.order[plan.slot[r]] == r for r in range(len(plan.order)))
    assert set(used) == set(np.flatnonzero(plan.size).tolist())
    served = list[int]()
    for r in used:
        walk, c = [0], int(plan.ends[BEFORE, r])
        while c:
            walk.append(c)
            c = int(plan.link[BEHIND, c])
        served += walk[1:]
        loads = np.cumsum([instance.demands[c] for c in walk])
        assert (plan.size[r], plan.load[r]) == (len(walk) - 1, loads[-1])
        assert plan.ends[BEHIND, r] == walk[-1]
        for i, c in enumerate(walk[1:]):
            behind = [*walk, 0][i + 2]
            assert (plan.route[c], plan.place[c], plan.head[c]) == (r, i, loads[i + 1])
            assert (plan.link[BEFORE, c], plan.link[BEHIND, c]) == (walk[i], behind)
            assert plan.leg_to[BEFORE, c] == instance.legs(walk[i], c)
            assert plan.leg_to[BEHIND, c] == instance.legs(c, behind)
    assert sorted(served) == list(range(1, instance.size))
    assert not search.queue.is_waiting.any()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("temperature", [0.0, HIGH_TEMPERATURE])
def test_every_step_leaves_a_feasible_plan(seed: int, temperature: float) -> None:
    """After each of 150 steps all customers are served once and no vehicle is overloaded.

    The best plan is the cheapest so far.
    """
    instance = delivery(5 + 5 * seed, seed)
    search = make_search(instance, seed)
    least = single_routes(instance).cost(instance)
    for _ in range(150):
        better = search.run_steps(temperature, 1)
        now = current_plan(search)
        now.check(instance)
        check_bookkeeping(search, instance)
        assert now.cost(instance) == pytest.approx(search.costs[kernel.CURRENT], rel=1e-12)
        assert better == (now.cost(instance) < least * (1 - 1e-9))
        least = min(least, now.cost(instance))
        assert search.costs[kernel.BEST] == pytest.approx(least, rel=1e-9)
        assert search.best_plan().cost(instance) == pytest.approx(least, rel=1e-9)


def odd_instances() -> dict[str, CVRPInstance]:
    """Return instances with something unusual, of 25 customers."""
    rng = np.random.default_rng(4)
    xy = rng.random((26, 2))
    ones = np.ones(25, int)
    matrix = rng.integers(1, 100, (26, 26))
    symmetric = matrix + matrix.T
    np.fill_diagonal(symmetric, 0)
    shuffled = CVRPInstance("matrix", "EXPLICIT", (0, *[1] * 25), 6, matrix=symmetric)
    places = np.round(3 * xy)
    return {
        "no demands": cvrp(xy[0], xy[1:], 0 * ones, 5),
        "full vehicles": cvrp(xy[0], xy[1:], 7 * ones, 7),
        "some full vehicles": cvrp(xy[0], xy[1:], np.where(ones.cumsum() % 3, 1, 9), 9),
        "one vehicle": cvrp(xy[0], xy[1:], ones, 25),
        "equal places": cvrp(places[0], places[1:], ones, 4),
        "one place": cvrp(xy[0], xy[:1].repeat(25, 0), ones, 4),
        "not planar": shuffled,
        "rounded": CVRPInstance("rounded", "EUC_2D", (0, *[2] * 25), 9, xy=100 * xy),
    }


@pytest.mark.parametrize("name", odd_instances())
def test_unusual_instances(name: str) -> None:
    """Plans stay feasible, and no cheaper plan is lost."""
    instance = odd_instances()[name]
    search = make_search(instance)
    for share in range(6):
        search.run_steps(HIGH_TEMPERATURE * 0.1**share, 100)
        current_plan(search).check(instance)
        check_bookkeeping(search, instance)
        now = current_plan(search).cost(instance)
        assert now == pytest.approx(search.costs[kernel.CURRENT], rel=1e-12, abs=1e-12)
    best = search.best_plan()
    best.check(instance)
    assert best.cost(instance) == pytest.approx(search.costs[kernel.BEST], rel=1e-12, abs=1e-12)
    if name in ("full vehicles", "one place"):
        assert best.cost(instance) == pytest.approx(single_routes(instance).cost(instance))
    if name in ("no demands", "one vehicle"):
        assert len(best.routes) == 1


def test_costs_are_right_after_many_steps() -> None:
    """Changes are summed over 100,000 steps without a drift that matters."""
    instance = delivery(8, 7)
    search = make_search(instance)
    search.run_steps(HIGH_TEMPERATURE, 100_000)
    check_bookkeeping(search, instance)
    now = current_plan(search)
    now.check(instance)
    assert now.cost(instance) == pytest.approx(search.costs[kernel.CURRENT], rel=1e-9)


def test_rejected_steps_are_undone() -> None:
    """At temperature 0 every step that is not cheaper leaves all routes as before."""
    instance = delivery(30, 3)
    search = make_search(instance)
    changes = 0
    undone = 0
    search.run_steps(0.0, 0)
    for _ in range(500):
        before = current_plan(search)
        cost = float(search.costs[kernel.CURRENT])
        search.run_steps(0.0, 1)
        check_bookkeeping(search, instance)
        if current_plan(search) == before:
            undone += 1
        else:
            changes += 1
            assert search.costs[kernel.CURRENT] <= cost * (1 + 1e-12)
    assert min(changes, undone) > 5


def test_computed_distances_give_the_same_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large instance has no table of distances; its steps are those of one with a table."""
    plans = list[Routes]()
    for nodes in (2000, 10):
        limits = replace(metrics.METRIC_LIMITS, max_table_nodes=nodes)
        monkeypatch.setattr(metrics, "METRIC_LIMITS", limits)
        rng = np.random.default_rng(1)
        demands = (0, *rng.integers(1, 10, 60).tolist())
        xy = 1000 * rng.random((61, 2))
        instance = CVRPInstance("places", "EUC_2D", demands, 30, xy=xy)
        search = make_search(instance)
        search.run_steps(0.1, 1000)
        plans.append(search.best_plan())
    assert plans[0] == plans[1]


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
    search = make_search(instance, seed)
    cool(search)
    best = search.best_plan()
    best.check(instance)
    assert best.cost(instance) == pytest.approx(brute_force_cost(instance, 7))


@pytest.mark.parametrize("customers", [2, 3, 4])
def test_tiny_instances_are_solved(customers: int) -> None:
    """So they are if all near customers are removed at once."""
    instance = delivery(customers, 1, 12)
    search = make_search(instance)
    cool(search)
    assert search.best_plan().cost(instance) == pytest.approx(brute_force_cost(instance, customers))


def cool(search: route_ruin_recreate.Annealing) -> None:
    """Make forty times fifty steps from a high to a low temperature."""
    for share in np.linspace(0, 1, 40):
        search.run_steps(HIGH_TEMPERATURE * 0.001**share, 50)


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
        limited = crowded(vehicles)
        search = route_ruin_recreate.Annealing(limited, SHORT_OF_ROOM, 0, Event(), print)
        for _ in range(300):
            search.run_steps(HIGH_TEMPERATURE, 1)
            current_plan(search).check(limited)
            check_bookkeeping(search, limited)
        cool(search)
        best = search.best_plan()
        best.check(limited)
        costs.append(best.cost(limited))
        assert costs[-1] == pytest.approx(brute_force_cost(limited, vehicles))
    assert costs[1] < costs[0] <= SHORT_OF_ROOM.cost(crowded(3)) * (1 + 1e-9)


def test_there_are_as_many_routes_as_there_may_be_vehicles() -> None:
    """Routes are as many as vehicles, or customers, and at most ten more than in the plan."""
    many = Routes(tuple((c,) for c in range(1, 21)))
    cases = {
        (crowded(3), SHORT_OF_ROOM): 3,
        (crowded(5), SHORT_OF_ROOM): 5,
        (crowded(None), SHORT_OF_ROOM): 6,
    }
    large = delivery(50, 0, 60)
    start = Routes((*many.routes[:-1], tuple(range(20, 51))))
    cases = [
        *((*case, count) for case, count in cases.items()),
        (large, start, 30),
        (crowded(3), single_routes(crowded(3)), 6),
    ]
    for instance, plan, count in cases:
        search = route_ruin_recreate.Annealing(instance, plan, 0, Event(), print)
        assert len(search.plan.size) == count


@pytest.mark.parametrize("temperature", [0.2, 0.5])
def test_how_much_more_a_plan_may_cost(temperature: float) -> None:
    """Annealing accepts a change with probability exp(-change / temperature).

    The mean of those that cost more is below the temperature, and hardly any is eight times
    as large.
    """
    search, changes = make_search(delivery(60, 2)), list[float]()
    search.run_steps(temperature, 500)
    for _ in range(2000):
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
        search.run_steps(0.1, 1000)
    assert current_plan(one) == current_plan(other)


def test_the_first_temperature_grows_with_the_steps_that_there_is_time_for() -> None:
    """Within limits, and in proportion to their number; the last temperature is always the same."""
    tuning = route_ruin_recreate.TUNING
    known = tuning.steps_per_customer_for_first_temperature
    first = {factor: tuning.temperature(0.0, factor * known) for factor in (0, 0.8, 1, 1e6)}
    assert first[1] == first[1e6] == pytest.approx(tuning.first_temperature)
    assert first[0.8] == pytest.approx(0.8 * tuning.first_temperature)
    assert first[0] == tuning.least_first_temperature < first[0.8]
    for factor in first:
        last = tuning.temperature(1.0, factor * known)
        assert last == pytest.approx(tuning.last_temperature)


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the kernel's functions in plain Python, with the same random numbers."""

    def draw(random: np.ndarray, count: int) -> int:
        x = int(random[0])
        mask = 2**64 - 1
        x ^= x << 13 & mask
        x ^= x >> 7
        x ^= x << 17 & mask
        random[0] = x
        return (x >> 32) * int(count) >> 32

    for module in (descent, kernel, moves, routes, ruin):
        for name, function in list(vars(module).items()):
            if hasattr(function, "py_func"):
                monkeypatch.setattr(module, name, function.py_func)
    monkeypatch.setattr(moves, "leg", compute_leg)
    monkeypatch.setattr(routes, "leg", compute_leg)
    monkeypatch.setattr(ruin, "leg", compute_leg)
    monkeypatch.setattr(ruin, "draw", draw)


def compute_leg(legs: Any, a: int, b: int) -> float:
    """Return a distance from the matrix."""
    return legs.matrix[a, b]


@pytest.mark.usefixtures("in_python")
def test_compiled_and_plain_steps_are_equal() -> None:
    """The kernel makes the same steps when it runs in plain Python."""
    instance = delivery(25, 5)
    compiled = make_search(instance)
    plain = make_search(instance)
    plain.kernel = kernel.search_routes
    for search in (compiled, plain):
        search.run_steps(0.1, 60)
    assert current_plan(plain) == current_plan(compiled)
    check_bookkeeping(plain, instance)


@pytest.mark.usefixtures("in_python")
@pytest.mark.parametrize("limit", [np.inf, 1.0])
def test_hopeless_repairs_are_given_up(limit: float) -> None:
    """A unit of overload at a price of 2 is not removed if a change of 1 is already too much."""
    instance = crowded(3)
    overloaded = Routes(((1, 3), (2, 4), (5, 6)))
    search = route_ruin_recreate.Annealing(instance, overloaded, 0, Event(), print)
    for r in range(3):
        routes.update_route(search.customers, search.plan, r)
    routes.begin_step(search.log)
    routes.save_route(search.plan, search.log, 0)
    records = (search.customers, search.plan, search.log, search.queue, search.scratch)
    change = kernel.repair(*records, search.settings(0.1), 2.0, limit, 0.0)
    is_repaired = bool(np.all(search.plan.load <= instance.capacity))
    assert is_repaired == np.isfinite(change) == np.isinf(limit)
    assert not search.queue.is_waiting.any()
    if is_repaired:
        difference = current_plan(search).cost(instance) - overloaded.cost(instance)
        assert change == pytest.approx(difference)


@pytest.mark.usefixtures("in_python")
def test_strings() -> None:
    """Strings have 1 to `longest` customers; a split one preserves some in its middle.

    All lengths and all holes occur.
    """
    random = route_ruin_recreate.threads.generator_state(0)
    seen = set[tuple[int, int, int]]()
    for _ in range(5000):
        span, hole, preserved = ruin.draw_string(6, 4.0, random)
        assert 1 <= span - preserved <= 4
        assert span <= 6
        assert 1 <= hole <= span - preserved
        seen.add((span, hole, preserved))
    plain = {(n, n, 0) for n in range(1, 5)}
    split = {(n + 1, hole, 1) for n in range(2, 5) for hole in range(1, n)}
    assert plain | split <= seen


@pytest.mark.usefixtures("in_python")
def test_as_many_customers_are_removed_as_set() -> None:
    """On average about 15 customers are removed where routes are long enough; strings of 15."""
    instance = delivery(200, 2, 200)
    rows = tuple(tuple(range(first, first + 20)) for first in range(1, 201, 20))
    search = route_ruin_recreate.Annealing(instance, Routes(rows), 0, Event(), print)
    search.run_steps(0.0, 0)
    settings = search.settings(0.0)
    counts = list[int]()
    for _ in range(200):
        search.log.counts[:] = 0, search.log.counts[1] + 1
        parts = (search.customers, search.plan, search.log, search.queue, search.scratch)
        count, change = ruin.ruin(*parts, settings, search.random)
        counts.append(count)
        removed = search.scratch.removed[:count]
        assert len(set(removed.tolist())) == count
        assert (search.plan.route[removed] == -1).all()
        left = current_plan(search).cost(instance) - Routes(rows).cost(instance)
        assert change == pytest.approx(left)
        search.return_to_best()
        search.run_steps(0.0, 0)
    assert 12 < np.mean(counts) < 18


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
        lambda temperature, times: bool(steps.append(temperature) or search.stopped.set()),
    )
    search.run(time.monotonic() + 600.0)
    assert len(steps) == 1


def test_time_may_be_up_before_a_round_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then no step is made, and nothing is divided by zero."""
    for late in (10.0, 11.0):
        search, times = make_search(delivery(10, 0)), iter([9.9, late, late, late])
        monkeypatch.setattr(route_ruin_recreate.time, "monotonic", lambda times=times: next(times))
        monkeypatch.setattr(
            search, "run_steps", lambda temperature, times: pytest.fail("it is too late")
        )
        search.run(10.0)


def test_the_clock_is_read_more_often_with_long_routes() -> None:
    """Steps take as long as routes are: one route of 5,000 customers allows ten at a time."""
    search = make_search(delivery(10, 0))
    assert search.steps_before_check() == 100
    search.plan.size[0] = 5000
    assert search.steps_before_check() == 10
    search.plan.size[0] = 100_000
    assert search.steps_before_check() == 1


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

    def run_steps(temperature: float, times: int) -> bool:
        passed.append(temperature)
        now[0] += 2.5
        return better[len(passed) - 1]

    monkeypatch.setattr(search, "run_steps", run_steps)
    return passed


def temperatures_at(*shares: float, steps: float, number: int = 0) -> list[float]:
    """Return the temperatures of a round that makes so many steps for each customer.

    The number is unknown before the first step, which is as for 0.
    """
    tuning = route_ruin_recreate.TUNING
    known = [steps if share > 0.0 else 0.0 for share in shares]
    return [tuning.temperature(*pair, number) for pair in zip(shares, known, strict=True)]


def test_it_cools_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first to the last temperature, by equal factors in equal times.

    Four times 100 steps for ten customers are 40 for each.
    """
    search = make_search(delivery(10, 1))
    passed = record_temperatures(search, monkeypatch, [True] * 4)
    search.run(10.0)
    assert passed == pytest.approx(temperatures_at(0, 0.25, 0.5, 0.75, steps=40.0))


def test_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """If time is left, the next round begins with the best plan; four failures end the search."""
    search = make_search(delivery(10, 1))
    search.max_round_steps = 2 * route_ruin_recreate.TUNING.steps_between_clock_checks
    passed = record_temperatures(search, monkeypatch, [False, False, True, False, *[False] * 8])
    search.plan.size[:] = 0
    search.run(1000.0)
    expected = list[float]()
    for number in range(6):
        expected += temperatures_at(0, 0.5, steps=20.0, number=number)
    assert passed == pytest.approx(expected)
    assert expected[0] == expected[8] > expected[2] == expected[4]
    assert current_plan(search) == single_routes(delivery(10, 1))


def test_rounds_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of enough steps the first round has two fifths, and three others one fifth each."""
    search = make_search(delivery(10, 1))
    tuning = replace(route_ruin_recreate.TUNING, least_steps_per_customer=1.0)
    monkeypatch.setattr(route_ruin_recreate, "TUNING", tuning)
    passed = record_temperatures(search, monkeypatch, [True] * 20)
    search.run(50.0)
    begins = [k for k in range(1, 20) if passed[k] > passed[k - 1]]
    assert begins == [8, 12, 16]
    assert passed[8] == passed[16] == pytest.approx(tuning.reheat_temperature)


def test_few_steps_are_for_one_round() -> None:
    """Rounds share the time as long as each has steps enough; later ones need not share it."""
    tuning = route_ruin_recreate.TUNING
    least = tuning.least_steps_per_customer
    assert tuning.time_shares(0.5 * least, 0) == tuning.time_shares(least, 1) == 1.0
    assert tuning.time_shares(1.5 * least, 0) == 1.5
    assert tuning.time_shares(100 * least, 0) == (tuning.rounds + 1) / 2
    assert tuning.time_shares(100 * least, 1) == tuning.rounds - 1
    assert tuning.time_shares(100 * least, tuning.rounds) == 1.0


def test_costs_are_those_of_the_plan_that_a_round_begins_with() -> None:
    """This holds after a round that ended with another plan."""
    instance = delivery(20, 1)
    search = make_search(instance)
    search.run_steps(0.0, 500)
    search.run_steps(HIGH_TEMPERATURE, 50)
    assert search.costs[kernel.CURRENT] > 1.005 * search.costs[kernel.BEST]
    search.return_to_best()
    search.run_steps(0.0, 0)
    assert search.costs[kernel.CURRENT] == pytest.approx(search.costs[kernel.BEST], rel=1e-12)
    check_bookkeeping(search, instance)


def test_the_last_round_is_cold_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five seconds are left for the second round, which is two steps instead of four."""
    search = make_search(delivery(10, 1))
    search.max_round_steps = 4 * route_ruin_recreate.TUNING.steps_between_clock_checks
    passed = record_temperatures(search, monkeypatch, [False] * 6)
    search.run(15.0)
    first = temperatures_at(0, 0.25, 0.5, 0.75, steps=40.0)
    second = temperatures_at(0, 0.5, steps=20.0, number=1)
    assert passed == pytest.approx(first + second)
