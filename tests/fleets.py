"""Random CVRP instances for tests of searches."""

import numpy as np

from rhumbline.problems.cvrp import CVRPInstance


def vehicles(count: int, customers: int) -> list[CVRPInstance]:
    """Return random CVRP instances whose vehicles hold five customers."""
    xy = np.random.default_rng(3).random((count, customers + 1, 2))
    return [
        CVRPInstance(f"{i}", "EXACT_2D", (0, *[3] * customers), 15, xy=x) for i, x in enumerate(xy)
    ]
