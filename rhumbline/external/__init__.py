"""Wrappers of classical solvers by other people; each needs an optional extra."""

from typing import Any

import numpy as np


def integer_distances(instance: Any, largest: int) -> np.ndarray:
    """Distances as whole numbers: as they are, or scaled so that the largest is `largest`."""
    distances = instance.distances
    if instance.has_integer_costs and distances.max(initial=0.0) <= largest:
        return distances.astype(np.int64)
    return np.rint(distances * (largest / max(distances.max(initial=0.0), 1e-300))).astype(np.int64)
