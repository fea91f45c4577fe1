"""Whatever workers do, each instance gets one result, and only a poisonous one fails."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhumbline.distributed.backends import ChunkOutcome, Lost
from rhumbline.distributed.chunk_work import ChunkResult
from rhumbline.distributed.chunks import Chunk
from rhumbline.distributed.schedule import solve_chunks


class FakeBackend:
    """Workers that die with poisonous instances, and now and then for no reason."""

    def __init__(self, poisonous: set[int], seed: int, chance: float = 1.0):
        self.poisonous = poisonous
        self.rng = random.Random(seed)
        self.chance = chance
        self.running: list[Chunk] = []
        self.most = 0
        self.is_closed = False

    capacity = 3

    def submit(self, chunk: Chunk) -> None:
        self.running.append(chunk)
        self.most = max(self.most, len(self.running))

    def wait(self) -> list[ChunkOutcome]:
        chunk = self.running.pop(self.rng.randrange(len(self.running)))
        dies = self.poisonous & set(chunk.places) or self.rng.random() > self.chance
        if dies:
            return [ChunkOutcome(chunk, Lost("it died"))]
        return [
            ChunkOutcome(
                chunk, ChunkResult(chunk.number, {}, dict.fromkeys(chunk.places, "fine"), 0, {})
            )
        ]

    def close(self) -> None:
        self.is_closed = True


def make_chunks(lengths: list[int]) -> list[Chunk]:
    chunks = []
    first = 0
    for number, length in enumerate(lengths):
        places = tuple(range(first, first + length))
        chunks.append(Chunk(number, places, places))
        first += length
    return chunks


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 5), max_size=12), st.integers(0, 10**6), st.data())
def test_each_instance_has_one_result_and_poison_fails_alone(lengths, seed, data) -> None:
    chunks = make_chunks(lengths)
    places = [place for chunk in chunks for place in chunk.places]
    poisonous = set(data.draw(st.lists(st.sampled_from(places), unique=True))) if places else set()
    backend = FakeBackend(poisonous, seed)
    results = list(solve_chunks(chunks, backend))
    found = [(place, reason) for result in results for place, reason in result.failures.items()]
    assert sorted(place for place, _ in found) == places
    assert {place for place, reason in found if reason == "it died"} == poisonous
    assert backend.most <= backend.capacity
    assert backend.is_closed


def test_the_backend_is_closed_when_the_caller_stops() -> None:
    backend = FakeBackend(set(), 0)
    results = solve_chunks(make_chunks([2] * 10), backend)
    next(results)
    results.close()
    assert backend.is_closed


def test_chunks_are_taken_from_the_stream_as_workers_get_free() -> None:
    taken = []

    def stream():
        for chunk in make_chunks([1] * 100):
            taken.append(chunk)
            yield chunk

    next(solve_chunks(stream(), FakeBackend(set(), 0)))
    assert len(taken) == 3


def test_an_error_in_the_stream_of_instances_closes_the_backend() -> None:
    def stream():
        yield from make_chunks([1])
        raise ValueError("damaged file")

    backend = FakeBackend(set(), 0)
    with pytest.raises(ValueError, match="damaged"):
        list(solve_chunks(stream(), backend))
    assert backend.is_closed
