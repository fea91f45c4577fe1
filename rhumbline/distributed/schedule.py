"""Keeps workers busy with chunks, and finds the instance that kills them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rhumbline.distributed.backends import Backend, Lost
from rhumbline.distributed.chunk_work import ChunkResult, with_instances
from rhumbline.distributed.chunks import Chunk


@dataclass(frozen=True)
class ScheduleTuning:
    """How often chunks are tried again, and in how many pieces."""

    max_tries: int = 2  # of a single instance whose worker dies
    # A chunk of 64 with an instance that kills its worker costs three workers.
    pieces: int = 8
    max_lost_nodes: int = 10  # for a chunk; preempted machines do not count as its failures


TUNING = ScheduleTuning()


@dataclass(frozen=True)
class Trial:
    """A chunk, how often a worker has died with it, and how often a whole node."""

    chunk: Chunk
    losses: int = 0
    lost_nodes: int = 0


def solve_chunks(chunks: Iterable[Chunk], backend: Backend) -> Iterator[ChunkResult]:
    """Yield the result of each chunk as soon as it is found, in any order.

    A chunk whose worker dies is split, so in the end an instance that kills workers fails alone.
    The backend is closed at the end, also when the caller stops early.
    """
    source = iter(chunks)
    again: list[Trial] = []
    running: dict[tuple[int, ...], Trial] = {}  # by places, which no two chunks share
    try:
        while True:
            while len(running) < backend.capacity:
                trial = again.pop() if again else next_trial(source)
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
                    continue
                retries = trials_after(trial, outcome.result)
                again += retries
                if not retries:
                    yield failed_result(trial.chunk, outcome.result.reason)
    finally:
        backend.close()


def next_trial(source: Iterator[Chunk]) -> Trial | None:
    """Return the next chunk of the input, or None at its end."""
    chunk = next(source, None)
    if chunk is None:
        return None
    return Trial(chunk)


def trials_after(trial: Trial, loss: Lost) -> list[Trial]:
    """Return what to try after a loss; nothing for a single instance with no tries left."""
    chunk = trial.chunk
    if loss.has_node_died and trial.lost_nodes < TUNING.max_lost_nodes:
        return [Trial(chunk, trial.losses, trial.lost_nodes + 1)]
    losses = trial.losses + 1
    if len(chunk) == 1 and losses >= TUNING.max_tries:
        return []
    if len(chunk) == 1:
        return [Trial(chunk, losses)]
    return [Trial(piece, losses) for piece in chunk.split(TUNING.pieces)]


def failed_result(chunk: Chunk, reason: str) -> ChunkResult:
    """Return the result of a chunk that kills every worker: no solution, and the reason."""
    failures = dict.fromkeys(chunk.places, reason)
    return ChunkResult(chunk.number, {}, failures)
