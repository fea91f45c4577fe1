"""A cheap tour on the host, for a search that is interrupted or out of time before any other.

Up to 1,000 cities it is the nearest neighbour tour (Rosenkrantz, Stearns and Lewis 1977). Larger
instances are searched from it, so it is better: the greedy tour (Bentley 1992), which takes the
shortest edges first and is a third closer to the optimum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from rhumbline.problems.construction.neighbours import near_nodes
from rhumbline.problems.construction.paths import JoinedPaths
from rhumbline.problems.tsp.instance import Tour, TSPInstance


@dataclass(frozen=True)
class GreedyTuning:
    """When tours are greedy, and which edges they may have."""

    min_cities: int = 1001
    # Near ends that an end may be joined to at a time. 10,000 cities take 0.4 s with 8 of them.
    neighbours: int = 8


TUNING = GreedyTuning()


def construct_tour(instance: TSPInstance) -> Tour:
    """Return the tour from city 0 that always goes to the nearest city not yet visited.

    Many cities get a greedy tour.
    """
    if instance.size >= TUNING.min_cities:
        order = greedy_order(instance)
    else:
        order = nearest_neighbour_order(instance.size, instance.distances.__getitem__)
    return Tour(tuple(order))


def nearest_neighbour_order(size: int, distances_from: Callable[[int], Any]) -> list[int]:
    """Return all nodes from node 0 on, each followed by the nearest one left; ties by number."""
    here = 0
    order = [here]
    penalty = np.zeros(size)  # infinite for visited nodes
    for _ in range(size - 1):
        penalty[here] = np.inf
        here = int((distances_from(here) + penalty).argmin())
        order.append(here)
    return order


def greedy_order(instance: TSPInstance) -> list[int]:
    """Return the cities of a tour to which the shortest edges were added first.

    The near ends of paths are joined round by round, until one path is left.
    """
    size = instance.size
    paths = JoinedPaths([0] * size, capacity=0)
    ends = paths.ends()
    while len(ends) > 2:
        edges = rank_edges(instance, np.asarray(ends))
        for one, other in edges:
            paths.join(one, other)
        ends = paths.ends()
    return paths.walk(ends[0])


def rank_edges(instance: TSPInstance, ends: Int[np.ndarray, "M"]) -> list[list[int]]:
    """Return the edges between near ends of paths, the shortest first; ties by number."""
    near = near_nodes(instance, TUNING.neighbours, ends)
    one = np.repeat(ends, near.shape[1])
    pairs = np.stack([one, near.ravel()], axis=1)
    pairs.sort(axis=1)
    edges = np.unique(pairs, axis=0)
    here, there = edges.T
    lengths = instance.legs(here, there)
    order = lengths.argsort(kind="stable")
    return edges[order].tolist()
