"""Plan tools: how to compare, encode and locally improve the plans of each problem."""

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
    """Functions on the plans of one problem.

    - `edges(batch, actions)`: the two neighbours of each node in each plan. What a node and a
      neighbour are depends on the problem.
    - `encode_plan(instance, plan)`: the action sequence of a plan, without padding.
    - `polisher(instance)`: a function that takes a plan of the instance to a local optimum.
    """

    edges: Callable[[Any, Int[Tensor, "B R T"]], Int[Tensor, "B R N 2"]]
    encode_plan: Callable[[Any, Any], list[int]]
    polisher: Callable[[Any], Polisher]


def plan_tools_for(problem: str, wish: str) -> PlanTools:
    """Return the tools for a problem; raise `InputError` with the wish if there are none."""
    if problem not in PLAN_TOOLS:
        known = ", ".join(PLAN_TOOLS)
        raise InputError(f"{wish} is not there for {problem} yet; it is for {known}")
    return PLAN_TOOLS[problem]


# --- edges


def tour_edges(batch: Any, actions: Int[Tensor, "B R T"]) -> Int[Tensor, "B R N 2"]:
    """Return the cities before and after each city."""
    cities = actions.shape[2]
    before = actions.roll(1, 2)
    after = actions.roll(-1, 2)
    return neighbour_table(actions, before, after, cities)


def route_edges(batch: Any, actions: Int[Tensor, "B R T"]) -> Int[Tensor, "B R N 2"]:
    """Return the customers before and after each customer, 0 for the depot."""
    walk = torch.nn.functional.pad(actions, (1, 1))
    before = walk[..., :-2]
    after = walk[..., 2:]
    steps = actions.shape[2]
    customers = steps // 2  # a sequence has room for a return after every customer
    nodes = customers + 1
    table = neighbour_table(actions, before, after, nodes)
    return table[:, :, 1:]


def schedule_edges(batch: Any, actions: Int[Tensor, "B R T"]) -> Int[Tensor, "B R N 2"]:
    """Return the operations before and after each operation on its machine.

    An operation after it has a negative number, because direction matters here.
    """
    jobs = actions[..., 1:].long()
    plans = jobs.shape[1]
    count, _, columns = batch.machine.shape
    cells = batch.machine[0].numel()
    step = occurrence_index(jobs)
    cell = jobs * columns + step
    cell = cell.clamp(max=cells - 1)
    machine = batch.machine.view(count, 1, -1)
    machine = machine.expand(-1, plans, -1)
    machine = machine.gather(2, cell)
    order = machine.argsort(dim=2, stable=True)
    operation = cell.gather(2, order)
    number = operation + 1
    machine = machine.gather(2, order)

    next_machine = machine[..., 1:]
    this_machine = machine[..., :-1]
    is_same = next_machine == this_machine
    earlier = number[..., :-1]
    earlier = earlier * is_same
    before = torch.nn.functional.pad(earlier, (1, 0))
    none_after = -cells - 1
    later = -number[..., 1:]
    after = torch.where(is_same, later, none_after)
    after = torch.nn.functional.pad(after, (0, 1), value=none_after)
    table = neighbour_table(operation, before, after, cells)
    by_job = table.unflatten(2, (-1, columns))
    by_job = by_job[..., :-1, :]  # the last column holds no operation
    return by_job.flatten(2, 3)


def occurrence_index(jobs: Int[Tensor, "B R T"]) -> Int[Tensor, "B R T"]:
    """Return how often each entry occurs earlier in its row."""
    steps = jobs.shape[2]
    order = jobs.argsort(dim=2, stable=True)
    ranked = jobs.gather(2, order)
    place = torch.arange(steps, device=jobs.device)
    place = place.expand_as(jobs)
    previous = ranked[..., :-1]
    is_first = ranked[..., 1:] != previous
    is_first = torch.nn.functional.pad(is_first, (1, 0), value=True)
    first = torch.where(is_first, place, 0)
    first, _ = first.cummax(2)
    index = torch.empty_like(jobs)
    return index.scatter_(2, order, place - first)


def neighbour_table(
    node: Int[Tensor, "B R T"],
    before: Int[Tensor, "B R T"],
    after: Int[Tensor, "B R T"],
    count: int,
) -> Int[Tensor, "B R C 2"]:
    """Sort the neighbours of each step by the node that the step visits."""
    rows, plans, _ = node.shape
    shape = (rows, plans, count, 2)
    dtype = node.dtype
    table = torch.zeros(shape, dtype=dtype, device=node.device)
    neighbours = torch.stack((before, after), -1)
    index = node[..., None]
    index = index.long()
    index = index.expand(-1, -1, -1, 2)
    return table.scatter_(2, index, neighbours)


def edge_similarity(
    one: Int[Tensor, "*#b N 2"], other: Int[Tensor, "*#b N 2"]
) -> Float[Tensor, "*c"]:
    """Return the share of edges that two plans have in common, 0 to 1.

    The direction of tours and the order of routes do not matter.
    """
    a, b = one.unbind(-1)
    c, d = other.unbind(-1)
    ac = a == c
    bd = b == d
    ad = a == d
    bc = b == c
    any_shared = ac | bd | ad | bc
    both_shared = (ac & bd) | (ad & bc)
    shared = any_shared.sum(-1) + both_shared.sum(-1)
    nodes = one.shape[-2]
    return shared / (2.0 * nodes)


def plan_edges(tools: PlanTools, batch: Any, sequence: Sequence[int]) -> Int[Tensor, "N 2"]:
    """Return the edges of one plan of the only instance of a batch."""
    actions = torch.tensor(sequence)
    actions = actions[None, None]
    edges = tools.edges(batch, actions)
    return edges[0, 0]


# --- action sequences


def pad_actions(actions: Sequence[int], horizon: int) -> list[int]:
    """Pad a sequence to the length of rollouts; those that have ended stay at node 0."""
    missing = horizon - len(actions)
    return [*actions, *[0] * missing]


def encode_tour(instance: TSPInstance, tour: Tour) -> list[int]:
    """Return the cities in order."""
    return list(tour.order)


def encode_routes(instance: CVRPInstance, routes: Routes) -> list[int]:
    """Return the customers of each route, followed by the depot.

    Empty routes are left out: a vehicle must not wait at the depot.
    """
    actions = list[int]()
    for route in routes.routes:
        if route:
            actions += route
            actions.append(0)
    return actions


def encode_schedule(instance: JSSPInstance, schedule: Schedule) -> list[int]:
    """Return the jobs in the order in which their operations start.

    The first action is 0 and places nothing. Operations of no duration come first among equals.
    """
    keys = list[tuple[Any, bool, int, int]]()
    for operation in instance.operations:
        job = operation.job
        step = operation.step
        start = schedule.starts[job][step]
        takes_time = operation.duration > 0
        keys.append((start, takes_time, job, step))
    keys.sort()
    jobs = [job for _, _, job, _ in keys]
    return [0, *jobs]


# --- local search


def tour_polisher(instance: TSPInstance) -> Polisher:
    """Return a local search by 2-opt and Or-opt."""
    from rhumbline.kernels.numba.local_search import launch as local_moves

    distance = np.ascontiguousarray(instance.distances)
    neighbours = local_moves.nearest_nodes(distance)

    def polish(tour: Tour) -> Tour:
        order, _ = local_moves.shorten_tour(distance, neighbours, tour.order)
        shorter = tuple(order)
        return Tour(shorter)

    return polish


def route_polisher(instance: CVRPInstance) -> Polisher:
    """Return a local search by relocate, swap, 2-opt* and 2-opt."""
    from rhumbline.kernels.numba.local_search import launch as local_moves

    distance = np.ascontiguousarray(instance.distances)
    demand = np.asarray(instance.demands, dtype=np.int64)
    neighbours = local_moves.nearest_customers(distance)
    capacity = instance.capacity
    vehicles = instance.vehicles

    def polish(plan: Routes) -> Routes:
        given = [route for route in plan.routes if route]
        routes, _ = local_moves.shorten_routes(
            distance, neighbours, demand, capacity, given, vehicles
        )
        return Routes(tuple(tuple(route) for route in routes))

    return polish


def schedule_polisher(instance: JSSPInstance) -> Polisher:
    """Return a local search by moves within critical blocks."""
    from rhumbline.kernels.numba.local_search import launch as local_moves

    def polish(schedule: Schedule) -> Schedule:
        starts, _ = local_moves.shorten_schedule(
            instance.durations, instance.machines, schedule.starts
        )
        return Schedule(tuple(tuple(row) for row in starts))

    return polish


PLAN_TOOLS = {
    "tsp": PlanTools(tour_edges, encode_tour, tour_polisher),
    "cvrp": PlanTools(route_edges, encode_routes, route_polisher),
    "jssp": PlanTools(schedule_edges, encode_schedule, schedule_polisher),
}
