"""TSP instances from arrays, as users give them to `rhumbline.solve`."""

from typing import Any

import numpy as np

from rhumbline.problems.tsp.instance import TSPInstance, tsp_from_array


def tsp_from_python(source: Any) -> list[TSPInstance] | None:
    """Return the instance of an array, or those of a batch of coordinates [B, N, 2]."""
    if not isinstance(source, np.ndarray):
        return None
    if source.ndim == 3:
        return [tsp_from_array(xy, f"array-{i}") for i, xy in enumerate(source, 1)]
    return [tsp_from_array(source)]
