"""Distances between nodes as files define them, and positions in the plane for the policy."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

Metric = Literal["EXACT_2D", "EUC_2D", "CEIL_2D", "FLOOR_2D", "ATT", "GEO", "EXPLICIT"]

# Tours of 1000 cities stay below 2**53, up to where float64 holds every whole number.
MAX_NUMBER = 1e12


@dataclass(frozen=True)
class EmbeddingTuning:
    """How a distance matrix becomes positions in the plane."""

    rounds: int = 100  # of SMACOF
    round_elements: int = 30_000_000  # of all rounds: 30 rounds of 1,000 nodes, a tenth of a second
    subspace: int = 12  # directions in which eigenvectors are searched
    subspace_rounds: int = 12
    short_quantile: float = 0.01  # of the positive distances: the shortest that a weight respects
    min_distance_share: float = 1e-9  # of that distance: avoids a division by zero
    # Squares of smaller numbers, or their inverses, leave the range of float64.
    min_largest_distance: float = 1e-100
    min_short_share: float = 1e-9  # of the longest distance, for that shortest one


TUNING = EmbeddingTuning()


def euclidean_distances(xy: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N N"]:
    """Return unrounded straight-line distances."""
    here = xy[:, None]
    difference = here - xy
    squared = (difference**2).sum(-1)
    return np.sqrt(squared)


def att_distances(xy: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N N"]:
    """Return TSPLIB's pseudo-Euclidean ATT distances: scaled by sqrt(10) and rounded up."""
    here = xy[:, None]
    difference = here - xy
    squared = (difference**2).sum(-1)
    exact = np.sqrt(squared / 10.0)
    nearest = np.floor(exact + 0.5)
    return nearest + (nearest < exact)


def geo_radians(xy: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N 2"]:
    """Return latitude and longitude in radians from TSPLIB's DDD.MM (minutes behind the point)."""
    degrees = np.trunc(xy)
    minutes = xy - degrees
    decimal = degrees + 5.0 * minutes / 3.0
    tsplib_pi = 3.141592  # published optima depend on it
    return tsplib_pi * decimal / 180.0


def geo_distances(xy: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N N"]:
    """Return TSPLIB's GEO distances: kilometres on its idealised sphere, cut to whole numbers."""
    latitude, longitude = geo_radians(xy).T
    from_latitude = latitude[:, None]
    from_longitude = longitude[:, None]
    q1 = np.cos(from_longitude - longitude)
    q2 = np.cos(from_latitude - latitude)
    q3 = np.cos(from_latitude + latitude)
    cosine = 0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3)
    cosine = np.clip(cosine, -1.0, 1.0)
    angle = np.arccos(cosine)
    radius_km = 6378.388
    kilometres = np.trunc(radius_km * angle + 1.0)
    np.fill_diagonal(kilometres, 0.0)
    return kilometres


DISTANCE_FUNCTIONS = {
    "EXACT_2D": euclidean_distances,
    "EUC_2D": lambda xy: np.floor(euclidean_distances(xy) + 0.5),
    "CEIL_2D": lambda xy: np.ceil(euclidean_distances(xy)),
    "FLOOR_2D": lambda xy: np.floor(euclidean_distances(xy)),
    "ATT": att_distances,
    "GEO": geo_distances,
}


def embed_in_plane(distances: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N 2"]:
    """Return points in the plane whose distances resemble a matrix.

    Short distances matter most, because tours consist of them.
    """
    largest = distances.max()
    if 0 < largest < TUNING.min_largest_distance:
        return embed_in_plane(distances / largest) * largest
    return minimise_stress(distances, classical_scaling(distances))


def minimise_stress(
    distances: Float[np.ndarray, "N N"], plane: Float[np.ndarray, "N 2"]
) -> Float[np.ndarray, "N 2"]:
    """Move points until their distances are as right as they get, relative to their size.

    Rounds of SMACOF (de Leeuw 1977): each takes the minimum of a bound that touches the weighted
    stress at the current points. It runs in torch, whose threads never outnumber the free cores
    under a time limit; those of NumPy's BLAS wait for each other on a busy machine.
    """
    size = len(plane)
    off_diagonal = ~np.eye(size, dtype=bool)
    between_nodes = distances[off_diagonal]
    if not between_nodes.any():
        return plane
    # Without a least distance, places in one town would outweigh everything else.
    positive = between_nodes[between_nodes > 0]
    least = np.quantile(positive, TUNING.short_quantile)
    least = max(least, TUNING.min_short_share * positive.max())
    bounded = np.maximum(distances, least)
    weight = torch.from_numpy(np.where(off_diagonal, (least / bounded) ** 2, 0.0))
    solve = laplacian_solver(weight)
    wanted = weight * torch.from_numpy(distances)
    min_distance = float(TUNING.min_distance_share * least)
    points = torch.from_numpy(plane)
    for _ in range(min(TUNING.rounds, max(1, TUNING.round_elements // size**2))):
        current = pairwise_distances(points).clamp_(min=min_distance)
        pull = torch.div(wanted, current, out=current)
        total_pull = pull.sum(1)[:, None]
        points = solve(total_pull * points - pull @ points)
    return points.numpy()


def laplacian_solver(weight: Float[Tensor, "N N"]) -> Callable[[Tensor], Tensor]:
    """Return the product with the pseudo-inverse of the Laplacian of a complete graph.

    What it is applied to has column sums of zero. There the Laplacian plus a constant has the same
    inverse, and it is positive definite unless weights differ too much for float64.
    """
    laplacian = torch.diag(weight.sum(1)) - weight
    mean_weight = weight.mean()
    factor, trouble = torch.linalg.cholesky_ex(laplacian + mean_weight)
    if not trouble:
        return lambda x: torch.cholesky_solve(x, factor)
    inverse = torch.linalg.pinv(laplacian, hermitian=True)
    return lambda x: inverse @ x


def pairwise_distances(points: Float[Tensor, "N 2"]) -> Float[Tensor, "N N"]:
    """Return straight-line distances, without the rounding of a product of matrices."""
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")


def relative_stress(distances: Float[np.ndarray, "N N"], plane: Float[np.ndarray, "N 2"]) -> float:
    """Return how far points are from having some distances: 0 if they have them, 1 if none.

    It is the square root of the weighted stress, as a share of what it is if all points coincide.
    The points are scaled to fit best.
    """
    if not distances.any():
        return 0.0
    distances = scale_to_one(distances)  # squares of small numbers would be 0
    plane = scale_to_one(plane)
    positive = distances[distances > 0]
    least = np.quantile(positive, TUNING.short_quantile)
    bounded = np.maximum(distances, max(least, TUNING.min_short_share * positive.max()))
    weight = 1.0 / bounded**2  # as in `minimise_stress`; the diagonal has no error
    current = euclidean_distances(plane)
    agreement = (weight * distances * current).sum()
    total = (weight * distances**2).sum() * (weight * current**2).sum()
    if not total > 0:
        return 1.0
    explained = min(1.0, agreement**2 / total)
    return float(np.sqrt(1.0 - explained))


def scale_to_one(numbers: Float[np.ndarray, "N M"]) -> Float[np.ndarray, "N M"]:
    """Return numbers divided by the largest of their sizes; zeros stay."""
    largest = np.abs(numbers).max()
    return numbers / largest if largest else numbers


def classical_scaling(distances: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N 2"]:
    """Return points in the plane that resemble a distance matrix (Torgerson 1952)."""
    squared = torch.from_numpy(distances**2)
    column_means = squared.mean(0)
    row_means = squared.mean(1)[:, None]
    centred = squared - column_means - row_means + squared.mean()
    values, vectors = leading_eigenvectors(-0.5 * centred)
    largest = values.argsort(descending=True)[:2]  # one city has one eigenvalue
    variances = values[largest].clamp(min=0.0)
    axes = vectors[:, largest] * variances.sqrt()
    count = axes.shape[1]
    plane = np.zeros((len(distances), 2))
    plane[:, :count] = axes.numpy()
    return plane


def leading_eigenvectors(
    matrix: Float[Tensor, "N N"],
) -> tuple[Float[Tensor, "K"], Float[Tensor, "N K"]]:
    """Return the eigenvalues and eigenvectors of largest size, nearly, by subspace iteration.

    `minimise_stress` starts there. All eigenvectors of 1,000 nodes would take half a second.
    """
    size = len(matrix)
    width = min(size, TUNING.subspace)
    rng = torch.Generator().manual_seed(0)
    basis = torch.randn(size, width, generator=rng, dtype=torch.float64)
    for _ in range(TUNING.subspace_rounds):
        basis, _ = torch.linalg.qr(matrix @ basis)
    values, vectors = torch.linalg.eigh(basis.T @ matrix @ basis)
    return values, basis @ vectors


def scale_to_unit_square(plane: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N 2"]:
    """Move and scale points into the unit square, by one factor so that angles are preserved."""
    return (plane - plane.min(axis=0)) / longer_side(plane)


def longer_side(plane: Float[np.ndarray, "N 2"]) -> float:
    """Return the longer side of the points' bounding box; 1 if they coincide."""
    low = plane.min(axis=0)
    sides = plane.max(axis=0) - low
    return float(sides.max()) or 1.0


class MetricInstance:
    """Base of instances with a metric: exact distances, and positions for the policy.

    Subclasses are dataclasses with these three fields. `EXPLICIT` needs `matrix`; every other
    metric needs `xy`.
    """

    metric: Metric
    xy: Float[np.ndarray, "N 2"] | None
    matrix: Float[np.ndarray, "N N"] | Int[np.ndarray, "N N"] | None

    @cached_property
    def distances(self) -> Float[np.ndarray, "N N"]:
        """Return all distances in the instance's own metric and rounding, as float64.

        They are whole numbers where the metric rounds.
        """
        if self.matrix is not None:
            return np.asarray(self.matrix, dtype=np.float64)
        assert self.xy is not None
        return DISTANCE_FUNCTIONS[self.metric](np.asarray(self.xy, dtype=np.float64))

    @property
    def details(self) -> str:
        """Return the metric, for users."""
        return self.metric

    @cached_property
    def has_integer_costs(self) -> bool:
        """Return whether costs are whole numbers."""
        if self.metric == "EXACT_2D":
            return False
        return bool(np.all(self.distances == np.rint(self.distances)))

    @cached_property
    def planar_xy(self) -> Float[np.ndarray, "N 2"]:
        """Return positions for the policy, before scaling.

        Nodes that are near each other in the metric are near in the plane.
        """
        if self.metric == "EXPLICIT":
            return embed_in_plane(self.distances)
        assert self.xy is not None
        if self.metric == "GEO":
            latitude, longitude = np.rad2deg(geo_radians(self.xy)).T
            x = longitude * np.cos(np.deg2rad(latitude.mean()))
            return np.stack([x, latitude], axis=1)
        return np.asarray(self.xy, dtype=np.float64)

    @cached_property
    def plane_stress(self) -> float:
        """Return how badly positions in the plane reproduce a matrix, from 0 to 1.

        Positions of a file are as they are: 0.
        """
        if self.metric != "EXPLICIT":
            return 0.0
        return relative_stress(self.distances, self.planar_xy)
