"""Instances of one's own to train on: files, folders and datasets instead of random ones.

All instances of a mini-step have one size. Files of routing problems seldom do, so a few of their sizes are chosen, and
an instance of another size loses nodes until it has the next smaller one: at random, others each time. It is also
turned and mirrored at random; both keep a policy from learning few instances by heart. Job shops stay as they are.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.formats import read_many
from rhumbline.formats.folders import instance_files
from rhumbline.problems import Problem
from rhumbline.problems.cvrp import CVRPBatch
from rhumbline.problems.metrics import euclidean, unit_square
from rhumbline.problems.symmetry import ALL, symmetries
from rhumbline.problems.tsp import TSPBatch
from rhumbline.record import Record
from rhumbline.training.config import PLACEHOLDER, TrainConfig, Validation
from rhumbline.training.instances import Size

HELD = 5  # about one instance of so many is held out for validation
MOST_SIZES = 8  # of routing: kernels, recordings and their memory are for one size each
MOST_DISTANCES = 2**28  # numbers of all matrices together, a gibibyte
CURVED = ("EXPLICIT", "GEO")  # metrics that are not straight lines in the plane, but for rounding
LEAST = {"tsp": 4, "cvrp": 2, "jssp": 2}  # cities, customers and jobs that leave anything to decide
GOLDEN = (5**0.5 - 1) / 2  # its multiples fill an interval as evenly as can be


class Kept(Protocol):
    """Instances of one problem on a device."""

    counts: dict[Size, int]  # how many there are to train on at each size
    width: int  # of the largest, as kernels count it
    worst_loss: float  # the largest share of its nodes that an instance loses

    def draw(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Some of a size as a batch, with replacement."""
        ...

    def whole(self) -> list[tuple[Any, Tensor]]:
        """All of them as they are, in batches of one size; and what a cost of 1 is worth in reports."""
        ...


class Own:
    """Instances from files: which are held out, and how often each size has its turn."""

    def __init__(self, config: TrainConfig, problem: Problem[Any, Any], device: torch.device) -> None:
        found, remarks = loaded(config.data, problem)
        training, held = parted(found, config.validation)
        keep, judged = KEEP[problem.solves], held or training
        curved = any(getattr(i, "metric", "") in CURVED for i in found)
        self.kept, self.held = (keep(some, problem, device, curved) for some in (training, judged))
        ends = accumulate(count / len(training) for count in self.kept.counts.values())
        self.sizes, self.ends = list(self.kept.counts), list(ends)[:-1]
        self.labels = list(dict.fromkeys(label(size) for size in self.sizes))
        self.usual = Counter(label(size_of(problem, i)) for i in judged).most_common(1)[0][0]
        self.width = max(self.kept.width, self.held.width)
        self.mark = blake2b(b"".join(sorted(map(contents, judged))), digest_size=8).hexdigest()
        self.about = "; ".join([*described(problem, training, held), *self.losses(), *remarks])

    def losses(self) -> list[str]:
        """What is lost where instances do not keep their sizes."""
        if not self.kept.worst_loss:
            return []
        sizes = ", ".join(map(str, self.labels))
        return [f"trained at sizes of {sizes}, where an instance loses at most {self.kept.worst_loss:.0%} of itself"]

    def size_at(self, step: int) -> Size:
        """Each size as often as it has instances, evenly spread."""
        return self.sizes[bisect(self.ends, step * GOLDEN % 1.0)]

    def sample(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Instances of a size; the noise of rollouts tells copies apart."""
        return replace(self.kept.draw(count, size, rng), key=torch.arange(count, device=rng.device))

    def validation(self, rng: torch.Generator) -> list[tuple[Any, Tensor]]:
        """Those held out, as they are; if there were too few to hold any out, those trained on."""
        return self.held.whole()


def loaded(places: Sequence[str], problem: Problem[Any, Any]) -> tuple[list[Any], list[str]]:
    """All different instances of a problem in files, folders and datasets, and what was left out, in words."""
    if PLACEHOLDER in places:
        raise InputError("this recipe is for instances of your own: give them by --data FOLDER, or files")
    read = [i for place in places for file in instance_files(place) for i in read_many(file)]
    own = [i for i in read if i.problem == problem.solves]
    if not own:
        names = ", ".join(sorted({i.problem for i in read}))
        raise InputError(f"data: {', '.join(places)} holds instances of {names}, the recipe is for {problem.solves}")
    open_ = [i for i in own if choices_of(problem, i) >= LEAST[problem.solves]]
    different = list({contents(i): i for i in reversed(open_)}.values())[::-1]
    if not different:
        raise InputError(f"data: of {len(own):,} instances none has anything to decide; there is nothing to learn")
    left_out = {
        "of other problems": len(read) - len(own),
        "without anything to decide": len(own) - len(open_),
        "that are there twice": len(open_) - len(different),
    }
    return different, [f"{count:,} {what} left out" for what, count in left_out.items() if count]


def choices_of(problem: Problem[Any, Any], instance: Any) -> int:
    """What there is to choose among: cities, customers or jobs."""
    return instance.job_count if problem.solves == "jssp" else problem.count_of(instance)


def contents(instance: Any) -> bytes:
    """A digest of what is to be solved, whatever it is called."""
    if instance.problem == "jssp":
        return blake2b(repr((instance.durations, instance.machines)).encode(), digest_size=16).digest()
    place = instance.matrix if instance.xy is None else instance.xy
    words = repr((instance.metric, getattr(instance, "demands", ()), getattr(instance, "capacity", 0))).encode()
    matrix = b"" if instance.matrix is None else np.asarray(instance.matrix, np.float64).tobytes()
    return blake2b(np.asarray(place, np.float64).tobytes() + matrix + words, digest_size=16).digest()


def parted(found: Sequence[Any], validation: Validation) -> tuple[list[Any], list[Any]]:
    """Instances to train on and those held out; of very few there may be none.

    Each draws its own lot, so that none that was trained on is held out later because others have come.
    """
    lots = [lot(i, validation.seed) for i in found]
    drawn = sorted((n for n in range(len(found)) if lots[n] < 1 / HELD), key=lots.__getitem__)[: validation.count]
    held = set(drawn if len(drawn) < len(found) else [])
    return [i for n, i in enumerate(found) if n not in held], [found[n] for n in sorted(held)]


def lot(instance: Any, seed: int) -> float:
    """A number from 0 to 1 that an instance draws."""
    digest = blake2b(contents(instance) + seed.to_bytes(16), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def size_of(problem: Problem[Any, Any], instance: Any) -> Size:
    """Cities or customers; of a job shop its shape."""
    return instance.shape if problem.solves == "jssp" else problem.count_of(instance)


def label(size: Any) -> int | str:
    """A size for people and headers: a number, or jobs x machines."""
    return size if isinstance(size, int) else f"{size[0]}x{size[2]}"


def extent_of(size: Any) -> int:
    """How large a size is: nodes, or jobs times machines."""
    return size if isinstance(size, int) else size[0] * size[2]


def described(problem: Problem[Any, Any], training: Sequence[Any], held: Sequence[Any]) -> list[str]:
    """What there is."""
    sizes = sorted((size_of(problem, i) for i in (*training, *held)), key=extent_of)
    ends = " to ".join(dict.fromkeys(str(label(size)) for size in (sizes[0], sizes[-1])))
    instances = f"{len(training):,} instance{'s' * (len(training) != 1)} of {ends} {problem.sizes_count}"
    words = [f"{instances} to train on, {len(held):,} held out to validate"]
    if not held:
        words.append("of so few none happens to be: validation is on those trained on, and flatters")
    return words


@dataclass(frozen=True)
class Nodes(Record):
    """Routing instances side by side, padded to the largest."""

    xy: Float[Tensor, "I N 2"]  # in the unit square
    count: Int[Tensor, "I"]  # nodes of each
    demand: Int[Tensor, "I N"] | None = None
    capacity: Int[Tensor, "I"] | None = None
    distance: Float[Tensor, "I N N"] | None = None  # in sides of the square; None means straight lines

    def batch(self, rows: Int[Tensor, "B"], order: Int[Tensor, "B M"]) -> TSPBatch | CVRPBatch:
        """Some nodes of some instances, all of them real, in some order; again in the unit square.

        Limits on fleets are not taught.
        """
        xy, distance = self.xy[rows[:, None], order], self.distance
        low, side = bounds(xy)
        if distance is not None:
            distance = distance[rows[:, None, None], order[:, :, None], order[:, None, :]] / side
        key, ones = torch.arange(len(rows), device=rows.device), torch.ones_like(side[:, 0, 0])
        if self.demand is None or self.capacity is None:
            return TSPBatch((xy - low) / side, key, ones, distance)
        demand, capacity = self.demand[rows[:, None], order], self.capacity[rows]
        return CVRPBatch((xy - low) / side, demand, capacity, key, ones, distance)


def bounds(xy: Float[Tensor, "I N 2"]) -> tuple[Float[Tensor, "I 1 2"], Float[Tensor, "I 1 1"]]:
    """The lower left corner of each instance, and the longer side of its bounding box; 1 if its nodes coincide."""
    low = xy.amin(1, keepdim=True)
    side = (xy.amax(1, keepdim=True) - low).amax(2, keepdim=True)
    return low, torch.where(side > 0, side, 1.0)


def side_by_side(instances: Sequence[Any], curved: bool) -> Nodes:
    """Instances as tensors; with matrices if some instances want them."""
    most = max(i.size for i in instances)
    xy, count = np.zeros((len(instances), most, 2), np.float32), np.array([i.size for i in instances])
    for row, instance in enumerate(instances):
        xy[row, : instance.size] = unit_square(instance.plane)
    distance = matrices(instances, most) if curved else None
    nodes = Nodes(torch.from_numpy(xy), torch.from_numpy(count), distance=distance)
    if instances[0].problem == "tsp":
        return nodes
    demand = np.zeros((len(instances), most), np.int64)
    for row, instance in enumerate(instances):
        demand[row, : instance.size] = instance.demands
    return replace(nodes, demand=torch.from_numpy(demand), capacity=torch.tensor([i.capacity for i in instances]))


def matrices(instances: Sequence[Any], most: int) -> Float[Tensor, "I N N"]:
    """Distances in sides of each instance's square: straight lines, or for other metrics their own, as long on average.

    Kilometres between degrees, say, would otherwise outweigh all else.
    """
    distance = np.zeros((len(instances), most, most), np.float32)
    for row, instance in enumerate(instances):
        straight = euclidean(unit_square(instance.plane))
        if instance.metric in CURVED:
            own = instance.distances
            straight = own * (straight.mean() / own.mean() if own.any() and straight.any() else 1.0)
        distance[row, : instance.size, : instance.size] = straight
    return torch.from_numpy(distance)


class KeptNodes:
    """Instances of a routing problem, by the size that they are trained at."""

    def __init__(
        self, instances: Sequence[Any], problem: Problem[Any, Any], device: torch.device, curved: bool
    ) -> None:
        counts = [problem.count_of(i) for i in instances]
        self.depots = instances[0].size - counts[0]
        sizes = few_of(counts)
        next_smaller = [sizes[bisect(sizes, count) - 1] for count in counts]
        groups = {s: [i for i, size in zip(instances, next_smaller, strict=True) if size == s] for s in sizes}
        if curved:
            check_memory(groups.values())
        self.groups = {size: side_by_side(some, curved).to(device) for size, some in groups.items()}
        self.counts: dict[Size, int] = {size: len(some) for size, some in groups.items()}
        self.width = max(i.size for i in instances)
        self.worst_loss = max(1 - size / count for size, count in zip(next_smaller, counts, strict=True))

    def draw(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Thinned to the size, nodes in any order, turned or mirrored."""
        nodes = self.groups[size]
        rows = torch.randint(len(nodes.count), (count,), generator=rng, device=rng.device)
        luck = torch.rand(count, nodes.xy.shape[1], generator=rng, device=rng.device)
        place = torch.arange(luck.shape[1], device=luck.device)
        luck = torch.where(place < nodes.count[rows, None], luck, 2.0)  # what does not exist comes last
        luck = torch.where(place < self.depots, -1.0, luck)
        thin = nodes.batch(rows, luck.argsort(1)[:, : size + self.depots])
        turn = torch.randint(ALL, (count, 1, 1, 1), generator=rng, device=rng.device)
        views = symmetries(thin.xy)
        return replace(thin, xy=views.gather(1, turn.expand(-1, 1, *views.shape[2:]))[:, 0])

    def whole(self) -> list[tuple[Any, Tensor]]:
        """By number of nodes; costs are in sides of the square already."""
        found: list[tuple[Any, Tensor]] = []
        for nodes in self.groups.values():
            for count in nodes.count.unique().tolist():
                rows = (nodes.count == count).nonzero()[:, 0]
                batch = nodes.batch(rows, torch.arange(count, device=rows.device).expand(len(rows), -1))
                found.append((batch, batch.scale))
        return found


def few_of(counts: Iterable[int]) -> list[int]:
    """Sizes to train at: all that occur, or if these are many, some of them.

    Instances lose nodes down to the next smaller one; the largest share that any of them loses is as small as can be.
    """
    distinct = sorted(set(counts))
    low, high = 1.0, distinct[-1] / distinct[0]
    if len(distinct) <= MOST_SIZES:
        return distinct
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if len(steps_of(distinct, middle)) <= MOST_SIZES else (middle, high)
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
        raise InputError(f"data: {words}, {numbers:,} numbers in all; up to {MOST_DISTANCES:,} fit: give fewer")


class KeptShops:
    """Job shops, by shape."""

    worst_loss = 0.0

    def __init__(
        self, instances: Sequence[Any], problem: Problem[Any, Any], device: torch.device, curved: bool
    ) -> None:
        shapes = sorted({i.shape for i in instances}, key=extent_of)
        groups = [[i for i in instances if i.shape == shape] for shape in shapes]
        self.batches = {s: problem.collate(some).to(device) for s, some in zip(shapes, groups, strict=True)}
        self.counts: dict[Size, int] = {s: len(batch.key) for s, batch in self.batches.items()}
        self.width = max(problem.width(batch) for batch in self.batches.values())

    def draw(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """As they are: neither numbers nor order of jobs and machines mean anything to a policy."""
        batch = self.batches[size]
        return batch[torch.randint(len(batch.key), (count,), generator=rng, device=rng.device)]

    def whole(self) -> list[tuple[Any, Tensor]]:
        """By shape; costs count in the longest job or busiest machine, lest large shops outweigh small ones."""
        return [(batch, bound_of(batch)) for batch in self.batches.values()]


def bound_of(batch: Any) -> Float[Tensor, "B"]:
    """The longest job or busiest machine of each shop, which no schedule is shorter than; at least 1."""
    return torch.maximum(batch.tail[:, :, 0].amax(1), batch.load.amax(1)).clamp(min=1).float()


KEEP: dict[str, Callable[[Sequence[Any], Problem[Any, Any], torch.device, bool], Kept]] = {
    "tsp": KeptNodes,
    "cvrp": KeptNodes,
    "jssp": KeptShops,
}
