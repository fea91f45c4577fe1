"""The runner: all pairs of methods and sets of a suite, for all seeds, each result kept as soon as it is there."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from rhumbline.api import Group, find_device, policy_for, tasks
from rhumbline.baselines.methods import BASELINES, Work
from rhumbline.bench import machine
from rhumbline.bench.results import Key, Origin, Result, Warn, alone, append, origin_facts, resume
from rhumbline.bench.sets import BenchSet, load_set
from rhumbline.bench.suite import Method, Suite
from rhumbline.checkpoint import DEFAULT
from rhumbline.decoding import Engine
from rhumbline.errors import Infeasible, InputError
from rhumbline.policies import Policy
from rhumbline.problems import PROBLEMS
from rhumbline.problems.cvrp import from_arrays
from rhumbline.problems.schedule import from_arrays as shop_from_arrays
from rhumbline.problems.tsp import from_array
from rhumbline.search import STRATEGIES
from rhumbline.search.run import Budget, Progress, search
from rhumbline.search.solution import Solution
from rhumbline.search.strategy import usual_step
from rhumbline.search.task import Task
from rhumbline.tables import build

CPU_TOGETHER = 8  # instances between two results on a CPU
NOTE_PAUSE = 1.0  # seconds between two notes from within a piece of work
WARM_UP_SECONDS = 0.05  # of a classical solver on something tiny
TRACE_POINTS = 24  # kept of each search, evenly on a logarithmic scale


@dataclass(frozen=True)
class Options:
    """What the user chose beside the suite."""

    only: tuple[str, ...] = ()
    limit: int | None = None
    device: str = "auto"
    engine: Engine = "auto"
    threads: int | None = None
    folders: Mapping[str, str] = field(default_factory=dict[str, str])


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
Note = Callable[[float, str], None]  # the share of a piece that is done, and what is spent in words


@dataclass(frozen=True)
class Found:
    """One instance before it becomes a line: solved, or missing for a reason."""

    cost: float | None
    attempts: int | None
    seconds: float
    together: int
    trace: tuple[tuple[float, ...], ...] = ()
    missing: str = ""


class Runner(Protocol):
    """A method made ready for a problem."""

    solver: str
    hardware: str
    together: int

    def start(self, instance: Any) -> None:
        """Raise unless instances like this one can be begun."""
        ...

    def solve(self, instances: Sequence[Any], seed: int, note: Note) -> Iterator[list[tuple[int, Found]]]:
        """Places of instances with what was found, in as many pieces as memory demands."""
        ...


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


def can_solve(method: Method, problem: str) -> bool:
    """Whether a method is for a problem; unknown solvers are refused."""
    if method.solver == "policy":
        return True
    if method.solver not in BASELINES:
        known = ", ".join(["policy", *BASELINES])
        raise InputError(f"method '{method.name}': no solver '{method.solver}'; known: {known}")
    return problem in BASELINES[method.solver].solvers


def runner_for(method: Method, problem: str, options: Options) -> Runner:
    """A method made ready: weights loaded, settings checked, libraries found."""
    if method.solver == "policy":
        return searching(method, problem, options)
    baseline = BASELINES[method.solver]
    baseline.check(method.name, method.settings, method.seconds, method.attempts)
    baseline.require()
    return Classical(method, baseline.called + words(method.settings), f"{machine.processor()}, 1 thread")


def words(settings: Mapping[str, Any]) -> str:
    """Settings behind a name."""
    return "".join(f", {name} {value}" for name, value in settings.items())


@dataclass
class Classical:
    """A classical solver, one instance at a time."""

    method: Method
    solver: str
    hardware: str
    together: int = 1

    def start(self, instance: Any) -> None:
        """Settings and libraries have been looked at already."""

    def solve(self, instances: Sequence[Any], seed: int, note: Note) -> Iterator[list[tuple[int, Found]]]:
        """Each instance by itself; the clock starts when the library is there."""
        for place, instance in enumerate(instances):
            note(place / len(instances), "")
            loaded(self.method.solver, instance.problem)
            cost, missing, began = None, "", time.monotonic()
            try:
                work = Work(instance, self.method.seconds, seed, self.method.settings)
                cost = BASELINES[self.method.solver].solve(work).cost(instance)
            except Infeasible as error:
                missing = str(error)
            yield [(place, Found(cost, None, time.monotonic() - began, 1, missing=missing))]


@cache
def loaded(solver: str, problem: str) -> None:
    """Solve something tiny once in a process, so that importing a library, up to a second, is not measured."""
    baseline = BASELINES[solver]
    if baseline.package:
        with suppress(Infeasible):
            baseline.solve(Work(tiny(problem), WARM_UP_SECONDS if baseline.timed else None, 0, {}))


def tiny(problem: str) -> Any:
    """Six cities, a depot and five customers, or two jobs on two machines."""
    places = np.random.default_rng(0).random((6, 2))
    if problem == "tsp":
        return from_array(places)
    if problem == "cvrp":
        return from_arrays(places[0], places[1:], np.arange(1, 6), 10)
    return shop_from_arrays(np.array([[3, 2], [2, 4]]), np.array([[0, 1], [0, 1]]), "tiny")


def searching(method: Method, problem: str, options: Options) -> "Searching":
    """A search with its policy."""
    if method.strategy not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise InputError(f"method '{method.name}': no strategy '{method.strategy}'; known: {known}")
    device, weights = find_device(options.device), method.policy.replace("{problem}", problem)
    strategy = build(STRATEGIES[method.strategy], method.settings, f"method '{method.name}'")
    policy = policy_for(weights or None, problem)
    copies = f", {method.augment} copies" if method.augment > 1 else ""
    name = f"{method.strategy}{words(method.settings)}{copies}, policy {weights or DEFAULT[problem]}"
    where = machine.hardware(device, torch.get_num_threads())
    together = method.together or (CPU_TOGETHER if device.type == "cpu" else 1 << 30)
    return Searching(method, strategy, policy, device, options.engine, name, where, together)


@dataclass
class Searching:
    """A policy and a strategy on many instances at once."""

    method: Method
    strategy: Any
    policy: Policy[Any, Any, Any]
    device: torch.device
    engine: Engine
    solver: str
    hardware: str
    together: int
    warm: set[int] = field(default_factory=set[int])  # sizes that have been tried

    def start(self, instance: Any) -> None:
        """Refuse a policy that has not what the strategy searches, such as a latent space."""
        try:
            for _, task in self.tasks([instance], 0):
                self.strategy.init(task)
        except InputError as error:
            raise InputError(f"method '{self.method.name}' on {instance.problem}: {error}") from error

    def solve(self, instances: Sequence[Any], seed: int, note: Note) -> Iterator[list[tuple[int, Found]]]:
        """Groups of one shape, as large as memory allows; the clock starts before instances are encoded."""
        note(0.0, "warming up")
        self.warm_up(instances, seed)
        note(0.0, "")
        finished, began = 0, time.monotonic()
        for group, task in self.tasks(instances, seed):
            steps, together = list[Progress](), len(group.places)
            budget = self.method.budget(together)
            watch = watcher(steps, budget, partial(part_of, note, finished / len(instances), together / len(instances)))
            solutions, interrupted = search(self.strategy, task, budget, watch)
            finished += together
            if interrupted:  # the budget was not spent, so these are no results
                raise KeyboardInterrupt
            if not solutions:
                raise Infeasible(f"method '{self.method.name}': the search ended without a plan")
            seconds = time.monotonic() - began
            yield [
                (place, outcome(found, seconds, together, trace))
                for place, found, trace in zip(group.places, solutions, traces_of(steps), strict=True)
            ]
            began = time.monotonic()

    def warm_up(self, instances: Sequence[Any], seed: int) -> None:
        """A few attempts at each new size that do not count, so that compiling kernels is not measured.

        A GPU tries all instances of the size, because its kernels differ by how many there are; a CPU one of them.
        """
        fresh = [i for i in instances if i.size not in self.warm]
        one = list({i.size: i for i in fresh}.values())
        for _, task in self.tasks(one if self.device.type == "cpu" else fresh, seed):
            if search(self.strategy, task, warm_up_budget(task))[1]:
                raise KeyboardInterrupt
        self.warm |= {i.size for i in fresh}

    def tasks(self, instances: Sequence[Any], seed: int) -> Iterator[tuple[Group, Task]]:
        """Groups of one shape, each encoded when its turn comes."""
        policies, copies = {PROBLEMS[self.policy.problem].solves: self.policy}, self.method.augment
        return tasks(instances, policies, seed=seed, device=self.device, engine=self.engine, augment=copies)


def part_of(note: Note, before: float, share: float, done: float, spent: str) -> None:
    """Note where a part of a piece stands, given the share of the piece that came before it and its own."""
    note(before + share * done, spent)


def watcher(steps: list[Progress], budget: Budget, note: Note) -> Callable[[Progress], None]:
    """Keeps the steps of a search and notes how much of its budget is spent; reads nothing from the device."""

    def watch(progress: Progress) -> None:
        steps.append(progress)
        note(*spent_of(progress, budget))

    return watch


def spent_of(progress: Progress, budget: Budget) -> tuple[float, str]:
    """The share of a budget that is spent, by attempts or by the clock, whichever is more, and that one in words."""
    shares = [(0.0, "")]
    if budget.attempts:
        shares.append((progress.attempts / budget.attempts, f"{progress.attempts:,} of {budget.attempts:,} attempts"))
    if budget.seconds:
        shares.append((progress.seconds / budget.seconds, f"{progress.seconds:.0f} of {budget.seconds:.0f} s"))
    share, words = max(shares)
    return min(1.0, share), words


def warm_up_budget(task: Task) -> Budget:
    """Attempts after which all kernels are compiled: those of scoring too, on a GPU."""
    return Budget(attempts=1 if task.device.type == "cpu" else 2 * usual_step(task) * task.copies)


def outcome(found: Solution, seconds: float, together: int, trace: tuple[tuple[float, ...], ...]) -> Found:
    """What a search has found; a plan that does not keep a limit has no cost to compare."""
    if found.unmet:
        return Found(None, found.attempts, seconds, together, missing=found.unmet)
    return Found(found.cost, found.attempts, seconds, together, trace)


def traces_of(steps: Sequence[Progress]) -> list[tuple[tuple[float, ...], ...]]:
    """The way of each instance: attempts, seconds, best so far and best of the step, at a few of the steps."""
    kept = [steps[i] for i in thinned(len(steps))]
    best, latest = (np.array([getattr(p, name).tolist() for p in kept]).T for name in ("best", "latest"))
    when = [(p.attempts, round(p.seconds, 4)) for p in kept]
    return [
        tuple((*at, round(b, 6), round(n, 6)) for at, b, n in zip(when, bests, news, strict=True))
        for bests, news in zip(best.tolist(), latest.tolist(), strict=True)
    ]


def thinned(count: int) -> list[int]:
    """Up to `TRACE_POINTS` of so many steps, evenly on a logarithmic scale, the first and the last among them."""
    return np.unique(np.rint(np.geomspace(1, count, TRACE_POINTS)).astype(int) - 1).tolist()


def origin_of(suite: Suite, options: Options) -> Origin:
    """What the lines of this run have in common."""
    device = find_device(options.device)
    where = machine.hardware(device, torch.get_num_threads())
    both = where if device.type == "cpu" else f"{where}; {machine.processor()}"
    return Origin(suite.name, suite.digest, machine.commit(), both)


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
        versions=machine.versions(),
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
