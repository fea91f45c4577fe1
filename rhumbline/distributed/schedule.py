"""Keeps workers busy with chunks, and finds the instance that kills them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rhumbline.distributed.backend import Backend, Lost
from rhumbline.distributed.chunk_work import ChunkResult, with_instances
from rhumbline.distributed.chunks import Chunk

MAX_TRIES = 2  # of a single instance whose worker dies


@dataclass(frozen=True)
class Trial:
    """A chunk and how often a worker has died with it."""

    chunk: Chunk
    losses: int = 0


def solve_chunks(chunks: Iterable[Chunk], backend: Backend) -> Iterator[ChunkResult]:
    """Yield the result of each chunk as soon as it is there, in any order.

    A chunk whose worker dies is split into its instances, so that a poisonous one fails alone. The
    backend is closed at the end, also when the caller stops early.
    """
    source = iter(chunks)
    again: list[Trial] = []
    running: dict[tuple[int, ...], Trial] = {}  # by places, which no two chunks share
    is_exhausted = False
    try:
        while True:
            while len(running) < backend.capacity:
                trial = again.pop() if again else None
                if trial is None and not is_exhausted:
                    chunk = next(source, None)
                    is_exhausted = chunk is None
                    trial = Trial(chunk) if chunk is not None else None
                if trial is None:
                    break
                running[trial.chunk.places] = trial
                backend.submit(trial.chunk)
            if not running:
                return
            for outcome in backend.wait():
                trial = running.pop(outcome.chunk.places)
                if not isinstance(outcome.result, Lost):
                    yield with_instances(outcome.result, outcome.chunk)
                elif trial.losses + 1 >= MAX_TRIES and len(trial.chunk) == 1:
                    yield failed(trial.chunk, outcome.result.reason)
                else:
                    again += [Trial(one, trial.losses + 1) for one in trial.chunk.split()]
    finally:
        backend.close()


def failed(chunk: Chunk, reason: str) -> ChunkResult:
    """Return the result of a chunk that no worker survives."""
    failures = dict.fromkeys(chunk.places, reason)
    return ChunkResult(chunk.number, {}, failures, 0.0, {})
