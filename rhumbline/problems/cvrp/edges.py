"""CVRP: the edges of routes, and routes as action sequences."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from rhumbline.problems.cvrp.instance import CVRPInstance, Routes
from rhumbline.problems.edges import neighbour_table


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
