"""Distances between nodes as files define them, and positions in the plane for the policy."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.errors import InputError, shorten

Metric = Literal["EXACT_2D", "EUC_2D", "CEIL_2D", "FLOOR_2D", "ATT", "GEO", "EXPLICIT"]


@dataclass(frozen=True)
class MetricLimits:
    """The largest numbers and tables."""

    # Of coordinates, distances and loads. Float64 holds every whole number up to 2**53, and 64 bits
    # hold the sum of 10,000 such distances.
    max_number: float = 1e12
    # A table of all distances has 32 MB then; 10,000 nodes would need 800 MB. Larger instances have
    # coordinates, and their distances are computed when they are needed.
    max_table_nodes: int = 2000


METRIC_LIMITS = MetricLimits()


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


def straight_lengths(
    here: Float[np.ndarray, "*L 2"], there: Float[np.ndarray, "*M 2"]
) -> Float[np.ndarray, "*K"]:
    """Return unrounded straight-line distances between points; shapes are broadcast."""
    difference = here - there
    squares = difference**2
    squared_length = squares.sum(-1)
    return np.sqrt(squared_length)


def att_lengths(
    here: Float[np.ndarray, "*L 2"], there: Float[np.ndarray, "*M 2"]
) -> Float[np.ndarray, "*K"]:
    """Return TSPLIB's pseudo-Euclidean ATT distances: scaled by sqrt(10) and rounded up."""
    difference = here - there
    squares = difference**2
    squared_length = squares.sum(-1)
    exact = np.sqrt(squared_length / 10.0)
    nearest = np.floor(exact + 0.5)
    is_below = nearest < exact
    return nearest + is_below


def geo_radians(xy: Float[np.ndarray, "*L 2"]) -> Float[np.ndarray, "*L 2"]:
    """Return latitude and longitude in radians from TSPLIB's DDD.MM (minutes behind the point)."""
    degrees = np.trunc(xy)
    minutes = xy - degrees
    decimal = degrees + 5.0 * minutes / 3.0
    tsplib_pi = 3.141592  # published optima depend on it
    return tsplib_pi * decimal / 180.0


def geo_lengths(
    here: Float[np.ndarray, "*L 2"], there: Float[np.ndarray, "*M 2"]
) -> Float[np.ndarray, "*K"]:
    """Return TSPLIB's GEO distances: kilometres on its idealised sphere, cut to whole numbers.

    Two places are at least 1 km apart, even if they coincide. A node has distance 0 to itself,
    which the caller knows.
    """
    from_radians = geo_radians(here)
    from_latitude = from_radians[..., 0]
    from_longitude = from_radians[..., 1]
    radians = geo_radians(there)
    latitude = radians[..., 0]
    longitude = radians[..., 1]
    q1 = np.cos(from_longitude - longitude)
    q2 = np.cos(from_latitude - latitude)
    q3 = np.cos(from_latitude + latitude)
    cosine = 0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3)
    cosine = np.clip(cosine, -1.0, 1.0)
    angle = np.arccos(cosine)
    radius_km = 6378.388
    return np.trunc(radius_km * angle + 1.0)


def check_matrix_size(table: Any, name: str) -> None:
    """Raise if a matrix of distances, an array or a list of rows, is too large."""
    if len(table) > METRIC_LIMITS.max_table_nodes:
        found = f"a distance matrix of {len(table):,} nodes"
        limit = f"matrices of up to {METRIC_LIMITS.max_table_nodes:,} are supported"
        advice = "give coordinates, if there are any"
        raise InputError(f"{name}: {found}; {limit}: {advice}")


LENGTH_FUNCTIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "EXACT_2D": straight_lengths,
    "EUC_2D": lambda here, there: np.floor(straight_lengths(here, there) + 0.5),
    "CEIL_2D": lambda here, there: np.ceil(straight_lengths(here, there)),
    "FLOOR_2D": lambda here, there: np.floor(straight_lengths(here, there)),
    "ATT": att_lengths,
    "GEO": geo_lengths,
}


def distance_table(metric: Metric, xy: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N N"]:
    """Return the distances between all points in a metric."""
    table = LENGTH_FUNCTIONS[metric](xy[:, None], xy)
    np.fill_diagonal(table, 0.0)
    return table


def euclidean_distances(xy: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N N"]:
    """Return unrounded straight-line distances."""
    return straight_lengths(xy[:, None], xy)


def embed_in_plane(distances: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N 2"]:
    """Return points in the plane whose distances resemble a matrix.

    Short distances matter most, because tours consist of them.
    """
    largest = distances.max()
    if 0 < largest < TUNING.min_largest_distance:
        return embed_in_plane(distances / largest) * largest
    first = classical_scaling(distances)
    return minimise_stress(distances, first)


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
    squared = (least / bounded) ** 2
    weight = torch.from_numpy(np.where(off_diagonal, squared, 0.0))
    solve = laplacian_solver(weight)
    wanted = weight * torch.from_numpy(distances)
    min_distance = float(TUNING.min_distance_share * least)
    points = torch.from_numpy(plane)
    affordable = max(1, TUNING.round_elements // size**2)
    for _ in range(min(TUNING.rounds, affordable)):
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
    least = max(least, TUNING.min_short_share * positive.max())
    bounded = np.maximum(distances, least)
    weight = 1.0 / bounded**2  # as in `minimise_stress`; the diagonal has no error
    current = euclidean_distances(plane)
    agreement = (weight * distances * current).sum()
    wanted_square = (weight * distances**2).sum()
    current_square = (weight * current**2).sum()
    total = wanted_square * current_square
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
    projected = basis.T @ matrix @ basis
    values, vectors = torch.linalg.eigh(projected)
    return values, basis @ vectors


def scale_to_unit_square(plane: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N 2"]:
    """Move and scale points into the unit square, by one factor so that angles are preserved."""
    low = plane.min(axis=0)
    shifted = plane - low
    return shifted / longer_side(plane)


def longer_side(plane: Float[np.ndarray, "N 2"]) -> float:
    """Return the longer side of the points' bounding box; 1 if they coincide."""
    low = plane.min(axis=0)
    high = plane.max(axis=0)
    sides = high - low
    longest = float(sides.max())
    return longest or 1.0


class MetricInstance:
    """Base of instances with a metric: exact distances, and positions for the policy.

    Subclasses are dataclasses with these fields. `EXPLICIT` needs `matrix`; every other metric
    needs `xy`.
    """

    name: str
    metric: Metric
    xy: Float[np.ndarray, "N 2"] | None
    matrix: Float[np.ndarray, "N N"] | Int[np.ndarray, "N N"] | None

    @property
    def size(self) -> int:
        """Return the number of nodes."""
        nodes = self.matrix if self.xy is None else self.xy
        assert nodes is not None
        return len(nodes)

    @property
    def has_table(self) -> bool:
        """Return whether the instance is small enough for a table of all distances."""
        return self.matrix is not None or self.size <= METRIC_LIMITS.max_table_nodes

    @cached_property
    def distances(self) -> Float[np.ndarray, "N N"]:
        """Return all distances in the instance's own metric and rounding, as float64.

        They are whole numbers where the metric rounds. A large instance has no such table: use
        `legs`.
        """
        if self.matrix is not None:
            return np.asarray(self.matrix, dtype=np.float64)
        if not self.has_table:
            most = METRIC_LIMITS.max_table_nodes
            limit = f"a table of all distances is made up to {most:,} nodes"
            raise InputError(f"{shorten(self.name)}: {limit}, and there are {self.size:,}")
        assert self.xy is not None
        return distance_table(self.metric, np.asarray(self.xy, dtype=np.float64))

    def legs(
        self, here: Int[np.ndarray, "*L"] | int, there: Int[np.ndarray, "*M"] | int
    ) -> Float[np.ndarray, "*K"]:
        """Return the distances from nodes to nodes, as `distances` has them, without the table.

        The shapes of both are broadcast.
        """
        if self.matrix is not None:
            return np.asarray(self.matrix[here, there], dtype=np.float64)
        assert self.xy is not None
        xy = np.asarray(self.xy, dtype=np.float64)
        length = LENGTH_FUNCTIONS[self.metric]
        lengths = length(xy[here], xy[there])
        is_same = np.equal(here, there)
        return np.where(is_same, 0.0, lengths)

    def walk_length(self, walk: Int[np.ndarray, "W"]) -> int | float:
        """Return the length of a walk over nodes; an exact int where costs are whole numbers."""
        lengths = self.legs(walk[:-1], walk[1:])
        if self.has_integer_costs:
            return int(lengths.astype(np.int64).sum())
        return float(lengths.sum())

    @property
    def details(self) -> str:
        """Return the metric, for users."""
        return self.metric

    @cached_property
    def has_integer_costs(self) -> bool:
        """Return whether costs are whole numbers."""
        if self.metric != "EXPLICIT":
            return self.metric != "EXACT_2D"
        rounded = np.rint(self.distances)
        is_whole = self.distances == rounded
        return bool(np.all(is_whole))

    @cached_property
    def planar_xy(self) -> Float[np.ndarray, "N 2"]:
        """Return positions for the policy, before scaling.

        Nodes that are near each other in the metric are near in the plane.
        """
        if self.metric == "EXPLICIT":
            return embed_in_plane(self.distances)
        assert self.xy is not None
        if self.metric == "GEO":
            radians = geo_radians(self.xy)
            latitude, longitude = np.rad2deg(radians).T
            mean_latitude = latitude.mean()
            middle = np.deg2rad(mean_latitude)
            shrinkage = np.cos(middle)
            x = longitude * shrinkage
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
