"""The runner: all pairs of methods and sets of a suite, for all seeds, each result kept as soon as it is there."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import torch

from rhumbline.api import find_device
from rhumbline.bench import provenance
from rhumbline.bench.instance_sets import BenchSet, load_set
from rhumbline.bench.methods import Found, Note, Options, Runner, can_solve, runner_for
from rhumbline.bench.results import Key, Origin, Result, Warn, alone, append, origin_facts, refuse_packed, resume
from rhumbline.bench.suite import Method, Suite
from rhumbline.errors import InputError

NOTE_PAUSE = 1.0  # seconds between two notes from within a piece of work


@dataclass(frozen=True)
class Standing:
    """How far a run is."""

    done: int
    total: int
    left: float | None  # seconds, if they can be guessed
    latest: tuple[Result, ...]
    doing: "Doing | None" = None


@dataclass(frozen=True)
class Doing:
    """What is running within a piece of work."""

    set: str
    method: str
    spent: str  # of the budget, in words; nothing where nobody can tell


Watch = Callable[[Standing], None]


@dataclass(frozen=True)
class Pair:
    """A method on a set."""

    method: Method
    bench_set: BenchSet
    runner: Runner


@dataclass
class Job:
    """A piece of work: some instances of a pair with one seed."""

    pair: Pair
    seed: int
    places: tuple[int, ...]


def run(suite: Suite, out: Path, options: Options, warn: Warn, watch: Watch | None = None) -> Iterator[Standing]:
    """Measure what the file lacks, yielding after every piece; everything is read and checked before any work.

    Within a piece `watch` is told now and then where it stands.
    """
    if options.threads:
        torch.set_num_threads(options.threads)
    refuse_packed(out)
    pairs, origin = prepare(suite, options), origin_of(suite, options)
    out.parent.mkdir(parents=True, exist_ok=True)
    with alone(out):
        done = resume(out, origin, {p.bench_set.spec.name: p.bench_set.digest for p in pairs}, warn)
        jobs, total = list(pending(pairs, suite.seeds, options.limit, done)), count(pairs, suite.seeds, options.limit)
        yield from work_off(jobs, total, origin, out, watch)


def work_off(
    jobs: Sequence[Job], total: int, origin: Origin, out: Path, watch: Watch | None = None
) -> Iterator[Standing]:
    """Piece by piece, each result on the disk before anybody hears of it."""
    finished, pace = total - sum(len(j.places) for j in jobs), Pace()
    yield Standing(finished, total, pace.left(jobs), ())
    for number, job in enumerate(jobs):
        began, rest = time.monotonic(), jobs[number + 1 :]
        inside = Inside(job, rest, pace, watch, finished, total)
        for latest in measure(job, origin, inside.note):
            append(out, latest)
            finished += len(latest)
            inside.done = finished
            yield Standing(finished, total, None, tuple(latest))
        pace.note(job, time.monotonic() - began)
        if rest:
            yield Standing(finished, total, pace.left(rest), ())


def prepare(suite: Suite, options: Options) -> list[Pair]:
    """Every method that is asked for, on every set that it is meant for and can solve."""
    specs, methods = suite.chosen(options.only)
    sets = [load_set(spec, suite.folder, options.folders) for spec in specs]
    pairs: list[Pair] = []
    for method in methods:
        mine = [s for s in sets if method.wants(s.spec.name) and can_solve(method, s.spec.problem)]
        for one in mine:
            pairs.append(Pair(method, one, runner_for(method, one.spec.problem, options)))
            pairs[-1].runner.start(min(one.instances, key=lambda instance: instance.size))
    if not pairs:
        raise InputError(f"suite '{suite.name}': no method that was asked for solves a set that was asked for")
    return pairs


def origin_of(suite: Suite, options: Options) -> Origin:
    """What the lines of this run have in common."""
    device = find_device(options.device)
    where = provenance.hardware(device, torch.get_num_threads())
    both = where if device.type == "cpu" else f"{where}; {provenance.processor()}"
    return Origin(suite.name, suite.digest, provenance.commit(), both)


def places_of(pair: Pair, limit: int | None) -> range:
    """Which instances of the set are wanted."""
    return range(len(pair.bench_set.instances))[:limit]


def count(pairs: Sequence[Pair], seeds: Sequence[int], limit: int | None) -> int:
    """All results of a complete run."""
    return len(seeds) * sum(len(places_of(pair, limit)) for pair in pairs)


def pending(
    pairs: Sequence[Pair], seeds: Sequence[int], limit: int | None, done: Mapping[Key, Result]
) -> Iterator[Job]:
    """What is still to do, in pieces."""
    for pair in pairs:
        name, instances = pair.bench_set.spec.name, pair.bench_set.instances
        for seed in seeds:
            due = [
                place
                for place in places_of(pair, limit)
                if (pair.method.name, name, instances[place].name, seed) not in done
            ]
            for at in range(0, len(due), pair.runner.together):
                yield Job(pair, seed, tuple(due[at : at + pair.runner.together]))


def measure(job: Job, origin: Origin, note: Note) -> Iterator[list[Result]]:
    """The results of a piece of work."""
    instances = [job.pair.bench_set.instances[place] for place in job.places]
    for some in job.pair.runner.solve(instances, job.seed, note):
        yield [line(job, origin, job.places[at], found) for at, found in some]


def line(job: Job, origin: Origin, place: int, found: Found) -> Result:
    """An instance with all facts."""
    method, bench_set, runner = job.pair.method, job.pair.bench_set, job.pair.runner
    spec, instance = bench_set.spec, bench_set.instances[place]
    published = method.paper.get(spec.name)
    return Result(
        **origin_facts(origin),
        set=spec.name,
        set_hash=bench_set.digest,
        method=method.name,
        instance=instance.name,
        seed=job.seed,
        problem=spec.problem,
        size=instance.size,
        cost=found.cost,
        reference=bench_set.references[place],
        referee=bench_set.referee,
        attempts=found.attempts,
        seconds=round(found.seconds, 4),
        together=found.together,
        hardware=runner.hardware,
        solver=runner.solver,
        budget=method.spent,
        versions=provenance.versions(),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        trace=found.trace,
        paper=None if published is None else published / 100.0,
        power=spec.power,
        category=spec.category,
        family=method.family,
        missing=found.missing,
    )


@dataclass
class Pace:
    """How long work took so far, by method and set: what the rest will take."""

    spent: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict[tuple[str, str], tuple[float, int]])

    def note(self, job: Job, seconds: float) -> None:
        """Add a finished piece."""
        before, instances = self.spent.get(kind(job), (0.0, 0))
        self.spent[kind(job)] = (before + seconds, instances + len(job.places))

    def left(self, jobs: Sequence[Job]) -> float | None:
        """Seconds that work still takes: by its own pace, its budget, or the mean pace; None if nothing is known."""
        guesses = [self.guess(job) for job in jobs]
        return None if None in guesses else sum(g for g in guesses if g is not None)

    def guess(self, job: Job) -> float | None:
        """Seconds for one piece."""
        own = self.spent.get(kind(job))
        if own is None and job.pair.method.seconds is not None:
            return job.pair.method.seconds * len(job.places)
        seconds, instances = own or map(sum, zip(*self.spent.values(), strict=True)) if self.spent else (0.0, 0)
        return seconds / instances * len(job.places) if instances else None


@dataclass
class Inside:
    """Tells a watcher where a piece of work stands, seldom enough that it does not show in the times."""

    job: Job
    rest: Sequence[Job]
    pace: Pace
    watch: Watch | None
    done: int
    total: int
    began: float = field(default_factory=time.monotonic)
    due: float = 0.0

    def note(self, share: float, spent: str) -> None:
        """Where the piece stands; its own time counts from the last moment at which nothing of it was done."""
        now = time.monotonic()
        self.began = self.began if share else now
        if self.watch is None or now < self.due:
            return
        self.due = now + NOTE_PAUSE
        method, name = kind(self.job)
        self.watch(Standing(self.done, self.total, self.left(share, now), (), Doing(name, method, spent)))

    def left(self, share: float, now: float) -> float | None:
        """Seconds of this piece at its own pace, and of the rest; None if nothing is known."""
        if not share:
            return None
        whole, pace = (now - self.began) / share, Pace(dict(self.pace.spent))
        pace.note(self.job, whole)
        rest = pace.left(self.rest)
        return None if rest is None else rest + whole * (1.0 - share)


def kind(job: Job) -> tuple[str, str]:
    """The method and set of a piece of work."""
    return job.pair.method.name, job.pair.bench_set.spec.name
