"""The work of one chunk, in whatever process: instances in, solutions out."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rhumbline.distributed.chunks import Chunk
from rhumbline.errors import RhumbError
from rhumbline.pipeline import LoadedPolicy, SolveRequest, load_policies, solve_groups
from rhumbline.search.solution import Solution

# Policies of this process by problem and name: a worker solves many chunks.
POLICIES: dict[tuple[str, str | None], dict[str, LoadedPolicy]] = {}


@dataclass(frozen=True)
class ChunkResult:
    """What became of a chunk: a solution or the reason of a failure for each place."""

    chunk_number: int
    solutions: dict[int, Solution]
    failures: dict[int, str]
    seconds: float  # that the worker took, with everything
    facts: dict[str, Any]  # how it was solved, for the lines of results


def solve_chunk(chunk: Chunk, request: SolveRequest) -> ChunkResult:
    """Solve the instances of a chunk together; if they are refused together, each alone."""
    start = time.monotonic()
    try:
        result = solve_together(chunk, request, start)
    except RhumbError as error:
        if len(chunk) == 1:
            reason = str(error)
            return ChunkResult(chunk.number, {}, {chunk.places[0]: reason}, 0.0, {})
        result = join_results(chunk.number, (solve_chunk(one, request) for one in chunk.split()))
    return replace(result, seconds=time.monotonic() - start)


def solve_together(chunk: Chunk, request: SolveRequest, start: float) -> ChunkResult:
    """Solve the instances of a chunk as one group."""
    instances = list(chunk.instances)
    request = replace(request, policy=policy_of(instances, request))
    solutions: dict[int, Solution] = {}
    facts: dict[str, Any] = {}
    for result in solve_groups(instances, request):
        run = result.run
        facts = {"search": run.strategy_name, "engine": run.task.resolved_engine}
        if result.interrupted:
            raise KeyboardInterrupt
        for place, solution in result.by_place().items():
            solutions[chunk.places[place]] = without_instance(solution)
    return ChunkResult(chunk.number, solutions, {}, time.monotonic() - start, facts)


def policy_of(instances: list[Any], request: SolveRequest) -> Any:
    """Return the policy of a chunk, which a process loads once."""
    if not (request.policy is None or isinstance(request.policy, str)):
        return request.policy
    key = instances[0].problem, request.policy
    if key not in POLICIES:
        POLICIES[key] = load_policies(instances[:1], request.policy)
    return POLICIES[key][instances[0].problem].policy


def without_instance(solution: Solution) -> Solution:
    """Return a solution that is quick to send: the receiver has the instance."""
    return replace(solution, instance=None, trace=())


def with_instances(result: ChunkResult, chunk: Chunk) -> ChunkResult:
    """Return a result whose solutions know their instances again."""
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
    facts: dict[str, Any] = {}
    for result in results:
        solutions |= result.solutions
        failures |= result.failures
        facts = facts or result.facts
    return ChunkResult(number, solutions, failures, 0.0, facts)
