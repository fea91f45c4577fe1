"""Where chunks are solved: a backend takes some at a time and says what became of them.

`schedule.solve_chunks` decides what runs next and what is tried again; backends only run it.
"""

from dataclasses import dataclass
from typing import Protocol

from rhumbline.distributed.chunk_work import ChunkResult, solve_chunk
from rhumbline.distributed.chunks import Chunk
from rhumbline.pipeline import SolveRequest


@dataclass(frozen=True)
class Lost:
    """A chunk whose worker has died."""

    reason: str


@dataclass(frozen=True)
class Outcome:
    """A chunk and what became of it."""

    chunk: Chunk
    result: ChunkResult | Lost


class Backend(Protocol):
    """Runs chunks somewhere."""

    @property
    def capacity(self) -> int:
        """How many chunks to hand over at once, so that no worker waits."""
        ...

    def submit(self, chunk: Chunk) -> None:
        """Begin with a chunk; returns at once."""
        ...

    def wait(self) -> list[Outcome]:
        """Wait until at least one chunk is done or lost; there is at least one under way."""
        ...

    def close(self) -> None:
        """End all workers; what is under way is lost."""
        ...


class InlineBackend:
    """This process itself, one chunk at a time."""

    capacity = 1

    def __init__(self, request: SolveRequest):
        self.request = request
        self.waiting: list[Chunk] = []

    def submit(self, chunk: Chunk) -> None:
        """Remember a chunk."""
        self.waiting.append(chunk)

    def wait(self) -> list[Outcome]:
        """Solve the oldest chunk."""
        chunk = self.waiting.pop(0)
        return [Outcome(chunk, solve_chunk(chunk, self.request))]

    def close(self) -> None:
        """There is nothing to end."""
