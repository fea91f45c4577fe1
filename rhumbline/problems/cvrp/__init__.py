"""Capacitated vehicle routing: instances and routes, and rules."""

from rhumbline.problems.cvrp.instance import CVRPInstance, Routes, fewest_vehicles, from_arrays, with_fleet
from rhumbline.problems.cvrp.rules import CVRP, CVRPBatch, CVRPState, usual_capacity

__all__ = [
    "CVRP", "CVRPBatch", "CVRPInstance", "CVRPState", "Routes", "fewest_vehicles", "from_arrays", "usual_capacity",
    "with_fleet",
]  # fmt: skip
