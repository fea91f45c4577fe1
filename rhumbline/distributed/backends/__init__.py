"""Where chunks are solved: a backend takes some at a time and returns their outcomes.

`schedule.solve_chunks` decides what runs next and what is tried again; backends only run it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rhumbline.distributed.chunk_work import ChunkResult
from rhumbline.distributed.chunks import Chunk
from rhumbline.errors import shorten

SolveChunk = Callable[[Chunk], ChunkResult]  # can be sent to other processes


@dataclass(frozen=True)
class Lost:
    """A chunk whose worker has died, or has met an unexpected error."""

    reason: str
    has_node_died: bool = False  # the machine is lost, so the chunk is not the cause


@dataclass(frozen=True)
class ChunkOutcome:
    """A chunk and its result, or the reason why it has none."""

    chunk: Chunk
    result: ChunkResult | Lost


class Backend(Protocol):
    """Runs chunks somewhere."""

    @property
    def capacity(self) -> int:
        """How many chunks to hand over at once, so that no worker waits."""
        ...

    def submit(self, chunk: Chunk) -> None:
        """Begin with a chunk, and return at once."""
        ...

    def wait(self) -> list[ChunkOutcome]:
        """Wait until at least one chunk is done or lost; there is at least one under way."""
        ...

    def close(self) -> None:
        """End all workers; what is under way is lost."""
        ...


class InlineBackend:
    """This process itself, one chunk at a time."""

    capacity = 1

    def __init__(self, solve: SolveChunk):
        self.solve = solve
        self.waiting: list[Chunk] = []

    def submit(self, chunk: Chunk) -> None:
        """Remember a chunk."""
        self.waiting.append(chunk)

    def wait(self) -> list[ChunkOutcome]:
        """Solve the oldest chunk."""
        chunk = self.waiting.pop(0)
        try:
            result: ChunkResult | Lost = self.solve(chunk)
        except Exception as error:
            result = Lost(describe_error(error))
        return [ChunkOutcome(chunk, result)]

    def close(self) -> None:
        """There is nothing to end."""


def describe_error(error: BaseException) -> str:
    """Return the type of an unexpected error and the last line of its message."""
    name = type(error).__name__
    lines = str(error).strip().splitlines()
    if not lines:
        return name
    last_line = shorten(lines[-1], limit=200)
    return f"{name}: {last_line}"
