"""numba: the distance between two nodes, from a matrix or from their coordinates.

Kernels that take `Legs` work for every metric. A matrix of 10,000 nodes would take 800 MB, so the distances of large
instances are computed each time, as `problems.metrics` defines them.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types

METRICS = ("EXPLICIT", "EXACT_2D", "EUC_2D", "CEIL_2D", "FLOOR_2D", "ATT", "GEO")  # by their codes
EXPLICIT, EXACT_2D, EUC_2D, CEIL_2D, FLOOR_2D, ATT, GEO = range(7)
EARTH_RADIUS_KM = 6378.388  # of TSPLIB's GEO

# `_nrt=False`: numba counts no references. Otherwise each call counts all arrays of a named tuple, which took nine
# tenths of the time of a kick.
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,
}
# A call passes each array of a named tuple as seven numbers, which are more than a hundred in all. Inlined, a step of
# ruin and recreate takes half of the time. Large functions are only called, because compilation takes longer, too.
njit_function = njit(**OPTIONS, forceinline=True)
njit_large_function = njit(**OPTIONS)


class Legs(NamedTuple):
    """What the distance between two nodes is computed from.

    `points` are coordinates [N, 2], for GEO latitude and longitude in radians. `matrix` holds all distances [N, N] if
    `metric` is `EXPLICIT`, and is empty otherwise.
    """

    metric: int
    points: np.ndarray
    matrix: np.ndarray


LEGS = types.NamedTuple([types.int64, types.float64[:, ::1], types.float64[:, ::1]], Legs)


def matrix_legs(matrix: np.ndarray) -> Legs:
    """Return legs that are read from a matrix."""
    no_points = np.zeros((0, 2))
    return Legs(EXPLICIT, no_points, np.ascontiguousarray(matrix, dtype=np.float64))


def point_legs(metric: str, points: np.ndarray) -> Legs:
    """Return legs that are computed from coordinates; those of GEO are radians."""
    no_matrix = np.zeros((0, 0))
    coordinates = np.ascontiguousarray(points, dtype=np.float64)
    return Legs(METRICS.index(metric), coordinates, no_matrix)


@njit_function
def leg(legs, a, b):
    """Return the distance between two nodes."""
    if legs.metric == EXPLICIT:
        return legs.matrix[a, b]
    dx = legs.points[a, 0] - legs.points[b, 0]
    dy = legs.points[a, 1] - legs.points[b, 1]
    if legs.metric == EUC_2D:
        return math.floor(math.sqrt(dx * dx + dy * dy) + 0.5)
    if legs.metric == EXACT_2D:
        return math.sqrt(dx * dx + dy * dy)
    return rare_leg(legs, a, b)


@njit_large_function
def rare_leg(legs, a, b):
    """Return the distance between two nodes in one of the other metrics."""
    if legs.metric == GEO:
        return geo_leg(legs.points, a, b)
    dx = legs.points[a, 0] - legs.points[b, 0]
    dy = legs.points[a, 1] - legs.points[b, 1]
    squared = dx * dx + dy * dy
    if legs.metric == CEIL_2D:
        return math.ceil(math.sqrt(squared))
    if legs.metric == FLOOR_2D:
        return math.floor(math.sqrt(squared))
    exact = math.sqrt(squared / 10.0)
    nearest = math.floor(exact + 0.5)
    return nearest + 1.0 if nearest < exact else nearest


@njit_function
def geo_leg(points, a, b):
    """Return TSPLIB's GEO distance in whole kilometres."""
    if a == b:
        return 0.0
    q1 = math.cos(points[a, 1] - points[b, 1])
    q2 = math.cos(points[a, 0] - points[b, 0])
    q3 = math.cos(points[a, 0] + points[b, 0])
    cosine = 0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3)
    angle = math.acos(min(1.0, max(-1.0, cosine)))
    return math.floor(EARTH_RADIUS_KM * angle + 1.0)
