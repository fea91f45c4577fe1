"""Large-neighbourhood search (LNS): prefixes that keep most of a plan and leave one region free.

A policy's decisions depend on what has been visited, not on the order of finished routes. So any
routes of a plan, or any stretch of a tour, can be the prefix of a rollout. If the nodes that are
left out lie close together, the policy re-samples a few dozen nodes among themselves, for a
fraction of the work of a whole rollout.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding.request import Prefixes

MIN_FREE_NODES = 12  # approximate bounds of the nodes that a prefix leaves out
MAX_FREE_NODES = 60


def neighbourhood_prefixes(
    name: str,
    xy: Float[Tensor, "B N 2"],
    plan: Int[Tensor, "B T"],
    uniforms: Float[Tensor, "B A 2"],
    *,
    both: bool = True,
) -> Prefixes:
    """Make A prefixes of each plan; two uniforms say which region to free and how many nodes.

    A tour is completed from either end of the stretch that is kept, or, if not `both`, only in the
    direction in which it was built. A trained policy prefers one direction; tables that a search
    adapts learn both.
    """
    where = uniforms[..., 0]
    if name == "tsp" and not both:
        where = 0.5 * where
    free = MIN_FREE_NODES + (MAX_FREE_NODES - MIN_FREE_NODES) * uniforms[..., 1]
    return PREFIXES_BY_PROBLEM[name](xy, plan, where, free)


def tour_prefixes(
    xy: Float[Tensor, "B N 2"],
    plan: Int[Tensor, "B N"],
    where: Float[Tensor, "B A"],
    free: Float[Tensor, "B A"],
) -> Prefixes:
    """Make prefixes of tours that leave out a stretch, read from either end of the rest.

    The lower half of `where` reads tours forwards, the upper half backwards.
    """
    size = plan.shape[1]
    ways = where.shape[1]
    doubled = where * 2 * size
    backwards = (doubled >= size)[..., None]
    begin = doubled.long()[..., None] % size
    steps = torch.arange(size, device=plan.device)
    index = torch.where(backwards, begin - steps, begin + steps) % size
    actions = plan[:, None].expand(-1, ways, -1).gather(2, index)
    length = (size - free.long()).clamp(min=1)
    return Prefixes(actions, length)


def route_prefixes(
    xy: Float[Tensor, "B N 2"],
    plan: Int[Tensor, "B T"],
    where: Float[Tensor, "B A"],
    free: Float[Tensor, "B A"],
) -> Prefixes:
    """Make prefixes of CVRP plans that leave out the routes nearest to a customer.

    At least two routes are left out, and further ones until enough customers are free. Plans of
    one or two routes lose their first or last customers instead.
    """
    size = xy.shape[1]
    ways = where.shape[1]
    ends = plan == 0
    route_of_step = ends.cumsum(1) - ends.long()  # a return to the depot belongs to its route
    by_node = torch.zeros_like(plan[:, :1]).expand(-1, size)
    route_of_customer = by_node.scatter(1, plan, route_of_step)[:, 1:]
    centre = (where * (size - 1)).long().clamp(max=size - 2)  # a customer, counted from 0
    distance = distances_to_customer(xy[:, 1:], centre)
    # No plan has more than `size` routes, empty ones included.
    kept_routes = choose_kept_routes(route_of_customer, distance, free, size)
    kept = kept_routes.gather(2, route_of_step[:, None].expand(-1, ways, -1))
    regular = pack_prefixes(plan, kept)
    short = few_route_prefixes(plan, where, free)
    has_few = (route_of_customer.amax(1) < 2)[:, None]
    return Prefixes(
        actions=torch.where(has_few[..., None], short.actions, regular.actions),
        length=torch.where(has_few, short.length, regular.length),
    )


def few_route_prefixes(
    plan: Int[Tensor, "B T"], where: Float[Tensor, "B A"], free: Float[Tensor, "B A"]
) -> Prefixes:
    """Make prefixes of plans without their last customers, or reversed and without their first."""
    ways = where.shape[1]
    steps = torch.arange(plan.shape[1], device=plan.device)
    last = torch.where(plan != 0, steps, 0).amax(1)[:, None]  # step of the last customer
    backwards = (where >= 0.5)[..., None]
    index = torch.where(backwards, last[..., None] - steps, steps).clamp(min=0)
    actions = plan[:, None].expand(-1, ways, -1).gather(2, index)
    actions = actions.masked_fill(steps > last[..., None], 0)
    length = (last + 1 - free.long()).clamp(min=1)
    return Prefixes(actions, length)


def distances_to_customer(
    xy: Float[Tensor, "B n 2"], centre: Int[Tensor, "B A"]
) -> Float[Tensor, "B A n"]:
    """Compute the distances of all customers to each centre, itself a customer."""
    index = centre[..., None].expand(-1, -1, 2)
    return torch.cdist(xy.gather(1, index), xy)


def choose_kept_routes(
    route: Int[Tensor, "B n"],
    distance: Float[Tensor, "B A n"],
    free: Float[Tensor, "B A"],
    routes: int,
) -> Bool[Tensor, "B A q"]:
    """Choose the routes that stay, given the route and the distance of each customer.

    One route always stays, so that there is a prefix. The nearest routes are left out.
    """
    count, ways, _ = distance.shape
    index = route[:, None].expand_as(distance)
    nearest = distance.new_full((count, ways, routes), torch.inf)
    nearest = nearest.scatter_reduce(2, index, distance, "amin")
    customers = distance.new_zeros(count, ways, routes)
    customers = customers.scatter_add(2, index, torch.ones_like(distance))
    nearest, order = nearest.sort(dim=2, stable=True)
    freed = customers.gather(2, order)
    freed_before = freed.cumsum(2) - freed
    rank = torch.arange(routes, device=distance.device)
    exists = nearest.isfinite()
    wanted = (rank < 2) | (freed_before < free[..., None])
    not_last = rank < exists.sum(2, keepdim=True) - 1
    left_out = wanted & not_last
    return torch.zeros_like(left_out).scatter(2, order, ~left_out & exists)


def pack_prefixes(plan: Int[Tensor, "B T"], kept: Bool[Tensor, "B A T"]) -> Prefixes:
    """Move the kept actions of a plan to the front."""
    steps = plan.shape[1]
    ways = kept.shape[1]
    target = torch.where(kept, kept.cumsum(2) - 1, steps)  # all others go behind the end
    whole = plan.new_zeros(len(plan), ways, steps + 1)
    whole.scatter_(2, target, plan[:, None].expand(-1, ways, -1))
    return Prefixes(whole[..., :steps], kept.sum(2))


PREFIXES_BY_PROBLEM: dict[str, Callable[..., Prefixes]] = {
    "tsp": tour_prefixes,
    "cvrp": route_prefixes,
}
