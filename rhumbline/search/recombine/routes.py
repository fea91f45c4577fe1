"""CVRP: recombine routes of several plans into a better plan.

A good plan has routes that could be better, and for most of them a better route exists in another
plan that is worse elsewhere. Selecting routes that serve every customer once at the least cost is a
set partitioning problem (`set_partitioning`). It samples nothing new, so it costs no attempt.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.kernels.threads import worker_threads
from rhumbline.problems.costs import shift_cost
from rhumbline.problems.cvrp import CVRP, CVRPBatch
from rhumbline.record import Record
from rhumbline.search.plan_sets.diverse import gather_per_instance
from rhumbline.search.plan_sets.elite import EQUAL_COST_SHARE, EliteSet
from rhumbline.search.recombine.set_partitioning import (
    PartitionEngine,
    PartitionProblem,
    best_partition_engine,
    instance_slices,
    solve_partition,
)
from rhumbline.search.task import Task


@dataclass(frozen=True)
class RecombineTuning:
    """Limits of one recombination."""

    extra_routes: int = 3  # that a new plan may have more than the best plans together
    instances_per_look_cpu: int = 4  # between two looks at the clock, without the compiled beam
    instances_per_look_cuda: int = 128


TUNING = RecombineTuning()


@dataclass(frozen=True)
class PartitionBudget:
    """How much an engine has time for beside the rollouts on its device."""

    pool_routes: int  # at most in the pool
    routes_per_place: int  # of the beam, up to 100 customers
    merges: int = 8  # during a search, the last one at its end
    routes_per_attempt: int = 4  # for each attempt of a whole search
    max_elements: int = 1 << 24  # numbers that all routes of all instances take


PARTITION_BUDGETS: dict[PartitionEngine, PartitionBudget] = {
    "tensors": PartitionBudget(512, 2),
    "compiled": PartitionBudget(2048, 4),
    "kernels": PartitionBudget(4096, 2, merges=16, routes_per_attempt=32, max_elements=1 << 28),
}


def partition_engine_for(task: Task) -> PartitionEngine:
    """Return the engine that recombines the routes of a task."""
    nodes = task.problem.action_count(task.batch)
    customers = nodes - 1
    return best_partition_engine(task.device, customers, task.engine)


@dataclass(frozen=True)
class RoutePool(Record):
    """Routes of good plans, no two with the same customers. An entry of infinite rank is empty."""

    rank: Float[Tensor, "B R"]  # cost of the cheapest plan that has the route
    length: Float[Tensor, "B R"]
    code: Int[Tensor, "B R"]  # hash of its customers, whatever their order
    first_step: Int[Tensor, "B R"]  # where the route begins in its plan
    position: Int[Tensor, "B R N"]  # of each node in the route, from 1; 0 if it is elsewhere

    def merge(self, other: "RoutePool", most: int) -> "RoutePool":
        """Return the routes of the best plans in both pools, each in its shortest form."""
        both = concatenate_pools([self, other], 1)
        rank, kept = select_distinct_routes(both.rank, both.length, both.code, most)

        def select(x: Tensor) -> Tensor:
            return gather_per_instance(x, kept)

        selected = both.map(select)
        return replace(selected, rank=rank)

    @property
    def served(self) -> Float[Tensor, "B R n"]:
        """1 for the customers of each route."""
        customers = self.position[..., 1:]
        is_served = customers > 0
        return is_served.float()


def concatenate_pools(pools: Sequence[RoutePool], axis: int) -> RoutePool:
    """Concatenate pools along instances (0) or routes (1)."""
    tables = [vars(pool) for pool in pools]
    columns = dict[str, Tensor]()
    for name in tables[0]:
        parts = [table[name] for table in tables]
        columns[name] = torch.cat(parts, axis)
    return RoutePool(**columns)


def select_distinct_routes(
    rank: Float[Tensor, "B C"], length: Float[Tensor, "B C"], code: Int[Tensor, "B C"], most: int
) -> tuple[Float[Tensor, "B R"], Int[Tensor, "B R"]]:
    """Select the routes of the best plans: their ranks and their indices.

    Of routes with the same customers the shortest stays, with the best rank of them all.
    """
    by_length = length.argsort(dim=1, stable=True)
    codes = code.gather(1, by_length)
    by_code = codes.argsort(dim=1, stable=True)
    order = by_length.gather(1, by_code)
    code = code.gather(1, order)
    rank = rank.gather(1, order)

    previous = code[:, :-1]
    is_repeat = code[:, 1:] == previous
    is_repeat = torch.nn.functional.pad(is_repeat, (1, 0))
    is_new = ~is_repeat
    group = is_new.long().cumsum(1) - 1
    infinite = torch.full_like(rank, torch.inf)
    best_rank = infinite.scatter_reduce(1, group, rank, "amin")
    rank = best_rank.gather(1, group)
    rank = rank.masked_fill(is_repeat, torch.inf)
    rank, kept = rank.sort(dim=1, stable=True)
    rank = rank[:, :most]
    kept = kept[:, :most]
    return rank, order.gather(1, kept)


# --- plans to routes


def extract_routes(batch: CVRPBatch, plans: EliteSet, most: int) -> RoutePool:
    """Return the best routes of some plans, at most `most` for each instance."""
    actions = plans.actions
    elements = 8 * actions[0].numel()
    slices = instance_slices(len(actions), elements)
    routes = max(max_route_count(actions[rows]) for rows in slices)
    pools = list[RoutePool]()
    for rows in slices:
        part = split_into_routes(batch[rows], plans[rows], routes, most)
        pools.append(part)
    return concatenate_pools(pools, 0)


def max_route_count(actions: Int[Tensor, "B M T"]) -> int:
    """Return the number of routes of the plan that has the most."""
    at_depot = actions == 0
    depot_visits = at_depot.cumsum(2)
    route = depot_visits - at_depot.long()
    route = route.masked_fill(at_depot, 0)
    last = int(route.amax())
    return last + 1


def promising_plans(plans: EliteSet, pool: RoutePool) -> EliteSet:
    """Keep the plans that are better than the worst one in the pool; the others leave gaps.

    A worse plan adds no route to the pool, at most a shorter form of a known one. On a GPU counting
    the better plans would make the host wait.
    """
    worst = pool.rank.amax(1, keepdim=True)
    is_better = plans.cost < worst
    better = is_better.sum(1)
    most = max(1, int(better.amax()))
    cost, best = plans.cost.sort(dim=1, stable=True)
    cost = cost[:, :most]
    best = best[:, :most]
    actions = gather_per_instance(plans.actions, best)
    cost = cost.masked_fill(cost >= worst, torch.inf)
    return EliteSet(cost, actions)


def split_into_routes(batch: CVRPBatch, elite_set: EliteSet, routes: int, most: int) -> RoutePool:
    """Return the best routes of plans that have at most `routes` routes each."""
    actions = elite_set.actions.long()
    count, plans, steps = actions.shape
    size = batch.xy.shape[1]
    step = torch.arange(steps, device=actions.device)
    step = step.expand(count, plans, -1)
    at_depot = actions == 0
    # The route of each step. A return to the depot belongs to the route before it.
    route = at_depot.cumsum(2) - at_depot.long()
    route = route.clamp(max=routes - 1)
    first_step = route.new_full((count, plans, routes), steps)
    customer_step = step.masked_fill(at_depot, steps)
    first_step = first_step.scatter_reduce(2, route, customer_step, "amin")
    no_node = route.new_zeros(count, plans, size)
    owner = no_node.scatter(2, actions, route)
    visited = no_node.scatter(2, actions, step)
    hashes = customer_codes(size, batch.xy.device)
    hashes = hashes.expand(count, plans, -1)
    code = torch.zeros_like(first_step)
    code = code.scatter_add(2, owner[..., 1:], hashes)

    rank = elite_set.cost[..., None]
    rank = rank.masked_fill(first_step == steps, torch.inf)
    length = route_lengths(batch, actions, route, routes)
    length = length.masked_fill(rank.isinf(), torch.inf)  # gaps of the set are no plans
    rank = rank.flatten(1)
    length = length.flatten(1)
    code = code.flatten(1)
    first_step = first_step.flatten(1)
    rank, kept = select_distinct_routes(rank, length, code, most)

    length = length.gather(1, kept)
    code = code.gather(1, kept)
    first_step = first_step.gather(1, kept)
    plan = kept // routes
    index = kept % routes
    is_member = gather_per_instance(owner, plan) == index[..., None]
    visited = gather_per_instance(visited, plan)
    position = visited - first_step[..., None] + 1
    position = position * is_member
    position[..., 0] = 0
    return RoutePool(rank, length, code, first_step, position.short())


def route_lengths(
    batch: CVRPBatch, actions: Int[Tensor, "B M T"], route: Int[Tensor, "B M T"], routes: int
) -> Float[Tensor, "B M q"]:
    """Return the length of each route of each plan.

    Sums are in double precision and rounded: a GPU adds in any order, which must not show.
    """
    count, plans, _ = actions.shape
    legs = CVRP().leg_lengths(batch, actions)
    legs = legs.double()
    return_leg = route[..., -1:]
    owner = torch.cat([route, return_leg], 2)
    sums = legs.new_zeros(count, plans, routes)
    sums = sums.scatter_add(2, owner, legs)
    return sums.float()


@cache
def customer_codes(size: int, device: torch.device) -> Int[Tensor, "n"]:
    """Return the random number that each customer adds to the hash of a route.

    Cached, because a GPU would wait for the copy.
    """
    rng = torch.Generator()
    rng.manual_seed(0)
    shape = (size - 1,)
    end = 2**62
    codes = torch.randint(1, end, shape, generator=rng)
    return codes.to(device)


# --- routes to plans


def recombine_routes(
    batch: CVRPBatch,
    pool: RoutePool,
    width: int,
    is_late: Callable[[], bool] = lambda: False,
    engine: PartitionEngine = "tensors",
) -> EliteSet:
    """Return the best plan that a beam makes of the routes, which may be a known one.

    The cost is infinite where the beam finds none, and for instances left over when it is late.
    """
    count, routes, size = pool.position.shape
    if engine == "compiled":
        at_once = worker_threads()
    elif pool.rank.is_cuda:
        at_once = TUNING.instances_per_look_cuda
    else:
        at_once = TUNING.instances_per_look_cpu
    elements = size * routes
    slices = instance_slices(count, elements, at_once)

    cost = torch.full_like(pool.rank[:, :1], torch.inf)
    horizon = 2 * (size - 1)
    actions = pool.position.new_zeros(count, 1, horizon, dtype=torch.int64)
    for rows in slices:
        if is_late():
            break
        part = recombine_batch(batch[rows], pool[rows], width, engine)
        cost[rows] = part.cost.to(cost.dtype)
        actions[rows] = part.actions
    return EliteSet(cost, actions)


def recombine_batch(
    batch: CVRPBatch, pool: RoutePool, width: int, engine: PartitionEngine
) -> EliteSet:
    """Return the best plan that a beam makes of the routes, for instances that fit into memory."""
    rank = pool.rank
    best_cost = rank.amin(1, keepdim=True)
    best_length = batch.without_surcharge(best_cost)
    cost = pool.length / best_length.float()
    cost = cost.masked_fill(rank.isinf(), torch.inf)
    limit = shift_cost(best_cost, EQUAL_COST_SHARE)
    in_best = rank <= limit
    max_routes = in_best.sum(1) + TUNING.extra_routes
    if batch.vehicles is not None:
        max_routes = torch.minimum(max_routes, batch.vehicles)
    # Where even the best plan has too many routes, any plan for the fleet is welcome.
    has_surcharge = best_cost > best_length
    exceeds_fleet = has_surcharge[:, 0]
    max_cost = torch.full_like(cost[:, 0], 1.0 + EQUAL_COST_SHARE)
    max_cost = max_cost.masked_fill(exceeds_fleet, torch.inf)

    problem = PartitionProblem(pool.served, pool.code, cost, in_best, max_routes, max_cost)
    chosen = solve_partition(problem, width, engine)
    size = pool.position.shape[2]
    horizon = 2 * (size - 1)
    actions = actions_of_routes(pool, chosen, horizon)
    actions = actions[:, None]
    first = chosen[:, :1]
    cost = CVRP().cost(batch, actions)
    cost = cost.masked_fill(first < 0, torch.inf)
    return EliteSet(cost, actions)


def actions_of_routes(
    pool: RoutePool, chosen: Int[Tensor, "B q"], horizon: int
) -> Int[Tensor, "B T"]:
    """Return the action sequence of some routes, in the order in which their own plans had them."""
    index = chosen.clamp(min=0)
    first_step = pool.first_step.gather(1, index)
    first_step = first_step.masked_fill(chosen < 0, horizon)
    order = first_step.argsort(dim=1, stable=True)
    chosen = chosen.gather(1, order)
    index = chosen.clamp(min=0)
    position = gather_per_instance(pool.position, index)
    position = position.long()
    is_route = chosen >= 0
    position = position * is_route[..., None]

    is_member = position > 0
    length = is_member.sum(2) + 1  # with the return to the depot
    before = length.cumsum(1) - length
    step = before[..., None] + position - 1
    step = step.masked_fill(position == 0, 0)
    step = step.sum(1)
    step = step[:, 1:]
    count, _, size = position.shape
    device = chosen.device
    customers = torch.arange(1, size, device=device)
    customers = customers.expand_as(step)
    actions = torch.zeros(count, horizon, dtype=torch.int64, device=device)
    return actions.scatter(1, step, customers)
