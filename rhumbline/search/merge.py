"""Routes of different plans put together to a better one.

A good plan has routes that could be better, and for most of them a better one was built: in another plan, which is
worse elsewhere. Which routes of all good plans serve every customer once, at the least cost, is a problem of its own
(set partitioning). Here prices of customers say what a route is worth (Lagrange multipliers), and a beam picks routes,
always for the customer with the fewest left to choose from. It builds nothing new, so it costs no attempt. All of it is
batched tensor operations but, where there is a compiled one, the beam.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.problems.cvrp import CVRP, CVRPBatch
from rhumbline.record import Record
from rhumbline.search.herd import SAME, Herd
from rhumbline.search.pool import pick, repeated

ROUNDS, PACE, MOMENTUM, PATIENCE = 200, 0.7, 0.7, 20  # of prices; the pace is halved after so many rounds in vain
SPARE = 3  # routes that a merged plan may have more than the best one, or than the best ones together
TINY = 1e-6
CONSIDERED = 4  # candidates for each place in the beam: many serve the same customers
TOGETHER = 1 << 26  # numbers of a beam's step that are worked on at once
FEW = 4  # instances between two looks at the clock, on a CPU without the compiled beam


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
    ends = herd.actions == 0
    many = int((ends.cumsum(2) - ends.long()).masked_fill(ends, 0).amax()) + 1
    parts = by_instances(len(ends), 8 * ends[0].numel())
    found = [cut_apart(batch[rows], herd[rows], many, most) for rows in parts]
    return Stock(*(torch.cat(part) for part in zip(*(vars(stock).values() for stock in found), strict=True)))


def promising(herd: Herd, stock: Stock) -> Herd:
    """Plans that are better than the worst one in stock; gaps where another instance has more of them.

    The others would leave no new route there, at most a shorter way round customers of a known one. A GPU would have to
    wait to know how many they are.
    """
    worst = stock.rank.amax(1, keepdim=True)
    most = max(1, int((herd.cost < worst).sum(1).amax()))
    cost, best = (x[:, :most] for x in herd.cost.sort(dim=1, stable=True))
    return Herd(cost.masked_fill(cost >= worst, torch.inf), pick(herd.actions, best))


def by_instances(count: int, numbers: int, most: int | None = None) -> list[slice]:
    """Instances that are worked on at once, where each takes so many numbers."""
    some = min(max(1, TOGETHER // numbers), most or count)
    return [slice(at, at + some) for at in range(0, count, some)]


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
    batch: CVRPBatch, stock: Stock, width: int, late: Callable[[], bool] = lambda: False, compiled: bool = False
) -> Herd:
    """The best plan that a beam makes of the routes, which may be one that is known; of infinite cost if it makes none.

    Instances that nobody has come to when it is late have none either. By tensor operations or, on a CPU, compiled.
    """
    count, routes, size = stock.turn.shape
    few = torch.get_num_threads() if compiled else FEW
    parts = by_instances(count, size * routes, few if stock.rank.device.type == "cpu" else count)
    actions = stock.turn.new_zeros(count, 1, 2 * (size - 1), dtype=torch.int64)
    found = Herd(torch.full_like(stock.rank[:, :1], torch.inf), actions)
    for rows in parts:
        if late():
            break
        part = merged_together(batch[rows], stock[rows], width, partition_compiled if compiled else partition_together)
        found.cost[rows], found.actions[rows] = part.cost.to(found.cost.dtype), part.actions
    return found


def merged_together(batch: CVRPBatch, stock: Stock, width: int, find: "Finder") -> Herd:
    """The same for as many instances as there is memory for."""
    least = stock.rank.amin(1, keepdim=True)
    cost = (stock.length / batch.plain(least).float()).masked_fill(stock.rank.isinf(), torch.inf)
    best = stock.rank <= least * (1.0 + SAME)
    depth = best.sum(1) + SPARE
    depth = depth if batch.vehicles is None else torch.minimum(depth, batch.vehicles)
    any_welcome = least[:, 0] > batch.plain(least)[:, 0]  # plan for the fleet
    ceiling = torch.full_like(cost[:, 0], 1.0 + SAME).masked_fill(any_welcome, torch.inf)
    chosen = find(stock, cost, best, depth, ceiling, width)
    actions = spelt(stock, chosen, 2 * (stock.turn.shape[2] - 1))[:, None]
    return Herd(CVRP().cost(batch, actions).masked_fill(chosen[:, :1] < 0, torch.inf), actions)


Finder = Callable[
    [Stock, Float[Tensor, "B R"], Bool[Tensor, "B R"], Int[Tensor, "B"], Float[Tensor, "B"], int], Int[Tensor, "B q"]
]  # of a stock, costs relative to the best plan, its routes, their most, a ceiling and a width: the routes of a plan


def partition_compiled(
    stock: Stock,
    cost: Float[Tensor, "B R"],
    best: Bool[Tensor, "B R"],
    depth: Int[Tensor, "B"],
    ceiling: Float[Tensor, "B"],
    width: int,
) -> Int[Tensor, "B q"]:
    """The routes of the best plan that is found below the ceiling, -1 behind the last; a thread for each instance."""
    from rhumbline.kernels import local

    descent, customers = (ROUNDS, PACE, MOMENTUM, PATIENCE), stock.turn.shape[2] - 1
    offers = [offered(stock[row : row + 1], cost[row], best[row]) for row in range(len(cost))]

    def find(offer: tuple[list[np.ndarray], np.ndarray], ceiling: float, depth: int) -> list[int]:
        return local.cheapest_partition(*offer, customers, ceiling, descent, depth, width, CONSIDERED)

    with ThreadPoolExecutor(len(offers)) as pool:  # no tensors there: each thread would have threads of its own
        found = list(pool.map(find, offers, ceiling.tolist(), depth.tolist()))
    longest = max(map(len, found)) + 1
    return torch.tensor([[*chosen, *[-1] * (longest - len(chosen))] for chosen in found])


def offered(stock: Stock, cost: Float[Tensor, "R"], best: Bool[Tensor, "R"]) -> tuple[list[np.ndarray], np.ndarray]:
    """What `local.cheapest_partition` wants to know of the routes of one instance; a gap serves nobody."""
    real = cost.isfinite()
    owner, members = (stock.turn[0, :, 1:] * real[:, None]).nonzero(as_tuple=True)
    begins = torch.nn.functional.pad(owner.bincount(minlength=len(cost)).cumsum(0), (1, 0))
    price = cost.double().masked_fill(~real, 1.0)
    return [x.numpy() for x in (begins, members.int(), price, stock.code[0])], (best & real).numpy()


def partition_together(
    stock: Stock,
    cost: Float[Tensor, "B R"],
    best: Bool[Tensor, "B R"],
    depth: Int[Tensor, "B"],
    ceiling: Float[Tensor, "B"],
    width: int,
) -> Int[Tensor, "B q"]:
    """The same by tensor operations; the beams of as many instances at once as there is memory for."""
    served = stock.served
    price = prices(cost, served, best)
    value, paid = cost - worth(served, price), price.sum(1)
    most = ceiling - paid - value.clamp(max=0.0).sum(1)  # what is to come may be worth so much
    parts = by_instances(len(cost), width * cost.shape[1])
    offers = [Offer(value[rows], served[rows], stock.code[rows], most[rows]) for rows in parts]
    found = [partition(offer, depth[rows], width) for offer, rows in zip(offers, parts, strict=True)]
    longest, dear = max(x.shape[1] for _, x in found), torch.cat([total for total, _ in found]) >= ceiling - paid
    chosen = torch.cat([torch.nn.functional.pad(x, (0, longest - x.shape[1]), value=-1) for _, x in found])
    return chosen.masked_fill(dear[:, None], -1)


def prices(
    cost: Float[Tensor, "B R"], served: Float[Tensor, "B R n"], best: Bool[Tensor, "B R"]
) -> Float[Tensor, "B n"]:
    """Prices of customers that make a lower bound of all plans high, where the best one costs 1. By subgradients."""
    share = cost.masked_fill(~best, 0.0) / served.sum(2).clamp(min=1.0)
    sums = (torch.stack([share, best.float()], 1).double() @ served.double()).float()  # there may be several best plans
    price, way = sums[:, 0] / sums[:, 1].clamp(min=1.0), torch.zeros_like(served[:, 0])
    kept, bound = price, torch.full_like(cost[:, :1], -torch.inf)
    pace, vain = torch.full_like(bound, PACE), torch.zeros_like(bound)
    for _ in range(ROUNDS):
        value = cost - worth(served, price)
        low = price.sum(1, keepdim=True) + value.clamp(max=0.0).sum(1, keepdim=True)
        higher = low > bound
        kept, bound = torch.where(higher, price, kept), torch.maximum(low, bound)
        vain = (vain + 1.0).masked_fill(higher | (vain + 1.0 > PATIENCE), 0.0)
        pace = torch.where((vain == 0) & ~higher, 0.5 * pace, pace)
        lack = 1.0 - ((value < 0).float()[:, None] @ served)[:, 0]
        way = MOMENTUM * way + lack
        price = price + pace * (1.0 - low).clamp(min=0.0) / (way.square().sum(1, keepdim=True) + TINY) * way
    return kept


def worth(served: Float[Tensor, "B R n"], price: Float[Tensor, "B n"]) -> Float[Tensor, "B R"]:
    """What the customers of each route pay. As a product of matrices its last bits would depend on the batch."""
    return (served * price[:, None]).sum(2)


@dataclass(frozen=True)
class Offer(Record):
    """Routes to choose from."""

    value: Float[Tensor, "B R"]
    served: Float[Tensor, "B R n"]  # 1 for the customers of each
    code: Int[Tensor, "B R"]
    most: Float[Tensor, "B"]  # sums of values from here on make no better plan

    def narrowed(self) -> "Offer":
        """In numbers of half the size where that is faster: exact up to 256, and it is the least count that matters."""
        return replace(self, served=self.served.bfloat16()) if self.served.is_cuda else self


@dataclass(frozen=True)
class Partial(Record):
    """Places of the beam: routes that have no customer in common."""

    cover: Float[Tensor, "B W n"]  # 1 for customers who are served
    score: Float[Tensor, "B W"]
    code: Int[Tensor, "B W"]  # of these customers


def partition(offer: Offer, depth: Int[Tensor, "B"], width: int) -> tuple[Float[Tensor, "B"], Int[Tensor, "B q"]]:
    """The least sum of values of up to `depth` routes that serve everybody once, and these routes, -1 behind the last.

    A route is always added for a customer who has the fewest to choose from, so that dead ends are seen early. Where
    nothing is found the sum is infinite.
    """
    offer = offer.narrowed()
    (count, _, n), device = offer.served.shape, offer.served.device
    across, none = offer.served.mT.contiguous(), offer.value.new_zeros(count, 1)
    state = Partial(offer.served.new_zeros(count, 1, n), none, offer.code.new_zeros(count, 1))
    total, last = none[:, 0] + torch.inf, torch.zeros(2, count, dtype=torch.int64, device=device)
    steps = list[tuple[Tensor, Tensor]]()
    for deep in range(int(depth.amax())):
        if device.type == "cpu" and not state.score.isfinite().any():
            break  # a GPU would wait for the answer
        state, parent, route = extended(state, offer, across, width)
        steps.append((parent, route))
        whole = state.cover.sum(2, dtype=torch.float32) == n
        least, at = state.score.masked_fill(~whole | (deep >= depth)[:, None], torch.inf).min(1)
        last = torch.where(least < total, torch.stack([torch.full_like(at, deep), at]), last)
        total, state = torch.minimum(total, least), replace(state, score=state.score.masked_fill(whole, torch.inf))
    return total, retraced(steps, last, total)


def extended(
    state: Partial, offer: Offer, across: Float[Tensor, "B n R"], width: int
) -> tuple[Partial, Int[Tensor, "B W"], Int[Tensor, "B W"]]:
    """The best places with one route more, no two for the same customers; where they come from, and by which route."""
    served, routes = offer.served, across.shape[2]
    sums = state.score[..., None] + offer.value[:, None]
    free = (state.cover @ across == 0).logical_and_(sums < offer.most[:, None, None])
    choices = (free.to(served.dtype) @ served).masked_fill_(state.cover > 0, torch.inf)
    free &= pick(across, choices.argmin(2)) > 0  # routes for whoever has the fewest to choose from
    sums = sums.masked_fill_(free.logical_not_(), torch.inf).flatten(1)
    score, where = sums.topk(min(CONSIDERED * width, sums.shape[1]), dim=1, largest=False)
    parent, route = where // routes, where % routes
    codes = state.code.gather(1, parent) + offer.code.gather(1, route)
    score, kept = (x[:, :width] for x in score.masked_fill(repeated(codes), torch.inf).sort(dim=1, stable=True))
    parent, route, codes = (x.gather(1, kept) for x in (parent, route, codes))
    return Partial(pick(state.cover, parent) + pick(served, route), score, codes), parent, route


def retraced(
    steps: list[tuple[Tensor, Tensor]], last: Int[Tensor, "2 B"], total: Float[Tensor, "B"]
) -> Int[Tensor, "B q"]:
    """The routes on the way to those that were last, given at which step and place."""
    (depth, at), chosen = last, list[Tensor]()
    for deep in reversed(range(len(steps))):
        there = (deep <= depth) & total.isfinite()
        place = at[:, None].clamp(max=steps[deep][0].shape[1] - 1)  # of no account where it is too large
        parent, route = (x.gather(1, place)[:, 0] for x in steps[deep])
        chosen.append(torch.where(there, route, -1))
        at = torch.where(there, parent, at)
    return torch.stack(chosen[::-1], 1)


def spelt(stock: Stock, chosen: Int[Tensor, "B q"], horizon: int) -> Int[Tensor, "B T"]:
    """The plan of some routes, those first that began first in plans of their own."""
    order = stock.begins.gather(1, chosen.clamp(min=0)).masked_fill(chosen < 0, horizon).argsort(dim=1, stable=True)
    chosen = chosen.gather(1, order)
    turn = pick(stock.turn, chosen.clamp(min=0)).long() * (chosen >= 0)[..., None]
    length = (turn > 0).sum(2) + 1  # and the way back
    step = ((length.cumsum(1) - length)[..., None] + turn - 1).masked_fill(turn == 0, 0).sum(1)[:, 1:]
    customers = torch.arange(1, turn.shape[2], device=chosen.device).expand_as(step)
    return torch.zeros(len(chosen), horizon, dtype=torch.int64, device=chosen.device).scatter(1, step, customers)
