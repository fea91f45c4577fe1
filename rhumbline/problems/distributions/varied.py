"""Training instances that are not uniform: disturbed or clustered points, other depots, demands and
capacities.

The batched counterpart of `mutate`, which defines the nine operators on one instance at a time;
clusters are as in CVRPLIB's X set. Everything runs on the device with static shapes and reads
nothing back, so that a training step can be recorded with it. What an operator makes of an instance
comes from one set of `MutationDraws`; all operators run on all instances, and each instance keeps
the result of one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.problems.cvrp import CVRPBatch
from rhumbline.problems.distributions.mutations import (
    BOX,
    CLUSTER,
    EXPLOSION,
    FLING,
    REGION,
    STEEPEST,
)
from rhumbline.problems.nodes import take_nodes
from rhumbline.problems.tsp import TSPBatch

Points = Float[Tensor, "B N 2"]
PerInstance = Float[Tensor, "B 1 1"]
Moves = tuple[Bool[Tensor, "B N 1"], Points]  # which points, and where each would go

MOST_CENTRES, DEVIATION, MOST_LOOSE = 8, (0.02, 0.1), 0.5  # of clusters
ROUTE = (4.0, 20.0)  # customers of a route; the field's random instances have about 10
SMALL, LARGE, WIDE = (1, 10), (50, 100), (1, 100)  # demands, ends included
FEW = (0.05, 0.3)  # share of large demands among small ones


@dataclass(frozen=True)
class MutationDraws:
    """Random numbers behind one disturbance of each instance. An operator uses some of them,
    none of them twice.
    """

    kind: Int[Tensor, "B 1 1"]
    power: PerInstance
    size: PerInstance  # 0 to 1: where in its range the operator's size is
    angle: PerInstance
    base: PerInstance  # a line: its height at x = 0 ...
    slope: PerInstance  # ... and how steep it is
    centre: Float[Tensor, "B 1 2"]
    sides: Float[Tensor, "B 1 2"]
    centres: Float[Tensor, "B C 2"]
    deviations: Float[Tensor, "B C 1"]
    luck: Float[Tensor, "B N 1"]
    share: Float[Tensor, "B N 1"]
    normal: Points
    anew: Points  # where points go that left the square

    @property
    def taken(self) -> Bool[Tensor, "B N 1"]:
        """Each point with the probability that is the power."""
        return self.luck < self.power

    @property
    def flung(self) -> Float[Tensor, "B N 1"]:
        """How far beyond the border of a hole each point lands: exponential."""
        return -FLING * torch.log1p(-self.share)


def sample_draws(count: int, nodes: int, rng: torch.Generator) -> MutationDraws:
    """New random numbers for `count` instances."""
    one = torch.rand(count, 1, 6, generator=rng, device=rng.device).split(1, dim=2)
    two, each, anew, places = (
        torch.rand(count, rows, width, generator=rng, device=rng.device)
        for rows, width in ((2, 2), (nodes, 2), (nodes, 2), (MOST_CENTRES, 3))
    )
    steep = STEEPEST * one[5]
    return MutationDraws(
        kind=(one[0] * SHARES).long().clamp(max=len(BATCH_OPERATORS) - 1),
        power=one[1],
        size=one[2],
        angle=2.0 * torch.pi * one[3],
        base=one[4],
        slope=torch.where(one[4] < 0.5, steep, -steep),
        centre=two[:, :1],
        sides=two[:, 1:],
        centres=places[..., :2],
        deviations=interpolate(DEVIATION, places[..., 2:]),
        luck=each[..., :1],
        share=each[..., 1:],
        normal=torch.randn(count, nodes, 2, generator=rng, device=rng.device),
        anew=anew,
    )


def interpolate(ends: tuple[float, float], share: Tensor) -> Tensor:
    """The place between two ends that is a share of the way from the first to the second."""
    return ends[0] + (ends[1] - ends[0]) * share


def explosion(points: Points, d: MutationDraws) -> Moves:
    """A round hole: its points fly out through the centre to the other side."""
    radius, (way, distance) = interpolate(EXPLOSION, d.size), directions(d.centre - points)
    return distance < radius, d.centre + (radius + d.flung) * way


def implosion(points: Points, d: MutationDraws) -> Moves:
    """The points of a disc come nearer to its centre."""
    radius = interpolate(REGION, d.size)
    way = d.centre - points
    return directions(way)[1] < radius, points + way * torch.minimum(
        d.normal[..., :1].abs(), radius
    )


def cluster(points: Points, d: MutationDraws) -> Moves:
    """Points gather about a centre, normally distributed."""
    return d.taken, (d.centre + interpolate(CLUSTER, d.size) * d.normal).clamp(0.0, 1.0)


def rotation(points: Points, d: MutationDraws) -> Moves:
    """Points turn about the origin and are shifted, all by the same angle and vector."""
    (x, y), cos, sin = points.split(1, dim=2), d.angle.cos(), d.angle.sin()
    return d.taken, torch.cat([cos * x - sin * y, sin * x + cos * y], dim=2) + d.centre


def linear(points: Points, d: MutationDraws) -> Moves:
    """Points move up or down onto a line."""
    x = points[..., :1]
    return d.taken, torch.cat([x, d.base + d.slope * x], dim=2)


def axis(points: Points, d: MutationDraws) -> Moves:
    """Points move onto a horizontal or vertical line somewhere among them."""
    low = torch.where(d.taken, points, 1.0).amin(1, keepdim=True)
    high = torch.where(d.taken, points, 0.0).amax(1, keepdim=True)
    flat = torch.arange(2, device=points.device) == (2.0 * d.base).long()
    return d.taken, torch.where(flat, low + (high - low) * d.size, points)


def expansion(points: Points, d: MutationDraws) -> Moves:
    """A tube about a line becomes empty: its points fly out at right angles."""
    foot = feet(points, d)
    radius = interpolate(REGION, d.size)
    way, distance = directions(points - foot)
    return distance < radius, foot + (radius + d.flung) * way


def compression(points: Points, d: MutationDraws) -> Moves:
    """The points of a tube come nearer to its middle line."""
    away = points - feet(points, d)
    share = d.normal[..., :1].abs().clamp(max=1.0)
    return directions(away)[1] < interpolate(REGION, d.size), points - away * share


def grid(points: Points, d: MutationDraws) -> Moves:
    """The points of a box, as many as make a square number, become a regular grid in it.

    Of the points inside the first are taken: they are in no order, so these are random ones.
    """
    sides = interpolate(BOX, d.sides)
    corner = d.centre * (1.0 - sides)
    inside = ((points >= corner) & (points <= corner + sides)).all(2, keepdim=True)
    rank = inside.cumsum(1) - 1
    side = inside.sum(1, keepdim=True).float().sqrt().long().clamp(min=1)
    knot = torch.cat([rank // side, rank % side], dim=2) / (side - 1).clamp(min=1)
    return inside & (rank < side * side), corner + sides * knot


def clusters(points: Points, d: MutationDraws) -> Moves:
    """Points gather about one to eight centres; in every other instance some, up to half of them,
    stay loose.

    Those beyond the border are folded back: drawn anew they would leave clusters at the border
    thin.
    """
    centres = 1 + (MOST_CENTRES * d.size).long()
    own = (d.share * centres).long()[..., 0]
    moved = take_nodes(d.centres, own) + take_nodes(d.deviations, own) * d.normal
    return d.luck >= MOST_LOOSE * (2.0 * d.power - 1.0), 1.0 - (1.0 - moved.abs()).abs()


BATCH_OPERATORS: tuple[Callable[[Points, MutationDraws], Moves], ...] = (
    explosion,
    implosion,
    cluster,
    rotation,
    linear,
    axis,
    expansion,
    compression,
    grid,
    clusters,
)
# in which instances are divided: one for each kind, and what is left for the last, a quarter in all
SHARES = 12


def mutate_batch(points: Points, d: MutationDraws) -> Points:
    """Uniform points after the operator drawn for each instance; unchanged where it took fewer than
    two.

    Points that left the square are drawn anew. Unlike in `mutate`, those that fell on others stay:
    files have them too.
    """
    found = points
    for number, operator in enumerate(BATCH_OPERATORS):
        chosen, moved = operator(points, d)
        chosen = chosen & (d.kind == number) & (chosen.sum(1, keepdim=True) > 1)
        found = torch.where(chosen, moved, found)
    outside = ((found < 0.0) | (found > 1.0)).any(2, keepdim=True)
    return torch.where(outside, d.anew, found)


def directions(vectors: Points) -> tuple[Points, Float[Tensor, "B N 1"]]:
    """Unit vectors (zero for zero) and lengths."""
    length = vectors.norm(dim=2, keepdim=True)
    return vectors / torch.where(length > 0.0, length, 1.0), length


def feet(points: Points, d: MutationDraws) -> Points:
    """The orthogonal projection of each point on a line."""
    x, y = points.split(1, dim=2)
    x = (x + d.slope * (y - d.base)) / (1.0 + d.slope * d.slope)
    return torch.cat([x, d.base + d.slope * x], dim=2)


def fill_unit_square(points: Points) -> Points:
    """Points moved and scaled until the longer side of their box is that of the square, as files
    are for a policy.
    """
    low = points.amin(1, keepdim=True)
    side = (points.amax(1, keepdim=True) - low).amax(2, keepdim=True)
    return (points - low) / torch.where(side > 0.0, side, 1.0)


def flip_coins(count: int, chance: float, rng: torch.Generator) -> Bool[Tensor, "B 1 1"]:
    """Yes with a probability, for each instance."""
    return torch.rand(count, 1, 1, generator=rng, device=rng.device) < chance


def vary_tsp(batch: TSPBatch, share: float, rng: torch.Generator) -> TSPBatch:
    """Uniform instances, a share of which is disturbed, half of those also scaled to fill the
    square.
    """
    count, nodes = batch.xy.shape[:2]
    xy = mutate_batch(batch.xy, sample_draws(count, nodes, rng))
    xy = torch.where(flip_coins(count, 0.5, rng), fill_unit_square(xy), xy)
    return replace(batch, xy=torch.where(flip_coins(count, share, rng), xy, batch.xy))


def vary_cvrp(batch: CVRPBatch, share: float, rng: torch.Generator) -> CVRPBatch:
    """The same for vehicle routing; disturbed instances have other depots, demands and
    capacities, too.
    """
    count, nodes = batch.xy.shape[:2]
    xy = move_depot(mutate_batch(batch.xy, sample_draws(count, nodes, rng)), rng)
    xy = torch.where(flip_coins(count, 0.5, rng), fill_unit_square(xy), xy)
    demand = sample_demands(batch.demand, rng)
    capacity = sample_capacity(demand, rng)
    varied = flip_coins(count, share, rng)
    return replace(
        batch,
        xy=torch.where(varied, xy, batch.xy),
        demand=torch.where(varied[..., 0], demand, batch.demand),
        capacity=torch.where(varied[:, 0, 0], capacity, batch.capacity),
    )


def move_depot(xy: Points, rng: torch.Generator) -> Points:
    """The same customers; a third of the depots stays, a third goes to a corner, a third to the
    centre.
    """
    uniform = torch.rand(len(xy), 1, 3, generator=rng, device=rng.device)
    place = uniform[..., :1]
    corner = uniform[..., 1:].round()
    depot = torch.where(place < 1 / 3, corner, torch.where(place < 2 / 3, 0.5, xy[:, :1]))
    return torch.cat([depot, xy[:, 1:]], dim=1)


def sample_demands(demand: Int[Tensor, "B N"], rng: torch.Generator) -> Int[Tensor, "B N"]:
    """A quarter of the instances each: as they were, all equal, widely spread, and few large
    ones among small ones.
    """
    small, large, wide = (
        torch.randint(low, high + 1, demand.shape, generator=rng, device=rng.device)
        for low, high in (SMALL, LARGE, WIDE)
    )
    kind = torch.randint(4, (len(demand), 1), generator=rng, device=rng.device)
    few = interpolate(FEW, torch.rand(len(demand), 1, generator=rng, device=rng.device))
    uneven = torch.where(
        torch.rand(demand.shape, generator=rng, device=rng.device) < few, large, small
    )
    drawn = torch.where(kind == 1, 1, torch.where(kind == 2, wide, uneven))
    return torch.where((kind == 0) | (demand == 0), demand, drawn)  # nothing for the depot


def sample_capacity(demand: Int[Tensor, "B N"], rng: torch.Generator) -> Int[Tensor, "B"]:
    """Whole capacities that serve 4 to 20 customers of mean demand, evenly by ratio, and any
    single one.
    """
    uniform = torch.rand(len(demand), generator=rng, device=rng.device)
    route = ROUTE[0] * torch.exp(math.log(ROUTE[1] / ROUTE[0]) * uniform)
    capacity = (route * demand.sum(1) / (demand.shape[1] - 1)).ceil().long()
    return torch.maximum(capacity, demand.amax(1))


VARY_BY_PROBLEM: dict[str, Callable[[Any, float, torch.Generator], Any]] = {
    "tsp": vary_tsp,
    "cvrp": vary_cvrp,
}
