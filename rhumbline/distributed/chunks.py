"""Cuts a stream of instances into chunks of equal size, without holding all of them."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rhumbline.errors import InputError
from rhumbline.pipeline import max_group_length, split_evenly


@dataclass(frozen=True)
class ChunkTuning:
    """How instances are collected."""

    # Instances that are held at once while they are sorted by size; `window_chunks` chunks if that
    # is more.
    window: int = 4_096
    window_chunks: int = 4
    cpu_length: int = 64  # instances of a chunk; on a CPU larger ones are no faster
    cuda_length: int = 10_000


TUNING = ChunkTuning()


@dataclass(frozen=True)
class Chunk:
    """Instances of one shape that are solved together, with their places in the whole input."""

    number: int
    places: tuple[int, ...]
    instances: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.places)

    def split(self, pieces: int) -> Iterator["Chunk"]:
        """Yield smaller chunks, to find the instance that fails."""
        longest = math.ceil(len(self) / pieces)
        for numbers in split_evenly(range(len(self)), longest):
            first = numbers[0]
            end = numbers[-1] + 1
            places = self.places[first:end]
            instances = self.instances[first:end]
            yield Chunk(self.number, places, instances)


def default_length(device: str) -> int:
    """Return the default for the most instances of a chunk, by type of device."""
    if device == "cuda":
        return TUNING.cuda_length
    return TUNING.cpu_length


def cut_into_chunks(instances: Iterable[Any], length: int, copies: int = 1) -> Iterator[Chunk]:
    """Yield chunks of at most `length` instances of one problem and shape.

    The chunks depend only on the order of the instances. Instances of the same shape are
    collected within a window, so that a folder of mixed files has few small chunks.
    """
    if length < 1:
        raise InputError(f"a chunk has at least 1 instance, not {length}")
    window = max(TUNING.window, TUNING.window_chunks * length)
    waiting: dict[tuple[Any, ...], list[tuple[int, Any]]] = {}
    held = 0
    number = 0
    for place, instance in enumerate(instances):
        shape = instance.problem, instance.shape
        group = waiting.setdefault(shape, [])
        group.append((place, instance))
        held += 1
        by_memory = max_group_length(instance.size, copies)
        is_full = len(group) >= min(length, by_memory)
        if is_full:
            held -= len(group)
            yield make_chunk(number, waiting.pop(shape))
            number += 1
        elif held >= window:
            oldest = next(iter(waiting))
            group = waiting.pop(oldest)
            held -= len(group)
            yield make_chunk(number, group)
            number += 1
    for group in waiting.values():
        yield make_chunk(number, group)
        number += 1


def make_chunk(number: int, group: list[tuple[int, Any]]) -> Chunk:
    """Return the chunk of a group of pairs of place and instance."""
    places, instances = zip(*group, strict=True)
    return Chunk(number, places, instances)
