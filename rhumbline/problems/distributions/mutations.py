"""Nine mutations of uniform instances, for tests of generalisation (Bossek et al. 2019).

An operator selects points and says where each would go. `mutate` moves them, and redraws points
that left the unit square or fell on others. The power is the probability of each point for cluster,
rotation, linear and axis projection. The other five take every point of a random region whatever
the power, as the generator behind the published sets does; power 0 means no mutation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from rhumbline.errors import InputError, shorten
from rhumbline.registry import suggest_known

Points = Float[np.ndarray, "N 2"]
# Which points an operator takes, and where each would go.
Moves = tuple[Bool[np.ndarray, "N"], Float[np.ndarray, "N 2"]]
Operator = Callable[[np.ndarray, float, np.random.Generator], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class MutationRanges:
    """Random sizes of the operators, in the unit square (parameters of the published sets)."""

    explosion_radius: tuple[float, float] = (0.1, 0.4)
    region_radius: tuple[float, float] = (0.1, 0.3)  # of an implosion, and of half a tube
    cluster_deviation: tuple[float, float] = (0.001, 0.3)
    grid_side: tuple[float, float] = (0.1, 0.3)
    mean_fling: float = 0.1  # distance beyond the border of a hole
    max_slope: float = 3.0  # of a line


RANGES = MutationRanges()


def explosion(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """Make a round hole: its points leave through the centre and land beyond the far border."""
    centre = rng.random(2)
    radius = rng.uniform(*RANGES.explosion_radius)
    to_centre = centre - points
    direction, distance = directions(to_centre)
    landing = radius + sample_fling_distances(points, rng)
    is_inside = distance < radius
    flight = landing * direction
    moved = centre + flight
    return is_inside, moved


def implosion(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """Move the points of a disc nearer to its centre."""
    centre = rng.random(2)
    radius = rng.uniform(*RANGES.region_radius)
    normal = rng.standard_normal((len(points), 1))
    share = np.minimum(np.abs(normal), radius)
    to_centre = centre - points
    _, distance = directions(to_centre)
    is_inside = distance < radius
    return is_inside, points + to_centre * share


def cluster(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """Gather points about a centre, normally distributed."""
    centre = rng.random(2)
    deviation = rng.uniform(*RANGES.cluster_deviation)
    chosen = choose_points(points, power, rng)
    normal = rng.standard_normal(points.shape)
    moved = centre + deviation * normal
    return chosen, np.clip(moved, 0.0, 1.0)


def rotation(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """Rotate points about the origin and shift them, all by the same angle and vector."""
    angle = rng.uniform(0.0, 2.0 * math.pi)
    shift = rng.random(2)
    cos = math.cos(angle)
    sin = math.sin(angle)
    x, y = points.T
    rotated_x = cos * x - sin * y
    rotated_y = sin * x + cos * y
    rotated = np.stack([rotated_x, rotated_y], axis=1)
    return choose_points(points, power, rng), rotated + shift


def linear(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """Move points up or down onto a line."""
    base, slope = sample_line(rng)
    chosen = choose_points(points, power, rng)
    x = points[:, 0]
    y = base + slope * x
    return chosen, np.stack([x, y], axis=1)


def axis(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """Move points onto a horizontal or vertical line within their range."""
    chosen = choose_points(points, power, rng)
    coordinate = int(rng.integers(2))
    values = points[chosen, coordinate]
    ends = sorted((values.min(initial=1.0), values.max(initial=0.0)))
    moved = points.copy()
    moved[:, coordinate] = rng.uniform(*ends)
    return chosen, moved


def expansion(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """Empty a tube about a line: its points move out at right angles, beyond the border."""
    foot = project_on_random_line(points, rng)
    radius = rng.uniform(*RANGES.region_radius)
    from_line = points - foot
    direction, distance = directions(from_line)
    landing = radius + sample_fling_distances(points, rng)
    is_inside = distance < radius
    flight = landing * direction
    moved = foot + flight
    return is_inside, moved


def compression(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """Move the points of a tube nearer to its middle line."""
    foot = project_on_random_line(points, rng)
    radius = rng.uniform(*RANGES.region_radius)
    normal = rng.standard_normal((len(points), 1))
    share = np.minimum(np.abs(normal), 1.0)
    from_line = points - foot
    _, distance = directions(from_line)
    is_inside = distance < radius
    return is_inside, points - from_line * share


def grid(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """Arrange points of a box as a regular square grid in it, as many as fill one."""
    sides = rng.uniform(*RANGES.grid_side, 2)
    corner = rng.random(2) * (1.0 - sides)
    opposite = corner + sides
    is_inside = (points >= corner) & (points <= opposite)
    inside = np.flatnonzero(is_inside.all(axis=1))
    side = math.isqrt(len(inside))
    count = side * side
    taken = rng.permutation(inside)[:count]
    steps = np.linspace(0.0, 1.0, side)
    rows_and_columns = np.meshgrid(steps, steps, indexing="ij")
    knots = np.stack(rows_and_columns, axis=-1).reshape(-1, 2)
    chosen = np.zeros(len(points), dtype=bool)
    chosen[taken] = True
    moved = points.copy()
    moved[taken] = corner + sides * knots
    return chosen, moved


OPERATORS: dict[str, Operator] = {
    "explosion": explosion,
    "implosion": implosion,
    "cluster": cluster,
    "rotation": rotation,
    "linear": linear,
    "axis": axis,
    "expansion": expansion,
    "compression": compression,
    "grid": grid,
}


def mutate(points: Points, operator: str, power: float, rng: np.random.Generator) -> Points:
    """Return points of the unit square after one operator; unchanged if it took fewer than two."""
    check_mutation(points, operator, power)
    if power == 0.0:
        return points.copy()
    mutation = OPERATORS[operator]
    chosen, moved = mutation(points, power, rng)
    if chosen.sum() < 2:
        return points.copy()
    is_moved = chosen[:, None]
    mutated = np.where(is_moved, moved, points)
    for is_lost in (is_outside, is_repeated):
        rows = is_lost(mutated)
        count = int(rows.sum())
        mutated[rows] = rng.random((count, 2))
    return mutated


def check_mutation(points: np.ndarray, operator: str, power: float) -> None:
    """Raise unless the operator exists, the power is a probability and the points fit."""
    if operator not in OPERATORS:
        raise InputError(f"no mutation '{shorten(operator)}'{suggest_known(operator, OPERATORS)}")
    if not 0.0 <= power <= 1.0:
        expected = "expected 0 to 1: the probability of each point"
        raise InputError(f"the power of a mutation is {power}, {expected}")
    if not ((points >= 0.0) & (points <= 1.0)).all():
        raise InputError("mutations are for points of the unit square; some are outside")


def sample_mutated_set(
    count: int, nodes: int, power: float, seed: int
) -> Float[np.ndarray, "count N 2"]:
    """Return uniform instances, each mutated once; the operators alternate.

    Each instance has its own random stream, so a longer set begins with the shorter one.
    """
    names = list(OPERATORS)
    power_id = round(power * 1000)
    instances: list[np.ndarray] = []
    for index in range(count):
        rng = np.random.default_rng([seed, power_id, index])
        points = rng.random((nodes, 2))
        name = names[index % len(names)]
        instances.append(mutate(points, name, power, rng))
    return np.stack(instances)


def choose_points(points: Points, power: float, rng: np.random.Generator) -> Bool[np.ndarray, "N"]:
    """Return True for each point with the given probability."""
    uniforms = rng.random(len(points))
    return uniforms < power


def sample_fling_distances(points: Points, rng: np.random.Generator) -> Float[np.ndarray, "N 1"]:
    """Return how far beyond the border of a hole each point lands."""
    return rng.exponential(RANGES.mean_fling, (len(points), 1))


def directions(vectors: Points) -> tuple[Points, Float[np.ndarray, "N"]]:
    """Return unit vectors (zero for zero) and lengths."""
    squared = (vectors**2).sum(axis=1)
    length = np.sqrt(squared)
    is_positive = length > 0.0
    divisor = np.where(is_positive, length, 1.0)
    return vectors / divisor[:, None], length


def sample_line(rng: np.random.Generator) -> tuple[float, float]:
    """Return height at x = 0 and slope of a line that crosses the square.

    It goes upwards from the lower half and downwards from the upper half.
    """
    base = rng.random()
    if base < 0.5:
        return base, rng.uniform(0.0, RANGES.max_slope)
    return base, rng.uniform(-RANGES.max_slope, 0.0)


def project_on_random_line(points: Points, rng: np.random.Generator) -> Points:
    """Return the orthogonal projection of each point on a random line."""
    base, slope = sample_line(rng)
    x, y = points.T
    squared_length = 1.0 + slope * slope
    foot_x = (x + slope * (y - base)) / squared_length
    foot_y = base + slope * foot_x
    return np.stack([foot_x, foot_y], axis=1)


def is_outside(points: Points) -> Bool[np.ndarray, "N"]:
    """Return True for points beyond the unit square."""
    is_below = points < 0.0
    is_above = points > 1.0
    return np.any(is_below | is_above, axis=1)


def is_repeated(points: Points) -> Bool[np.ndarray, "N"]:
    """Return True for points that equal an earlier one."""
    repeated = np.ones(len(points), dtype=bool)
    _, first = np.unique(points, axis=0, return_index=True)
    repeated[first] = False
    return repeated
