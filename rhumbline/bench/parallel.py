"""Run the jobs of a suite in several processes of this machine (`rhumb bench --workers`)."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rhumbline.bench.methods import BenchOptions
from rhumbline.bench.results import Origin, Result, append_results
from rhumbline.bench.runner import (
    BenchJob,
    MethodOnSet,
    RunProgress,
    measure_job,
    prepare_pairs,
)
from rhumbline.bench.suite import Suite
from rhumbline.distributed.backends import Lost
from rhumbline.distributed.backends.processes import ProcessBackend, WorkerPlan
from rhumbline.distributed.chunk_work import ChunkResult
from rhumbline.distributed.chunks import Chunk
from rhumbline.errors import RhumbError

# What a worker process has prepared, by the names of the method and of the set.
PREPARED: dict[tuple[str, str], MethodOnSet] = {}


@dataclass(frozen=True)
class JobOrder:
    """A job as it is sent to a process, which has prepared the same methods and sets."""

    method: str
    instance_set: str
    seed: int
    indices: tuple[int, ...]


@dataclass(frozen=True)
class SuiteWork:
    """What every process prepares for itself."""

    suite: Suite
    options: BenchOptions
    origin: Origin


@dataclass
class ParallelRun:
    """The jobs of a suite on their way through worker processes."""

    work: SuiteWork
    out: Path
    total: int  # results of a complete run
    finished: int  # results on the disk
    start_time: float = field(default_factory=time.monotonic)
    measured: int = 0

    def run(self, jobs: Sequence[BenchJob], plan: WorkerPlan) -> Iterator[RunProgress]:
        """Measure jobs and write their results. Every yielded result is on the disk already."""
        yield self.progress(())
        backend = ProcessBackend(partial(measure_chunk, work=self.work), plan)
        chunks = job_chunks(jobs)
        running = 0
        try:
            while True:
                while running < backend.capacity and (chunk := next(chunks, None)):
                    backend.submit(chunk)
                    running += 1
                if not running:
                    return
                for outcome in backend.wait():
                    running -= 1
                    yield self.deliver(outcome.chunk, outcome.result)
        finally:
            backend.close()

    def deliver(self, chunk: Chunk, result: ChunkResult | Lost) -> RunProgress:
        """Write the results of a job."""
        (order,) = chunk.instances
        if isinstance(result, Lost):
            what = f"method '{order.method}' on set '{order.instance_set}'"
            raise RhumbError(f"{what}: {result.reason}")
        (latest,) = result.solutions.values()
        count = len(latest)
        append_results(self.out, latest)
        self.finished += count
        self.measured += count
        return self.progress(latest)

    def progress(self, latest: Sequence[Result]) -> RunProgress:
        """Return how far the run is."""
        seconds_left = None
        if self.measured:
            rest = self.total - self.finished
            seconds_left = rest * (time.monotonic() - self.start_time) / self.measured
        return RunProgress(self.finished, self.total, seconds_left, tuple(latest))


def job_chunks(jobs: Sequence[BenchJob]) -> Iterator[Chunk]:
    """Yield jobs in the form in which they are sent to processes."""
    for number, job in enumerate(jobs):
        method, instance_set = job.kind
        order = JobOrder(method, instance_set, job.seed, job.indices)
        yield Chunk(number, (number,), (order,))


def measure_chunk(chunk: Chunk, work: SuiteWork) -> ChunkResult:
    """Measure a job in a process that has its methods and sets ready."""
    (order,) = chunk.instances
    pair = prepared_pairs(work)[order.method, order.instance_set]
    job = BenchJob(pair, order.seed, order.indices)
    results: list[Any] = []
    for latest in measure_job(job, work.origin, lambda share, spent: None):
        results += latest
    return ChunkResult(chunk.number, {chunk.places[0]: results}, {})


def prepared_pairs(work: SuiteWork) -> dict[tuple[str, str], MethodOnSet]:
    """Return the methods and sets of a suite by their names, prepared once in a process."""
    if not PREPARED:
        pairs = prepare_pairs(work.suite, work.options)
        for pair in pairs:
            PREPARED[pair.method.name, pair.instance_set.spec.name] = pair
    return PREPARED
