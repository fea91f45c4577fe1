"""The symmetric travelling salesman problem: instances and tours, rules, and local search."""

from rhumbline.problems.tsp.instance import Tour, TSPInstance, tsp_from_array
from rhumbline.problems.tsp.rules import TSP, TSPBatch, TSPState

__all__ = ["TSP", "TSPBatch", "TSPInstance", "TSPState", "Tour", "tsp_from_array"]
