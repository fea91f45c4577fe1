"""What is to be known of a problem's plans beyond rollouts: how to compare, spell and polish
them. One line each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.jssp import JSSPInstance, Schedule
from rhumbline.problems.tsp import Tour, TSPInstance

Polisher = Callable[[Any], Any]


@dataclass(frozen=True)
class PlanTools:
    """Skills for the plans of one problem."""

    links: Callable[
        [Any, Int[Tensor, "B R T"]], Int[Tensor, "B R N 2"]
    ]  # of a batch's plans: what is beside what
    encode_plan: Callable[
        [Any, Any], list[int]
    ]  # of an instance: the action sequence of a plan, without padding
    polisher: Callable[[Any], Polisher]  # for an instance, what takes its plans to a local optimum


def plan_tools_for(problem: str, wish: str) -> PlanTools:
    """The skills for a problem; refused where nobody has written them yet."""
    if problem not in PLAN_TOOLS:
        raise InputError(
            f"{wish} is not there for {problem} yet; it is for {', '.join(PLAN_TOOLS)}"
        )
    return PLAN_TOOLS[problem]


def tour_edges(batch: Any, actions: Int[Tensor, "B R T"]) -> Int[Tensor, "B R N 2"]:
    """The cities before and behind each city."""
    return neighbour_table(actions, actions.roll(1, 2), actions.roll(-1, 2), actions.shape[2])


def route_edges(batch: Any, actions: Int[Tensor, "B R T"]) -> Int[Tensor, "B R N 2"]:
    """The customers before and behind each customer, 0 for the depot."""
    walk = torch.nn.functional.pad(actions, (1, 1))
    customers = actions.shape[2] // 2  # a sequence has room for a route of each customer's own
    return neighbour_table(actions, walk[..., :-2], walk[..., 2:], customers + 1)[:, :, 1:]


def schedule_edges(batch: Any, actions: Int[Tensor, "B R T"]) -> Int[Tensor, "B R N 2"]:
    """The operations before and behind each operation on its machine; what is behind has numbers
    below 0.
    """
    jobs, (count, _, columns) = actions[..., 1:].long(), batch.machine.shape
    cells = batch.machine[0].numel()
    cell = (jobs * columns + occurrence_index(jobs)).clamp(max=cells - 1)
    machine = batch.machine.view(count, 1, -1).expand(-1, cell.shape[1], -1).gather(2, cell)
    order = machine.argsort(dim=2, stable=True)
    cell = cell.gather(2, order) + 1
    machine = machine.gather(2, order)
    same = machine[..., 1:] == machine[..., :-1]
    before = torch.nn.functional.pad(cell[..., :-1] * same, (1, 0))
    behind = torch.nn.functional.pad(
        torch.where(same, -cell[..., 1:], -cells - 1), (0, 1), value=-cells - 1
    )
    table = neighbour_table(cell - 1, before, behind, cells)
    return table.unflatten(2, (-1, columns))[..., :-1, :].flatten(
        2, 3
    )  # the last column is nobody's


def occurrence_index(jobs: Int[Tensor, "B R T"]) -> Int[Tensor, "B R T"]:
    """How often each entry has occurred before."""
    order = jobs.argsort(dim=2, stable=True)
    ranked = jobs.gather(2, order)
    place = torch.arange(jobs.shape[2], device=jobs.device).expand_as(jobs)
    opening = torch.nn.functional.pad(ranked[..., 1:] != ranked[..., :-1], (1, 0), value=True)
    since = place - torch.where(opening, place, 0).cummax(2).values
    return torch.empty_like(jobs).scatter_(2, order, since)


def neighbour_table(
    node: Int[Tensor, "B R T"],
    before: Int[Tensor, "B R T"],
    behind: Int[Tensor, "B R T"],
    count: int,
) -> Int[Tensor, "B R C 2"]:
    """What is said of each step, in the order of the nodes that are visited."""
    table = torch.zeros(*node.shape[:2], count, 2, dtype=node.dtype, device=node.device)
    return table.scatter_(
        2, node[..., None].long().expand(-1, -1, -1, 2), torch.stack((before, behind), -1)
    )


def edge_similarity(
    one: Int[Tensor, "*#b N 2"], other: Int[Tensor, "*#b N 2"]
) -> Float[Tensor, "*c"]:
    """The part of the links that two plans share, 0 to 1; direction and order of routes do not
    matter.
    """
    (a, b), (c, d) = (links.unbind(-1) for links in (one, other))
    ac = a == c
    bd = b == d
    ad = a == d
    bc = b == c
    shared = (ac | bd | ad | bc).sum(-1) + ((ac & bd) | (ad & bc)).sum(-1)
    return shared / (2.0 * one.shape[-2])


def plan_edges(craft: PlanTools, batch: Any, sequence: Sequence[int]) -> Int[Tensor, "N 2"]:
    """The links of one plan of the only instance of a batch."""
    return craft.links(batch, torch.tensor(sequence)[None, None])[0, 0]


def pad_actions(actions: Sequence[int], horizon: int) -> list[int]:
    """A sequence of the usual length; finished rollouts stay at node 0."""
    return [*actions, *[0] * (horizon - len(actions))]


def encode_tour(instance: TSPInstance, tour: Tour) -> list[int]:
    """The cities in order."""
    return list(tour.order)


def encode_routes(instance: CVRPInstance, routes: Routes) -> list[int]:
    """The customers of each route and the depot behind them; no vehicle waits there, as an empty
    route would.
    """
    return [node for route in routes.routes if route for node in (*route, 0)]


def encode_schedule(instance: JSSPInstance, schedule: Schedule) -> list[int]:
    """The jobs in order of the starts of their operations, behind the first action, which places
    nothing.
    """
    starts = (
        (schedule.starts[o.job][o.step], o.duration > 0, o.job, o.step) for o in instance.operations
    )
    return [0, *(job for _, _, job, _ in sorted(starts))]


def tour_polisher(instance: TSPInstance) -> Polisher:
    """2-opt and Or-opt."""
    from rhumbline.kernels.numba.local_search import launch as local_moves

    distance = np.ascontiguousarray(instance.distances)
    near = local_moves.nearest_nodes(distance)

    def polish(tour: Tour) -> Tour:
        order, _ = local_moves.shorten_tour(distance, near, tour.order)
        return Tour(tuple(order))

    return polish


def route_polisher(instance: CVRPInstance) -> Polisher:
    """Relocate, swap, 2-opt* and 2-opt."""
    from rhumbline.kernels.numba.local_search import launch as local_moves

    distance = np.ascontiguousarray(instance.distances)
    demand = np.asarray(instance.demands, dtype=np.int64)
    near = local_moves.nearest_customers(distance)

    def polish(plan: Routes) -> Routes:
        given = [route for route in plan.routes if route]
        routes, _ = local_moves.shorten_routes(
            distance, near, demand, instance.capacity, given, instance.vehicles
        )
        return Routes(tuple(map(tuple, routes)))

    return polish


def schedule_polisher(instance: JSSPInstance) -> Polisher:
    """Moves within critical blocks."""
    from rhumbline.kernels.numba.local_search import launch as local_moves

    def polish(schedule: Schedule) -> Schedule:
        starts, _ = local_moves.shorten_schedule(
            instance.durations, instance.machines, schedule.starts
        )
        return Schedule(tuple(map(tuple, starts)))

    return polish


PLAN_TOOLS = {
    "tsp": PlanTools(tour_edges, encode_tour, tour_polisher),
    "cvrp": PlanTools(route_edges, encode_routes, route_polisher),
    "jssp": PlanTools(schedule_edges, encode_schedule, schedule_polisher),
}
