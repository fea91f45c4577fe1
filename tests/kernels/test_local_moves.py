"""Local moves: each single move against a recount, and local optima against all moves on tiny
instances.
"""

from itertools import pairwise, permutations

import numpy as np
import pytest

from rhumbline.errors import Infeasible
from rhumbline.kernels.numba.local_search import launch as local_moves
from rhumbline.problems.cvrp import Routes
from rhumbline.problems.cvrp import cvrp_from_arrays as cvrp
from rhumbline.problems.jssp import Schedule
from rhumbline.problems.jssp import jssp_from_arrays as shop
from rhumbline.problems.metrics import euclidean_distances

ALL = 10**6  # neighbours


def points(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((size, 2))


def length(distance: np.ndarray, order: list[int]) -> float:
    return float(distance[order, np.roll(order, -1)].sum())


# --- tours


@pytest.mark.parametrize("size", [4, 5, 6, 9, 40])
def test_every_move_of_a_tour_shortens_it(size: int) -> None:
    """After each move the tour visits all cities and is shorter than before, until none is left."""
    distance = euclidean_distances(points(size))
    near, tour, lengths = (
        local_moves.nearest_nodes(distance),
        list(np.random.default_rng(1).permutation(size)),
        [],
    )
    while True:
        lengths.append(length(distance, tour))
        tour, made = local_moves.shorten_tour(distance, near, tour, most=1)
        assert sorted(tour) == list(range(size))
        if not made:
            break
    assert all(after < before for before, after in pairwise(lengths))
    assert length(distance, tour) == lengths[-1]


def neighbouring_tours(tour: list[int]) -> list[list[int]]:
    """Return all tours that one 2-opt or Or-opt move makes of a tour, by slicing."""
    size, made = len(tour), []
    for i in range(size):
        turned = tour[i:] + tour[:i]
        for j in range(2, size):
            made.append(turned[:j][::-1] + turned[j:])
        for count in (1, 2, 3):
            segment, rest = turned[:count], turned[count:]
            for gap in range(1, len(rest)):
                made += [rest[:gap] + s + rest[gap:] for s in (segment, segment[::-1])]
    return made


@pytest.mark.parametrize("seed", range(4))
def test_no_move_shortens_a_local_optimum(seed: int) -> None:
    """With all cities as neighbours, the result is an optimum among all 2-opt and Or-opt moves made
    by slicing lists.
    """
    distance = euclidean_distances(points(11, seed))
    tour, _ = local_moves.shorten_tour(
        distance, local_moves.nearest_nodes(distance, ALL), list(range(11))
    )
    assert (
        min(length(distance, other) for other in neighbouring_tours(tour))
        >= length(distance, tour) - 1e-12
    )


def test_crossing_is_removed() -> None:
    """The four corners of a square in crossed order become its outline, by one move."""
    distance = euclidean_distances(np.array([[0.0, 0], [1, 1], [0, 1], [1, 0]]))
    tour, made = local_moves.shorten_tour(
        distance, local_moves.nearest_nodes(distance), [0, 1, 2, 3]
    )
    assert (length(distance, tour), made) == (4.0, 1)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_tiny_tours_do_not_change(size: int) -> None:
    """Up to three cities there is one tour."""
    distance = euclidean_distances(points(size))
    assert local_moves.shorten_tour(
        distance, local_moves.nearest_nodes(distance), list(range(size))
    ) == (
        list(range(size)),
        0,
    )


def test_equal_distances_terminate() -> None:
    """If all tours cost the same, rounding causes no moves."""
    distance = 0.1 * (1.0 - np.eye(30))
    assert (
        local_moves.shorten_tour(distance, local_moves.nearest_nodes(distance), list(range(30)))[1]
        == 0
    )


def test_small_optima_are_mostly_found() -> None:
    """On 8 cities the local optimum from a random order is never better than the best of all 5,040
    tours, and often equals it.
    """
    hits = 0
    for seed in range(5):
        distance = euclidean_distances(points(8, seed))
        best = min(length(distance, [0, *rest]) for rest in permutations(range(1, 8)))
        found = length(
            distance,
            local_moves.shorten_tour(
                distance, local_moves.nearest_nodes(distance, ALL), list(range(8))
            )[0],
        )
        assert found >= best - 1e-12
        hits += found < best + 1e-9
    assert hits >= 3


# --- routes


def delivery(customers: int, seed: int, capacity: int = 20):
    rng = np.random.default_rng(seed)
    demands = rng.integers(1, 10, customers)
    return cvrp(rng.random(2), rng.random((customers, 2)), demands, capacity)


def fill_routes(instance, seed: int = 0) -> list[list[int]]:
    """Serve customers in random order, and open a route where one is full."""
    routes: list[list[int]] = [[]]
    for customer in np.random.default_rng(seed).permutation(np.arange(1, instance.size)).tolist():
        if sum(instance.demands[c] for c in [*routes[-1], customer]) > instance.capacity:
            routes.append([])
        routes[-1].append(customer)
    return routes


def polished(instance, routes, count: int = 16, **options):
    near = local_moves.nearest_customers(instance.distances, count)
    demand = np.asarray(instance.demands)
    return local_moves.shorten_routes(
        instance.distances, near, demand, instance.capacity, routes, **options
    )


def plan(routes) -> Routes:
    return Routes(tuple(map(tuple, routes)))


@pytest.mark.parametrize(("customers", "seed"), [(1, 0), (2, 0), (3, 1), (6, 2), (12, 3), (40, 4)])
def test_every_move_of_routes_shortens_them(customers: int, seed: int) -> None:
    """After each move the plan is feasible and shorter than before."""
    instance = delivery(customers, seed)
    routes, costs = fill_routes(instance), []
    while True:
        plan(routes).check(instance)
        costs.append(plan(routes).cost(instance))
        routes, made = polished(instance, routes, most=1)
        if not made:
            break
    assert all(after < before for before, after in pairwise(costs))


def neighbouring_plans(routes: list[list[int]]) -> list[list[list[int]]]:
    """Return all plans that one relocate, swap, 2-opt* or 2-opt makes of routes (and of an empty
    one), by slicing.
    """
    routes, made = [*routes, []], []
    for r, one in enumerate(routes):
        for i in range(len(one)):
            for j in range(i + 2, len(one) + 1):
                made.append([*routes[:r], one[:i] + one[i:j][::-1] + one[j:], *routes[r + 1 :]])
        for s, two in enumerate(routes):
            for i in range(len(one) + 1):
                for j in range(len(two) + 1):
                    made += pairs(routes, r, s, i, j)
    return made


def pairs(routes: list[list[int]], r: int, s: int, i: int, j: int) -> list[list[list[int]]]:
    """Return moves at place i of route r and place j of route s."""
    one, two = routes[r], routes[s]
    if r == s:
        rest = one[:i] + one[i + 1 :]
        swapped = (
            [one[j] if k == i else one[i] if k == j else c for k, c in enumerate(one)]
            if max(i, j) < len(one)
            else one
        )
        news = [(swapped, swapped)] + (
            [([*rest[:j], one[i], *rest[j:]],) * 2] if i < len(one) else []
        )
    else:
        news = [
            (one[:i] + two[j:], two[:j] + one[i:]),
            (one[:i] + two[:j][::-1], one[i:][::-1] + two[j:]),
        ]
        if i < len(one):
            news.append((one[:i] + one[i + 1 :], [*two[:j], one[i], *two[j:]]))
            if j < len(two):
                news.append(([*one[:i], two[j], *one[i + 1 :]], [*two[:j], one[i], *two[j + 1 :]]))
    return [
        [new[0] if k == r else new[1] if k == s else x for k, x in enumerate(routes)]
        for new in news
    ]


def feasible(instance, candidate: Routes) -> bool:
    try:
        candidate.check(instance)
    except Infeasible:
        return False
    return True


@pytest.mark.parametrize("seed", range(4))
def test_no_move_shortens_locally_optimal_routes(seed: int) -> None:
    """With all customers as neighbours, the result is an optimum among all moves made by slicing
    lists.
    """
    instance = delivery(9, seed)
    routes, _ = polished(instance, fill_routes(instance), ALL)
    cost = plan(routes).cost(instance)
    others = [plan(x for x in other if x) for other in neighbouring_plans(routes)]
    assert len(others) > 100
    assert min(p.cost(instance) for p in others if feasible(instance, p)) >= cost - 1e-12


def test_the_fleet_is_respected() -> None:
    """A matrix in which routes of one customer are cheapest splits a route, but not beyond the
    vehicles allowed.
    """
    customers = np.full((4, 4), 10.0)
    customers[0], customers[:, 0] = 1.0, 1.0
    np.fill_diagonal(customers, 0.0)
    instance = cvrp([0.0, 0.0], np.zeros((3, 2)), np.ones(3), 10)
    near, demand = local_moves.nearest_customers(customers), np.asarray(instance.demands)
    for vehicles, expected in ((None, 3), (3, 3), (2, 2), (1, 1)):
        routes, _ = local_moves.shorten_routes(customers, near, demand, 10, [[1, 2, 3]], vehicles)
        assert len(routes) == expected


def test_two_routes_become_one() -> None:
    """Two customers far away on the same side share a vehicle: 2 x 10 instead of 4 x 10."""
    instance = cvrp([0.0, 0.0], [[10.0, 0.0], [10.0, 0.0]], np.ones(2), 2)
    routes, _ = polished(instance, [[1], [2]])
    assert plan(routes).cost(instance) == 20.0


# --- schedules


def random_shop(jobs: int, machines: int, seed: int, shortest: int = 1):
    rng = np.random.default_rng(seed)
    order = [rng.permutation(machines).tolist() for _ in range(jobs)]
    return shop(rng.integers(shortest, 20, (jobs, machines)), order)


def dispatch_in_order(instance, jobs) -> Schedule:
    """Start operations as early as they fit, in the order of these jobs."""
    starts, free = [[] for _ in instance.durations], [0] * instance.machine_count
    for job in jobs:
        step = len(starts[job])
        machine = instance.machines[job][step]
        ready = starts[job][-1] + instance.durations[job][step - 1] if step else 0
        starts[job].append(max(ready, free[machine]))
        free[machine] = starts[job][-1] + instance.durations[job][step]
    return Schedule(tuple(map(tuple, starts)))


def random_jobs(instance, seed: int) -> list[int]:
    jobs = [job for job, row in enumerate(instance.durations) for _ in row]
    return np.random.default_rng(seed).permutation(jobs).tolist()


@pytest.mark.parametrize(
    ("jobs", "machines", "shortest"), [(1, 1, 1), (3, 1, 1), (4, 3, 0), (6, 5, 1), (8, 8, 0)]
)
def test_every_move_of_a_schedule_shortens_it(jobs: int, machines: int, shortest: int) -> None:
    """After each move the schedule is feasible and shorter than before; also with times of 0."""
    instance = random_shop(jobs, machines, 3, shortest)
    schedule = dispatch_in_order(instance, random_jobs(instance, 5))
    while True:
        schedule.check(instance)
        starts, made = local_moves.shorten_schedule(
            instance.durations, instance.machines, schedule.starts, most=1
        )
        after = Schedule(tuple(map(tuple, starts)))
        after.check(instance)
        assert after.cost(instance) < schedule.cost(instance) or not made
        if not made:
            break
        schedule = after
    assert after.cost(instance) == schedule.cost(instance)


def test_idle_time_is_removed() -> None:
    """A schedule with needless idle time moves to the left even if no order changes."""
    instance = shop([[2, 3], [4, 1]], [[0, 1], [1, 0]])
    starts, made = local_moves.shorten_schedule(
        instance.durations, instance.machines, [[7, 20], [9, 15]]
    )
    assert (starts, made) == ([[0, 4], [0, 4]], 0)


def test_wrong_order_is_reversed() -> None:
    """Of two jobs on one machine before a long second operation, the long one goes first: 1 + 9 +
    ... by hand.
    """
    instance = shop([[5, 1], [1, 9]], [[0, 1], [0, 2]])
    starts, made = local_moves.shorten_schedule(
        instance.durations, instance.machines, [[0, 5], [5, 6]]
    )
    assert made == 1
    assert Schedule(tuple(map(tuple, starts))).cost(instance) == 10  # before: 15


@pytest.mark.parametrize("seed", range(4))
def test_no_swap_shortens_a_locally_optimal_schedule(seed: int) -> None:
    """At an optimum of N6 no swap of two neighbours on a machine helps: by theory, only swaps at
    block ends could.
    """
    instance = random_shop(4, 4, seed)
    given = dispatch_in_order(instance, random_jobs(instance, seed))
    starts, _ = local_moves.shorten_schedule(instance.durations, instance.machines, given.starts)
    end = Schedule(tuple(map(tuple, starts)))
    for other in swapped_schedules(instance, end):
        assert other.cost(instance) >= end.cost(instance)


def swapped_schedules(instance, schedule: Schedule):
    """Return the schedules in which two neighbours on a machine have changed places, if possible,
    by brute force.
    """
    operations = sorted(instance.operations, key=lambda o: schedule.starts[o.job][o.step])
    for machine in range(instance.machine_count):
        for one, two in pairwise([o for o in operations if o.machine == machine]):
            orders = {
                m: [o for o in operations if o.machine == m] for m in range(instance.machine_count)
            }
            k = orders[machine].index(one)
            orders[machine][k], orders[machine][k + 1] = two, one
            jobs = merge_orders(instance, orders)
            if jobs is not None:
                yield dispatch_in_order(instance, jobs)


def merge_orders(instance, orders) -> list[int] | None:
    """Return an order of jobs that keeps the order on every machine, or None if there is none."""
    left, step, jobs = {m: list(row) for m, row in orders.items()}, [0] * instance.job_count, []
    while any(left.values()):
        ready = [m for m, row in left.items() if row and row[0].step == step[row[0].job]]
        if not ready:
            return None
        operation = left[ready[0]].pop(0)
        step[operation.job] += 1
        jobs.append(operation.job)
    return jobs


def test_kernels_are_cached() -> None:
    """A kernel has a file in numba's cache, and is one object for all calls."""
    made = local_moves.load_kernel("tour moves")
    assert made is local_moves.load_kernel("tour moves")
    assert made._cache.cache_path
