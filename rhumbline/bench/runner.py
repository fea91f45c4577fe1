"""Run a suite: every method on every set for every seed.

Each result is on the disk before the next one is measured, so that a run can be interrupted and
continued at any time.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from glob import glob
from pathlib import Path
from typing import ClassVar

import torch

from rhumbline.bench import provenance
from rhumbline.bench.instance_sets import InstanceSet, expand_folders, load_set
from rhumbline.bench.methods import (
    BenchOptions,
    MethodRunner,
    Outcome,
    ReportShare,
    SearchRunner,
    can_solve,
    make_runner,
)
from rhumbline.bench.results import (
    Origin,
    Result,
    ResultKey,
    Warn,
    append_results,
    lock_results,
    refuse_packed,
    resume,
)
from rhumbline.bench.suite import Method, Suite
from rhumbline.distributed.backends.processes import plan_workers
from rhumbline.errors import InputError
from rhumbline.pipeline import find_device


@dataclass(frozen=True)
class CurrentWork:
    """The job that is running."""

    set: str
    method: str
    # How much of its budget is spent, as text; empty if that is unknown
    spent: str


@dataclass(frozen=True)
class RunProgress:
    """How far a run has come."""

    # The number of results on the disk, and the number of results of the complete run
    done: int
    total: int
    # An estimate, if there is one
    seconds_left: float | None
    # The results since the last report
    latest: tuple[Result, ...]
    current: CurrentWork | None = None


ProgressListener = Callable[[RunProgress], None]


@dataclass(frozen=True)
class MethodOnSet:
    """A method and a set that it solves."""

    method: Method
    instance_set: InstanceSet
    runner: MethodRunner


@dataclass
class BenchJob:
    """Some instances of a set, by their `indices` in it, for one method and one seed."""

    pair: MethodOnSet
    seed: int
    indices: tuple[int, ...]

    @property
    def kind(self) -> tuple[str, str]:
        """The names of the method and of the set."""
        set_name = self.pair.instance_set.spec.name
        return self.pair.method.name, set_name


def measure_suite(
    suite: Suite,
    out: Path,
    options: BenchOptions,
    warn: Warn,
    listener: ProgressListener | None = None,
) -> Iterator[RunProgress]:
    """Measure what the file `out` lacks, and yield the progress after each group of results.

    Everything is read and checked before any work. While a job runs, `listener` is called about
    once a second.
    """
    plan = plan_workers(options.workers, options.device, options.threads)
    threads = plan.threads if options.workers else options.threads
    if threads:
        torch.set_num_threads(threads)
    refuse_packed(out)
    pairs = prepare_pairs(suite, options)
    origin = origin_of(suite, options)
    digests = {pair.instance_set.spec.name: pair.instance_set.digest for pair in pairs}
    out.parent.mkdir(parents=True, exist_ok=True)
    with lock_results(out):
        done = resume(out, origin, digests, warn)
        jobs = list(pending_jobs(pairs, suite.seeds, options.limit, done))
        total = count_results(pairs, suite.seeds, options.limit)
        if options.workers:
            from rhumbline.bench.parallel import ParallelRun, SuiteWork

            work = SuiteWork(suite, options, origin)
            finished = total - sum(len(job.indices) for job in jobs)
            yield from ParallelRun(work, out, total, finished).run(jobs, plan)
        else:
            yield from run_jobs(jobs, total, origin, out, listener)


def run_jobs(
    jobs: Sequence[BenchJob],
    total: int,
    origin: Origin,
    out: Path,
    listener: ProgressListener | None = None,
) -> Iterator[RunProgress]:
    """Run jobs and write their results. Every yielded result is on the disk already."""
    finished = total - sum(len(job.indices) for job in jobs)
    estimate = TimeEstimate()
    yield RunProgress(finished, total, estimate.seconds_left(jobs), ())
    for number, job in enumerate(jobs):
        began = time.monotonic()
        rest = jobs[number + 1 :]
        progress = JobProgress(job, rest, estimate, listener, finished, total)
        for latest in measure_job(job, origin, progress.report):
            append_results(out, latest)
            finished += len(latest)
            progress.done = finished
            yield RunProgress(finished, total, None, tuple(latest))
        estimate.add_job(job, time.monotonic() - began)
        if rest:
            yield RunProgress(finished, total, estimate.seconds_left(rest), ())


def prepare_pairs(suite: Suite, options: BenchOptions) -> list[MethodOnSet]:
    """Return each selected method with each selected set that it applies to and can solve.

    The smallest instance of each set shows whether the method can start at all.
    """
    specs, methods = suite.select(options.only)
    sets = [load_set(spec, suite.folder, options.folders) for spec in specs]
    pairs: list[MethodOnSet] = []
    for method in methods:
        suitable = [
            instance_set
            for instance_set in sets
            if method.applies_to(instance_set.spec.name)
            and can_solve(method, instance_set.spec.problem)
        ]
        for instance_set in suitable:
            runner = make_runner(method, instance_set.spec.problem, options)
            if isinstance(runner, SearchRunner) and method.warm_start:
                paths = plan_files(method, suite.folder, options.folders)
                runner.start_from(instance_set.instances, paths)
            pairs.append(MethodOnSet(method, instance_set, runner))
            smallest = min(instance_set.instances, key=lambda instance: instance.size)
            runner.check(smallest)
    if not pairs:
        raise InputError(
            f"suite '{suite.name}': no method that was asked for solves a set that was asked for"
        )
    return pairs


def plan_files(method: Method, folder: Path, folders: Mapping[str, str]) -> list[Path]:
    """Return the files with the plans that a method starts from; raise if there is none."""
    what = f"the warm start of method '{method.name}'"
    pattern = folder / expand_folders(what, method.warm_start, folders)
    paths = [Path(found) for found in sorted(glob(str(pattern)))]
    if not paths:
        raise InputError(f"method '{method.name}': no plan is called {pattern}")
    return paths


def origin_of(suite: Suite, options: BenchOptions) -> Origin:
    """Return what all lines of a run have in common."""
    device = find_device(options.device)
    machine = provenance.hardware_name(device, torch.get_num_threads())
    if device.type != "cpu":
        machine = f"{machine}; {provenance.processor_name()}"
    if options.workers:  # which share the caches and the memory, so that times differ
        machine = f"{machine}; {options.workers} at a time"
    return Origin(
        suite=suite.name,
        suite_hash=suite.digest,
        commit=provenance.current_commit(),
        machine=machine,
    )


def wanted_indices(pair: MethodOnSet, limit: int | None) -> range:
    """Return the indices of the instances to solve: all, or the first `limit`."""
    count = len(pair.instance_set.instances)
    return range(count)[:limit]


def count_results(pairs: Sequence[MethodOnSet], seeds: Sequence[int], limit: int | None) -> int:
    """Return the number of results of a complete run."""
    count = 0
    for pair in pairs:
        count += len(seeds) * len(wanted_indices(pair, limit))
    return count


def pending_jobs(
    pairs: Sequence[MethodOnSet],
    seeds: Sequence[int],
    limit: int | None,
    done: Mapping[ResultKey, Result],
) -> Iterator[BenchJob]:
    """Yield jobs for all missing results; a job has as many instances as its method batches."""
    for pair in pairs:
        set_name = pair.instance_set.spec.name
        instances = pair.instance_set.instances
        size = pair.runner.together
        for seed in seeds:
            pending = [
                index
                for index in wanted_indices(pair, limit)
                if (pair.method.name, set_name, instances[index].name, seed) not in done
            ]
            for first in range(0, len(pending), size):
                indices = pending[first : first + size]
                yield BenchJob(pair, seed, tuple(indices))


def measure_job(job: BenchJob, origin: Origin, report: ReportShare) -> Iterator[list[Result]]:
    """Run a job and yield its results in groups, as they come."""
    pair = job.pair
    instances = [pair.instance_set.instances[index] for index in job.indices]
    for outcomes in pair.runner.solve(instances, job.seed, report):
        yield [
            make_result(job, origin, job.indices[position], outcome)
            for position, outcome in outcomes
        ]


def make_result(job: BenchJob, origin: Origin, index: int, outcome: Outcome) -> Result:
    """Return the result of an instance with everything that is known about it."""
    method = job.pair.method
    instance_set = job.pair.instance_set
    runner = job.pair.runner
    spec = instance_set.spec
    instance = instance_set.instances[index]
    published = method.paper.get(spec.name)
    return Result(
        **asdict(origin),
        set=spec.name,
        set_hash=instance_set.digest,
        method=method.name,
        instance=instance.name,
        seed=job.seed,
        problem=spec.problem,
        size=instance.size,
        cost=outcome.cost,
        reference=instance_set.references[index],
        referee=instance_set.referee,
        attempts=outcome.attempts,
        seconds=round(outcome.seconds, 4),
        together=outcome.together,
        hardware=runner.hardware,
        solver=runner.solver,
        budget=method.budget_text,
        versions=provenance.library_versions(),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        trace=outcome.trace,
        paper=None if published is None else published / 100.0,
        power=spec.power,
        category=spec.category,
        family=method.family,
        missing=outcome.missing,
    )


@dataclass(frozen=True)
class TimeSpent:
    """The seconds that a number of instances took."""

    seconds: float = 0.0
    instances: int = 0

    def __add__(self, other: "TimeSpent") -> "TimeSpent":
        seconds = self.seconds + other.seconds
        instances = self.instances + other.instances
        return TimeSpent(seconds, instances)


@dataclass
class TimeEstimate:
    """The time that finished jobs took, by method and set, and what the rest will take."""

    spent: dict[tuple[str, str], TimeSpent] = field(
        default_factory=dict[tuple[str, str], TimeSpent]
    )

    def add_job(self, job: BenchJob, seconds: float) -> None:
        """Count a finished job."""
        kind = job.kind
        instances = len(job.indices)
        nothing = TimeSpent()
        before = self.spent.get(kind, nothing)
        spent = TimeSpent(seconds, instances)
        self.spent[kind] = before + spent

    def seconds_left(self, jobs: Sequence[BenchJob]) -> float | None:
        """Return an estimate for all these jobs, or None if one of them has none."""
        total = 0.0
        for job in jobs:
            seconds = self.estimate(job)
            if seconds is None:
                return None
            total += seconds
        return total

    def estimate(self, job: BenchJob) -> float | None:
        """Estimate the seconds of a job.

        It uses the pace of the same method on the same set, else the budget in seconds, else the
        mean pace of all jobs. It returns None before any job has finished.
        """
        spent = self.spent.get(job.kind)
        if spent is None and job.pair.method.seconds is not None:
            return job.pair.method.seconds * len(job.indices)
        if spent is None:
            spent = sum(self.spent.values(), start=TimeSpent())
        if not spent.instances:
            return None
        return spent.seconds / spent.instances * len(job.indices)


@dataclass
class JobProgress:
    """Reports how far a job is, so rarely that measured times do not change."""

    seconds_between_reports: ClassVar[float] = 1.0

    job: BenchJob
    rest: Sequence[BenchJob]
    estimate: TimeEstimate
    listener: ProgressListener | None
    # The number of results on the disk, and the number of results of the complete run
    done: int
    total: int
    # Times on the monotonic clock: when the job began, and when the next report is due
    began: float = field(default_factory=time.monotonic)
    due: float = 0.0

    def report(self, share: float, spent: str) -> None:
        """Report the share of the job that is done, and what it has spent, as text.

        A share of 0 restarts the clock, so warm-up is not timed.
        """
        now = time.monotonic()
        if not share:
            self.began = now
        is_early = now < self.due
        if self.listener is None or is_early:
            return
        self.due = now + self.seconds_between_reports
        method_name, set_name = self.job.kind
        current = CurrentWork(set_name, method_name, spent)
        seconds_left = self.seconds_left(share, now)
        progress = RunProgress(self.done, self.total, seconds_left, (), current)
        self.listener(progress)

    def seconds_left(self, share: float, now: float) -> float | None:
        """Estimate the seconds that the job and all later ones take, or return None."""
        if not share:
            return None
        job_seconds = (now - self.began) / share
        estimate = TimeEstimate(dict(self.estimate.spent))
        estimate.add_job(self.job, job_seconds)
        rest = estimate.seconds_left(self.rest)
        if rest is None:
            return None
        return rest + job_seconds * (1.0 - share)
