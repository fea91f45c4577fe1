"""Solve many instances, wherever: the Python function behind `rhumb solve --workers`."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rhumbline.decoding import EngineName
from rhumbline.distributed.backend import Backend, InlineBackend
from rhumbline.distributed.chunks import Chunk, cut_into_chunks, default_length
from rhumbline.distributed.processes import ProcessBackend, default_workers
from rhumbline.distributed.ray_cluster import RayBackend
from rhumbline.distributed.schedule import solve_chunks
from rhumbline.errors import InputError
from rhumbline.inputs import instances_from
from rhumbline.pipeline import SolveRequest, budget_or_default, find_device
from rhumbline.search.after_search import AfterSearch
from rhumbline.search.solution import Solution
from rhumbline.search.strategy import PlainStrategy

Workers = int | str | None


@dataclass(frozen=True)
class ManyResult:
    """One instance of many: its place in the input, and its solution or why there is none."""

    place: int
    solution: Solution | None
    error: str | None = None


def solve_many(
    instances: Iterable[Any],
    *,
    workers: Workers = None,
    chunk: int | None = None,
    policy: str | Path | None = None,
    strategy: PlainStrategy | str | None = None,
    attempts: int | None = None,
    seconds: int | float | None = None,
    seed: int = 0,
    device: str = "auto",
    engine: EngineName = "auto",
    augment: int = 1,
    top: int = 1,
    polish: bool = False,
    then: str | None = None,
) -> Iterator[ManyResult]:
    """Yield a result for each instance of an iterable, in the order in which they are found.

    Each item is anything that `solve` takes as one instance. Nothing is read far ahead, so the
    iterable may be larger than memory. `workers` is a number of processes on this machine, "auto"
    for one per GPU or core, "ray" for the cluster of RAY_ADDRESS, or None for this process.
    `chunk` is the most instances that are solved together, and share the `seconds`.

    With `attempts`, equal chunks on the same engine give equal plans, whoever solves them.
    """
    request = SolveRequest(
        budget=budget_or_default(attempts, seconds),
        strategy=strategy,
        policy=None if policy is None else str(policy),
        seed=seed,
        device=device,
        engine=engine,
        augment=augment,
        after=AfterSearch(top, polish, then),
    )
    length = chunk_length(chunk, request)
    chunks = cut_into_chunks(single_instances(instances), length, augment)
    return results_of(chunks, request, make_backend(workers, request))


def results_of(
    chunks: Iterable[Chunk], request: SolveRequest, backend: Backend
) -> Iterator[ManyResult]:
    """Yield the results of all chunks, instance by instance."""
    for result in solve_chunks(chunks, backend):
        for place, solution in result.solutions.items():
            yield ManyResult(place, solution)
        for place, reason in result.failures.items():
            yield ManyResult(place, None, reason)


def single_instances(sources: Iterable[Any]) -> Iterator[Any]:
    """Yield the instance of each source."""
    for place, source in enumerate(sources):
        found = instances_from(source)
        if len(found) != 1:
            problem = f"item {place} holds {len(found)} instances, expected one"
            raise InputError(f"{problem}; solve_many takes an iterable of single instances")
        yield found[0]


def chunk_length(chunk: int | None, request: SolveRequest) -> int:
    """Return the most instances of a chunk."""
    if chunk is not None:
        return chunk
    return default_length("cpu" if request.device == "cpu" else find_device(request.device).type)


def make_backend(workers: Workers, request: SolveRequest) -> Backend:
    """Return where chunks are solved."""
    if workers is None:
        return InlineBackend(request)
    if workers == "ray":
        return RayBackend(portable(request))
    if workers == "auto":
        workers = default_workers(request.device)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        expected = 'a number of processes, "auto" or "ray"'
        raise InputError(f"workers is {str(workers)[:30]!r}, expected {expected}")
    find_device(request.device)  # refuses a GPU that is not there before any process starts
    return ProcessBackend(portable(request), workers)


def portable(request: SolveRequest) -> SolveRequest:
    """Return a request that other processes can take: paths become absolute."""
    policy = request.policy
    if isinstance(policy, str) and Path(policy).exists():
        return replace(request, policy=str(Path(policy).resolve()))
    return request
