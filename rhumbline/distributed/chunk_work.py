"""The work of one chunk, in whatever process: instances in, solutions out."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rhumbline.distributed.chunks import Chunk
from rhumbline.errors import RhumbError
from rhumbline.pipeline import LoadedPolicy, SolveRequest, load_policies, solve_groups
from rhumbline.search.after_search import AfterSearch
from rhumbline.search.solution import Solution

# Policies of this process by problem and name: a worker solves many chunks.
POLICIES: dict[tuple[str, str | None], LoadedPolicy] = {}


@dataclass(frozen=True)
class HowSolved:
    """What solved a chunk, for the lines of results."""

    search: str
    policy: str
    engine: str | None  # None: no policy was needed
    after: AfterSearch


@dataclass(frozen=True)
class ChunkResult:
    """The result of a chunk: a solution or the reason of a failure for each place."""

    chunk_number: int
    solutions: dict[int, Any]  # a `Solution` each; a suite has lists of its results
    failures: dict[int, str]
    seconds: float = 0.0  # that the worker took in all
    how: "HowSolved | None" = None  # None if no instance was solved


def solve_chunk(chunk: Chunk, request: SolveRequest) -> ChunkResult:
    """Solve the instances of a chunk together; if that is refused, solve each alone."""
    start = time.monotonic()
    try:
        result = solve_together(chunk, request)
    except RhumbError as error:
        if len(chunk) == 1:
            reason = str(error)
            return ChunkResult(chunk.number, {}, {chunk.places[0]: reason})
        pieces = chunk.split(len(chunk))
        results = (solve_chunk(piece, request) for piece in pieces)
        result = join_results(chunk.number, results)
    seconds = time.monotonic() - start
    return replace(result, seconds=seconds)


def solve_together(chunk: Chunk, request: SolveRequest) -> ChunkResult:
    """Solve the instances of a chunk as one group."""
    instances = list(chunk.instances)
    policy = policy_of(instances, request)
    request = replace(request, policy=policy.policy)
    solutions: dict[int, Solution] = {}
    how = None
    for result in solve_groups(instances, request):
        if result.interrupted:
            raise KeyboardInterrupt
        run = result.run
        assert run is not None  # only an interruption or a limit on the total time leaves it out
        after = replace(run.after, improved=None)
        engine = run.task.resolved_engine
        how = HowSolved(run.strategy_name, policy.name, engine, after)
        for index, solution in result.by_place().items():
            place = chunk.places[index]
            solutions[place] = without_instance(solution)
    return ChunkResult(chunk.number, solutions, {}, how=how)


def policy_of(instances: list[Any], request: SolveRequest) -> LoadedPolicy:
    """Return the policy of a chunk, which a process loads once."""
    first = instances[0]
    name = request.policy
    if not isinstance(name, str | None):
        (loaded,) = load_policies([first], name).values()
        return loaded
    key = first.problem, name
    if key not in POLICIES:
        (POLICIES[key],) = load_policies([first], name).values()
    return POLICIES[key]


def without_instance(solution: Solution) -> Solution:
    """Return a solution without its instance, which the receiver has: it is quick to send."""
    return replace(solution, instance=None, trace=())


def with_instances(result: ChunkResult, chunk: Chunk) -> ChunkResult:
    """Return a result whose solutions have their instances again."""
    instance_at = dict(zip(chunk.places, chunk.instances, strict=True))
    solutions = {
        place: replace(solution, instance=instance_at[place])
        for place, solution in result.solutions.items()
    }
    return replace(result, solutions=solutions)


def join_results(number: int, results: Iterator[ChunkResult]) -> ChunkResult:
    """Return the results of the pieces of a chunk as one."""
    solutions: dict[int, Solution] = {}
    failures: dict[int, str] = {}
    how = None
    for result in results:
        solutions |= result.solutions
        failures |= result.failures
        how = how or result.how
    return ChunkResult(number, solutions, failures, how=how)
