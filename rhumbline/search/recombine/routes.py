"""Routes of different plans put together to a better one.

A good plan has routes that could be better, and for most of them a better one was built: in another
plan, which is worse elsewhere. Which routes of all good plans serve every customer once, at the
least cost, is a problem of its own (`partition`). To solve it builds nothing new, so it costs no
attempt.
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
from rhumbline.search.plan_sets.elite import SAME, EliteSet
from rhumbline.search.recombine.set_partitioning import (
    PartitionEngine,
    PartitionProblem,
    best_partition_engine,
    instance_slices,
    solve_partition,
)
from rhumbline.search.task import Task

SPARE = (
    3  # routes that a merged plan may have more than the best one, or than the best ones together
)
FEW, SOME = (
    4,
    128,
)  # instances between two looks at the clock, on a CPU without the compiled beam, and on a GPU


@dataclass(frozen=True)
class PartitionBudget:
    """How much is made of routes: what an engine has time for beside the rollouts of its device."""

    stock: int  # routes
    routes_per_place: int  # of them for each place of the beam, up to 100 customers
    merges: int = 8  # in the course of a search, the last one at its end
    routes_per_attempt: int = 4  # routes for each attempt of a whole search
    max_elements: int = 1 << 24  # numbers of all routes of all instances


PARTITION_BUDGETS: dict[PartitionEngine, PartitionBudget] = {
    "tensors": PartitionBudget(512, 2),
    "compiled": PartitionBudget(2048, 4),
    "kernels": PartitionBudget(4096, 2, merges=16, routes_per_attempt=32, max_elements=1 << 28),
}


def partition_engine_for(task: Task) -> PartitionEngine:
    """What puts the routes of a task together."""
    return best_partition_engine(
        task.device, task.problem.action_count(task.batch) - 1, task.engine
    )


@dataclass(frozen=True)
class RoutePool(Record):
    """Routes of good plans, no two with the same customers. One of infinite rank is a gap."""

    rank: Float[Tensor, "B R"]  # cost of the cheapest plan it was seen in
    length: Float[Tensor, "B R"]
    code: Int[Tensor, "B R"]  # of its customers, in whatever order
    begins: Int[Tensor, "B R"]  # step of its plan
    turn: Int[Tensor, "B R N"]  # when each node is served, counted from 1; 0 is never

    def joined(self, other: "RoutePool", most: int) -> "RoutePool":
        """The routes of the best plans in both, each as short as it was ever seen."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        both = RoutePool(*(torch.cat(pair, 1) for pair in pairs))
        rank, kept = distinct_routes(both.rank, both.length, both.code, most)
        return replace(both.map(lambda x: gather_per_instance(x, kept)), rank=rank)

    @property
    def served(self) -> Float[Tensor, "B R n"]:
        """1 for the customers of each route."""
        return (self.turn[..., 1:] > 0).float()


def distinct_routes(
    rank: Float[Tensor, "B C"], length: Float[Tensor, "B C"], code: Int[Tensor, "B C"], most: int
) -> tuple[Float[Tensor, "B R"], Int[Tensor, "B R"]]:
    """The routes of the best plans, and the ranks of these; of those with the same customers the
    shortest.
    """
    order = length.argsort(dim=1, stable=True)
    order = order.gather(1, code.gather(1, order).argsort(dim=1, stable=True))
    code = code.gather(1, order)
    rank = rank.gather(1, order)
    again = torch.nn.functional.pad(code[:, 1:] == code[:, :-1], (1, 0))
    group = (~again).long().cumsum(1) - 1
    least = torch.full_like(rank, torch.inf).scatter_reduce(1, group, rank, "amin").gather(1, group)
    rank, kept = (x[:, :most] for x in least.masked_fill(again, torch.inf).sort(dim=1, stable=True))
    return rank, order.gather(1, kept)


def extract_routes(batch: CVRPBatch, elite_set: EliteSet, most: int) -> RoutePool:
    """The routes of some plans."""
    parts = instance_slices(len(elite_set.actions), 8 * elite_set.actions[0].numel())
    many = max(max_route_count(elite_set.actions[rows]) for rows in parts)
    found = [split_into_routes(batch[rows], elite_set[rows], many, most) for rows in parts]
    return RoutePool(
        *(torch.cat(part) for part in zip(*(vars(stock).values() for stock in found), strict=True))
    )


def max_route_count(actions: Int[Tensor, "B M T"]) -> int:
    """Of any of some plans."""
    ends = actions == 0
    return int((ends.cumsum(2) - ends.long()).masked_fill(ends, 0).amax()) + 1


def promising_plans(elite_set: EliteSet, stock: RoutePool) -> EliteSet:
    """Plans that are better than the worst one in stock; gaps where another instance has more of
    them.

    The others would leave no new route there, at most a shorter way round customers of a known one.
    A GPU would have to wait to know how many they are.
    """
    worst = stock.rank.amax(1, keepdim=True)
    most = max(1, int((elite_set.cost < worst).sum(1).amax()))
    cost, best = (x[:, :most] for x in elite_set.cost.sort(dim=1, stable=True))
    return EliteSet(
        cost.masked_fill(cost >= worst, torch.inf), gather_per_instance(elite_set.actions, best)
    )


def split_into_routes(batch: CVRPBatch, elite_set: EliteSet, many: int, most: int) -> RoutePool:
    """The routes of plans that have no more than so many."""
    actions, (count, plans, steps), size = (
        elite_set.actions.long(),
        elite_set.actions.shape,
        batch.xy.shape[1],
    )
    ends = actions == 0
    step = torch.arange(steps, device=actions.device).expand(count, plans, -1)
    route = (ends.cumsum(2) - ends.long()).clamp(
        max=many - 1
    )  # of each step, with its return; empty after the end
    begins = route.new_full((count, plans, many), steps).scatter_reduce(
        2, route, step.masked_fill(ends, steps), "amin"
    )
    owner, when = (
        route.new_zeros(count, plans, size).scatter(2, actions, x) for x in (route, step)
    )
    code = torch.zeros_like(begins).scatter_add(
        2, owner[..., 1:], customer_codes(size, batch.xy.device).expand(count, plans, -1)
    )
    rank = elite_set.cost[..., None].masked_fill(begins == steps, torch.inf)
    length = route_lengths(batch, actions, route, many).masked_fill(
        rank.isinf(), torch.inf
    )  # gaps are no plans
    rank, kept = distinct_routes(*(x.flatten(1) for x in (rank, length, code)), most)
    length, code, begins = (x.flatten(1).gather(1, kept) for x in (length, code, begins))
    mine = gather_per_instance(owner, kept // many) == (kept % many)[..., None]
    turn = (gather_per_instance(when, kept // many) - begins[..., None] + 1) * mine
    turn[..., 0] = 0
    return RoutePool(rank, length, code, begins, turn.short())


def route_lengths(
    batch: CVRPBatch, actions: Int[Tensor, "B M T"], route: Int[Tensor, "B M T"], many: int
) -> Float[Tensor, "B M q"]:
    """Of each route, summed in double precision and rounded: a GPU adds in any order, which must
    not be seen.
    """
    legs = CVRP().leg_lengths(batch, actions).double()
    sums = legs.new_zeros(*actions.shape[:2], many).scatter_add(
        2, torch.cat([route, route[..., -1:]], 2), legs
    )
    return sums.float()


@cache
def customer_codes(size: int, device: torch.device) -> Int[Tensor, "n"]:
    """What each customer adds to a code; kept, since a GPU would wait for it."""
    return torch.randint(1, 2**62, (size - 1,), generator=torch.Generator().manual_seed(0)).to(
        device
    )


def recombine_routes(
    batch: CVRPBatch,
    stock: RoutePool,
    width: int,
    late: Callable[[], bool] = lambda: False,
    engine: PartitionEngine = "tensors",
) -> EliteSet:
    """The best plan that a beam makes of the routes, which may be one that is known; of infinite
    cost if it makes none.

    Instances that nobody has come to when it is late have none either.
    """
    count, routes, size = stock.turn.shape
    few = torch.get_num_threads() if engine == "compiled" else SOME if stock.rank.is_cuda else FEW
    parts = instance_slices(count, size * routes, few)
    actions = stock.turn.new_zeros(count, 1, 2 * (size - 1), dtype=torch.int64)
    found = EliteSet(torch.full_like(stock.rank[:, :1], torch.inf), actions)
    for rows in parts:
        if late():
            break
        part = recombine_batch(batch[rows], stock[rows], width, engine)
        found.cost[rows], found.actions[rows] = part.cost.to(found.cost.dtype), part.actions
    return found


def recombine_batch(
    batch: CVRPBatch, stock: RoutePool, width: int, engine: PartitionEngine
) -> EliteSet:
    """The same for as many instances as there is memory for."""
    least = stock.rank.amin(1, keepdim=True)
    cost = (stock.length / batch.without_surcharge(least).float()).masked_fill(
        stock.rank.isinf(), torch.inf
    )
    best = stock.rank <= least * (1.0 + SAME)
    depth = best.sum(1) + SPARE
    depth = depth if batch.vehicles is None else torch.minimum(depth, batch.vehicles)
    any_welcome = least[:, 0] > batch.without_surcharge(least)[:, 0]  # plan for the fleet
    ceiling = torch.full_like(cost[:, 0], 1.0 + SAME).masked_fill(any_welcome, torch.inf)
    chosen = solve_partition(
        PartitionProblem(stock.served, stock.code, cost, best, depth, ceiling), width, engine
    )
    actions = actions_of_routes(stock, chosen, 2 * (stock.turn.shape[2] - 1))[:, None]
    return EliteSet(CVRP().cost(batch, actions).masked_fill(chosen[:, :1] < 0, torch.inf), actions)


def actions_of_routes(
    stock: RoutePool, chosen: Int[Tensor, "B q"], horizon: int
) -> Int[Tensor, "B T"]:
    """The plan of some routes, those first that began first in plans of their own."""
    order = (
        stock.begins.gather(1, chosen.clamp(min=0))
        .masked_fill(chosen < 0, horizon)
        .argsort(dim=1, stable=True)
    )
    chosen = chosen.gather(1, order)
    turn = gather_per_instance(stock.turn, chosen.clamp(min=0)).long() * (chosen >= 0)[..., None]
    length = (turn > 0).sum(2) + 1  # and the way back
    step = (
        ((length.cumsum(1) - length)[..., None] + turn - 1).masked_fill(turn == 0, 0).sum(1)[:, 1:]
    )
    customers = torch.arange(1, turn.shape[2], device=chosen.device).expand_as(step)
    return torch.zeros(len(chosen), horizon, dtype=torch.int64, device=chosen.device).scatter(
        1, step, customers
    )
