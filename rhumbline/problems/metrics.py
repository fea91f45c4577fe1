"""Distances between nodes as files define them, and positions in the plane for the policy."""

from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

Metric = Literal["EXACT_2D", "EUC_2D", "CEIL_2D", "FLOOR_2D", "ATT", "GEO", "EXPLICIT"]

# TSPLIB's own constants for GEO; pi is 3.141592 there, and published optima depend on it.
GEO_PI, GEO_RADIUS = 3.141592, 6378.388

MAX_NUMBER = (
    1e12  # tours of 1000 cities stay below 2**53, up to where float64 holds every whole number
)


def euclidean_distances(xy: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N N"]:
    """Unrounded straight-line distances."""
    difference = xy[:, None] - xy[None]
    return np.sqrt((difference**2).sum(-1))


def att_distances(xy: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N N"]:
    """TSPLIB's ATT metric: scaled by sqrt(10) and rounded up."""
    exact = np.sqrt(((xy[:, None] - xy[None]) ** 2).sum(-1) / 10.0)
    nearest = np.floor(exact + 0.5)
    return nearest + (nearest < exact)


def geo_radians(xy: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N 2"]:
    """Latitude and longitude in radians from TSPLIB's DDD.MM notation (minutes behind the
    point).
    """
    degrees = np.trunc(xy)
    return GEO_PI * (degrees + 5.0 * (xy - degrees) / 3.0) / 180.0


def geo_distances(xy: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N N"]:
    """TSPLIB's GEO metric: kilometres on its idealised sphere, cut to whole numbers."""
    latitude, longitude = geo_radians(xy).T
    q1 = np.cos(longitude[:, None] - longitude)
    q2 = np.cos(latitude[:, None] - latitude)
    q3 = np.cos(latitude[:, None] + latitude)
    cosine = 0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3)
    kilometres = np.trunc(GEO_RADIUS * np.arccos(np.clip(cosine, -1.0, 1.0)) + 1.0)
    np.fill_diagonal(kilometres, 0.0)
    return kilometres


ROUNDS, SHORTEST, TINY = 100, 0.01, 1e-9  # of an embedding: rounds, a quantile, and a share of it

DISTANCE_FUNCTIONS = {
    "EXACT_2D": euclidean_distances,
    "EUC_2D": lambda xy: np.floor(euclidean_distances(xy) + 0.5),
    "CEIL_2D": lambda xy: np.ceil(euclidean_distances(xy)),
    "FLOOR_2D": lambda xy: np.floor(euclidean_distances(xy)),
    "ATT": att_distances,
    "GEO": geo_distances,
}


def embed_in_plane(distances: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N 2"]:
    """Points in the plane whose distances resemble a matrix, the short ones above all: tours are
    made of them.
    """
    return minimise_stress(distances, classical_scaling(distances))


def minimise_stress(
    distances: Float[np.ndarray, "N N"], plane: Float[np.ndarray, "N 2"]
) -> Float[np.ndarray, "N 2"]:
    """Points moved until their distances are as right as they get, relative to their size.

    By rounds of SMACOF (de Leeuw 1977): each is the minimum of a bound that touches the weighted
    stress where we are.
    """
    off = ~np.eye(len(plane), dtype=bool)
    if not distances[off].any():
        return plane
    least = np.quantile(
        distances[off][distances[off] > 0], SHORTEST
    )  # else places in one town would outweigh all
    weight = np.where(off, 1.0 / np.maximum(distances, least) ** 2, 0.0)
    solve = np.linalg.pinv(np.diag(weight.sum(1)) - weight, hermitian=True)
    wanted = weight * distances
    for _ in range(ROUNDS):
        pull = wanted / np.maximum(euclidean_distances(plane), TINY * least)
        plane = solve @ (pull.sum(1)[:, None] * plane - pull @ plane)
    return plane


def classical_scaling(distances: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N 2"]:
    """Points in the plane whose distances resemble a matrix: classical scaling (Torgerson 1952)."""
    squared = distances**2
    centred = squared - squared.mean(0) - squared.mean(1)[:, None] + squared.mean()
    values, vectors = np.linalg.eigh(-0.5 * centred)
    plane = np.zeros((len(distances), 2))
    largest = slice(None, -3, -1)  # eigh sorts upwards; one city has one eigenvalue
    kept = vectors[:, largest] * np.sqrt(np.maximum(values[largest], 0.0))
    plane[:, : kept.shape[1]] = kept
    return plane


def scale_to_unit_square(plane: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N 2"]:
    """Points moved and scaled into the unit square, with one factor for both axes so that angles
    survive.
    """
    return (plane - plane.min(axis=0)) / longer_side(plane)


def longer_side(plane: Float[np.ndarray, "N 2"]) -> float:
    """The longer side of the points' bounding box; 1 if they coincide."""
    return float((plane.max(axis=0) - plane.min(axis=0)).max()) or 1.0


class MetricInstance:
    """What instances with a metric share: exact distances, and positions for the policy.

    Subclasses are dataclasses with these three fields. `EXPLICIT` needs `matrix`; every other
    metric needs `xy`.
    """

    metric: Metric
    xy: Float[np.ndarray, "N 2"] | None
    matrix: Float[np.ndarray, "N N"] | Int[np.ndarray, "N N"] | None

    @cached_property
    def distances(self) -> Float[np.ndarray, "N N"]:
        """All distances in the instance's own metric and rounding, as float64 (whole numbers
        where it rounds).
        """
        if self.matrix is not None:
            return np.asarray(self.matrix, dtype=np.float64)
        assert self.xy is not None
        return DISTANCE_FUNCTIONS[self.metric](np.asarray(self.xy, dtype=np.float64))

    @property
    def details(self) -> str:
        """The metric, for people."""
        return self.metric

    @cached_property
    def has_integer_costs(self) -> bool:
        """Whether costs are whole numbers."""
        return self.metric != "EXACT_2D" and bool(np.all(self.distances == np.rint(self.distances)))

    @cached_property
    def planar_xy(self) -> Float[np.ndarray, "N 2"]:
        """Positions for the policy, before scaling; nodes that are near in the metric are near
        in the plane.
        """
        if self.metric == "EXPLICIT":
            return embed_in_plane(self.distances)
        assert self.xy is not None
        if self.metric == "GEO":
            latitude, longitude = np.rad2deg(geo_radians(self.xy)).T
            return np.stack([longitude * np.cos(np.deg2rad(latitude.mean())), latitude], axis=1)
        return np.asarray(self.xy, dtype=np.float64)
