"""TSP: the edges of tours, and tours as action sequences."""

from typing import Any

from jaxtyping import Int
from torch import Tensor

from rhumbline.problems.edges import neighbour_table
from rhumbline.problems.tsp.instance import Tour, TSPInstance


def tour_edges(batch: Any, actions: Int[Tensor, "B R T"]) -> Int[Tensor, "B R N 2"]:
    """Return the cities before and after each city."""
    cities = actions.shape[2]
    before = actions.roll(1, 2)
    after = actions.roll(-1, 2)
    return neighbour_table(actions, before, after, cities)


def encode_tour(instance: TSPInstance, tour: Tour) -> list[int]:
    """Return the cities in order."""
    return list(tour.order)
