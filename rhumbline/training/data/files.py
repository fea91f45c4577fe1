"""Instances from user files, folders and datasets to train on, instead of random ones.

This module decides which instances are held out for validation, and when each size has its turn.
How instances are stored on a device and drawn from there depends on the problem: see `routing` and
`job_shop`.
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
from rhumbline.training.data.job_shop import JobShopStore, shop_extent
from rhumbline.training.data.random import Size
from rhumbline.training.data.routing import NON_EUCLIDEAN_METRICS, RoutingStore

VALIDATION_SHARE = 1 / 5  # of the instances is held out, about
MIN_ITEMS = {"tsp": 4, "cvrp": 2, "jssp": 2}  # cities, customers or jobs that leave a decision
# Multiples of the golden ratio's fraction fill an interval as evenly as possible.
GOLDEN_RATIO = (5**0.5 - 1) / 2


class DataStore(Protocol):
    """Instances of one problem on a device."""

    # Instances to train on, by size.
    counts: dict[Size, int]
    # Actions of the largest instance, which kernels have to hold.
    max_action_count: int
    # The largest share of its nodes that an instance loses.
    max_node_loss: float

    def __init__(
        self,
        instances: Sequence[Any],
        problem: Problem[Any, Any],
        device: torch.device,
        with_matrices: bool,
    ) -> None: ...

    @staticmethod
    def size_of(instance: Any, problem: Problem[Any, Any]) -> Size:
        """Return the size of an instance; instances of one size fit into one batch."""
        ...

    @staticmethod
    def contents(instance: Any) -> bytes:
        """Return what is to be solved, without names."""
        ...

    def draw(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Draw instances of a size as a batch, with replacement."""
        ...

    def all_batches(self) -> list[tuple[Any, Tensor]]:
        """Return all instances unchanged, in batches of one size, and the units of their costs."""
        ...


class FileInstances:
    """Instances from files: which are held out, and how often each size has its turn."""

    def __init__(
        self, config: TrainConfig, problem: Problem[Any, Any], device: torch.device
    ) -> None:
        instances, remarks = load_instances(config.data, problem)
        training, held_out = split_validation(instances, config.validation)
        validation = held_out or training
        store_type = STORES[problem.solves]
        with_matrices = any(has_curved_metric(instance) for instance in instances)
        self.training_store = store_type(training, problem, device, with_matrices)
        self.validation_store = store_type(validation, problem, device, with_matrices)
        self.sizes = list(self.training_store.counts)
        shares = [count / len(training) for count in self.training_store.counts.values()]
        self.share_ends = list(accumulate(shares))[:-1]
        self.labels = list(dict.fromkeys(size_label(size) for size in self.sizes))
        labels = Counter(size_label(store_type.size_of(x, problem)) for x in validation)
        self.typical_size = labels.most_common(1)[0][0]
        stores = (self.training_store, self.validation_store)
        self.max_action_count = max(store.max_action_count for store in stores)
        digests = sorted(content_digest(instance) for instance in validation)
        self.validation_data = blake2b(b"".join(digests), digest_size=8).hexdigest()
        words = [*describe_data(problem, training, held_out), *self.describe_losses(), *remarks]
        self.summary = "; ".join(words)

    def describe_losses(self) -> list[str]:
        """Return, in words, what instances lose that are not trained on at their own size."""
        loss = self.training_store.max_node_loss
        if not loss:
            return []
        sizes = ", ".join(map(str, self.labels))
        return [
            f"trained at sizes of {sizes}, where an instance loses at most {loss:.0%} of itself"
        ]

    def size_at(self, step: int) -> Size:
        """Return the size of a mini-step: each as often as it has instances, evenly spread."""
        place = step * GOLDEN_RATIO % 1.0
        return self.sizes[bisect(self.share_ends, place)]

    def sample(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Draw instances of a size. Duplicates in the batch get different random numbers."""
        batch = self.training_store.draw(count, size, rng)
        return replace(batch, key=torch.arange(count, device=rng.device))

    def validation(self, rng: torch.Generator) -> list[tuple[Any, Tensor]]:
        """Return the held-out instances, or those trained on if none is held out."""
        return self.validation_store.all_batches()


def has_curved_metric(instance: Any) -> bool:
    """Return whether an instance's distances are not straight lines in the plane."""
    return getattr(instance, "metric", "") in NON_EUCLIDEAN_METRICS


def load_instances(
    places: Sequence[str], problem: Problem[Any, Any]
) -> tuple[list[Any], list[str]]:
    """Return all different instances of a problem, and what was left out, in words.

    `places` are files, folders and datasets.
    """
    if DATA_PLACEHOLDER in places:
        raise InputError(
            "this recipe is for instances of your own: give them by --data FOLDER, or files"
        )
    loaded = read_places(places)
    matching = [instance for instance in loaded if instance.problem == problem.solves]
    if not matching:
        names = ", ".join(sorted({instance.problem for instance in loaded}))
        raise InputError(
            f"data: {', '.join(places)} holds instances of {names}, "
            f"the recipe is for {problem.solves}"
        )
    open_instances = [instance for instance in matching if leaves_decisions(instance, problem)]
    # The first of equal instances stays, and the order does too.
    by_digest = {content_digest(instance): instance for instance in reversed(open_instances)}
    different = list(by_digest.values())[::-1]
    if not different:
        raise InputError(
            f"data: of {len(matching):,} instances none has anything to decide; "
            "there is nothing to learn"
        )
    left_out = {
        "of other problems": len(loaded) - len(matching),
        "without anything to decide": len(matching) - len(open_instances),
        "that are there twice": len(open_instances) - len(different),
    }
    return different, [f"{count:,} {what} left out" for what, count in left_out.items() if count]


def read_places(places: Sequence[str]) -> list[Any]:
    """Read all instances in files, folders and datasets."""
    instances: list[Any] = []
    for place in places:
        for file in find_instance_files(place):
            instances += read_many(file)
    return instances


def leaves_decisions(instance: Any, problem: Problem[Any, Any]) -> bool:
    """Return whether an instance has more than one plan."""
    size = STORES[problem.solves].size_of(instance, problem)
    return item_count(size) >= MIN_ITEMS[problem.solves]


def content_digest(instance: Any) -> bytes:
    """Return a digest of what is to be solved, independent of names."""
    contents = STORES[instance.problem].contents(instance)
    return blake2b(contents, digest_size=16).digest()


def split_validation(
    instances: Sequence[Any], validation: Validation
) -> tuple[list[Any], list[Any]]:
    """Split instances into those to train on and those held out; of very few, none may be held out.

    Each instance has a lottery number of its own. An instance that was trained on is therefore not
    held out later because others were added.
    """
    numbers = [lottery_number(instance, validation.seed) for instance in instances]
    drawn = [row for row, number in enumerate(numbers) if number < VALIDATION_SHARE]
    drawn = sorted(drawn, key=numbers.__getitem__)[: validation.count]
    held_out = set(drawn if len(drawn) < len(instances) else [])
    training = [instance for row, instance in enumerate(instances) if row not in held_out]
    return training, [instances[row] for row in sorted(held_out)]


def lottery_number(instance: Any, seed: int) -> float:
    """Return a number from 0 to 1 that depends on the seed and an instance's contents alone."""
    digest = blake2b(content_digest(instance) + seed.to_bytes(16), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def item_count(size: Any) -> int:
    """Return the number of items to order: cities, customers or jobs."""
    return size if isinstance(size, int) else size[0]


def size_label(size: Any) -> int | str:
    """Return a size as users write it: a number, or jobs x machines."""
    return size if isinstance(size, int) else f"{size[0]}x{size[2]}"


def size_extent(size: Any) -> int:
    """Return the number of nodes, or jobs times machines."""
    return size if isinstance(size, int) else shop_extent(size)


def describe_data(
    problem: Problem[Any, Any], training: Sequence[Any], held_out: Sequence[Any]
) -> list[str]:
    """Return the numbers and sizes of the instances, in words."""
    store_type = STORES[problem.solves]
    sizes = [store_type.size_of(instance, problem) for instance in (*training, *held_out)]
    sizes.sort(key=size_extent)
    labels = dict.fromkeys(str(size_label(size)) for size in (sizes[0], sizes[-1]))
    sizes_in_words = f"{' to '.join(labels)} {problem.size_unit}"
    plural = "s" * (len(training) != 1)
    words = [
        f"{len(training):,} instance{plural} of {sizes_in_words} to train on, "
        f"{len(held_out):,} held out to validate"
    ]
    if not held_out:
        words.append(
            "of so few none happens to be: validation is on those trained on, and flatters"
        )
    return words


STORES: dict[str, type[DataStore]] = {
    "tsp": RoutingStore,
    "cvrp": RoutingStore,
    "jssp": JobShopStore,
}
