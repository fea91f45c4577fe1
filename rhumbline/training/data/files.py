"""Instances from user files, folders and datasets to train on, instead of random ones.

This module decides which instances are held out for validation, and when each size has its turn.
How instances are stored on a device and drawn from there depends on the problem: see `batches`,
`routing` and `job_shop`.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor

from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError
from rhumbline.files import read_many
from rhumbline.files.discovery import find_instance_files
from rhumbline.problems import Problem
from rhumbline.registry import load_reference
from rhumbline.training.config import TrainConfig, Validation
from rhumbline.training.data.random import Size


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
    def item_count(size: Any) -> int:
        """Return the number of items to order: cities, customers or jobs."""
        ...

    @staticmethod
    def extent(size: Any) -> int:
        """Return a number by which sizes are ordered."""
        ...

    @staticmethod
    def label(size: Any) -> int | str:
        """Return a size as users write it: a number, or jobs x machines."""
        ...

    @staticmethod
    def contents(instance: Any) -> bytes:
        """Return what is to be solved, without names."""
        ...

    @staticmethod
    def needs_matrix(instance: Any) -> bool:
        """Return whether positions do not tell the distances, so that all need `with_matrices`."""
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
        store_type = find_store(problem.solves)
        with_matrices = any(map(store_type.needs_matrix, instances))
        self.training_store = store_type(training, problem, device, with_matrices)
        self.validation_store = store_type(validation, problem, device, with_matrices)
        counts = self.training_store.counts
        self.sizes = list(counts)
        shares = [count / len(training) for count in counts.values()]
        self.share_ends = list(accumulate(shares))[:-1]
        labels = map(store_type.label, self.sizes)
        self.labels = list(dict.fromkeys(labels))
        validation_sizes = [store_type.size_of(instance, problem) for instance in validation]
        self.typical_size = most_common(map(store_type.label, validation_sizes))
        self.max_action_count = max(
            self.training_store.max_action_count, self.validation_store.max_action_count
        )
        self.validation_data = joint_digest(validation)
        words = [
            *describe_data(problem, training, held_out),
            *self.describe_losses(),
            *remarks,
        ]
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
        # Multiples of the golden ratio's fraction fill an interval as evenly as possible.
        golden_ratio = (5**0.5 - 1) / 2
        place = step * golden_ratio % 1.0
        return self.sizes[bisect(self.share_ends, place)]

    def sample(self, count: int, size: Any, rng: torch.Generator) -> Any:
        """Draw instances of a size. Duplicates in the batch get different random numbers."""
        batch = self.training_store.draw(count, size, rng)
        key = torch.arange(count, device=rng.device)
        return replace(batch, key=key)

    def validation(self, rng: torch.Generator) -> list[tuple[Any, Tensor]]:
        """Return the held-out instances, or those trained on if none is held out."""
        return self.validation_store.all_batches()


def find_store(problem: str) -> type[DataStore]:
    """Return the class that keeps instances of a problem on a device."""
    store = DOMAINS[problem].training.store
    return load_reference(store)


def most_common(labels: Iterable[int | str]) -> int | str:
    """Return the most common label of sizes, the first of several."""
    counts = Counter(labels)
    ((label, _),) = counts.most_common(1)
    return label


def joint_digest(instances: Sequence[Any]) -> str:
    """Return a digest of the contents of all instances, independent of their order."""
    digests = sorted(map(content_digest, instances))
    joined = b"".join(digests)
    return blake2b(joined, digest_size=8).hexdigest()


def load_instances(
    places: Sequence[str], problem: Problem[Any, Any]
) -> tuple[list[Any], list[str]]:
    """Return all different instances of a problem, and what was left out, in words.

    `places` are files, folders and datasets.
    """
    placeholder = "YOUR-FOLDER"  # stands in recipes for user data
    if placeholder in places:
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
    remarks = [f"{count:,} {what} left out" for what, count in left_out.items() if count]
    return different, remarks


def read_places(places: Sequence[str]) -> list[Any]:
    """Read all instances in files, folders and datasets."""
    instances: list[Any] = []
    for place in places:
        for file in find_instance_files(place):
            instances += read_many(file)
    return instances


def leaves_decisions(instance: Any, problem: Problem[Any, Any]) -> bool:
    """Return whether an instance has more than one plan."""
    store_type = find_store(problem.solves)
    size = store_type.size_of(instance, problem)
    least = DOMAINS[problem.solves].training.min_items
    return store_type.item_count(size) >= least


def content_digest(instance: Any) -> bytes:
    """Return a digest of what is to be solved, independent of names."""
    store_type = find_store(instance.problem)
    contents = store_type.contents(instance)
    hashed = blake2b(contents, digest_size=16)
    return hashed.digest()


def split_validation(
    instances: Sequence[Any], validation: Validation
) -> tuple[list[Any], list[Any]]:
    """Split instances into those to train on and those held out; of very few, none may be held out.

    Each instance has a lottery number of its own. An instance that was trained on is therefore not
    held out later because others were added.
    """
    held_out_share = 1 / 5  # about
    numbers = [lottery_number(instance, validation.seed) for instance in instances]
    drawn: list[int] = []
    for row, number in enumerate(numbers):
        if number < held_out_share:
            drawn.append(row)
    drawn.sort(key=numbers.__getitem__)
    held_out = set(drawn[: validation.count])
    if len(held_out) == len(instances):
        held_out = set[int]()
    training: list[Any] = []
    held_out_instances: list[Any] = []
    for row, instance in enumerate(instances):
        if row in held_out:
            held_out_instances.append(instance)
        else:
            training.append(instance)
    return training, held_out_instances


def lottery_number(instance: Any, seed: int) -> float:
    """Return a number from 0 to 1 that depends on the seed and an instance's contents alone."""
    seed_bytes = seed.to_bytes(16)
    text = content_digest(instance) + seed_bytes
    hashed = blake2b(text, digest_size=8)
    digest = hashed.digest()
    number = int.from_bytes(digest)
    return number / 2**64


def describe_data(
    problem: Problem[Any, Any], training: Sequence[Any], held_out: Sequence[Any]
) -> list[str]:
    """Return the numbers and sizes of the instances, in words."""
    store_type = find_store(problem.solves)
    instances = (*training, *held_out)
    sizes = [store_type.size_of(instance, problem) for instance in instances]
    sizes.sort(key=store_type.extent)
    ends = (sizes[0], sizes[-1])
    words_for_ends = [str(store_type.label(size)) for size in ends]
    labels = dict.fromkeys(words_for_ends)
    range_of_sizes = " to ".join(labels)
    sizes_in_words = f"{range_of_sizes} {problem.size_unit}"
    is_plural = len(training) != 1
    plural = "s" if is_plural else ""
    words = [
        f"{len(training):,} instance{plural} of {sizes_in_words} to train on, "
        f"{len(held_out):,} held out to validate"
    ]
    if not held_out:
        words.append(
            "of so few none happens to be: validation is on those trained on, and flatters"
        )
    return words
