"""Large-neighbourhood search (LNS): prefixes that keep most of a plan and leave one region free.

A policy's decisions depend on what has been visited, not on the order of finished routes. So any
routes of a plan, or any stretch of a tour, can be the prefix of a rollout. If the nodes that are
left out lie close together, the policy re-samples a few dozen nodes among themselves, for a
fraction of the work of a whole rollout.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding.request import Prefixes


@dataclass(frozen=True)
class NeighbourhoodTuning:
    """Approximate bounds of the nodes that a prefix leaves out."""

    min_free_nodes: int = 12
    max_free_nodes: int = 60


TUNING = NeighbourhoodTuning()


def neighbourhood_prefixes(
    make_prefixes: Callable[..., Prefixes],
    xy: Float[Tensor, "B N 2"],
    plan: Int[Tensor, "B T"],
    uniforms: Float[Tensor, "B A 2"],
    *,
    both: bool = True,
) -> Prefixes:
    """Make A prefixes of each plan; two uniforms say which region to free and how many nodes.

    `make_prefixes` is the function of the domain, such as `tour_prefixes`. A tour is completed from
    either end of the stretch that is kept, or, if not `both`, only in the direction in which it was
    built. A trained policy prefers one direction; tables that a search adapts learn both.
    """
    where = uniforms[..., 0]
    share = uniforms[..., 1]
    span = TUNING.max_free_nodes - TUNING.min_free_nodes
    free = TUNING.min_free_nodes + span * share
    return make_prefixes(xy, plan, where, free, both=both)


def tour_prefixes(
    xy: Float[Tensor, "B N 2"],
    plan: Int[Tensor, "B N"],
    where: Float[Tensor, "B A"],
    free: Float[Tensor, "B A"],
    *,
    both: bool = True,
) -> Prefixes:
    """Make prefixes of tours that leave out a stretch, read from either end of the rest.

    The lower half of `where` reads tours forwards, the upper half backwards. If not `both`, all
    are read forwards.
    """
    if not both:
        where = 0.5 * where
    size = plan.shape[1]
    doubled = where * 2 * size
    backwards = doubled >= size
    begin = doubled.long()
    begin = begin[..., None] % size
    steps = torch.arange(size, device=plan.device)
    index = torch.where(
        backwards[..., None],
        begin - steps,
        begin + steps,
    )
    copies = copy_plan(plan, where)
    actions = copies.gather(2, index % size)
    kept = size - free.long()
    return Prefixes(actions, length=kept.clamp(min=1))


def route_prefixes(
    xy: Float[Tensor, "B N 2"],
    plan: Int[Tensor, "B T"],
    where: Float[Tensor, "B A"],
    free: Float[Tensor, "B A"],
    *,
    both: bool = True,
) -> Prefixes:
    """Make prefixes of CVRP plans that leave out the routes nearest to a customer.

    At least two routes are left out, and further ones until enough customers are free. Plans of
    one or two routes lose their first or last customers instead. `both` changes nothing: the kept
    routes have no end from which they could be continued.
    """
    size = xy.shape[1]
    ends = plan == 0
    route_of_step = ends.cumsum(1) - ends.long()  # a return to the depot belongs to its route
    route_of_node = torch.zeros_like(plan[:, :1])
    route_of_node = route_of_node.expand(-1, size)
    route_of_node = route_of_node.scatter(1, plan, route_of_step)
    route_of_customer = route_of_node[:, 1:]
    centre = (where * (size - 1)).long()
    centre = centre.clamp(max=size - 2)  # a customer, counted from 0
    distance = distances_to_customer(xy[:, 1:], centre)
    # No plan has more than `size` routes, empty ones included.
    kept_routes = choose_kept_routes(
        route_of_customer,
        distance,
        free,
        size,
    )
    kept = kept_routes.gather(2, copy_plan(route_of_step, where))
    regular = pack_prefixes(plan, kept)
    short = few_route_prefixes(plan, where, free)
    routes = route_of_customer.amax(1)
    has_few = (routes < 2)[:, None]
    actions = torch.where(
        has_few[..., None],
        short.actions,
        regular.actions,
    )
    length = torch.where(
        has_few,
        short.length,
        regular.length,
    )
    return Prefixes(actions, length)


def few_route_prefixes(
    plan: Int[Tensor, "B T"], where: Float[Tensor, "B A"], free: Float[Tensor, "B A"]
) -> Prefixes:
    """Make prefixes of plans without their last customers, or reversed and without their first."""
    size = plan.shape[1]
    steps = torch.arange(size, device=plan.device)
    visits = torch.where(plan != 0, steps, 0)
    last = visits.amax(1)[:, None]  # step of the last customer
    last_step = last[..., None]
    backwards = where >= 0.5
    index = torch.where(
        backwards[..., None],
        last_step - steps,
        steps,
    )
    index = index.clamp(min=0)
    copies = copy_plan(plan, where)
    actions = copies.gather(2, index)
    actions = actions.masked_fill(steps > last_step, 0)
    kept = last + 1 - free.long()
    length = kept.clamp(min=1)
    return Prefixes(actions, length)


def copy_plan(plan: Int[Tensor, "B T"], where: Float[Tensor, "B A"]) -> Int[Tensor, "B A T"]:
    """Return each plan once for each of its A prefixes, without copying memory."""
    ways = where.shape[1]
    once = plan[:, None]
    return once.expand(-1, ways, -1)


def distances_to_customer(
    xy: Float[Tensor, "B n 2"], centre: Int[Tensor, "B A"]
) -> Float[Tensor, "B A n"]:
    """Compute the distances of all customers to each centre, itself a customer."""
    index = centre[..., None]
    index = index.expand(-1, -1, 2)
    chosen = xy.gather(1, index)
    return torch.cdist(chosen, xy)


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
    shape = (count, ways, routes)
    index = route[:, None]
    index = index.expand_as(distance)
    nearest = distance.new_full(shape, torch.inf)
    nearest = nearest.scatter_reduce(2, index, distance, "amin")
    each = torch.ones_like(distance)
    customers = distance.new_zeros(shape)
    customers = customers.scatter_add(2, index, each)
    nearest, order = nearest.sort(dim=2, stable=True)
    freed = customers.gather(2, order)
    freed_before = freed.cumsum(2) - freed
    rank = torch.arange(routes, device=distance.device)
    exists = nearest.isfinite()
    too_few = freed_before < free[..., None]
    wanted = (rank < 2) | too_few
    last = exists.sum(2, keepdim=True) - 1
    left_out = wanted & (rank < last)
    stays = ~left_out & exists
    by_route = torch.zeros_like(stays)
    return by_route.scatter(2, order, stays)


def pack_prefixes(plan: Int[Tensor, "B T"], kept: Bool[Tensor, "B A T"]) -> Prefixes:
    """Move the kept actions of a plan to the front."""
    count, ways, steps = kept.shape
    kept_so_far = kept.cumsum(2)
    rank = kept_so_far - 1
    target = torch.where(kept, rank, steps)  # all others go behind the end
    source = plan[:, None]
    source = source.expand(-1, ways, -1)
    shape = (count, ways, steps + 1)
    whole = plan.new_zeros(shape)
    whole.scatter_(2, target, source)
    return Prefixes(
        actions=whole[..., :steps],
        length=kept.sum(2),
    )
