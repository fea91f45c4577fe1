"""Solve many instances in one or more processes: `solve_many` behind `rhumb solve --workers`."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from rhumbline.api import limit_threads
from rhumbline.decoding import EngineName
from rhumbline.distributed.backends import Backend, InlineBackend
from rhumbline.distributed.backends.processes import ProcessBackend, plan_workers
from rhumbline.distributed.backends.ray_cluster import RayBackend, RayResources
from rhumbline.distributed.chunk_work import ChunkResult, solve_chunk
from rhumbline.distributed.chunks import Chunk, cut_into_chunks, default_length
from rhumbline.distributed.schedule import solve_chunks
from rhumbline.errors import InputError, shorten_repr
from rhumbline.inputs import instances_from, stream_instances
from rhumbline.pipeline import (
    SolveRequest,
    budget_or_default,
    find_device,
    group_instances,
    load_policies,
    make_runs,
    resolve_strategy,
)
from rhumbline.search.after_search import AfterSearch
from rhumbline.search.solution import Solution
from rhumbline.search.strategy import PlainStrategy, check_strategy_needs
from rhumbline.search.task import Task

Workers = int | str | None


@dataclass(frozen=True)
class WorkerOptions:
    """Where chunks are solved, and with how many threads each."""

    workers: Workers = None
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.workers not in (None, "ray"):
            check_workers(self.workers)


@dataclass(frozen=True)
class ManyResult:
    """One instance of many: its place in the input, and its solution or why there is none."""

    place: int
    solution: Solution | None
    error: str | None = None


def solve_many(
    instances: Iterable[Any] | str | Path,
    *,
    workers: Workers = None,
    threads: int | None = None,
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
    """Yield a result for each instance of an iterable, in the order in which results are found.

    Each item is anything that `solve` takes as one instance. Only a few chunks are read ahead, so
    the iterable may be larger than memory. `workers` is a number of processes on this machine,
    "auto" for one per GPU or core, "ray" for the cluster of RAY_ADDRESS, or None for this process.
    `chunk` limits how many instances are solved together and share the `seconds`.

    With `attempts`, equal chunks on the same engine give equal plans, wherever they are solved.
    `threads` are those of each worker. `instances` may also be the path of a file, a folder or a
    dataset. A script that uses `workers` needs `if __name__ == "__main__":`.
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
    resolve_strategy(strategy)
    request = resolve_device(request, workers)
    stream = stream_of(instances)
    chunks = cut_into_chunks(stream, chunk_length(chunk, request.device), augment)
    return single_results(chunks, request, WorkerOptions(workers, threads))


def stream_of(instances: Iterable[Any] | str | Path) -> Iterator[Any]:
    """Return an iterator over the instances of an iterable or of a path."""
    if isinstance(instances, str | Path):
        return stream_instances(instances)
    return single_instances(instances)


def single_results(
    chunks: Iterator[Chunk], request: SolveRequest, options: WorkerOptions
) -> Iterator[ManyResult]:
    """Yield the results of all chunks, instance by instance."""
    own_threads = options.threads if options.workers is None else None
    with limit_threads(own_threads):
        for result in solve_with_workers(chunks, request, options):
            for place, solution in result.solutions.items():
                yield ManyResult(place, solution)
            for place, reason in result.failures.items():
                yield ManyResult(place, None, reason)


def solve_with_workers(
    chunks: Iterator[Chunk], request: SolveRequest, options: WorkerOptions
) -> Iterator[ChunkResult]:
    """Yield the result of each chunk, in any order.

    Options that cannot work for the first chunk are refused before any worker starts.
    """
    first = next(chunks, None)
    if first is None:
        return
    check_chunk(first, request, options)
    backend = make_backend(request, options)
    yield from solve_chunks(chain([first], chunks), backend)


def check_chunk(chunk: Chunk, request: SolveRequest, options: WorkerOptions) -> None:
    """Refuse options that cannot work for the first instance of a chunk."""
    instances = chunk.instances[:1]
    if options.workers == "ray":  # the device and the engine are those of other machines
        load_policies(instances, request.policy)
        return
    groups = group_instances(instances, request.augment)
    runs = make_runs(instances, groups, request)
    for run in runs:
        if run.strategy is not None and isinstance(run.task, Task):
            check_strategy_needs(run.strategy, run.task)


def single_instances(sources: Iterable[Any]) -> Iterator[Any]:
    """Yield the instance of each source."""
    for place, source in enumerate(sources):
        found = instances_from(source)
        count = len(found)
        if count != 1:
            problem = f"item {place} holds {count} instances, expected one"
            raise InputError(f"{problem}; solve_many takes an iterable of single instances")
        yield found[0]


def resolve_device(request: SolveRequest, workers: Workers) -> SolveRequest:
    """Return the request; the default device of a cluster is the CPU, whatever is here."""
    if workers == "ray" and request.device == "auto":
        return replace(request, device="cpu")
    return request


def chunk_length(chunk: int | None, device: str) -> int:
    """Return the most instances of a chunk. The device may be one that only a cluster has."""
    if chunk is not None:
        return chunk
    if device == "auto":
        device = find_device(device).type
    return default_length(device)


def make_backend(request: SolveRequest, options: WorkerOptions) -> Backend:
    """Return the backend that the options ask for."""
    portable = make_portable(request)
    solve = partial(solve_chunk, request=portable)
    if options.workers is None:
        return InlineBackend(solve)
    if options.workers == "ray":
        resources = RayResources(request.device == "cuda", options.threads or 1)
        return RayBackend(solve, resources)
    count = check_workers(options.workers)
    plan = plan_workers(count, request.device, options.threads)
    return ProcessBackend(solve, plan)


def check_workers(workers: Workers) -> int | None:
    """Return the number of processes; None stands for "auto"."""
    if workers == "auto":
        return None
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        expected = 'expected a number of processes, "auto" or "ray"'
        raise InputError(f"workers is {shorten_repr(workers)}, {expected}")
    return workers


def make_portable(request: SolveRequest) -> SolveRequest:
    """Return the request for other processes, with absolute paths."""
    policy = request.policy
    if not isinstance(policy, str):
        return request
    path = Path(policy)
    if not path.exists():
        return request
    return replace(request, policy=str(path.resolve()))
