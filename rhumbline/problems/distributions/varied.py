"""Training instances that are not uniform: mutated or clustered points, other depots and demands.

The batched counterpart of `mutations`, which defines the nine operators for one instance at a time.
Clusters are as in CVRPLIB's X set. Everything runs on the device with static shapes and without
host synchronisation, so that a CUDA graph can record a training step that contains it. All
operators run on all instances, and each instance keeps the result of one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.problems.cvrp import CVRPBatch
from rhumbline.problems.distributions.mutations import RANGES
from rhumbline.problems.nodes import take_nodes
from rhumbline.problems.tsp import TSPBatch

PointBatch = Float[Tensor, "B N 2"]
PerInstance = Float[Tensor, "B 1 1"]
# Which points an operator takes, and where each would go.
MoveBatch = tuple[Bool[Tensor, "B N 1"], PointBatch]


@dataclass(frozen=True)
class VariationRanges:
    """Ranges of clusters, demands and capacities; ends included."""

    max_centres: int = 8  # of clusters
    cluster_deviation: tuple[float, float] = (0.02, 0.1)
    max_loose_share: float = 0.5  # of the points around clusters
    route_customers: tuple[float, float] = (4.0, 20.0)  # the field's instances have about 10
    small_demand: tuple[int, int] = (1, 10)
    large_demand: tuple[int, int] = (50, 100)
    wide_demand: tuple[int, int] = (1, 100)
    large_share: tuple[float, float] = (0.05, 0.3)  # of large demands among small ones
    # Instances are divided into this many parts: one for each operator, and the rest for clusters,
    # which get a quarter of all instances.
    operator_shares: int = 12


VARIATION = VariationRanges()


@dataclass(frozen=True)
class MutationDraws:
    """Random numbers for one mutation of each instance; an operator uses each at most once."""

    kind: Int[Tensor, "B 1 1"]  # the operator
    power: PerInstance
    size: PerInstance  # 0 to 1: where in its range the operator's size is
    angle: PerInstance
    base: PerInstance  # height of a line at x = 0
    slope: PerInstance  # of that line
    centre: Float[Tensor, "B 1 2"]
    sides: Float[Tensor, "B 1 2"]
    centres: Float[Tensor, "B C 2"]
    deviations: Float[Tensor, "B C 1"]
    uniform: Float[Tensor, "B N 1"]
    share: Float[Tensor, "B N 1"]
    normal: PointBatch
    replacement: PointBatch  # for points that leave the square

    @property
    def chosen(self) -> Bool[Tensor, "B N 1"]:
        """Return True for each point with the probability given by the power."""
        return self.uniform < self.power

    @property
    def fling_distance(self) -> Float[Tensor, "B N 1"]:
        """Return how far beyond the border of a hole each point lands; exponential."""
        return -RANGES.mean_fling * torch.log1p(-self.share)


def sample_draws(count: int, nodes: int, rng: torch.Generator) -> MutationDraws:
    """Return new random numbers for `count` instances."""
    device = rng.device
    scalars = torch.rand(count, 1, 6, generator=rng, device=device).split(1, dim=2)
    kind, power, size, turn, base, steepness = scalars
    pairs = torch.rand(count, 2, 2, generator=rng, device=device)
    per_point = torch.rand(count, nodes, 2, generator=rng, device=device)
    replacement = torch.rand(count, nodes, 2, generator=rng, device=device)
    places = torch.rand(count, VARIATION.max_centres, 3, generator=rng, device=device)
    slope = RANGES.max_slope * steepness
    operator = (kind * VARIATION.operator_shares).long()
    last_operator = len(BATCH_OPERATORS) - 1
    return MutationDraws(
        kind=operator.clamp(max=last_operator),
        power=power,
        size=size,
        angle=2.0 * torch.pi * turn,
        base=base,
        slope=torch.where(base < 0.5, slope, -slope),
        centre=pairs[:, :1],
        sides=pairs[:, 1:],
        centres=places[..., :2],
        deviations=interpolate(VARIATION.cluster_deviation, places[..., 2:]),
        uniform=per_point[..., :1],
        share=per_point[..., 1:],
        normal=torch.randn(count, nodes, 2, generator=rng, device=device),
        replacement=replacement,
    )


def interpolate(ends: tuple[float, float], share: Tensor) -> Tensor:
    """Return the value at a share of the way from the first end to the second."""
    return ends[0] + (ends[1] - ends[0]) * share


def explode(points: PointBatch, draws: MutationDraws) -> MoveBatch:
    """Make a round hole: its points leave through the centre and land beyond the far border."""
    radius = interpolate(RANGES.explosion_radius, draws.size)
    centre = draws.centre
    direction, distance = unit_vectors(centre - points)
    landing = radius + draws.fling_distance
    is_inside = distance < radius
    flight = landing * direction
    moved = centre + flight
    return is_inside, moved


def implode(points: PointBatch, draws: MutationDraws) -> MoveBatch:
    """Move the points of a disc nearer to its centre."""
    radius = interpolate(RANGES.region_radius, draws.size)
    to_centre = draws.centre - points
    normal = draws.normal[..., :1]
    share = torch.minimum(normal.abs(), radius)
    _, distance = unit_vectors(to_centre)
    is_inside = distance < radius
    return is_inside, points + to_centre * share


def gather_about_centre(points: PointBatch, draws: MutationDraws) -> MoveBatch:
    """Gather points about a centre, normally distributed."""
    deviation = interpolate(RANGES.cluster_deviation, draws.size)
    offset = deviation * draws.normal
    moved = draws.centre + offset
    return draws.chosen, moved.clamp(0.0, 1.0)


def rotate(points: PointBatch, draws: MutationDraws) -> MoveBatch:
    """Rotate points about the origin and shift them, all by the same angle and vector."""
    x, y = points.split(1, dim=2)
    cos = draws.angle.cos()
    sin = draws.angle.sin()
    rotated_x = cos * x - sin * y
    rotated_y = sin * x + cos * y
    rotated = torch.cat([rotated_x, rotated_y], dim=2)
    return draws.chosen, rotated + draws.centre


def project_linearly(points: PointBatch, draws: MutationDraws) -> MoveBatch:
    """Move points up or down onto a line."""
    x = points[..., :1]
    y = draws.base + draws.slope * x
    moved = torch.cat([x, y], dim=2)
    return draws.chosen, moved


def project_on_axis(points: PointBatch, draws: MutationDraws) -> MoveBatch:
    """Move points onto a horizontal or vertical line within their range."""
    chosen = draws.chosen
    low = torch.where(chosen, points, 1.0).amin(1, keepdim=True)
    high = torch.where(chosen, points, 0.0).amax(1, keepdim=True)
    level = low + (high - low) * draws.size
    coordinate = (2.0 * draws.base).long()
    coordinates = torch.arange(2, device=points.device)
    is_level = coordinates == coordinate
    moved = torch.where(is_level, level, points)
    return chosen, moved


def expand(points: PointBatch, draws: MutationDraws) -> MoveBatch:
    """Empty a tube about a line: its points move out at right angles, beyond the border."""
    foot = project_on_line(points, draws)
    radius = interpolate(RANGES.region_radius, draws.size)
    direction, distance = unit_vectors(points - foot)
    landing = radius + draws.fling_distance
    is_inside = distance < radius
    flight = landing * direction
    moved = foot + flight
    return is_inside, moved


def compress(points: PointBatch, draws: MutationDraws) -> MoveBatch:
    """Move the points of a tube nearer to its middle line."""
    from_line = points - project_on_line(points, draws)
    normal = draws.normal[..., :1]
    share = normal.abs().clamp(max=1.0)
    _, distance = unit_vectors(from_line)
    radius = interpolate(RANGES.region_radius, draws.size)
    is_inside = distance < radius
    return is_inside, points - from_line * share


def arrange_as_grid(points: PointBatch, draws: MutationDraws) -> MoveBatch:
    """Arrange points of a box as a regular square grid in it, as many as fill one.

    The first of the points inside are taken; points are in random order, so these are random ones.
    """
    sides = interpolate(RANGES.grid_side, draws.sides)
    corner = draws.centre * (1.0 - sides)
    opposite = corner + sides
    in_range = (points >= corner) & (points <= opposite)
    inside = in_range.all(2, keepdim=True)
    rank = inside.cumsum(1) - 1
    count = inside.sum(1, keepdim=True)
    side = count.float().sqrt().long()
    side = side.clamp(min=1)
    row = rank // side
    column = rank % side
    cells = (side - 1).clamp(min=1)
    knot = torch.cat([row, column], dim=2) / cells
    chosen = inside & (rank < side * side)
    return chosen, corner + sides * knot


def gather_into_clusters(points: PointBatch, draws: MutationDraws) -> MoveBatch:
    """Gather points about one to eight centres; in half of the instances some stay loose.

    Up to half of the points are loose. Points beyond the border are folded back, because redrawing
    them would thin out the clusters there.
    """
    more_centres = (VARIATION.max_centres * draws.size).long()
    count = 1 + more_centres
    index = (draws.share * count).long()[..., 0]
    centre = take_nodes(draws.centres, index)
    deviation = take_nodes(draws.deviations, index)
    moved = centre + deviation * draws.normal
    above_half = 2.0 * draws.power - 1.0
    loose_share = VARIATION.max_loose_share * above_half
    is_clustered = draws.uniform >= loose_share
    folded = 1.0 - (1.0 - moved.abs()).abs()
    return is_clustered, folded


BATCH_OPERATORS: dict[str, Callable[[PointBatch, MutationDraws], MoveBatch]] = {
    "explosion": explode,
    "implosion": implode,
    "cluster": gather_about_centre,
    "rotation": rotate,
    "linear": project_linearly,
    "axis": project_on_axis,
    "expansion": expand,
    "compression": compress,
    "grid": arrange_as_grid,
    "clusters": gather_into_clusters,
}


def mutate_batch(points: PointBatch, draws: MutationDraws) -> PointBatch:
    """Return uniform points after the operator drawn for each instance.

    Instances of which an operator takes fewer than two points are unchanged. Points that leave the
    square are redrawn. Unlike in `mutate`, points that fall on others stay, since files have such
    points too.
    """
    mutated = points
    for number, operator in enumerate(BATCH_OPERATORS.values()):
        chosen, moved = operator(points, draws)
        several = chosen.sum(1, keepdim=True) > 1
        is_drawn = draws.kind == number
        chosen = chosen & is_drawn & several
        mutated = torch.where(chosen, moved, mutated)
    is_beyond = (mutated < 0.0) | (mutated > 1.0)
    is_lost = is_beyond.any(2, keepdim=True)
    return torch.where(is_lost, draws.replacement, mutated)


def unit_vectors(vectors: PointBatch) -> tuple[PointBatch, Float[Tensor, "B N 1"]]:
    """Return unit vectors (zero for zero) and lengths."""
    length = vectors.norm(dim=2, keepdim=True)
    divisor = torch.where(length > 0.0, length, 1.0)
    return vectors / divisor, length


def project_on_line(points: PointBatch, draws: MutationDraws) -> PointBatch:
    """Return the orthogonal projection of each point on the drawn line."""
    base = draws.base
    slope = draws.slope
    x, y = points.split(1, dim=2)
    foot_x = (x + slope * (y - base)) / (1.0 + slope * slope)
    foot_y = base + slope * foot_x
    return torch.cat([foot_x, foot_y], dim=2)


def fill_unit_square(points: PointBatch) -> PointBatch:
    """Move and scale points until the longer side of their box is 1, as for points of files."""
    low = points.amin(1, keepdim=True)
    high = points.amax(1, keepdim=True)
    side = (high - low).amax(2, keepdim=True)
    divisor = torch.where(side > 0.0, side, 1.0)
    return (points - low) / divisor


def flip_coins(count: int, chance: float, rng: torch.Generator) -> Bool[Tensor, "B 1 1"]:
    """Return True with a probability, for each instance."""
    return torch.rand(count, 1, 1, generator=rng, device=rng.device) < chance


def vary_tsp(batch: TSPBatch, share: float, rng: torch.Generator) -> TSPBatch:
    """Mutate a share of uniform instances; half of those are also scaled to fill the square."""
    count, nodes = batch.xy.shape[:2]
    draws = sample_draws(count, nodes, rng)
    xy = mutate_batch(batch.xy, draws)
    is_filled = flip_coins(count, 0.5, rng)
    xy = torch.where(is_filled, fill_unit_square(xy), xy)
    is_varied = flip_coins(count, share, rng)
    xy = torch.where(is_varied, xy, batch.xy)
    return replace(batch, xy=xy)


def vary_cvrp(batch: CVRPBatch, share: float, rng: torch.Generator) -> CVRPBatch:
    """Mutate a share of uniform instances and give them other depots, demands and capacities.

    Half of those are also scaled to fill the square.
    """
    count, nodes = batch.xy.shape[:2]
    draws = sample_draws(count, nodes, rng)
    xy = mutate_batch(batch.xy, draws)
    xy = move_depot(xy, rng)
    is_filled = flip_coins(count, 0.5, rng)
    xy = torch.where(is_filled, fill_unit_square(xy), xy)
    demand = sample_demands(batch.demand, rng)
    capacity = sample_capacity(demand, rng)
    is_varied = flip_coins(count, share, rng)
    return replace(
        batch,
        xy=torch.where(is_varied, xy, batch.xy),
        demand=torch.where(is_varied[..., 0], demand, batch.demand),
        capacity=torch.where(is_varied[:, 0, 0], capacity, batch.capacity),
    )


def move_depot(xy: PointBatch, rng: torch.Generator) -> PointBatch:
    """Return the same customers with other depots.

    A third of the depots stays, a third goes to a corner and a third to the centre.
    """
    uniform = torch.rand(
        len(xy),
        1,
        3,
        generator=rng,
        device=rng.device,
    )
    place = uniform[..., :1]
    corner = uniform[..., 1:].round()
    depot = xy[:, :1]
    customers = xy[:, 1:]
    centre_or_same = torch.where(place < 2 / 3, 0.5, depot)
    moved = torch.where(place < 1 / 3, corner, centre_or_same)
    return torch.cat([moved, customers], dim=1)


def sample_demands(demand: Int[Tensor, "B N"], rng: torch.Generator) -> Int[Tensor, "B N"]:
    """Return demands of four kinds, each for a quarter of the instances.

    They are as before, all equal, widely spread, or few large ones among small ones.
    """
    small = sample_integers(VARIATION.small_demand, demand, rng)
    large = sample_integers(VARIATION.large_demand, demand, rng)
    wide = sample_integers(VARIATION.wide_demand, demand, rng)
    count = len(demand)
    device = rng.device
    kind = torch.randint(4, (count, 1), generator=rng, device=device)
    uniform = torch.rand(count, 1, generator=rng, device=device)
    large_share = interpolate(VARIATION.large_share, uniform)
    per_node = torch.rand(demand.shape, generator=rng, device=device)
    uneven = torch.where(per_node < large_share, large, small)
    wide_or_uneven = torch.where(kind == 2, wide, uneven)
    drawn = torch.where(kind == 1, 1, wide_or_uneven)
    is_depot = demand == 0
    is_kept = (kind == 0) | is_depot
    return torch.where(is_kept, demand, drawn)


def sample_integers(
    ends: tuple[int, int], like: Int[Tensor, "B N"], rng: torch.Generator
) -> Int[Tensor, "B N"]:
    """Return uniform whole numbers of the shape of a tensor, both ends included."""
    low, high = ends
    return torch.randint(
        low,
        high + 1,
        like.shape,
        generator=rng,
        device=rng.device,
    )


def sample_capacity(demand: Int[Tensor, "B N"], rng: torch.Generator) -> Int[Tensor, "B"]:
    """Return whole capacities that serve 4 to 20 customers of mean demand, and any single one.

    The number of customers is uniform in its logarithm.
    """
    low, high = VARIATION.route_customers
    count, nodes = demand.shape
    uniform = torch.rand(count, generator=rng, device=rng.device)
    log_ratio = math.log(high / low)
    per_route = low * torch.exp(log_ratio * uniform)
    customers = nodes - 1
    load = per_route * demand.sum(1) / customers
    capacity = load.ceil().long()
    largest = demand.amax(1)
    return torch.maximum(capacity, largest)


VARY_BY_PROBLEM: dict[str, Callable[[Any, float, torch.Generator], Any]] = {
    "tsp": vary_tsp,
    "cvrp": vary_cvrp,
}
