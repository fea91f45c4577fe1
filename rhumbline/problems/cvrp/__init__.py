"""Capacitated vehicle routing: instances and routes, and rules."""

from rhumbline.problems.cvrp.instance import (
    CVRPInstance,
    Routes,
    cvrp_from_arrays,
    min_vehicles,
    with_fleet,
)
from rhumbline.problems.cvrp.rules import CVRP, CVRPBatch, CVRPState, default_capacity

__all__ = [
    "CVRP",
    "CVRPBatch",
    "CVRPInstance",
    "CVRPState",
    "Routes",
    "cvrp_from_arrays",
    "default_capacity",
    "min_vehicles",
    "with_fleet",
]
