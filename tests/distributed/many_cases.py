"""Cases for many instances: small inputs, results to compare, and workers that die."""

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rhumbline.distributed.backends import SolveChunk
from rhumbline.distributed.chunk_work import ChunkResult, solve_chunk
from rhumbline.distributed.chunks import Chunk
from rhumbline.formats.dataset import save_dataset
from rhumbline.pipeline import SolveRequest
from rhumbline.problems.tsp import TSPInstance
from rhumbline.search.driver import Budget

POISON = "poison"
REFUSED = "refused"
SPENT = ("seconds", "file")  # what differs between two runs over the same instances


def write_cities(path: Path, count: int, size: int = 8) -> Path:
    """Write a dataset of random cities."""
    xy = np.random.default_rng(count).random((count, size, 2))
    save_dataset(path, xy.astype(np.float32), {})
    return path


def make_cities(count: int, size: int = 8) -> list[TSPInstance]:
    """Return instances of random cities."""
    xy = np.random.default_rng(count).random((count, size, 2))
    return [TSPInstance(f"i{number}", "EXACT_2D", xy=points) for number, points in enumerate(xy)]


def read_lines(path: Path) -> dict[int, dict[str, Any]]:
    """Return the lines of a results file by place, without times; each is there once."""
    found: dict[int, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        facts = json.loads(line)
        place = facts["place"]
        assert place not in found, f"{place} is there twice"
        found[place] = {name: value for name, value in facts.items() if name not in SPENT}
    return found


def quick_request(**more: Any) -> SolveRequest:
    """Return a request for a few attempts on a CPU."""
    facts: dict[str, Any] = {"budget": Budget(attempts=4), "strategy": "sampling", "device": "cpu"}
    return SolveRequest(**facts | more)


def deadly_solver(request: SolveRequest) -> SolveChunk:
    """Return a function that solves chunks, and kills its process if there is poison in one."""
    return partial(solve_unless_poisonous, request=request)


def solve_unless_poisonous(chunk: Chunk, request: SolveRequest) -> ChunkResult:
    """Solve a chunk, or die of it, or meet an unexpected error."""
    names = {instance.name for instance in chunk.instances}
    if POISON in names:
        os.kill(os.getpid(), signal.SIGKILL)
    if REFUSED in names:
        raise ValueError("an unexpected error")
    return solve_chunk(chunk, request)


def echo_large(chunk: Chunk, size: int) -> ChunkResult:
    """Return a result of many bytes without any work."""
    return ChunkResult(chunk.number, {}, dict.fromkeys(chunk.places, "x" * size))
