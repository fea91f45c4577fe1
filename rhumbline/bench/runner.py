"""The runner: all pairs of methods and sets of a suite, for all seeds, each result kept as soon
as it is there.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import torch

from rhumbline.bench import provenance
from rhumbline.bench.instance_sets import InstanceSet, load_set
from rhumbline.bench.methods import (
    BenchOptions,
    MethodRunner,
    Outcome,
    ReportShare,
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
    origin_fields,
    refuse_packed,
    resume,
)
from rhumbline.bench.suite import Method, Suite
from rhumbline.errors import InputError
from rhumbline.pipeline import find_device

NOTE_PAUSE = 1.0  # seconds between two notes from within a piece of work


@dataclass(frozen=True)
class RunProgress:
    """How far a run is."""

    done: int
    total: int
    seconds_left: float | None  # seconds, if they can be guessed
    latest: tuple[Result, ...]
    current: "CurrentWork | None" = None


@dataclass(frozen=True)
class CurrentWork:
    """What is running within a piece of work."""

    set: str
    method: str
    spent: str  # of the budget, in words; nothing where nobody can tell


ProgressListener = Callable[[RunProgress], None]


@dataclass(frozen=True)
class MethodOnSet:
    """A method on a set."""

    method: Method
    instance_set: InstanceSet
    runner: MethodRunner


@dataclass
class BenchJob:
    """A piece of work: some instances of a pair with one seed."""

    pair: MethodOnSet
    seed: int
    places: tuple[int, ...]


def measure_suite(
    suite: Suite,
    out: Path,
    options: BenchOptions,
    warn: Warn,
    watch: ProgressListener | None = None,
) -> Iterator[RunProgress]:
    """Measure what the file lacks, yielding after every piece; everything is read and checked
    before any work.

    Within a piece `watch` is told now and then where it stands.
    """
    if options.threads:
        torch.set_num_threads(options.threads)
    refuse_packed(out)
    pairs = prepare_pairs(suite, options)
    origin = origin_of(suite, options)
    out.parent.mkdir(parents=True, exist_ok=True)
    with lock_results(out):
        done = resume(
            out, origin, {p.instance_set.spec.name: p.instance_set.digest for p in pairs}, warn
        )
        jobs = list(pending_jobs(pairs, suite.seeds, options.limit, done))
        total = count_results(pairs, suite.seeds, options.limit)
        yield from run_jobs(jobs, total, origin, out, watch)


def run_jobs(
    jobs: Sequence[BenchJob],
    total: int,
    origin: Origin,
    out: Path,
    watch: ProgressListener | None = None,
) -> Iterator[RunProgress]:
    """Piece by piece, each result on the disk before anybody hears of it."""
    finished = total - sum(len(j.places) for j in jobs)
    pace = TimeEstimate()
    yield RunProgress(finished, total, pace.seconds_left(jobs), ())
    for number, job in enumerate(jobs):
        began = time.monotonic()
        rest = jobs[number + 1 :]
        inside = JobProgress(job, rest, pace, watch, finished, total)
        for latest in run_job(job, origin, inside.note):
            append_results(out, latest)
            finished += len(latest)
            inside.done = finished
            yield RunProgress(finished, total, None, tuple(latest))
        pace.note(job, time.monotonic() - began)
        if rest:
            yield RunProgress(finished, total, pace.seconds_left(rest), ())


def prepare_pairs(suite: Suite, options: BenchOptions) -> list[MethodOnSet]:
    """Every method that is asked for, on every set that it is meant for and can solve."""
    specs, methods = suite.select(options.only)
    sets = [load_set(spec, suite.folder, options.folders) for spec in specs]
    pairs: list[MethodOnSet] = []
    for method in methods:
        mine = [
            s for s in sets if method.applies_to(s.spec.name) and can_solve(method, s.spec.problem)
        ]
        for one in mine:
            pairs.append(MethodOnSet(method, one, make_runner(method, one.spec.problem, options)))
            pairs[-1].runner.start(min(one.instances, key=lambda instance: instance.size))
    if not pairs:
        raise InputError(
            f"suite '{suite.name}': no method that was asked for solves a set that was asked for"
        )
    return pairs


def origin_of(suite: Suite, options: BenchOptions) -> Origin:
    """What the lines of this run have in common."""
    device = find_device(options.device)
    where = provenance.hardware_name(device, torch.get_num_threads())
    both = where if device.type == "cpu" else f"{where}; {provenance.processor_name()}"
    return Origin(suite.name, suite.digest, provenance.current_commit(), both)


def wanted_places(pair: MethodOnSet, limit: int | None) -> range:
    """Which instances of the set are wanted."""
    return range(len(pair.instance_set.instances))[:limit]


def count_results(pairs: Sequence[MethodOnSet], seeds: Sequence[int], limit: int | None) -> int:
    """All results of a complete run."""
    return len(seeds) * sum(len(wanted_places(pair, limit)) for pair in pairs)


def pending_jobs(
    pairs: Sequence[MethodOnSet],
    seeds: Sequence[int],
    limit: int | None,
    done: Mapping[ResultKey, Result],
) -> Iterator[BenchJob]:
    """What is still to do, in pieces."""
    for pair in pairs:
        name = pair.instance_set.spec.name
        instances = pair.instance_set.instances
        for seed in seeds:
            due = [
                place
                for place in wanted_places(pair, limit)
                if (pair.method.name, name, instances[place].name, seed) not in done
            ]
            for at in range(0, len(due), pair.runner.together):
                yield BenchJob(pair, seed, tuple(due[at : at + pair.runner.together]))


def run_job(job: BenchJob, origin: Origin, note: ReportShare) -> Iterator[list[Result]]:
    """The results of a piece of work."""
    instances = [job.pair.instance_set.instances[place] for place in job.places]
    for some in job.pair.runner.solve(instances, job.seed, note):
        yield [make_result(job, origin, job.places[at], found) for at, found in some]


def make_result(job: BenchJob, origin: Origin, place: int, found: Outcome) -> Result:
    """An instance with all facts."""
    method = job.pair.method
    instance_set = job.pair.instance_set
    runner = job.pair.runner
    spec = instance_set.spec
    instance = instance_set.instances[place]
    published = method.paper.get(spec.name)
    return Result(
        **origin_fields(origin),
        set=spec.name,
        set_hash=instance_set.digest,
        method=method.name,
        instance=instance.name,
        seed=job.seed,
        problem=spec.problem,
        size=instance.size,
        cost=found.cost,
        reference=instance_set.references[place],
        referee=instance_set.referee,
        attempts=found.attempts,
        seconds=round(found.seconds, 4),
        together=found.together,
        hardware=runner.hardware,
        solver=runner.solver,
        budget=method.spent,
        versions=provenance.library_versions(),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        trace=found.trace,
        paper=None if published is None else published / 100.0,
        power=spec.power,
        category=spec.category,
        family=method.family,
        missing=found.missing,
    )


@dataclass
class TimeEstimate:
    """How long work took so far, by method and set: what the rest will take."""

    spent: dict[tuple[str, str], tuple[float, int]] = field(
        default_factory=dict[tuple[str, str], tuple[float, int]]
    )

    def note(self, job: BenchJob, seconds: float) -> None:
        """Add a finished piece."""
        before, instances = self.spent.get(job_kind(job), (0.0, 0))
        self.spent[job_kind(job)] = (before + seconds, instances + len(job.places))

    def seconds_left(self, jobs: Sequence[BenchJob]) -> float | None:
        """Seconds that work still takes: by its own pace, its budget, or the mean pace; None if
        nothing is known.
        """
        guesses = [self.guess(job) for job in jobs]
        return None if None in guesses else sum(g for g in guesses if g is not None)

    def guess(self, job: BenchJob) -> float | None:
        """Seconds for one piece."""
        own = self.spent.get(job_kind(job))
        if own is None and job.pair.method.seconds is not None:
            return job.pair.method.seconds * len(job.places)
        seconds, instances = (
            own or map(sum, zip(*self.spent.values(), strict=True)) if self.spent else (0.0, 0)
        )
        return seconds / instances * len(job.places) if instances else None


@dataclass
class JobProgress:
    """Tells a watcher where a piece of work stands, seldom enough that it does not show in the
    times.
    """

    job: BenchJob
    rest: Sequence[BenchJob]
    pace: TimeEstimate
    watch: ProgressListener | None
    done: int
    total: int
    began: float = field(default_factory=time.monotonic)
    due: float = 0.0

    def note(self, share: float, spent: str) -> None:
        """Where the piece stands; its own time counts from the last moment at which nothing of
        it was done.
        """
        now = time.monotonic()
        self.began = self.began if share else now
        if self.watch is None or now < self.due:
            return
        self.due = now + NOTE_PAUSE
        method, name = job_kind(self.job)
        self.watch(
            RunProgress(
                self.done,
                self.total,
                self.seconds_left(share, now),
                (),
                CurrentWork(name, method, spent),
            )
        )

    def seconds_left(self, share: float, now: float) -> float | None:
        """Seconds of this piece at its own pace, and of the rest; None if nothing is known."""
        if not share:
            return None
        whole = (now - self.began) / share
        pace = TimeEstimate(dict(self.pace.spent))
        pace.note(self.job, whole)
        rest = pace.seconds_left(self.rest)
        return None if rest is None else rest + whole * (1.0 - share)


def job_kind(job: BenchJob) -> tuple[str, str]:
    """The method and set of a piece of work."""
    return job.pair.method.name, job.pair.instance_set.spec.name
