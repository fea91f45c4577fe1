"""CVRP instances from tuples of arrays, as users give them to `rhumbline.solve`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rhumbline.problems.cvrp.instance import CVRPInstance, cvrp_from_arrays


def cvrp_from_python(source: Any) -> list[CVRPInstance] | None:
    """Return the instance of a depot, customers, demands and a capacity, or those of a list."""
    if is_cvrp_arrays(source):
        return [cvrp_from_arrays(*source)]
    if not isinstance(source, list | tuple) or not source:
        return None
    parts: Sequence[Any] = source
    if not all(is_cvrp_arrays(part) for part in parts):
        return None
    return [cvrp_from_arrays(*part, name=f"arrays-{i}") for i, part in enumerate(parts, 1)]


def is_cvrp_arrays(source: Any) -> bool:
    """Return whether this is a depot, customers, demands (sequences) and a capacity (a number)."""
    if not isinstance(source, list | tuple) or len(source) != 4:
        return False
    *sequences, capacity = source
    is_number = isinstance(capacity, int | float | np.number)
    is_scalar = isinstance(capacity, np.ndarray) and not capacity.ndim
    if not (is_number or is_scalar):
        return False
    return all(isinstance(part, list | tuple | np.ndarray) for part in sequences)
