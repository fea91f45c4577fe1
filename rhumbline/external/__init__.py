"""Wrappers of classical solvers by other people; each needs an optional extra."""

from typing import Any

import numpy as np


def integer_distances(instance: Any, largest: int = 1_000_000) -> np.ndarray:
    """Return distances as integers: unchanged if they are, else scaled to at most `largest`.

    LKH multiplies distances by 100 in 32 bits, and aborts the process above a million.
    """
    distances = instance.distances
    most = distances.max(initial=0.0)
    is_exact = instance.has_integer_costs and most <= largest
    if is_exact:
        return distances.astype(np.int64)
    scale = largest / max(most, 1e-300)
    scaled = np.rint(distances * scale)
    return scaled.astype(np.int64)
