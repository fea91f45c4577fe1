"""Routing instances of one's own on a device.

All instances of a mini-step have one size. Files seldom do, so a few of their sizes are chosen, and
an instance of another size loses nodes until it has the next smaller one: at random, others each
time. It is also turned and mirrored at random; both keep a policy from learning few instances by
heart.
"""

from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.problems import Problem
from rhumbline.problems.cvrp import CVRPBatch
from rhumbline.problems.metrics import euclidean_distances, scale_to_unit_square
from rhumbline.problems.symmetry import SYMMETRY_COUNT, symmetries
from rhumbline.problems.tsp import TSPBatch
from rhumbline.record import Record
from rhumbline.training.data.random import Size

MOST_SIZES = 8  # kernels, recordings and their memory are for one size each
MOST_DISTANCES = 2**28  # numbers of all matrices together, a gibibyte
CURVED = ("EXPLICIT", "GEO")  # metrics that are not straight lines in the plane, but for rounding


@dataclass(frozen=True)
class PaddedNodes(Record):
    """Routing instances side by side, padded to the largest."""

    xy: Float[Tensor, "I N 2"]  # in the unit square
    count: Int[Tensor, "I"]  # nodes of each
    demand: Int[Tensor, "I N"] | None = None
    capacity: Int[Tensor, "I"] | None = None
    distance: Float[Tensor, "I N N"] | None = (
        None  # in sides of the square; None means straight lines
    )

    def batch(self, rows: Int[Tensor, "B"], order: Int[Tensor, "B M"]) -> TSPBatch | CVRPBatch:
        """Some nodes of some instances, all of them real, in some order; again in the unit square.

        Limits on fleets are not taught.
        """
        xy = self.xy[rows[:, None], order]
        distance = self.distance
        low, side = bounds(xy)
        if distance is not None:
            distance = distance[rows[:, None, None], order[:, :, None], order[:, None, :]] / side
        key = torch.arange(len(rows), device=rows.device)
        ones = torch.ones_like(side[:, 0, 0])
        if self.demand is None or self.capacity is None:
            return TSPBatch((xy - low) / side, key, ones, distance)
        demand = self.demand[rows[:, None], order]
        capacity = self.capacity[rows]
        return CVRPBatch((xy - low) / side, demand, capacity, key, ones, distance)


def bounds(xy: Float[Tensor, "I N 2"]) -> tuple[Float[Tensor, "I 1 2"], Float[Tensor, "I 1 1"]]:
    """The lower left corner of each instance, and the longer side of its bounding box; 1 if its
    nodes coincide.
    """
    low = xy.amin(1, keepdim=True)
    side = (xy.amax(1, keepdim=True) - low).amax(2, keepdim=True)
    return low, torch.where(side > 0, side, 1.0)


def stack_padded(instances: Sequence[Any], curved: bool) -> PaddedNodes:
    """Instances as tensors; with matrices if some instances want them."""
    most = max(i.size for i in instances)
    xy = np.zeros((len(instances), most, 2), np.float32)
    count = np.array([i.size for i in instances])
    for row, instance in enumerate(instances):
        xy[row, : instance.size] = scale_to_unit_square(instance.planar_xy)
    distance = matrices(instances, most) if curved else None
    nodes = PaddedNodes(torch.from_numpy(xy), torch.from_numpy(count), distance=distance)
    if instances[0].problem == "tsp":
        return nodes
    demand = np.zeros((len(instances), most), np.int64)
    for row, instance in enumerate(instances):
        demand[row, : instance.size] = instance.demands
    return replace(
        nodes,
        demand=torch.from_numpy(demand),
        capacity=torch.tensor([i.capacity for i in instances]),
    )


def matrices(instances: Sequence[Any], most: int) -> Float[Tensor, "I N N"]:
    """Distances in sides of each instance's square: straight lines, or for other metrics their own,
    as long on average.

    Kilometres between degrees, say, would otherwise outweigh all else.
    """
    distance = np.zeros((len(instances), most, most), np.float32)
    for row, instance in enumerate(instances):
        straight = euclidean_distances(scale_to_unit_square(instance.planar_xy))
        if instance.metric in CURVED:
            own = instance.distances
            straight = own * (straight.mean() / own.mean() if own.any() and straight.any() else 1.0)
        distance[row, : instance.size, : instance.size] = straight
    return torch.from_numpy(distance)


class RoutingStore:
    """Instances of a routing problem, by the size that they are trained at."""

    def __init__(
        self,
        instances: Sequence[Any],
        problem: Problem[Any, Any],
        device: torch.device,
        curved: bool,
    ) -> None:
        counts = [problem.item_count(i) for i in instances]
        self.depots = instances[0].size - counts[0]
        sizes = choose_sizes(counts)
        next_smaller = [sizes[bisect(sizes, count) - 1] for count in counts]
        groups = {
            s: [i for i, size in zip(instances, next_smaller, strict=True) if size == s]
            for s in sizes
        }
        if curved:
            check_memory(groups.values())
        self.groups = {size: stack_padded(some, curved).to(device) for size, some in groups.items()}
        self.counts: dict[Size, int] = {size: len(some) for size, some in groups.items()}
        self.width = max(i.size for i in instances)
        self.max_node_loss = max(
            1 - size / count for size, count in zip(next_smaller, counts, strict=True)
        )

    @staticmethod
    def size_of(instance: Any, problem: Problem[Any, Any]) -> Size:
        """Cities or customers."""
        return problem.item_count(instance)

    @staticmethod
    def contents(instance: Any) -> bytes:
        """Places or distances, and what vehicles must carry."""
        place = instance.matrix if instance.xy is None else instance.xy
        words = repr(
            (instance.metric, getattr(instance, "demands", ()), getattr(instance, "capacity", 0))
        ).encode()
        matrix = (
            b"" if instance.matrix is None else np.asarray(instance.matrix, np.float64).tobytes()
        )
        return np.asarray(place, np.float64).tobytes() + matrix + words

    def draw(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Thinned to the size, nodes in any order, turned or mirrored."""
        nodes = self.groups[size]
        rows = torch.randint(len(nodes.count), (count,), generator=rng, device=rng.device)
        luck = torch.rand(count, nodes.xy.shape[1], generator=rng, device=rng.device)
        place = torch.arange(luck.shape[1], device=luck.device)
        luck = torch.where(
            place < nodes.count[rows, None], luck, 2.0
        )  # what does not exist comes last
        luck = torch.where(place < self.depots, -1.0, luck)
        thin = nodes.batch(rows, luck.argsort(1)[:, : size + self.depots])
        turn = torch.randint(SYMMETRY_COUNT, (count, 1, 1, 1), generator=rng, device=rng.device)
        views = symmetries(thin.xy)
        return replace(thin, xy=views.gather(1, turn.expand(-1, 1, *views.shape[2:]))[:, 0])

    def whole(self) -> list[tuple[Any, Tensor]]:
        """By number of nodes; costs are in sides of the square already."""
        found: list[tuple[Any, Tensor]] = []
        for nodes in self.groups.values():
            for count in nodes.count.unique().tolist():
                rows = (nodes.count == count).nonzero()[:, 0]
                batch = nodes.batch(
                    rows, torch.arange(count, device=rows.device).expand(len(rows), -1)
                )
                found.append((batch, batch.scale))
        return found


def choose_sizes(counts: Iterable[int]) -> list[int]:
    """Sizes to train at: all that occur, or if these are many, some of them.

    Instances lose nodes down to the next smaller one; the largest share that any of them loses is
    as small as can be.
    """
    distinct = sorted(set(counts))
    low = 1.0
    high = distinct[-1] / distinct[0]
    if len(distinct) <= MOST_SIZES:
        return distinct
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if len(steps_of(distinct, middle)) <= MOST_SIZES else (middle, high)
        )
    return steps_of(distinct, high)


def steps_of(distinct: Sequence[int], ratio: float) -> list[int]:
    """The first of some sizes, the first that is more than a ratio larger, and so on."""
    sizes: list[int] = []
    for size in distinct:
        if not sizes or size > ratio * sizes[-1]:
            sizes.append(size)
    return sizes


def check_memory(groups: Iterable[Sequence[Any]]) -> None:
    """Refuse more matrices than fit."""
    numbers = sum(len(some) * max(i.size for i in some) ** 2 for some in groups)
    if numbers > MOST_DISTANCES:
        words = "some instances have distances of their own, so each of them needs a matrix"
        raise InputError(
            f"data: {words}, {numbers:,} numbers in all; up to {MOST_DISTANCES:,} fit: give fewer"
        )
