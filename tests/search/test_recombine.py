"""Plans recombined from routes of others: by hand, against brute force, and in a search."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from threading import Barrier, get_ident
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fleets import vehicles

from rhumbline.kernels.numba.local_search import launch as local_moves
from rhumbline.kernels.triton import set_partitioning as triton_partitioning
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.problems.cvrp import CVRP, CVRPBatch, CVRPInstance
from rhumbline.problems.tsp import TSP
from rhumbline.search.after_search import solve_task
from rhumbline.search.driver import Budget, search, stream
from rhumbline.search.plan_sets.elite import EliteSet
from rhumbline.search.recombine import routes as recombination
from rhumbline.search.recombine import set_partitioning
from rhumbline.search.recombine.routes import RoutePool, actions_of_routes, extract_routes
from rhumbline.search.strategies import cmaes_refine
from rhumbline.search.strategies.cmaes_refine import CMAESRefine
from rhumbline.search.task import make_task, set_warm_start

pytestmark = [
    # Triton 3.6 turns arrays of one element into scalars, which numpy 2.3 only announces to refuse.
    pytest.mark.filterwarnings(
        "ignore:Conversion of an array with ndim > 0 to a scalar:DeprecationWarning:triton.*"
    ),
]

# A depot in the middle and two customers in each corner.
XY = [
    (0.5, 0.5),
    (0.1, 0.1),
    (0.1, 0.2),
    (0.9, 0.1),
    (0.9, 0.2),
    (0.1, 0.9),
    (0.1, 0.8),
    (0.9, 0.9),
    (0.9, 0.8),
]
NORTH = [1, 3, 0, 2, 4, 0, 5, 6, 0, 8, 7, 0, 0, 0, 0, 0]  # right in the corners above
SOUTH = [1, 2, 0, 4, 3, 0, 5, 7, 0, 6, 8, 0, 0, 0, 0, 0]  # and below
RIGHT = {(1, 2), (4, 3), (5, 6), (8, 7)}


@pytest.fixture(params=["tensors", "compiled", "kernels"])
def recombine(request: pytest.FixtureRequest, monkeypatch) -> Callable[..., EliteSet]:
    """The best plan of a route pool, by each engine. Triton kernels are interpreted."""
    if request.param == "kernels":
        monkeypatch.setattr(triton_partitioning, "PRICED", 256)
        few_rounds = replace(set_partitioning.TUNING, price_rounds=30)
        monkeypatch.setattr(set_partitioning, "TUNING", few_rounds)
    return partial(recombination.recombine_routes, engine=request.param)


@pytest.fixture
def corners() -> CVRPInstance:
    """Two customers in each corner of a square, with vehicles for two."""
    return CVRPInstance("corners", "EXACT_2D", (0, *[1] * 8), 2, xy=np.array(XY))


def elite_of(batch: CVRPBatch, *plans: list[int]) -> EliteSet:
    """Return the same plans for every instance of a batch."""
    actions = torch.tensor(plans)[None].expand(len(batch.xy), -1, -1)
    return EliteSet(CVRP().cost(batch, actions), actions.short())


def checked_routes(instance: CVRPInstance, elite_set: EliteSet) -> set[tuple[int, ...]]:
    """Return the routes of the first plan, checked and priced."""
    plan = CVRP().decode(instance, elite_set.actions[0, 0].tolist())
    plan.check(instance)
    assert plan.cost(instance) == pytest.approx(
        (elite_set.cost[0, 0] * CVRP().collate([instance]).scale[0]).item()
    )
    return set(plan.routes)


def test_the_better_halves_of_two_plans(
    corners: CVRPInstance, recombine: Callable[..., EliteSet]
) -> None:
    """Each plan is right where the other is wrong; neither is the plan that both make."""
    batch = CVRP().collate([corners])
    elite_set = elite_of(batch, NORTH, SOUTH)
    pool = extract_routes(batch, elite_set, 16)
    assert pool.rank.isfinite().sum() == 8
    found = recombine(batch, pool, 4)
    assert checked_routes(corners, found) == RIGHT
    assert found.cost < elite_set.cost.min() - 0.5


@pytest.mark.parametrize("vehicles", [None, 4, 5])
def test_costs_are_those_of_the_file(
    corners: CVRPInstance, recombine: Callable[..., EliteSet], vehicles: int | None
) -> None:
    """Whole units of the file in double precision, with the surcharge for extra routes."""
    file = replace(corners, metric="EUC_2D", xy=np.array(XY) * 1000, vehicles=vehicles)
    batch = CVRP().collate([file])
    elite_set = elite_of(batch, NORTH, SOUTH)
    found = recombine(batch, extract_routes(batch, elite_set, 16), 4)
    assert found.cost.dtype == elite_set.cost.dtype == torch.float64
    assert found.cost[0, 0] == CVRP().cost(batch, found.actions)[0, 0] < elite_set.cost.min()
    assert set(CVRP().decode(file, found.actions[0, 0].tolist()).routes) == RIGHT


def compass() -> tuple[list[list[int]], list[list[int]]]:
    """Return plans of three routes with one short route each, and those short routes.

    There are three customers in each of four directions.
    """
    north, east, south = (1, 2, 3, 12), (4, 5, 6, 11), (7, 8, 9, 10)

    def mixed(one: tuple[int, ...], other: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [(one[0], other[1], one[2], other[3]), (other[0], one[1], other[2], one[3])]

    def spelt_out(routes: list[tuple[int, ...]]) -> list[int]:
        actions = [node for route in routes for node in (*route, 0)]
        return actions + [0] * (24 - len(actions))

    three = [
        [north, *mixed(east, south)],
        [east, *mixed(north, south)],
        [south, *mixed(north, east)],
    ]
    four = [(1, 2, 3), (4, 5, 6), (7, 8, 9), (10, 11, 12)]
    return [spelt_out(plan) for plan in (*three, four)], [list(north), list(east), list(south)]


@pytest.mark.parametrize(("vehicles", "known"), [(3, 4), (3, 3), (None, 4)])
def test_no_more_routes_than_vehicles(
    recombine: Callable[..., EliteSet], vehicles: int | None, known: int
) -> None:
    """Four short routes are too many for three vehicles.

    The short routes of three plans are found all the same.
    """
    ways = [(0, 400), (400, 0), (0, -400), (-400, 0)]
    xy = [(500, 500)] + [
        (500 + x + (y and k), 500 + y + (x and k)) for x, y in ways for k in (-20, 0, 20)
    ]
    file = CVRPInstance(
        "compass", "EUC_2D", (0, *[1] * 12), 4, xy=np.array(xy, dtype=float), vehicles=vehicles
    )
    (plans, short), batch = compass(), CVRP().collate([file])
    elite_set = elite_of(batch, *plans[:known])
    found = recombine(batch, extract_routes(batch, elite_set, 64), 64)
    routes = CVRP().decode(file, found.actions[0, 0].tolist()).routes
    assert (
        found.cost[0, 0] == CVRP().total_length(batch, found.actions)[0, 0] <= elite_set.cost.min()
    )
    assert len(routes) == (vehicles or 4)
    assert not vehicles or sorted(map(list, routes)) == short


def test_a_plan_within_the_fleet_from_plans_beyond_it(recombine: Callable[..., EliteSet]) -> None:
    """If all plans have too many routes, any plan within the fleet is welcome, however long."""
    xy = np.array([(0.5, 0.5), (0.1, 0.1), (0.9, 0.9), (0.1, 0.2), (0.9, 0.8)])
    instance = CVRPInstance("few", "EXACT_2D", (0, 1, 1, 1, 1), 2, xy=xy, vehicles=2)
    batch = CVRP().collate([instance])
    elite_set = elite_of(batch, [1, 2, 0, 3, 0, 4, 0, 0], [3, 4, 0, 1, 0, 2, 0, 0])
    found = recombine(batch, extract_routes(batch, elite_set, 16), 16)
    assert set(CVRP().decode(instance, found.actions[0, 0].tolist()).routes) == {(1, 2), (3, 4)}
    assert found.cost < elite_set.cost.min()


def test_gaps_are_ignored(corners: CVRPInstance, recombine: Callable[..., EliteSet]) -> None:
    """Whatever the actions of a gap are: here one route that serves every customer."""
    batch = CVRP().collate([replace(corners, capacity=8)])
    round_trip = [*range(1, 9), *[0] * 8]
    elite_set = elite_of(batch, round_trip, [4, *[0] * 15])
    elite_set = replace(elite_set, cost=torch.tensor([[elite_set.cost[0, 0], torch.inf]]))
    assert (
        recombine(batch, extract_routes(batch, elite_set, 8), 8).actions[0, 0].tolist()
        == round_trip
    )


def test_recombination_stops_when_it_is_late(corners: CVRPInstance, monkeypatch) -> None:
    """Instances that are left over have no plan."""
    batch = CVRP().collate([corners] * 3)
    pool, looks = extract_routes(batch, elite_of(batch, NORTH, SOUTH), 16), iter([False, True])
    two_at_once = replace(recombination.TUNING, instances_per_look_cpu=2)
    monkeypatch.setattr(recombination, "TUNING", two_at_once)
    found = recombination.recombine_routes(batch, pool, 4, lambda: next(looks))
    assert found.cost.isfinite()[:, 0].tolist() == [True, True, False]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_compiled_beam_has_threads(corners: CVRPInstance, monkeypatch, threads: int) -> None:
    """There are as many as torch has, one instance in each. An error in a thread is raised."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    batch, seen, both, real = (
        CVRP().collate([corners] * 4),
        set[int](),
        Barrier(threads),
        local_moves.find_cheapest_partition,
    )
    pool = extract_routes(batch, elite_of(batch, NORTH, SOUTH), 16)

    def watched(*given):
        seen.add(get_ident())
        both.wait(10)  # threads wait for one another
        return real(*given)

    monkeypatch.setattr(local_moves, "find_cheapest_partition", watched)
    assert recombination.recombine_routes(batch, pool, 4, engine="compiled").cost.isfinite().all()
    assert len(seen) >= threads
    monkeypatch.setattr(local_moves, "find_cheapest_partition", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        recombination.recombine_routes(batch, pool, 4, engine="compiled")


@pytest.mark.parametrize("size", [63, 64, 65, 130])
def test_customers_of_several_words(recombine: Callable[..., EliteSet], size: int) -> None:
    """Plans shuffle routes within halves of the customers. The better half of each is found."""
    rng, half = np.random.default_rng(size), size // 2
    instance = CVRPInstance("many", "EXACT_2D", (0, *[1] * size), 5, xy=rng.random((size + 1, 2)))
    batch, plans = CVRP().collate([instance]), []
    for _ in range(6):
        order = [*rng.permutation(half) + 1, *rng.permutation(np.arange(half, size)) + 1]
        ends = [*range(0, half, 5), *range(half, size, 5), size]
        actions = [int(node) for low, high in pairwise(ends) for node in (*order[low:high], 0)]
        plans.append(actions + [0] * (2 * size - len(actions)))
    elite_set = elite_of(batch, *plans)
    legs = CVRP().leg_lengths(batch, elite_set.actions.long())[0].double()
    seam = [plan.index(0, half + -(-half // 5) - 1) + 1 for plan in plans]  # legs of the first half
    best = min(x[:k].sum() for x, k in zip(legs, seam, strict=True)) + min(
        x[k:].sum() for x, k in zip(legs, seam, strict=True)
    )
    found = recombine(batch, extract_routes(batch, elite_set, 512), 64)
    CVRP().decode(instance, found.actions[0, 0].tolist()).check(instance)
    assert found.cost[0, 0].item() == pytest.approx(best.item(), rel=1e-5)


def test_plans_worse_than_the_pool_are_skipped(corners: CVRPInstance) -> None:
    """Plans that only another instance can use are skipped too, so the batch does not matter."""
    batch = CVRP().collate([corners] * 2)
    elite_set = elite_of(batch, NORTH, SOUTH)
    pool = replace(
        extract_routes(batch, elite_set, 8), rank=torch.tensor([[0.5], [9.0]]).expand(2, 8)
    )
    some = recombination.promising_plans(
        replace(elite_set, cost=torch.tensor([[2.0, 1.0], [3.0, 2.0]])), pool
    )
    assert some.cost.tolist() == [[torch.inf, torch.inf], [2.0, 3.0]]
    assert some.actions[1].tolist() == [SOUTH, NORTH]
    alone = recombination.promising_plans(
        replace(elite_set, cost=torch.tensor([[2.0, 1.0], [3.0, 2.0]]))[:1], pool[:1]
    )
    assert alone.cost.isinf().all()


def test_routes_keep_their_order(corners: CVRPInstance) -> None:
    """The actions of a plan's own routes are the plan's actions."""
    batch = CVRP().collate([corners])
    pool = extract_routes(batch, elite_of(batch, SOUTH), 9)
    assert actions_of_routes(pool, torch.tensor([[2, 0, -1, 3, 1]]), 16).tolist() == [SOUTH]
    assert pool.first_step[0, :4].sort().values.tolist() == [0, 3, 6, 9]
    assert pool.length[0, :4].sum() == pytest.approx(
        CVRP().cost(batch, torch.tensor([[SOUTH]])).item()
    )


def test_the_return_is_counted_at_the_horizon() -> None:
    """A sequence that ends at a customer still has the way back to the depot."""
    batch = CVRP().collate(
        [CVRPInstance("one", "EXACT_2D", (0, 1, 1), 2, xy=np.array([(0.0, 0), (1, 0), (1, 1)]))]
    )
    pool = extract_routes(batch, elite_of(batch, [1, 2]), 4)
    assert pool.length[0, 0] == pytest.approx(2 + 2**0.5)
    assert pool.position[0, 0].tolist() == [0, 1, 2]


def test_the_same_customers_count_once(corners: CVRPInstance) -> None:
    """The shortest route of the same customers stays, with the rank of the best plan."""
    batch = CVRP().collate([replace(corners, capacity=4)])
    long, short = [1, 7, 2, 0, 3, 4, 5, 6, 0, 8], [1, 2, 7, 0, 3, 4, 5, 6, 0, 8]
    elite_set = elite_of(batch, [*long, *[0] * 6], [*short, *[0] * 6])
    for ranks in ([3.0, 5.0], [5.0, 3.0]):
        pool = extract_routes(batch, replace(elite_set, cost=torch.tensor([ranks])), 9)
        mine = (pool.position[0] > 0)[:, 7] & pool.rank[0].isfinite()
        assert mine.sum() == 1
        assert pool.position[0, mine].tolist() == [[0, 1, 2, 0, 0, 0, 0, 3, 0]]
        assert pool.rank[0, mine].tolist() == [3.0]
    fewer = extract_routes(batch, elite_of(batch, NORTH, SOUTH, [*short, *[0] * 6]), 3)
    assert fewer.rank.tolist() == [[elite_set.cost.min()] * 3]  # of the best plan alone


def test_union_of_pools(corners: CVRPInstance, recombine: Callable[..., EliteSet]) -> None:
    """It equals the pool of all plans at once."""
    batch = CVRP().collate([corners])
    parts = [extract_routes(batch, elite_of(batch, plan), 16) for plan in (NORTH, SOUTH)]
    both, at_once = (
        parts[0].merge(parts[1], 16),
        extract_routes(batch, elite_of(batch, NORTH, SOUTH), 16),
    )
    assert (
        recombine(batch, both, 4).actions.tolist() == recombine(batch, at_once, 4).actions.tolist()
    )
    assert both.rank.sort().values[0, :8].tolist() == at_once.rank.sort().values[0, :8].tolist()


def test_an_unserved_customer_makes_no_plan(
    corners: CVRPInstance, recombine: Callable[..., EliteSet]
) -> None:
    """The cost is infinite, so the result is never taken for a plan."""
    batch = CVRP().collate([corners])
    pool = extract_routes(batch, elite_of(batch, NORTH, SOUTH), 16)
    pool = replace(pool, rank=pool.rank.masked_fill(pool.position[..., 5] > 0, torch.inf))
    assert recombine(batch, pool, 4).cost.isinf().all()


def sampled_routes(
    driver: CVRPPolicy, instances: list[CVRPInstance]
) -> tuple[CVRPBatch, RoutePool]:
    """Return a batch and the route pool that a policy's samples leave behind."""
    task, strategy = (
        make_task(CVRP(), driver, instances),
        CMAESRefine(population=4, beam=0, starts=1.0),
    )
    task.account.limit = 1000
    state, _, _ = strategy.step(task, strategy.init(task))
    assert state.route_pool is not None
    return task.batch, state.route_pool


def test_engines_find_equal_plans(driver: CVRPPolicy) -> None:
    """Wide beams leave ties and rounding no influence. The result beats the best known plan."""
    batch, pool = sampled_routes(driver, vehicles(6, 20))
    one, other = (
        recombination.recombine_routes(batch, pool, 2000, engine=x).cost[:, 0]
        for x in ("tensors", "compiled")
    )
    assert other.tolist() == pytest.approx(one.tolist(), rel=1e-5)
    assert (other <= pool.rank.amin(1) * (1 + 1e-5)).all()
    assert (other < pool.rank.amin(1) * (1 - 1e-3)).any()


def test_instances_do_not_depend_on_the_batch(
    driver: CVRPPolicy, recombine: Callable[..., EliteSet], monkeypatch
) -> None:
    """The others may have more routes, and any number may be solved at once."""
    instances = vehicles(3, 20)
    instances[2] = replace(instances[2], capacity=6)  # twice as many routes
    (batch, pool), (lone, alone) = (
        sampled_routes(driver, instances),
        sampled_routes(driver, instances[1:2]),
    )
    together = recombine(batch, pool, 32)
    single = recombine(lone, alone, 32)
    assert together.actions[1].tolist() == single.actions[0].tolist()
    one_at_once = replace(set_partitioning.TUNING, max_batch_elements=1)
    monkeypatch.setattr(set_partitioning, "TUNING", one_at_once)
    assert recombine(batch, pool, 32).actions.tolist() == together.actions.tolist()


def test_a_search_ends_with_a_recombination(driver: CVRPPolicy, corners: CVRPInstance) -> None:
    """It costs no attempt and is the last step of the trace, even if there was none before."""
    task, strategy = make_task(CVRP(), driver, [corners]), CMAESRefine(population=2, beam=0)
    set_warm_start(task, [CVRP().decode(corners, NORTH)])
    task.account.limit = 1000
    state, _, _ = strategy.step(task, strategy.init(task))
    south, attempts = (
        extract_routes(task.batch, elite_of(task.batch, SOUTH), 512),
        task.account.attempts,
    )
    north = extract_routes(task.batch, elite_of(task.batch, NORTH), 512)
    task.account.best, task.account.actions = (
        elite_of(task.batch, NORTH).cost[:, 0],
        torch.tensor([NORTH]),
    )
    strategy.finish(task, replace(state, route_pool=north.merge(south, 512)))
    assert set(CVRP().decode(corners, task.incumbents[0].tolist()).routes) == RIGHT
    assert task.account.attempts == attempts


def test_the_trace_shows_the_last_recombination(driver: CVRPPolicy, monkeypatch) -> None:
    """The last line has its cost, at the attempts of the line before it."""
    task, strategy = (
        make_task(CVRP(), driver, vehicles(1, 20)),
        CMAESRefine(population=4, beam=0, parts_per_rollout=1.0),
    )
    real = CMAESRefine.merge_routes

    def halved(self, task, pool, allowance):
        found = real(self, task, pool, allowance)
        task.account.best = task.account.best * 0.5
        return found

    monkeypatch.setattr(CMAESRefine, "merge_routes", halved)
    trace = list(stream(strategy, task, Budget(8)))  # one generation of 4, and its parts
    assert trace[-1].attempts == trace[-2].attempts == 8
    assert trace[-1].best <= 0.5 * trace[-2].best


def test_recombinations_are_spread_over_the_budget(driver: CVRPPolicy, monkeypatch) -> None:
    """One for each eighth of the budget, of 25 attempts at least; none if the pool has size 0."""
    seen, real = list[int](), CMAESRefine.merge_routes
    monkeypatch.setattr(
        CMAESRefine,
        "merge_routes",
        lambda self, task, *s: seen.append(task.account.attempts) or real(self, task, *s),
    )
    instances = vehicles(1, 10)
    for limit, settings, due in (
        (400, {}, [50, 100, 150, 200, 250, 300, 350]),
        (90, {}, [25, 50, 75]),
        (90, {"route_pool": 0}, None),
    ):
        seen.clear()
        strategy = CMAESRefine(population=5, parts_per_rollout=1.0, beam=0, starts=1.0, **settings)
        list(stream(strategy, make_task(CVRP(), driver, instances), Budget(limit)))
        assert len(seen) == (0 if due is None else len(due) + 1)  # the last is the end
        assert all(
            0 <= now - then < 15 for now, then in zip(seen, due or [], strict=False)
        )  # a generation late


def test_many_instances_have_smaller_pools(driver: CVRPPolicy, monkeypatch) -> None:
    """A given size is kept. The default is what a beam can use within budget and memory."""
    task = make_task(CVRP(), driver, vehicles(2, 20))
    assert CMAESRefine(route_pool=7).default_route_pool(task) == 7
    means = recombination.PARTITION_BUDGETS["compiled"]
    for limit, routes in (
        (100, cmaes_refine.TUNING.min_route_pool),
        (200, 768),
        (1000, means.pool_routes),
    ):  # of 800 a multiple of 64
        task.account.limit, task.account.attempts = limit, 20
        assert CMAESRefine().default_route_pool(task) == routes
    for max_elements, routes in ((2 * 21 * 1000, 960), (1, cmaes_refine.TUNING.min_route_pool)):
        monkeypatch.setitem(
            recombination.PARTITION_BUDGETS, "compiled", replace(means, max_elements=max_elements)
        )
        assert CMAESRefine().default_route_pool(task) == routes
    task.engine = "torch"
    assert (
        CMAESRefine().default_route_pool(task)
        == recombination.PARTITION_BUDGETS["tensors"].pool_routes
    )


def test_a_tile_of_customers_has_kernels() -> None:
    """The depot does not count."""
    for customers, engine in ((256, "kernels"), (257, "tensors")):
        batch = CVRP().sample(1, customers, torch.Generator())
        task = SimpleNamespace(
            device=torch.device("cuda"), problem=CVRP(), batch=batch, engine="auto"
        )
        found = recombination.partition_engine_for(task)  # pyright: ignore[reportArgumentType]
        assert found == engine


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_a_cpu_uses_the_compiled_beam(driver: CVRPPolicy, monkeypatch, engine) -> None:
    """Plain torch is used only if it is asked for."""
    seen, real = list[str](), cmaes_refine.recombine_routes
    monkeypatch.setattr(
        cmaes_refine, "recombine_routes", lambda *given: seen.append(given[4]) or real(*given)
    )
    task = make_task(CVRP(), driver, vehicles(1, 10), engine=engine)
    list(stream(CMAESRefine(population=4, beam=0, parts_per_rollout=1.0), task, Budget(8)))
    assert seen == ["compiled" if engine == "auto" else "tensors"]


@pytest.mark.parametrize("run", [search, solve_task])
def test_the_clock_waits_for_the_compiler(driver: CVRPPolicy, monkeypatch, run) -> None:
    """Compilation takes none of the budget and none of the reported time."""
    ready, names, real = list[float](), list[str](), local_moves.load_kernel

    def slow(name: str):
        names.append(name)
        time.sleep(0.05 if len(ready) < 2 else 0.0)
        ready.append(time.monotonic())
        return real(name)

    monkeypatch.setattr(local_moves, "load_kernel", slow)
    task = make_task(CVRP(), driver, vehicles(1, 10))
    found, _ = run(CMAESRefine(population=2, beam=0), task, Budget(4))
    assert set(names) == {"partition prices", "partition"}
    assert ready[1] <= task.start_time
    seconds = found[0].seconds
    if run is solve_task:  # which counts the encoding, too
        seconds -= task.preparation_seconds
    assert seconds <= time.monotonic() - ready[1]


def test_tours_have_no_routes(policy, make_instances) -> None:
    """TSP has no route pool."""
    task, strategy = make_task(TSP(), policy, make_instances(1, 8)), CMAESRefine(population=2)
    task.account.limit = 1000
    state, _, _ = strategy.step(task, strategy.init(task))
    assert state.route_pool is None
    strategy.finish(task, state)
