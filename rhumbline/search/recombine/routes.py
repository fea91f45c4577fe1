"""CVRP: recombine routes of several plans into a better plan.

A good plan has routes that could be better, and for most of them a better route exists in another
plan that is worse elsewhere. Selecting routes that serve every customer once at the least cost is a
set partitioning problem (`set_partitioning`). It samples nothing new, so it costs no attempt.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.problems.cvrp import CVRP, CVRPBatch
from rhumbline.record import Record
from rhumbline.search.plan_sets.diverse import gather_per_instance
from rhumbline.search.plan_sets.elite import EQUAL_COST, EliteSet
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

    stock: int  # routes in the pool
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
    customers = task.problem.action_count(task.batch) - 1
    return best_partition_engine(task.device, customers, task.engine)


@dataclass(frozen=True)
class RoutePool(Record):
    """Routes of good plans, no two with the same customers. An entry of infinite rank is empty."""

    rank: Float[Tensor, "B R"]  # cost of the cheapest plan that has the route
    length: Float[Tensor, "B R"]
    code: Int[Tensor, "B R"]  # hash of its customers, whatever their order
    first_step: Int[Tensor, "B R"]  # where the route begins in its plan
    position: Int[Tensor, "B R N"]  # of each node in the route, from 1; 0 if it is elsewhere

    def joined(self, other: "RoutePool", most: int) -> "RoutePool":
        """Return the routes of the best plans in both pools, each in its shortest form."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        both = RoutePool(*(torch.cat(pair, 1) for pair in pairs))
        rank, kept = distinct_routes(both.rank, both.length, both.code, most)
        selected = both.map(lambda x: gather_per_instance(x, kept))
        return replace(selected, rank=rank)

    @property
    def served(self) -> Float[Tensor, "B R n"]:
        """1 for the customers of each route."""
        customers = self.position[..., 1:]
        return (customers > 0).float()


def distinct_routes(
    rank: Float[Tensor, "B C"], length: Float[Tensor, "B C"], code: Int[Tensor, "B C"], most: int
) -> tuple[Float[Tensor, "B R"], Int[Tensor, "B R"]]:
    """Select the routes of the best plans: their ranks and their indices.

    Of routes with the same customers the shortest stays, with the best rank of them all.
    """
    by_length = length.argsort(dim=1, stable=True)
    by_code = code.gather(1, by_length).argsort(dim=1, stable=True)
    order = by_length.gather(1, by_code)
    code = code.gather(1, order)
    rank = rank.gather(1, order)

    is_repeat = torch.nn.functional.pad(code[:, 1:] == code[:, :-1], (1, 0))
    group = (~is_repeat).long().cumsum(1) - 1
    infinite = torch.full_like(rank, torch.inf)
    best_rank = infinite.scatter_reduce(1, group, rank, "amin").gather(1, group)
    rank, kept = best_rank.masked_fill(is_repeat, torch.inf).sort(dim=1, stable=True)
    return rank[:, :most], order.gather(1, kept[:, :most])


# --- plans to routes


def extract_routes(batch: CVRPBatch, plans: EliteSet, most: int) -> RoutePool:
    """Return the best routes of some plans, at most `most` for each instance."""
    elements = 8 * plans.actions[0].numel()
    slices = instance_slices(len(plans.actions), elements)
    routes = max(max_route_count(plans.actions[rows]) for rows in slices)
    pools = [split_into_routes(batch[rows], plans[rows], routes, most) for rows in slices]
    fields = zip(*(vars(pool).values() for pool in pools), strict=True)
    return RoutePool(*(torch.cat(parts) for parts in fields))


def max_route_count(actions: Int[Tensor, "B M T"]) -> int:
    """Return the number of routes of the plan that has the most."""
    at_depot = actions == 0
    route = at_depot.cumsum(2) - at_depot.long()
    return int(route.masked_fill(at_depot, 0).amax()) + 1


def promising_plans(plans: EliteSet, pool: RoutePool) -> EliteSet:
    """Keep the plans that are better than the worst one in the pool; the others leave gaps.

    A worse plan adds no route to the pool, at most a shorter form of a known one. On a GPU counting
    the better plans would make the host wait.
    """
    worst = pool.rank.amax(1, keepdim=True)
    better = (plans.cost < worst).sum(1)
    most = max(1, int(better.amax()))
    cost, best = plans.cost.sort(dim=1, stable=True)
    cost = cost[:, :most]
    actions = gather_per_instance(plans.actions, best[:, :most])
    return EliteSet(cost.masked_fill(cost >= worst, torch.inf), actions)


def split_into_routes(batch: CVRPBatch, elite_set: EliteSet, routes: int, most: int) -> RoutePool:
    """Return the best routes of plans that have at most `routes` routes each."""
    actions = elite_set.actions.long()
    count, plans, steps = actions.shape
    size = batch.xy.shape[1]
    step = torch.arange(steps, device=actions.device).expand(count, plans, -1)
    at_depot = actions == 0
    # The route of each step; a return to the depot belongs to the route before it.
    route = (at_depot.cumsum(2) - at_depot.long()).clamp(max=routes - 1)
    first_step = route.new_full((count, plans, routes), steps)
    first_step = first_step.scatter_reduce(2, route, step.masked_fill(at_depot, steps), "amin")
    owner = route.new_zeros(count, plans, size).scatter(2, actions, route)
    visited = route.new_zeros(count, plans, size).scatter(2, actions, step)
    hashes = customer_codes(size, batch.xy.device).expand(count, plans, -1)
    code = torch.zeros_like(first_step).scatter_add(2, owner[..., 1:], hashes)

    rank = elite_set.cost[..., None].masked_fill(first_step == steps, torch.inf)
    length = route_lengths(batch, actions, route, routes)
    length = length.masked_fill(rank.isinf(), torch.inf)  # gaps of the set are no plans
    rank, kept = distinct_routes(rank.flatten(1), length.flatten(1), code.flatten(1), most)

    length = length.flatten(1).gather(1, kept)
    code = code.flatten(1).gather(1, kept)
    first_step = first_step.flatten(1).gather(1, kept)
    plan = kept // routes
    is_member = gather_per_instance(owner, plan) == (kept % routes)[..., None]
    visited = gather_per_instance(visited, plan)
    position = (visited - first_step[..., None] + 1) * is_member
    position[..., 0] = 0
    return RoutePool(rank, length, code, first_step, position.short())


def route_lengths(
    batch: CVRPBatch, actions: Int[Tensor, "B M T"], route: Int[Tensor, "B M T"], routes: int
) -> Float[Tensor, "B M q"]:
    """Return the length of each route of each plan.

    Sums are in double precision and rounded: a GPU adds in any order, which must not show.
    """
    legs = CVRP().leg_lengths(batch, actions).double()
    owner = torch.cat([route, route[..., -1:]], 2)
    sums = legs.new_zeros(*actions.shape[:2], routes)
    return sums.scatter_add(2, owner, legs).float()


@cache
def customer_codes(size: int, device: torch.device) -> Int[Tensor, "n"]:
    """Return the random number that each customer adds to the hash of a route.

    Cached, because a GPU would wait for the copy.
    """
    rng = torch.Generator().manual_seed(0)
    return torch.randint(1, 2**62, (size - 1,), generator=rng).to(device)


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
        at_once = torch.get_num_threads()
    elif pool.rank.is_cuda:
        at_once = TUNING.instances_per_look_cuda
    else:
        at_once = TUNING.instances_per_look_cpu
    slices = instance_slices(count, size * routes, at_once)

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
    """Do the same for as many instances as fit into memory."""
    best_cost = pool.rank.amin(1, keepdim=True)
    best_length = batch.without_surcharge(best_cost)
    cost = (pool.length / best_length.float()).masked_fill(pool.rank.isinf(), torch.inf)
    in_best = pool.rank <= best_cost * EQUAL_COST
    max_routes = in_best.sum(1) + TUNING.extra_routes
    if batch.vehicles is not None:
        max_routes = torch.minimum(max_routes, batch.vehicles)
    # Where even the best plan has too many routes, any plan for the fleet is welcome.
    exceeds_fleet = best_cost[:, 0] > best_length[:, 0]
    max_cost = torch.full_like(cost[:, 0], EQUAL_COST).masked_fill(exceeds_fleet, torch.inf)

    problem = PartitionProblem(pool.served, pool.code, cost, in_best, max_routes, max_cost)
    chosen = solve_partition(problem, width, engine)
    horizon = 2 * (pool.position.shape[2] - 1)
    actions = actions_of_routes(pool, chosen, horizon)[:, None]
    is_missing = chosen[:, :1] < 0
    return EliteSet(CVRP().cost(batch, actions).masked_fill(is_missing, torch.inf), actions)


def actions_of_routes(
    pool: RoutePool, chosen: Int[Tensor, "B q"], horizon: int
) -> Int[Tensor, "B T"]:
    """Return the action sequence of some routes, in the order in which their own plans had them."""
    first_step = pool.first_step.gather(1, chosen.clamp(min=0))
    order = first_step.masked_fill(chosen < 0, horizon).argsort(dim=1, stable=True)
    chosen = chosen.gather(1, order)
    position = gather_per_instance(pool.position, chosen.clamp(min=0)).long()
    position = position * (chosen >= 0)[..., None]
    length = (position > 0).sum(2) + 1  # with the return to the depot
    before = length.cumsum(1) - length
    step = (before[..., None] + position - 1).masked_fill(position == 0, 0)
    step = step.sum(1)[:, 1:]
    customers = torch.arange(1, position.shape[2], device=chosen.device).expand_as(step)
    actions = torch.zeros(len(chosen), horizon, dtype=torch.int64, device=chosen.device)
    return actions.scatter(1, step, customers)
