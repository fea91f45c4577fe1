"""Nine ways to disturb uniform instances, for tests of generalisation (Bossek et al. 2019; spec 6).

An operator names points and says where each would go; `mutate` moves them, and draws points anew
that left the unit square or fell on others. The power is the probability of each point for cluster,
rotation, linear and axis projection. The other five take every point of a random region whatever
the power, as the generator behind the published sets does; power 0 means no mutation.
"""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from rhumbline.errors import InputError

Points = Float[np.ndarray, "N 2"]
Moves = tuple[
    Bool[np.ndarray, "N"], Float[np.ndarray, "N 2"]
]  # which points, and where each would go
Operator = Callable[[np.ndarray, float, np.random.Generator], tuple[np.ndarray, np.ndarray]]

EXPLOSION, REGION, CLUSTER, BOX = (
    (0.1, 0.4),
    (0.1, 0.3),
    (0.001, 0.3),
    (0.1, 0.3),
)  # ranges of random sizes
FLING = 0.1  # mean distance beyond the border of a hole
STEEPEST = 3.0


def explosion(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """A round hole: its points fly out through the centre to the other side."""
    centre = rng.random(2)
    radius = rng.uniform(*EXPLOSION)
    way, distance = directions(centre - points)
    return distance < radius, centre + (radius + sample_fling_distances(points, rng)) * way


def implosion(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """The points of a disc come nearer to its centre."""
    centre = rng.random(2)
    radius = rng.uniform(*REGION)
    share = np.minimum(np.abs(rng.standard_normal((len(points), 1))), radius)
    return directions(centre - points)[1] < radius, points + (centre - points) * share


def cluster(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """Points gather about a centre, normally distributed."""
    centre = rng.random(2)
    deviation = rng.uniform(*CLUSTER)
    return choose_points(points, power, rng), np.clip(
        centre + deviation * rng.standard_normal(points.shape), 0.0, 1.0
    )


def rotation(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """Points turn about the origin and are shifted, all by the same angle and vector."""
    angle = rng.uniform(0.0, 2.0 * math.pi)
    shift = rng.random(2)
    x, y = points.T
    turned = [math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y]
    return choose_points(points, power, rng), np.stack(turned, axis=1) + shift


def linear(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """Points move up or down onto a line."""
    base, slope = sample_line(rng)
    return choose_points(points, power, rng), np.stack(
        [points[:, 0], base + slope * points[:, 0]], axis=1
    )


def axis(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """Points move onto a horizontal or vertical line somewhere among them."""
    chosen = choose_points(points, power, rng)
    which = int(rng.integers(2))
    those = points[chosen, which]
    moved = points.copy()
    moved[:, which] = rng.uniform(*sorted((those.min(initial=1.0), those.max(initial=0.0))))
    return chosen, moved


def expansion(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """A tube about a line becomes empty: its points fly out at right angles."""
    foot = feet(points, rng)
    radius = rng.uniform(*REGION)
    way, distance = directions(points - foot)
    return distance < radius, foot + (radius + sample_fling_distances(points, rng)) * way


def compression(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """The points of a tube come nearer to its middle line."""
    foot = feet(points, rng)
    radius = rng.uniform(*REGION)
    share = np.minimum(np.abs(rng.standard_normal((len(points), 1))), 1.0)
    return directions(points - foot)[1] < radius, points - (points - foot) * share


def grid(points: Points, power: float, rng: np.random.Generator) -> Moves:
    """The points of a box, as many as make a square number, become a regular grid in it."""
    sides = rng.uniform(*BOX, 2)
    corner = rng.random(2) * (1.0 - sides)
    inside = np.flatnonzero(((points >= corner) & (points <= corner + sides)).all(axis=1))
    side = math.isqrt(len(inside))
    taken = rng.permutation(inside)[: side * side]
    steps = np.linspace(0.0, 1.0, side)
    knots = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)
    chosen = np.zeros(len(points), dtype=bool)
    moved = points.copy()
    chosen[taken], moved[taken] = True, corner + sides * knots
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
    """Points of the unit square after one application of an operator; unchanged if it took fewer
    than two.
    """
    check_mutation(points, operator, power)
    if power == 0.0:
        return points.copy()
    chosen, moved = OPERATORS[operator](points, power, rng)
    if chosen.sum() < 2:
        return points.copy()
    mutated = np.where(chosen[:, None], moved, points)
    for lost in (is_outside, is_repeated):
        rows = lost(mutated)
        mutated[rows] = rng.random((int(rows.sum()), 2))
    return mutated


def check_mutation(points: np.ndarray, operator: str, power: float) -> None:
    """Refuse what cannot be mutated."""
    if operator not in OPERATORS:
        raise InputError(f"no mutation '{operator}'; known: {', '.join(OPERATORS)}")
    if not 0.0 <= power <= 1.0:
        raise InputError(
            f"the power of a mutation is {power}, expected 0 to 1: the probability of each point"
        )
    if not ((points >= 0.0) & (points <= 1.0)).all():
        raise InputError("mutations are for points of the unit square; some are outside")


def sample_mutated_set(
    count: int, nodes: int, power: float, seed: int
) -> Float[np.ndarray, "count N 2"]:
    """Uniform instances, each mutated once; the operators take turns, so any first few have all of
    them.

    Each instance has a random stream of its own: a longer set begins with the shorter one.
    """
    names = list(OPERATORS)
    instances = list[np.ndarray]()
    for place in range(count):
        rng = np.random.default_rng([seed, round(power * 1000), place])
        instances.append(mutate(rng.random((nodes, 2)), names[place % len(names)], power, rng))
    return np.stack(instances)


def choose_points(points: Points, power: float, rng: np.random.Generator) -> Bool[np.ndarray, "N"]:
    """Each point with a probability."""
    return rng.random(len(points)) < power


def sample_fling_distances(points: Points, rng: np.random.Generator) -> Float[np.ndarray, "N 1"]:
    """How far beyond the border each point lands."""
    return rng.exponential(FLING, (len(points), 1))


def directions(vectors: Points) -> tuple[Points, Float[np.ndarray, "N"]]:
    """Unit vectors (zero for zero) and lengths."""
    length = np.sqrt((vectors**2).sum(axis=1))
    return vectors / np.where(length > 0.0, length, 1.0)[:, None], length


def sample_line(rng: np.random.Generator) -> tuple[float, float]:
    """Height at x = 0 and slope of a line that crosses the square: upwards from low, downwards
    from high.
    """
    base = rng.random()
    return base, rng.uniform(0.0, STEEPEST) if base < 0.5 else rng.uniform(-STEEPEST, 0.0)


def feet(points: Points, rng: np.random.Generator) -> Points:
    """The orthogonal projection of each point on a random line."""
    base, slope = sample_line(rng)
    x = (points[:, 0] + slope * (points[:, 1] - base)) / (1.0 + slope * slope)
    return np.stack([x, base + slope * x], axis=1)


def is_outside(points: Points) -> Bool[np.ndarray, "N"]:
    """Points beyond the unit square."""
    return np.any((points < 0.0) | (points > 1.0), axis=1)


def is_repeated(points: Points) -> Bool[np.ndarray, "N"]:
    """Points that equal an earlier one."""
    rows = np.ones(len(points), dtype=bool)
    rows[np.unique(points, axis=0, return_index=True)[1]] = False
    return rows
