"""Instances of one's own to train on: files, folders and datasets instead of random ones.

Here it is decided which are held out, and when each size has its turn. How instances are kept on a
device and drawn from there depends on their problem: `own_nodes.py`, `own_shops.py`.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.formats import read_many
from rhumbline.formats.discovery import find_instance_files
from rhumbline.problems import Problem
from rhumbline.training.config import DATA_PLACEHOLDER, TrainConfig, Validation
from rhumbline.training.data.job_shop import JobShopStore
from rhumbline.training.data.random import Size
from rhumbline.training.data.routing import CURVED, RoutingStore

HELD = 5  # about one instance of so many is held out for validation
LEAST = {"tsp": 4, "cvrp": 2, "jssp": 2}  # cities, customers and jobs that leave anything to decide
GOLDEN = (5**0.5 - 1) / 2  # its multiples fill an interval as evenly as can be


class DataStore(Protocol):
    """Instances of one problem on a device."""

    counts: dict[Size, int]  # how many there are to train on at each size
    width: int  # of the largest, as kernels count it
    max_node_loss: float  # the largest share of its nodes that an instance loses

    def __init__(
        self,
        instances: Sequence[Any],
        problem: Problem[Any, Any],
        device: torch.device,
        curved: bool,
    ) -> None: ...

    @staticmethod
    def size_of(instance: Any, problem: Problem[Any, Any]) -> Size:
        """What instances have in common that are trained on together."""
        ...

    @staticmethod
    def contents(instance: Any) -> bytes:
        """What is to be solved, whatever it is called."""
        ...

    def draw(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Some of a size as a batch, with replacement."""
        ...

    def whole(self) -> list[tuple[Any, Tensor]]:
        """All of them as they are, in batches of one size; and what a cost of 1 is worth in
        reports.
        """
        ...


class FileInstances:
    """Instances from files: which are held out, and how often each size has its turn."""

    def __init__(
        self, config: TrainConfig, problem: Problem[Any, Any], device: torch.device
    ) -> None:
        found, remarks = load_instances(config.data, problem)
        training, held = split_validation(found, config.validation)
        keep = KEPT[problem.solves]
        judged = held or training
        curved = any(getattr(i, "metric", "") in CURVED for i in found)
        self.kept, self.held = (keep(some, problem, device, curved) for some in (training, judged))
        ends = accumulate(count / len(training) for count in self.kept.counts.values())
        self.sizes, self.ends = list(self.kept.counts), list(ends)[:-1]
        self.labels = list(dict.fromkeys(label(size) for size in self.sizes))
        self.usual = Counter(label(keep.size_of(i, problem)) for i in judged).most_common(1)[0][0]
        self.width = max(self.kept.width, self.held.width)
        self.mark = blake2b(b"".join(sorted(map(contents, judged))), digest_size=8).hexdigest()
        self.about = "; ".join([*described(problem, training, held), *self.losses(), *remarks])

    def losses(self) -> list[str]:
        """What is lost where instances do not keep their sizes."""
        if not self.kept.max_node_loss:
            return []
        sizes = ", ".join(map(str, self.labels))
        return [
            f"trained at sizes of {sizes}, where an instance loses at most {self.kept.max_node_loss:.0%} of itself"
        ]

    def size_at(self, step: int) -> Size:
        """Each size as often as it has instances, evenly spread."""
        return self.sizes[bisect(self.ends, step * GOLDEN % 1.0)]

    def sample(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Instances of a size; the noise of rollouts tells copies apart."""
        return replace(self.kept.draw(count, size, rng), key=torch.arange(count, device=rng.device))

    def validation(self, rng: torch.Generator) -> list[tuple[Any, Tensor]]:
        """Those held out, as they are; if there were too few to hold any out, those trained on."""
        return self.held.whole()


def load_instances(
    places: Sequence[str], problem: Problem[Any, Any]
) -> tuple[list[Any], list[str]]:
    """All different instances of a problem in files, folders and datasets, and what was left
    out, in words.
    """
    if DATA_PLACEHOLDER in places:
        raise InputError(
            "this recipe is for instances of your own: give them by --data FOLDER, or files"
        )
    read = [i for place in places for file in find_instance_files(place) for i in read_many(file)]
    own = [i for i in read if i.problem == problem.solves]
    if not own:
        names = ", ".join(sorted({i.problem for i in read}))
        raise InputError(
            f"data: {', '.join(places)} holds instances of {names}, the recipe is for {problem.solves}"
        )
    open_ = [
        i for i in own if choices(KEPT[problem.solves].size_of(i, problem)) >= LEAST[problem.solves]
    ]
    different = list({contents(i): i for i in reversed(open_)}.values())[::-1]
    if not different:
        raise InputError(
            f"data: of {len(own):,} instances none has anything to decide; there is nothing to learn"
        )
    left_out = {
        "of other problems": len(read) - len(own),
        "without anything to decide": len(own) - len(open_),
        "that are there twice": len(open_) - len(different),
    }
    return different, [f"{count:,} {what} left out" for what, count in left_out.items() if count]


def contents(instance: Any) -> bytes:
    """A digest of what is to be solved, whatever it is called."""
    return blake2b(KEPT[instance.problem].contents(instance), digest_size=16).digest()


def split_validation(found: Sequence[Any], validation: Validation) -> tuple[list[Any], list[Any]]:
    """Instances to train on and those held out; of very few there may be none.

    Each draws its own lot, so that none that was trained on is held out later because others have
    come.
    """
    lots = [lot(i, validation.seed) for i in found]
    drawn = sorted((n for n in range(len(found)) if lots[n] < 1 / HELD), key=lots.__getitem__)[
        : validation.count
    ]
    held = set(drawn if len(drawn) < len(found) else [])
    return [i for n, i in enumerate(found) if n not in held], [found[n] for n in sorted(held)]


def lot(instance: Any, seed: int) -> float:
    """A number from 0 to 1 that an instance draws."""
    digest = blake2b(contents(instance) + seed.to_bytes(16), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def choices(size: Any) -> int:
    """What there is to choose among: cities, customers or jobs."""
    return size if isinstance(size, int) else size[0]


def label(size: Any) -> int | str:
    """A size for people and headers: a number, or jobs x machines."""
    return size if isinstance(size, int) else f"{size[0]}x{size[2]}"


def extent_of(size: Any) -> int:
    """How large a size is: nodes, or jobs times machines."""
    return size if isinstance(size, int) else size[0] * size[2]


def described(
    problem: Problem[Any, Any], training: Sequence[Any], held: Sequence[Any]
) -> list[str]:
    """What there is."""
    sizes = sorted(
        (KEPT[problem.solves].size_of(i, problem) for i in (*training, *held)), key=extent_of
    )
    ends = " to ".join(dict.fromkeys(str(label(size)) for size in (sizes[0], sizes[-1])))
    instances = (
        f"{len(training):,} instance{'s' * (len(training) != 1)} of {ends} {problem.size_unit}"
    )
    words = [f"{instances} to train on, {len(held):,} held out to validate"]
    if not held:
        words.append(
            "of so few none happens to be: validation is on those trained on, and flatters"
        )
    return words


KEPT: dict[str, type[DataStore]] = {"tsp": RoutingStore, "cvrp": RoutingStore, "jssp": JobShopStore}
