"""What is to be known of a problem's plans beyond rollouts: how to compare, spell and polish them. One line each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.tsp import Tour, TSPInstance

Polisher = Callable[[Any], Any]


@dataclass(frozen=True)
class Craft:
    """Skills for the plans of one problem."""

    links: Callable[[Int[Tensor, "B R T"]], Int[Tensor, "B R N 2"]]  # the two neighbours of everything that is visited
    spell: Callable[[Any], list[int]]  # the action sequence of a plan, without padding
    polisher: Callable[[Any], Polisher]  # for an instance, what takes its plans to a local optimum


def craft_of(problem: str, wish: str) -> Craft:
    """The skills for a problem; refused where nobody has written them yet."""
    if problem not in CRAFTS:
        raise InputError(f"{wish} is not there for {problem} yet; it is for {', '.join(CRAFTS)}")
    return CRAFTS[problem]


def tour_links(actions: Int[Tensor, "B R T"]) -> Int[Tensor, "B R N 2"]:
    """The cities before and behind each city."""
    return beside(actions, actions.roll(1, 2), actions.roll(-1, 2), actions.shape[2])


def route_links(actions: Int[Tensor, "B R T"]) -> Int[Tensor, "B R N 2"]:
    """The customers before and behind each customer, 0 for the depot."""
    walk = torch.nn.functional.pad(actions, (1, 1))
    customers = actions.shape[2] // 2  # a sequence has room for a route of each customer's own
    return beside(actions, walk[..., :-2], walk[..., 2:], customers + 1)[:, :, 1:]


def beside(
    node: Int[Tensor, "B R T"], before: Int[Tensor, "B R T"], behind: Int[Tensor, "B R T"], count: int
) -> Int[Tensor, "B R C 2"]:
    """What is said of each step, in the order of the nodes that are visited."""
    table = torch.zeros(*node.shape[:2], count, 2, dtype=node.dtype, device=node.device)
    return table.scatter_(2, node[..., None].long().expand(-1, -1, -1, 2), torch.stack((before, behind), -1))


def likeness(one: Int[Tensor, "*b N 2"], other: Int[Tensor, "*b N 2"]) -> Float[Tensor, "*b"]:
    """The part of the links that two plans share, 0 to 1; direction and order of routes do not matter."""
    (a, b), (c, d) = (links.unbind(-1) for links in (one, other))
    ac, bd, ad, bc = a == c, b == d, a == d, b == c
    shared = (ac | bd | ad | bc).sum(-1) + ((ac & bd) | (ad & bc)).sum(-1)
    return shared / (2.0 * one.shape[-2])


def plan_links(craft: Craft, plan: Any, horizon: int) -> Int[Tensor, "N 2"]:
    """The links of a plan on the host."""
    return craft.links(torch.tensor(padded(craft.spell(plan), horizon))[None, None])[0, 0]


def padded(actions: Sequence[int], horizon: int) -> list[int]:
    """A sequence of the usual length; finished rollouts stay at node 0."""
    return [*actions, *[0] * (horizon - len(actions))]


def spell_tour(tour: Tour) -> list[int]:
    """The cities in order."""
    return list(tour.order)


def spell_routes(routes: Routes) -> list[int]:
    """The customers of each route and the depot behind them."""
    return [node for route in routes.routes for node in (*route, 0)]


def tour_polisher(instance: TSPInstance) -> Polisher:
    """2-opt and Or-opt."""
    from rhumbline.kernels import local

    distance = np.ascontiguousarray(instance.distances)
    near = local.nearest(distance)

    def polish(tour: Tour) -> Tour:
        order, _ = local.shorter_tour(distance, near, tour.order)
        return Tour(tuple(order))

    return polish


def route_polisher(instance: CVRPInstance) -> Polisher:
    """Relocate, swap, 2-opt* and 2-opt."""
    from rhumbline.kernels import local

    distance, demand = np.ascontiguousarray(instance.distances), np.asarray(instance.demands, dtype=np.int64)
    near = local.nearest_customers(distance)

    def polish(plan: Routes) -> Routes:
        given = [route for route in plan.routes if route]
        routes, _ = local.shorter_routes(distance, near, demand, instance.capacity, given, instance.vehicles)
        return Routes(tuple(map(tuple, routes)))

    return polish


CRAFTS = {
    "tsp": Craft(tour_links, spell_tour, tour_polisher),
    "cvrp": Craft(route_links, spell_routes, route_polisher),
}
