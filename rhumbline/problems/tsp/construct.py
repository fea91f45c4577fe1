"""A cheap tour on the host: nearest neighbour (Rosenkrantz, Stearns and Lewis 1977).

It is there before a network has run, for a search that is interrupted or out of time.
"""

import numpy as np
from jaxtyping import Float

from rhumbline.problems.tsp.instance import Tour, TSPInstance


def construct_tour(instance: TSPInstance) -> Tour:
    """Return the tour from city 0 that always goes to the nearest city not yet visited."""
    return Tour(tuple(nearest_neighbour_order(instance.distances)))


def nearest_neighbour_order(distances: Float[np.ndarray, "N N"]) -> list[int]:
    """Return all nodes from node 0 on, each followed by the nearest one left; ties by number."""
    here = 0
    order = [here]
    penalty = np.zeros(len(distances))  # infinite for visited nodes
    for _ in range(len(distances) - 1):
        penalty[here] = np.inf
        here = int((distances[here] + penalty).argmin())
        order.append(here)
    return order
