"""Instances of one's own to train on: files, folders and datasets instead of random ones.

All instances of a mini-step have one size. Files of routing problems seldom do, so a few of their sizes are chosen, and
an instance of another size loses nodes until it has the next smaller one: at random, others each time. It is also
turned and mirrored at random; both keep a policy from learning few instances by heart. Job shops stay as they are.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Protocol, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.formats import read_many
from rhumbline.formats.folders import instance_files
from rhumbline.problems import Problem
from rhumbline.problems.cvrp import CVRPBatch
from rhumbline.problems.metrics import extent, unit_square
from rhumbline.problems.nodes import take_nodes
from rhumbline.problems.symmetry import ALL, symmetries
from rhumbline.problems.tsp import TSPBatch
from rhumbline.record import Record
from rhumbline.training.config import TrainConfig, Validation
from rhumbline.training.instances import Size

HELD = 5  # one instance of so many is held out for validation
MOST_SIZES = 8  # of routing: kernels, recordings and their memory are for one size each
MOST_DISTANCES = 2**28  # numbers of all matrices together, a gibibyte
CURVED = ("EXPLICIT", "GEO")  # metrics that are not straight lines in the plane, but for rounding
GOLDEN = (5**0.5 - 1) / 2  # its multiples fill an interval as evenly as can be


class Kept(Protocol):
    """Instances of one problem on a device."""

    rows: dict[Size, Int[Tensor, "R"]]  # which of them a size has
    width: int  # of the largest, as kernels count it

    def draw(self, rows: Int[Tensor, "B"], size: Any, rng: torch.Generator) -> Any:
        """Some of them as a batch of a size."""
        ...

    def whole(self) -> list[Any]:
        """All of them as they are, in batches of one size."""
        ...


class Own:
    """Instances from files: which are held out, and how often each size has its turn."""

    def __init__(self, config: TrainConfig, problem: Problem[Any, Any], device: torch.device) -> None:
        found, others = loaded(config.data, problem.solves)
        training, held = parted(found, config.validation)
        keep = KEEP[problem.solves]
        self.kept, self.held = keep(training, problem, device), keep(held or training, problem, device)
        counts = [len(rows) for rows in self.kept.rows.values()]
        self.ends = list(accumulate(count / len(training) for count in counts))[:-1]
        self.labels = [label(size) for size in self.kept.rows]
        self.usual = Counter(label(size_of(problem, i)) for i in held or training).most_common(1)[0][0]
        self.width = max(self.kept.width, self.held.width)
        self.about = described(problem, training, held, others)

    def size_at(self, step: int) -> Size:
        """Each size as often as it has instances, evenly spread."""
        return list(self.kept.rows)[bisect(self.ends, step * GOLDEN % 1.0)]

    def sample(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Instances of a size, drawn with replacement; the noise of rollouts tells them apart."""
        some = self.kept.rows[size]
        rows = some[torch.randint(len(some), (count,), generator=rng, device=rng.device)]
        return replace(self.kept.draw(rows, size, rng), key=torch.arange(count, device=rng.device))

    def validation(self, rng: torch.Generator) -> list[Any]:
        """Those held out, as they are; if there were too few to hold any out, those trained on."""
        return self.held.whole()


def loaded(places: Sequence[str], problem: str) -> tuple[list[Any], int]:
    """All instances of a problem in files, folders and datasets, and how many there are of other problems."""
    read = [i for place in places for file in instance_files(place) for i in read_many(file)]
    own = [i for i in read if i.problem == problem]
    if not own:
        names = ", ".join(sorted({i.problem for i in read}))
        raise InputError(f"data: {', '.join(places)} holds instances of {names}, the recipe is for {problem}")
    tiny = next((i for i in own if i.size < 2), None)
    if tiny:
        raise InputError(f"data: {tiny.name} has nothing to decide, there is nothing to learn from it; leave it out")
    return own, len(read) - len(own)


def parted(found: Sequence[Any], validation: Validation) -> tuple[list[Any], list[Any]]:
    """Instances to train on and those held out, by lot that the validation's seed draws."""
    order = np.random.default_rng(validation.seed).permutation(len(found))
    held = set(order[: min(validation.count, len(found) // HELD)].tolist())
    return [i for n, i in enumerate(found) if n not in held], [found[n] for n in sorted(held)]


def size_of(problem: Problem[Any, Any], instance: Any) -> Size:
    """Cities or customers; of a job shop its shape."""
    return instance.shape if problem.solves == "jssp" else problem.count_of(instance)


def label(size: Any) -> int | str:
    """A size for people and headers: a number, or jobs x machines."""
    return size if isinstance(size, int) else f"{size[0]}x{size[2]}"


def described(problem: Problem[Any, Any], training: Sequence[Any], held: Sequence[Any], others: int) -> str:
    """What there is, in a line."""
    sizes: list[Any] = sorted({cast(Any, size_of(problem, i)) for i in (*training, *held)})
    ends = dict.fromkeys(str(label(size)) for size in (sizes[0], sizes[-1]))
    noun = "jobs x machines" if problem.solves == "jssp" else problem.nouns[1]
    words = f"{len(training):,} instances of {' to '.join(ends)} {noun} to train on, {len(held):,} held out to validate"
    if not held:
        words += f"; of fewer than {HELD} none can be held out: validation is on those trained on, and flatters"
    return words + (f"; {others:,} of other problems are left out" if others else "")


@dataclass(frozen=True)
class Nodes(Record):
    """Routing instances side by side, padded to the largest."""

    xy: Float[Tensor, "I N 2"]  # in the unit square
    count: Int[Tensor, "I"]  # nodes of each
    demand: Int[Tensor, "I N"] | None = None
    capacity: Int[Tensor, "I"] | None = None
    distance: Float[Tensor, "I N N"] | None = None  # in sides of the square; None means straight lines

    def chosen(self, order: Int[Tensor, "I M"]) -> "Nodes":
        """Some nodes of each instance, all of them real, in some order; again in the unit square."""
        xy, demand, distance = take_nodes(self.xy, order), self.demand, self.distance
        low, side = bounds(xy)
        if demand is not None:
            demand = demand.gather(1, order)
        if distance is not None:
            distance = distance.gather(1, order[..., None].expand(-1, -1, distance.shape[2]))
            distance = distance.gather(2, order[:, None].expand(-1, order.shape[1], -1)) / side
        return Nodes((xy - low) / side, torch.full_like(self.count, order.shape[1]), demand, self.capacity, distance)

    def batch(self) -> TSPBatch | CVRPBatch:
        """Instances of one size as policies and rules want them. Limits on fleets are not taught."""
        key, ones = torch.arange(len(self.xy), device=self.xy.device), torch.ones_like(self.xy[:, 0, 0])
        if self.demand is None or self.capacity is None:
            return TSPBatch(self.xy, key, ones, self.distance)
        return CVRPBatch(self.xy, self.demand, self.capacity, key, ones, self.distance)


def bounds(xy: Float[Tensor, "I N 2"]) -> tuple[Float[Tensor, "I 1 2"], Float[Tensor, "I 1 1"]]:
    """The lower left corner of each instance, and the longer side of its bounding box; 1 if its nodes coincide."""
    low = xy.amin(1, keepdim=True)
    side = (xy.amax(1, keepdim=True) - low).amax(2, keepdim=True)
    return low, torch.where(side > 0, side, 1.0)


def side_by_side(instances: Sequence[Any]) -> Nodes:
    """Instances as tensors."""
    most = max(i.size for i in instances)
    xy, count = np.zeros((len(instances), most, 2), np.float32), np.array([i.size for i in instances])
    for row, instance in enumerate(instances):
        xy[row, : instance.size] = unit_square(instance.plane)
    nodes = Nodes(torch.from_numpy(xy), torch.from_numpy(count), distance=matrices(instances, most))
    if instances[0].problem == "tsp":
        return nodes
    demand = np.zeros((len(instances), most), np.int64)
    for row, instance in enumerate(instances):
        demand[row, : instance.size] = instance.demands
    return replace(nodes, demand=torch.from_numpy(demand), capacity=torch.tensor([i.capacity for i in instances]))


def matrices(instances: Sequence[Any], most: int) -> Float[Tensor, "I N N"] | None:
    """Distances in sides of each instance's square, if some are not straight lines."""
    if not any(i.metric in CURVED for i in instances):
        return None
    if len(instances) * most**2 > MOST_DISTANCES:
        words = f"{len(instances):,} instances of up to {most} nodes with distances of their own are too many"
        raise InputError(f"data: {words}; up to {MOST_DISTANCES:,} distances fit, padded to the largest instance")
    distance = np.zeros((len(instances), most, most), np.float32)
    for row, instance in enumerate(instances):
        distance[row, : instance.size, : instance.size] = instance.distances / extent(instance.plane)
    return torch.from_numpy(distance)


class KeptNodes:
    """Instances of a routing problem."""

    def __init__(self, instances: Sequence[Any], problem: Problem[Any, Any], device: torch.device) -> None:
        self.nodes, self.depots = side_by_side(instances).to(device), instances[0].size - problem.count_of(instances[0])
        counts = np.array([problem.count_of(i) for i in instances])
        sizes = few_of(counts.tolist())
        next_smaller = np.searchsorted(sizes, counts, side="right") - 1
        self.rows: dict[Size, Tensor] = {
            size: torch.from_numpy(np.flatnonzero(next_smaller == place)).to(device) for place, size in enumerate(sizes)
        }
        self.width = int(self.nodes.count.max())

    def draw(self, rows: Int[Tensor, "B"], size: Any, rng: torch.Generator) -> Any:
        """Thinned to the size, nodes in any order, turned or mirrored."""
        some = self.nodes[rows]
        luck = torch.rand(some.xy.shape[:2], generator=rng, device=rng.device)
        place = torch.arange(luck.shape[1], device=luck.device)
        luck = torch.where(place < some.count[:, None], luck, 2.0)  # what does not exist comes last
        luck = torch.where(place < self.depots, -1.0, luck)
        thin = some.chosen(luck.argsort(1)[:, : size + self.depots])
        turn = torch.randint(ALL, (len(rows), 1, 1, 1), generator=rng, device=rng.device)
        views = symmetries(thin.xy)
        return replace(thin, xy=views.gather(1, turn.expand(-1, 1, *views.shape[2:]))[:, 0]).batch()

    def whole(self) -> list[Any]:
        """By number of nodes."""
        found: list[Any] = []
        for count in self.nodes.count.unique().tolist():
            some = self.nodes[self.nodes.count == count]
            order = torch.arange(count, device=some.xy.device).expand(len(some.xy), -1)
            found.append(some.chosen(order).batch())
        return found


def few_of(counts: Iterable[int]) -> list[int]:
    """The sizes that occur, or if these are many, some of them with about as many instances each."""
    ordered = sorted(counts)
    distinct = sorted(set(ordered))
    if len(distinct) <= MOST_SIZES:
        return distinct
    return sorted({ordered[len(ordered) * part // MOST_SIZES] for part in range(MOST_SIZES)})


class KeptShops:
    """Job shops, by shape."""

    def __init__(self, instances: Sequence[Any], problem: Problem[Any, Any], device: torch.device) -> None:
        shapes = sorted({i.shape for i in instances})
        groups = [[i for i in instances if i.shape == shape] for shape in shapes]
        self.batches = {s: problem.collate(some).to(device) for s, some in zip(shapes, groups, strict=True)}
        self.rows: dict[Size, Tensor] = {s: torch.arange(len(b.key), device=device) for s, b in self.batches.items()}
        self.width = max(problem.width(batch) for batch in self.batches.values())

    def draw(self, rows: Int[Tensor, "B"], size: Any, rng: torch.Generator) -> Any:
        """As they are: neither numbers nor order of jobs and machines mean anything to a policy."""
        return self.batches[size][rows]

    def whole(self) -> list[Any]:
        """By shape."""
        return list(self.batches.values())


KEEP: dict[str, Callable[[Sequence[Any], Problem[Any, Any], torch.device], Kept]] = {
    "tsp": KeptNodes,
    "cvrp": KeptNodes,
    "jssp": KeptShops,
}
