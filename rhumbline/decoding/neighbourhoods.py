"""Parts of a plan built anew: most of it is kept, and the policy fills in the rest, several times.

What a policy decides depends on what has been done, not on the order of the routes behind it. So
any routes of a plan, or any stretch of a tour, may be the beginning of a rollout. If those that are
left out lie near one another, a few dozen nodes are planned again among themselves, for a fraction
of the work of a whole rollout.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding.request import Prefixes

MIN_FREE_NODES, MAX_FREE_NODES = 12, 60  # nodes to plan again, about


def neighbourhood_prefixes(
    name: str,
    xy: Float[Tensor, "B N 2"],
    plan: Int[Tensor, "B T"],
    luck: Float[Tensor, "B A 2"],
    *,
    both: bool = True,
) -> Prefixes:
    """Most of each plan, cut in several ways: the luck says where and how much.

    Tours are carried on from either end of what is left, or, if not `both`, only the way round that
    they were built. A policy goes round one way; the tables of a search that learns know both.
    """
    where = luck[..., 0] if both or name != "tsp" else 0.5 * luck[..., 0]
    return PREFIXES_BY_PROBLEM[name](
        xy, plan, where, MIN_FREE_NODES + (MAX_FREE_NODES - MIN_FREE_NODES) * luck[..., 1]
    )


def tour_prefixes(
    xy: Float[Tensor, "B N 2"],
    plan: Int[Tensor, "B N"],
    where: Float[Tensor, "B A"],
    gone: Float[Tensor, "B A"],
) -> Prefixes:
    """Tours without a stretch, from either of its ends."""
    size = plan.shape[1]
    turned = where * 2 * size  # the first half of the luck forwards, the other backwards
    back = (turned >= size)[..., None]
    place = turned.long()[..., None] % size
    steps = torch.arange(size, device=plan.device)
    index = torch.where(back, place - steps, place + steps) % size
    length = (size - gone.long()).clamp(min=1)
    return Prefixes(plan[:, None].expand(-1, where.shape[1], -1).gather(2, index), length)


def route_prefixes(
    xy: Float[Tensor, "B N 2"],
    plan: Int[Tensor, "B T"],
    where: Float[Tensor, "B A"],
    gone: Float[Tensor, "B A"],
) -> Prefixes:
    """Routes but for those nearest to a customer: two at least, and further ones until enough
    customers are free.
    """
    ends = plan == 0
    size = xy.shape[1]
    at_step = ends.cumsum(1) - ends.long()  # the route of each step, its return included
    of_node = torch.zeros_like(plan[:, :1]).expand(-1, size).scatter(1, plan, at_step)[:, 1:]
    centre = (where * (size - 1)).long().clamp(max=size - 2)  # a customer, counted from 0
    kept = choose_kept_routes(
        of_node, distances_to_customer(xy[:, 1:], centre), gone, size
    )  # no plan has more routes, empty ones and all
    apart = pack_prefixes(plan, kept.gather(2, at_step[:, None].expand(-1, where.shape[1], -1)))
    along = few_route_prefixes(plan, where, gone)
    few = (of_node.amax(1) < 2)[:, None]
    return Prefixes(
        torch.where(few[..., None], along.actions, apart.actions),
        torch.where(few, along.length, apart.length),
    )


def few_route_prefixes(
    plan: Int[Tensor, "B T"], where: Float[Tensor, "B A"], gone: Float[Tensor, "B A"]
) -> Prefixes:
    """Plans of one or two routes without their last customers, or driven backwards and without
    their first ones.
    """
    steps = torch.arange(plan.shape[1], device=plan.device)
    last = torch.where(plan != 0, steps, 0).amax(1)[:, None]  # step of the last customer
    index = torch.where((where >= 0.5)[..., None], last[..., None] - steps, steps)
    actions = plan[:, None].expand(-1, where.shape[1], -1).gather(2, index.clamp(min=0))
    return Prefixes(
        actions.masked_fill(steps > last[..., None], 0), (last + 1 - gone.long()).clamp(min=1)
    )


def distances_to_customer(
    xy: Float[Tensor, "B n 2"], centre: Int[Tensor, "B A"]
) -> Float[Tensor, "B A n"]:
    """From some customers to all of them."""
    return torch.cdist(xy.gather(1, centre[..., None].expand(-1, -1, 2)), xy)


def choose_kept_routes(
    route: Int[Tensor, "B n"], far: Float[Tensor, "B A n"], gone: Float[Tensor, "B A"], routes: int
) -> Bool[Tensor, "B A q"]:
    """Which routes stay, given each customer's route and distance: one always, so that there is
    a beginning.
    """
    (count, ways, _), index = far.shape, route[:, None].expand_as(far)
    near = far.new_full((count, ways, routes), torch.inf).scatter_reduce(2, index, far, "amin")
    customers = far.new_zeros(count, ways, routes).scatter_add(2, index, torch.ones_like(far))
    near, order = near.sort(dim=2, stable=True)
    freed = customers.gather(2, order)
    before = freed.cumsum(2) - freed
    rank = torch.arange(routes, device=far.device)
    real = near.isfinite()
    out = ((rank < 2) | (before < gone[..., None])) & (rank < real.sum(2, keepdim=True) - 1)
    return torch.zeros_like(out).scatter(2, order, ~out & real)


def pack_prefixes(plan: Int[Tensor, "B T"], stays: Bool[Tensor, "B A T"]) -> Prefixes:
    """The actions that stay, one behind the other."""
    steps = plan.shape[1]
    ways = stays.shape[1]
    place = torch.where(
        stays, stays.cumsum(2) - 1, steps
    )  # all others go to a place behind the end
    whole = plan.new_zeros(len(plan), ways, steps + 1).scatter_(
        2, place, plan[:, None].expand(-1, ways, -1)
    )
    return Prefixes(whole[..., :steps], stays.sum(2))


PREFIXES_BY_PROBLEM: dict[str, Callable[..., Prefixes]] = {
    "tsp": tour_prefixes,
    "cvrp": route_prefixes,
}
