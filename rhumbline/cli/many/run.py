"""The work of `rhumb solve --results` and `--workers`: a stream of instances to result lines."""

import json
import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rhumbline.cli.many.counts import ManyCounts
from rhumbline.cli.many.instance_stream import InstanceStream
from rhumbline.cli.output import render
from rhumbline.cli.output.results import Verbosity
from rhumbline.cli.process import ExitCode, defer_signals, print_note, print_result
from rhumbline.cli.solve_request import FileOptions
from rhumbline.distributed.chunk_work import ChunkResult, HowSolved
from rhumbline.distributed.continuation import PendingInstance, RemainingChunks
from rhumbline.distributed.fingerprints import options_hash
from rhumbline.distributed.results_file import ResultsFile
from rhumbline.distributed.run import (
    WorkerOptions,
    chunk_length,
    resolve_device,
    solve_with_workers,
)
from rhumbline.distributed.shards import Shard
from rhumbline.errors import Infeasible, InputError
from rhumbline.pipeline import SolveRequest
from rhumbline.search.solution import Solution


@dataclass(frozen=True)
class ManyOptions:
    """How many instances are shared out, and where their results go."""

    results: Path | None = None  # None: standard output
    shard: Shard = field(default_factory=Shard)
    workers: WorkerOptions = field(default_factory=WorkerOptions)
    chunk: int | None = None  # the most instances that are solved together


@dataclass
class ManyRun:
    """A run over many instances: what is read, what is left, and where results go."""

    request: SolveRequest
    options: ManyOptions
    verbosity: Verbosity
    stream: InstanceStream
    remaining: RemainingChunks
    results: ResultsFile | None
    counts: ManyCounts

    def solve(self) -> int:
        """Solve what is left until all is done or a signal comes; return the exit code."""
        length = chunk_length(self.options.chunk, self.request.device)
        chunks = self.remaining.cut(self.stream.instances(), length, self.request.augment)
        try:
            for result in solve_with_workers(chunks, self.request, self.options.workers):
                with defer_signals():
                    self.deliver(result)
                if self.counts.is_line_due():
                    self.verbosity.note(self.counts.progress_text(self.remaining.skipped))
        except KeyboardInterrupt:
            self.report_interruption()
            return ExitCode.INTERRUPTED
        return self.finish()

    def deliver(self, result: ChunkResult) -> None:
        """Write or print the results of a chunk."""
        lines: list[tuple[str, dict[str, Any]]] = []
        for place, solution in result.solutions.items():
            pending = self.remaining.take(place)
            self.counts.count(solution)
            if solution.unmet:
                print_note(f"error: {solution.unmet}")
            assert result.how is not None
            if self.results is None:
                self.print_solution(place, solution, result.how)
                continue
            facts = self.solution_facts(place, solution, result.how)
            lines.append((pending.key, facts))
        for place, reason in result.failures.items():
            pending = self.remaining.take(place)
            self.counts.failed += 1
            print_note(f"error: {pending.name}: {reason}")
            facts = self.failure_facts(place, pending, reason)
            lines.append((pending.key, facts))
        if self.results is not None:
            self.results.write(lines)

    def print_solution(self, place: int, solution: Solution, how: HowSolved) -> None:
        """Print a result on standard output."""
        if self.verbosity.as_json:
            facts = self.solution_facts(place, solution, how)
            print_result(json.dumps(facts))
        else:
            width = len(solution.instance.name)
            line = render.result_line(solution, width, (), how.after)
            print_result(line)

    def solution_facts(self, place: int, solution: Solution, how: HowSolved) -> dict[str, Any]:
        """Return the facts of a result, for JSON."""
        facts: dict[str, Any] = {"place": place}
        facts |= render.result_facts(solution, solution.instance.problem)
        facts |= {
            "search": how.search,
            "policy": how.policy,
            "engine": how.engine,
            "seed": self.request.seed,
        }
        if self.request.augment > 1:
            facts["augment"] = self.request.augment
        facts["file"] = str(self.stream.file_of(place))
        return facts | render.after_search_facts(solution, how.after)

    def failure_facts(self, place: int, pending: PendingInstance, reason: str) -> dict[str, Any]:
        """Return the facts of an instance without a plan, for JSON."""
        return {
            "place": place,
            "name": pending.name,
            "problem": pending.problem,
            "error": reason,
            "file": str(self.stream.file_of(place)),
        }

    def report_interruption(self) -> None:
        """Print what an interrupted run has kept."""
        done = render.format_count(self.counts.done, "instance", "instances")
        if self.results is None:
            print_note(f"interrupted; {done} were solved")
            return
        count = len(self.results.done)
        kept = f"{count:,} results are kept in {self.results.path}"
        print_note(f"interrupted; {done} were solved; {kept}: the same command goes on from there")

    def finish(self) -> int:
        """Print the summary and return the exit code, the gravest failure first."""
        summary = self.counts.summary(self.remaining.skipped)
        self.verbosity.note(summary)
        if self.counts.failed or self.counts.over_limit:
            return Infeasible.exit_code
        if self.stream.bad_files:
            files = render.format_count(self.stream.bad_files, "file", "files")
            print_note(f"error: {files} could not be used and had to be skipped; see above")
            return InputError.exit_code
        return 0


def run_many(
    paths: Sequence[Path],
    request: SolveRequest,
    file_options: FileOptions,
    options: ManyOptions,
    verbosity: Verbosity,
) -> int:
    """Solve the instances of all paths, and put out each result as soon as it is there."""
    request = resolve_device(request, options.workers.workers)
    stream = InstanceStream(paths, file_options)
    if stream.skipped_note:
        verbosity.note(stream.skipped_note)
    with open_results(options, request) as results:
        done = results.done if results else set[str]()
        remaining = RemainingChunks(done, options.shard)
        total = shard_total(stream.count(), options.shard)
        counts = ManyCounts(total)
        run = ManyRun(request, options, verbosity, stream, remaining, results, counts)
        verbosity.note(plan_text(run))
        return run.solve()


@contextmanager
def open_results(
    options: ManyOptions, request: SolveRequest
) -> Generator[ResultsFile | None, None, None]:
    """Open the results file, if one was asked for."""
    if options.results is None:
        yield None
        return
    length = chunk_length(options.chunk, request.device)
    results = ResultsFile.open(options.results, options_hash(request, length))
    try:
        yield results
    finally:
        results.close()


def shard_total(total: int | None, shard: Shard) -> int | None:
    """Return about how many instances a shard has."""
    if total is None:
        return None
    return math.ceil(total / shard.count)


def plan_text(run: ManyRun) -> str:
    """Format what is about to be done."""
    options = run.options
    total = run.counts.total
    instances = "instances"
    if total is not None:
        instances = render.format_count(total, "instance", "instances")
    parts = [instances]
    if options.shard.count > 1:
        parts.append(f"shard {options.shard}")
    if run.results and run.results.done:
        count = len(run.results.done)
        parts.append(f"{run.results.path} has {count:,} results")
    seconds = run.request.budget.seconds
    if seconds is not None:
        length = chunk_length(options.chunk, run.request.device)
        duration = render.format_duration(seconds)
        parts.append(f"at most {duration} for each {length:,} of one size")
    return render.SEPARATOR.join(parts)
