"""Routes of different plans put together to a better one.

A good plan has routes that could be better, and for most of them a better one was built: in another plan, which is
worse elsewhere. Which routes of all good plans serve every customer once, at the least cost, is a problem of its own
(`partition`). To solve it builds nothing new, so it costs no attempt.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.problems.cvrp import CVRP, CVRPBatch
from rhumbline.record import Record
from rhumbline.search.plan_sets.diverse import pick
from rhumbline.search.plan_sets.elite import SAME, Herd
from rhumbline.search.recombine.set_partitioning import Choice, Engine, best_engine, by_instances, routes_found
from rhumbline.search.task import Task

SPARE = 3  # routes that a merged plan may have more than the best one, or than the best ones together
FEW, SOME = 4, 128  # instances between two looks at the clock, on a CPU without the compiled beam, and on a GPU


@dataclass(frozen=True)
class Means:
    """How much is made of routes: what an engine has time for beside the rollouts of its device."""

    stock: int  # routes
    aplace: int  # of them for each place of the beam, up to 100 customers
    merges: int = 8  # in the course of a search, the last one at its end
    an_attempt: int = 4  # routes for each attempt of a whole search
    room: int = 1 << 24  # numbers of all routes of all instances


MEANS: dict[Engine, Means] = {
    "tensors": Means(512, 2),
    "compiled": Means(2048, 4),
    "kernels": Means(4096, 2, merges=16, an_attempt=32, room=1 << 28),
}


def engine_of(task: Task) -> Engine:
    """What puts the routes of a task together."""
    return best_engine(task.device, task.problem.width(task.batch) - 1, task.engine)


@dataclass(frozen=True)
class Stock(Record):
    """Routes of good plans, no two with the same customers. One of infinite rank is a gap."""

    rank: Float[Tensor, "B R"]  # cost of the cheapest plan it was seen in
    length: Float[Tensor, "B R"]
    code: Int[Tensor, "B R"]  # of its customers, in whatever order
    begins: Int[Tensor, "B R"]  # step of its plan
    turn: Int[Tensor, "B R N"]  # when each node is served, counted from 1; 0 is never

    def joined(self, other: "Stock", most: int) -> "Stock":
        """The routes of the best plans in both, each as short as it was ever seen."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        both = Stock(*(torch.cat(pair, 1) for pair in pairs))
        rank, kept = distinct(both.rank, both.length, both.code, most)
        return replace(both.map(lambda x: pick(x, kept)), rank=rank)

    @property
    def served(self) -> Float[Tensor, "B R n"]:
        """1 for the customers of each route."""
        return (self.turn[..., 1:] > 0).float()


def distinct(
    rank: Float[Tensor, "B C"], length: Float[Tensor, "B C"], code: Int[Tensor, "B C"], most: int
) -> tuple[Float[Tensor, "B R"], Int[Tensor, "B R"]]:
    """The routes of the best plans, and the ranks of these; of those with the same customers the shortest."""
    order = length.argsort(dim=1, stable=True)
    order = order.gather(1, code.gather(1, order).argsort(dim=1, stable=True))
    code, rank = code.gather(1, order), rank.gather(1, order)
    again = torch.nn.functional.pad(code[:, 1:] == code[:, :-1], (1, 0))
    group = (~again).long().cumsum(1) - 1
    least = torch.full_like(rank, torch.inf).scatter_reduce(1, group, rank, "amin").gather(1, group)
    rank, kept = (x[:, :most] for x in least.masked_fill(again, torch.inf).sort(dim=1, stable=True))
    return rank, order.gather(1, kept)


def routes_of(batch: CVRPBatch, herd: Herd, most: int) -> Stock:
    """The routes of some plans."""
    parts = by_instances(len(herd.actions), 8 * herd.actions[0].numel())
    many = max(most_routes(herd.actions[rows]) for rows in parts)
    found = [cut_apart(batch[rows], herd[rows], many, most) for rows in parts]
    return Stock(*(torch.cat(part) for part in zip(*(vars(stock).values() for stock in found), strict=True)))


def most_routes(actions: Int[Tensor, "B M T"]) -> int:
    """Of any of some plans."""
    ends = actions == 0
    return int((ends.cumsum(2) - ends.long()).masked_fill(ends, 0).amax()) + 1


def promising(herd: Herd, stock: Stock) -> Herd:
    """Plans that are better than the worst one in stock; gaps where another instance has more of them.

    The others would leave no new route there, at most a shorter way round customers of a known one. A GPU would have to
    wait to know how many they are.
    """
    worst = stock.rank.amax(1, keepdim=True)
    most = max(1, int((herd.cost < worst).sum(1).amax()))
    cost, best = (x[:, :most] for x in herd.cost.sort(dim=1, stable=True))
    return Herd(cost.masked_fill(cost >= worst, torch.inf), pick(herd.actions, best))


def cut_apart(batch: CVRPBatch, herd: Herd, many: int, most: int) -> Stock:
    """The routes of plans that have no more than so many."""
    actions, (count, plans, steps), size = herd.actions.long(), herd.actions.shape, batch.xy.shape[1]
    ends, step = actions == 0, torch.arange(steps, device=actions.device).expand(count, plans, -1)
    route = (ends.cumsum(2) - ends.long()).clamp(max=many - 1)  # of each step, with its return; empty after the end
    begins = route.new_full((count, plans, many), steps).scatter_reduce(2, route, step.masked_fill(ends, steps), "amin")
    owner, when = (route.new_zeros(count, plans, size).scatter(2, actions, x) for x in (route, step))
    code = torch.zeros_like(begins).scatter_add(
        2, owner[..., 1:], weights(size, batch.xy.device).expand(count, plans, -1)
    )
    rank = herd.cost[..., None].masked_fill(begins == steps, torch.inf)
    length = lengths(batch, actions, route, many).masked_fill(rank.isinf(), torch.inf)  # gaps are no plans
    rank, kept = distinct(*(x.flatten(1) for x in (rank, length, code)), most)
    length, code, begins = (x.flatten(1).gather(1, kept) for x in (length, code, begins))
    mine = pick(owner, kept // many) == (kept % many)[..., None]
    turn = (pick(when, kept // many) - begins[..., None] + 1) * mine
    turn[..., 0] = 0
    return Stock(rank, length, code, begins, turn.short())


def lengths(
    batch: CVRPBatch, actions: Int[Tensor, "B M T"], route: Int[Tensor, "B M T"], many: int
) -> Float[Tensor, "B M q"]:
    """Of each route, summed in double precision and rounded: a GPU adds in any order, which must not be seen."""
    legs = CVRP().legs(batch, actions).double()
    sums = legs.new_zeros(*actions.shape[:2], many).scatter_add(2, torch.cat([route, route[..., -1:]], 2), legs)
    return sums.float()


@cache
def weights(size: int, device: torch.device) -> Int[Tensor, "n"]:
    """What each customer adds to a code; kept, since a GPU would wait for it."""
    return torch.randint(1, 2**62, (size - 1,), generator=torch.Generator().manual_seed(0)).to(device)


def merged(
    batch: CVRPBatch, stock: Stock, width: int, late: Callable[[], bool] = lambda: False, engine: Engine = "tensors"
) -> Herd:
    """The best plan that a beam makes of the routes, which may be one that is known; of infinite cost if it makes none.

    Instances that nobody has come to when it is late have none either.
    """
    count, routes, size = stock.turn.shape
    few = torch.get_num_threads() if engine == "compiled" else SOME if stock.rank.is_cuda else FEW
    parts = by_instances(count, size * routes, few)
    actions = stock.turn.new_zeros(count, 1, 2 * (size - 1), dtype=torch.int64)
    found = Herd(torch.full_like(stock.rank[:, :1], torch.inf), actions)
    for rows in parts:
        if late():
            break
        part = merged_together(batch[rows], stock[rows], width, engine)
        found.cost[rows], found.actions[rows] = part.cost.to(found.cost.dtype), part.actions
    return found


def merged_together(batch: CVRPBatch, stock: Stock, width: int, engine: Engine) -> Herd:
    """The same for as many instances as there is memory for."""
    least = stock.rank.amin(1, keepdim=True)
    cost = (stock.length / batch.plain(least).float()).masked_fill(stock.rank.isinf(), torch.inf)
    best = stock.rank <= least * (1.0 + SAME)
    depth = best.sum(1) + SPARE
    depth = depth if batch.vehicles is None else torch.minimum(depth, batch.vehicles)
    any_welcome = least[:, 0] > batch.plain(least)[:, 0]  # plan for the fleet
    ceiling = torch.full_like(cost[:, 0], 1.0 + SAME).masked_fill(any_welcome, torch.inf)
    chosen = routes_found(Choice(stock.served, stock.code, cost, best, depth, ceiling), width, engine)
    actions = spelt(stock, chosen, 2 * (stock.turn.shape[2] - 1))[:, None]
    return Herd(CVRP().cost(batch, actions).masked_fill(chosen[:, :1] < 0, torch.inf), actions)


def spelt(stock: Stock, chosen: Int[Tensor, "B q"], horizon: int) -> Int[Tensor, "B T"]:
    """The plan of some routes, those first that began first in plans of their own."""
    order = stock.begins.gather(1, chosen.clamp(min=0)).masked_fill(chosen < 0, horizon).argsort(dim=1, stable=True)
    chosen = chosen.gather(1, order)
    turn = pick(stock.turn, chosen.clamp(min=0)).long() * (chosen >= 0)[..., None]
    length = (turn > 0).sum(2) + 1  # and the way back
    step = ((length.cumsum(1) - length)[..., None] + turn - 1).masked_fill(turn == 0, 0).sum(1)[:, 1:]
    customers = torch.arange(1, turn.shape[2], device=chosen.device).expand_as(step)
    return torch.zeros(len(chosen), horizon, dtype=torch.int64, device=chosen.device).scatter(1, step, customers)
