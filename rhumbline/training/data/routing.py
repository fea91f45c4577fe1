"""Routing instances from user files on a device, grouped by the size that they are trained at.

All instances of a mini-step have one size, but files seldom do. A few of their sizes are therefore
chosen. An instance of another size loses nodes until it has the next smaller one: random nodes,
other ones each time. It is also rotated and mirrored at random. Both keep a policy from learning
few instances by heart.
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
from rhumbline.problems.cvrp import CVRPBatch, CVRPInstance
from rhumbline.problems.metrics import euclidean_distances, scale_to_unit_square
from rhumbline.problems.symmetry import SYMMETRY_COUNT, symmetries
from rhumbline.problems.tsp import TSPBatch
from rhumbline.record import Record
from rhumbline.training.data.random import Size


@dataclass(frozen=True)
class RoutingDataTuning:
    """Limits on what is kept on a device."""

    # Kernels, recordings and their memory are for one size each.
    max_sizes: int = 8
    # Halvings of the interval in which the largest loss of an instance is sought.
    size_bisections: int = 40
    # Numbers of all distance matrices together, a gibibyte.
    max_matrix_numbers: int = 2**28


TUNING = RoutingDataTuning()


@dataclass(frozen=True)
class PaddedNodes(Record):
    """Routing instances as tensors, padded to the largest."""

    xy: Float[Tensor, "I N 2"]  # in the unit square
    count: Int[Tensor, "I"]  # nodes of each instance
    demand: Int[Tensor, "I N"] | None = None
    capacity: Int[Tensor, "I"] | None = None
    # In sides of the square; None means straight lines.
    distance: Float[Tensor, "I N N"] | None = None

    def batch(self, rows: Int[Tensor, "B"], order: Int[Tensor, "B M"]) -> TSPBatch | CVRPBatch:
        """Return some nodes of some instances, scaled to the unit square again.

        `order` must not hold padding. Limits on fleets are left out, so they are not learnt.
        """
        row = rows[:, None]
        xy = self.xy[row, order]
        low, side = bounding_boxes(xy)
        distance = self.distance
        if distance is not None:
            from_node = order[:, :, None]
            to_node = order[:, None, :]
            distance = distance[row[:, None], from_node, to_node] / side
        key = torch.arange(len(rows), device=rows.device)
        scale = torch.ones_like(side[:, 0, 0])
        xy = (xy - low) / side
        if self.demand is None or self.capacity is None:
            return TSPBatch(xy, key, scale, distance)
        demand = self.demand[row, order]
        capacity = self.capacity[rows]
        return CVRPBatch(xy, demand, capacity, key, scale, distance)


def bounding_boxes(
    xy: Float[Tensor, "I N 2"],
) -> tuple[Float[Tensor, "I 1 2"], Float[Tensor, "I 1 1"]]:
    """Return each instance's lower left corner and the longer side of its bounding box.

    The side is 1 if all nodes coincide.
    """
    low = xy.amin(1, keepdim=True)
    high = xy.amax(1, keepdim=True)
    extent = high - low
    side = extent.amax(2, keepdim=True)
    side = torch.where(side > 0, side, 1.0)
    return low, side


def stack_padded(instances: Sequence[Any], with_matrices: bool) -> PaddedNodes:
    """Return instances as tensors, with matrices of distances if some instances need them."""
    sizes = [instance.size for instance in instances]
    most = max(sizes)
    rows = len(instances)
    xy = np.zeros((rows, most, 2), np.float32)
    for row, instance in enumerate(instances):
        scaled = scale_to_unit_square(instance.planar_xy)
        xy[row, : instance.size] = scaled
    distance = None
    if with_matrices:
        distance = stack_matrices(instances, most)
    count = np.array(sizes)
    nodes = PaddedNodes(torch.from_numpy(xy), torch.from_numpy(count), distance=distance)
    if not isinstance(instances[0], CVRPInstance):
        return nodes
    demand = np.zeros((rows, most), np.int64)
    for row, instance in enumerate(instances):
        demand[row, : instance.size] = instance.demands
    capacity = torch.tensor([instance.capacity for instance in instances])
    return replace(nodes, demand=torch.from_numpy(demand), capacity=capacity)


def has_straight_distances(instance: Any) -> bool:
    """Return whether distances are straight lines in the plane, up to rounding."""
    return instance.metric not in ("EXPLICIT", "GEO")


def stack_matrices(instances: Sequence[Any], most: int) -> Float[Tensor, "I N N"]:
    """Return distances in sides of each instance's square, padded to `most` nodes.

    They are straight lines, or for other metrics their own distances, scaled to the same mean.
    Without the scale, kilometres between degrees, say, would outweigh all else.
    """
    shape = (len(instances), most, most)
    distance = np.zeros(shape, np.float32)
    for row, instance in enumerate(instances):
        size = instance.size
        xy = scale_to_unit_square(instance.planar_xy)
        matrix = euclidean_distances(xy)
        if not has_straight_distances(instance):
            own = instance.distances
            scale = 1.0
            if own.any() and matrix.any():
                own_mean = own.mean()
                scale = matrix.mean() / own_mean
            matrix = own * scale
        distance[row, :size, :size] = matrix
    return torch.from_numpy(distance)


class RoutingStore:
    """Instances of a routing problem, by the size that they are trained at."""

    def __init__(
        self,
        instances: Sequence[Any],
        problem: Problem[Any, Any],
        device: torch.device,
        with_matrices: bool,
    ) -> None:
        counts = [problem.item_count(instance) for instance in instances]
        self.depots = instances[0].size - counts[0]
        self.max_action_count = 0
        self.max_node_loss = 0.0
        sizes = choose_sizes(counts)
        groups: dict[int, list[Any]] = {size: [] for size in sizes}
        for instance, count in zip(instances, counts, strict=True):
            place = bisect(sizes, count) - 1
            size = sizes[place]
            groups[size].append(instance)
            loss = 1 - size / count
            self.max_node_loss = max(self.max_node_loss, loss)
            self.max_action_count = max(self.max_action_count, instance.size)
        if with_matrices:
            check_memory(groups.values())
        self.groups: dict[int, PaddedNodes] = {}
        self.counts: dict[Size, int] = {}
        for size, group in groups.items():
            nodes = stack_padded(group, with_matrices)
            self.groups[size] = nodes.to(device)
            self.counts[size] = len(group)

    @staticmethod
    def size_of(instance: Any, problem: Problem[Any, Any]) -> Size:
        """Return the number of cities or customers."""
        return problem.item_count(instance)

    @staticmethod
    def item_count(size: Any) -> int:
        """Return the number of cities or customers."""
        return size

    @staticmethod
    def extent(size: Any) -> int:
        """Return the number of cities or customers."""
        return size

    @staticmethod
    def label(size: Any) -> int | str:
        """Return the number of cities or customers."""
        return size

    @staticmethod
    def contents(instance: Any) -> bytes:
        """Return positions or distances, and what vehicles must carry."""
        place = instance.matrix if instance.xy is None else instance.xy
        is_cvrp = isinstance(instance, CVRPInstance)
        demands = instance.demands if is_cvrp else ()
        capacity = instance.capacity if is_cvrp else 0
        words = repr((instance.metric, demands, capacity))
        matrix = b""
        if instance.matrix is not None:
            matrix = np.asarray(instance.matrix, np.float64).tobytes()
        positions = np.asarray(place, np.float64).tobytes()
        return positions + matrix + words.encode()

    @staticmethod
    def needs_matrix(instance: Any) -> bool:
        """Return whether an instance's distances are not straight lines in the plane."""
        return not has_straight_distances(instance)

    def draw(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Draw instances, thinned to the size, with random order of nodes, rotated or mirrored."""
        nodes = self.groups[size]
        most = nodes.xy.shape[1]
        device = rng.device
        instances = len(nodes.count)
        rows = torch.randint(instances, (count,), generator=rng, device=device)
        ranks = torch.rand(count, most, generator=rng, device=device)
        place = torch.arange(most, device=device)
        # Padding comes last, depots first.
        is_real = place < nodes.count[rows, None]
        ranks = torch.where(is_real, ranks, 2.0)
        ranks = torch.where(place < self.depots, -1.0, ranks)
        order = ranks.argsort(1)
        kept = size + self.depots
        thinned = nodes.batch(rows, order[:, :kept])
        return apply_random_symmetries(thinned, rng)

    def all_batches(self) -> list[tuple[Any, Tensor]]:
        """Return the instances by number of nodes; costs are in sides of the square already."""
        batches: list[tuple[Any, Tensor]] = []
        for nodes in self.groups.values():
            for count in nodes.count.unique().tolist():
                is_size = nodes.count == count
                rows = is_size.nonzero()[:, 0]
                order = torch.arange(count, device=rows.device)
                batch = nodes.batch(rows, order.expand(len(rows), -1))
                batches.append((batch, batch.scale))
        return batches


def apply_random_symmetries(batch: Any, rng: torch.Generator) -> Any:
    """Return the instances, each rotated or mirrored at random."""
    shape = (len(batch.xy), 1, 1, 1)
    symmetry = torch.randint(
        SYMMETRY_COUNT,
        shape,
        generator=rng,
        device=rng.device,
    )
    views = symmetries(batch.xy)
    rows = symmetry.expand(-1, 1, *views.shape[2:])
    chosen = views.gather(1, rows)
    return replace(batch, xy=chosen[:, 0])


def choose_sizes(counts: Iterable[int]) -> list[int]:
    """Choose the sizes to train at: all that occur, or some of them if these are many.

    Instances lose nodes down to the next smaller size. The largest share that any instance loses is
    as small as possible.
    """
    distinct = sorted(set(counts))
    if len(distinct) <= TUNING.max_sizes:
        return distinct
    low = 1.0
    high = distinct[-1] / distinct[0]
    for _ in range(TUNING.size_bisections):
        middle = (low + high) / 2
        if len(sizes_by_ratio(distinct, middle)) <= TUNING.max_sizes:
            high = middle
        else:
            low = middle
    return sizes_by_ratio(distinct, high)


def sizes_by_ratio(distinct: Sequence[int], ratio: float) -> list[int]:
    """Return the first of some sizes, the first more than `ratio` times larger, and so on."""
    sizes: list[int] = []
    for size in distinct:
        if not sizes or size > ratio * sizes[-1]:
            sizes.append(size)
    return sizes


def check_memory(groups: Iterable[Sequence[Any]]) -> None:
    """Refuse more distance matrices than fit."""
    numbers = 0
    for group in groups:
        numbers += len(group) * max(instance.size for instance in group) ** 2
    limit = TUNING.max_matrix_numbers
    if numbers > limit:
        words = "some instances have distances of their own, so each of them needs a matrix"
        raise InputError(
            f"data: {words}, {numbers:,} numbers in all; up to {limit:,} fit: give fewer"
        )
