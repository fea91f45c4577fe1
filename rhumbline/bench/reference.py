"""Makers of references: strong classical solvers on what a reference file lacks, in several
processes if wanted.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing import Pool, TimeoutError
from pathlib import Path
from typing import Any

import numpy as np

from rhumbline.bench import provenance
from rhumbline.bench.baselines import BASELINES, SolverTask
from rhumbline.bench.instance_sets import load_set, reference_path
from rhumbline.bench.reference_file import References, add_references, read_references
from rhumbline.bench.suite import SetSpec, Suite
from rhumbline.errors import Infeasible, InputError
from rhumbline.external import cpsat

PAUSE = 20.0  # seconds between two writes

BoundedSolve = Callable[
    [Any], tuple[float, float]
]  # from an instance to the cost of a checked plan and a bound, NaN if none


@dataclass(frozen=True)
class ReferenceSolver:
    """The solver that makes references of a problem, and its budget."""

    solver: str
    seconds: float | None = None
    settings: Mapping[str, int] = field(default_factory=dict[str, int])
    manner: str = "one thread"

    def with_seconds(self, seconds: float | None) -> "ReferenceSolver":
        """The same with the seconds of a user, if it takes any."""
        return (
            replace(self, seconds=seconds or self.seconds)
            if BASELINES[self.solver].needs_seconds
            else self
        )

    @property
    def description(self) -> str:
        """Who makes the costs and with which budget."""
        budget = [f"{name} {value}" for name, value in self.settings.items()]
        budget += [f"{self.seconds:g} s per instance"] if self.seconds else []
        return ", ".join([BASELINES[self.solver].versioned_title, *budget, self.manner])


REFERENCE_SOLVERS = {
    "tsp": ReferenceSolver("lkh", settings={"runs": 10}),
    "cvrp": ReferenceSolver("hgs", seconds=5.0),
    "jssp": ReferenceSolver("cpsat", seconds=60.0, manner="one thread, no linear relaxation"),
}


@dataclass(frozen=True)
class ReferenceOptions:
    """How to go about it."""

    workers: int = 1  # processes, one instance at a time each
    minutes: float = float("inf")
    again: bool = False  # also what has a cost, unless that is proven
    machine: str = ""  # in words; the processor if not given

    @property
    def made_on(self) -> str:
        """The day and the machine."""
        where = self.machine or provenance.processor_name()
        return f"{datetime.now(UTC):%Y-%m-%d}, {where}, {self.workers} process{'es' if self.workers > 1 else ''}"


@dataclass(frozen=True)
class ReferenceProgress:
    """How far a file is."""

    file: Path
    done: int
    total: int


def make_references(
    suite: Suite,
    specs: Sequence[SetSpec],
    effort: ReferenceOptions,
    *,
    limit: int | None = None,
    seconds: float | None = None,
    folders: Mapping[str, str] | None = None,
    made_elsewhere: Path | None = None,
) -> Iterator[ReferenceProgress]:
    """Solve what the files of some sets lack: for as many instances as the suite uses, or for the
    first `limit`.

    What files of the same names in the folder `made_elsewhere` have is taken over first.
    """
    named = [spec for spec in specs if spec.reference]
    if not named:
        raise InputError(f"suite '{suite.name}': no set that was asked for names a reference file")
    end = time.monotonic() + 60 * effort.minutes
    solves = effort.minutes > 0
    for spec in named:
        referee = REFERENCE_SOLVERS[spec.problem].with_seconds(seconds)
        if solves:  # taking files over needs no solver
            BASELINES[referee.solver].require()
        wanted = replace(spec, first=None) if limit else spec
        instances = load_set(wanted, suite.folder, folders, referenced=False).instances[:limit]
        effort = replace(effort, minutes=(end - time.monotonic()) / 60)
        file = reference_path(spec, suite.folder)
        if made_elsewhere and (made_elsewhere / file.name).exists():
            add_references(file, read_references(made_elsewhere / file.name))
        yield from fill_references(
            file, instances, bounded_solve(referee), referee.description, effort
        )


def bounded_solve(referee: ReferenceSolver) -> BoundedSolve:
    """A referee at work."""
    if referee.solver == "cpsat":
        return partial(solve_by_cpsat, seconds=referee.seconds or 0.0)
    return partial(solve_by_baseline, referee=referee)


def solve_by_baseline(instance: Any, referee: ReferenceSolver) -> tuple[float, float]:
    """By a solver that proves nothing."""
    plan = BASELINES[referee.solver].solve(
        SolverTask(instance, referee.seconds, 0, referee.settings)
    )
    return plan.cost(instance), np.nan


def solve_by_cpsat(instance: Any, seconds: float, hint: Any = None) -> tuple[float, float]:
    """By CP-SAT on one thread, which may prove that it is done; from a schedule, if there is
    one.
    """
    schedule, bound = cpsat.solve_with_bound(instance, seconds, hint)
    schedule.check(instance)
    return schedule.cost(instance), bound


def fill_references(
    file: Path,
    instances: Sequence[Any],
    judge: BoundedSolve,
    made_by: str,
    effort: ReferenceOptions,
) -> Iterator[ReferenceProgress]:
    """Solve the instances without a cost, and write now and then, and whatever ends it."""
    known = (read_references(file) if file.exists() else References.empty(0)).first(len(instances))
    settled = known.proven if effort.again else known.known
    todo = [(place, instances[place]) for place in np.flatnonzero(~settled).tolist()]
    found = References.empty(len(instances), made_by, effort.made_on)
    due = time.monotonic() + PAUSE
    yield ReferenceProgress(file, len(instances) - len(todo), len(instances))
    try:
        for number, (place, (cost, bound)) in enumerate(solve_all(judge, todo, effort), 1):
            found.cost[place], found.bound[place] = cost, bound
            if time.monotonic() >= due:
                add_references(file, found)
                due = time.monotonic() + PAUSE
            yield ReferenceProgress(file, len(instances) - len(todo) + number, len(instances))
    finally:
        if found.known.any():
            add_references(file, found)


def solve_all(
    judge: BoundedSolve, todo: Sequence[tuple[int, Any]], effort: ReferenceOptions
) -> Iterator[tuple[int, tuple[float, float]]]:
    """Places with cost and bound as they come, until all are there or the minutes have passed."""
    end = time.monotonic() + 60 * effort.minutes
    if effort.workers == 1:
        for work in todo:
            if time.monotonic() >= end:
                return
            yield solve_one(judge, work)
        return
    with Pool(
        effort.workers, initializer=ignore_interrupts
    ) as pool:  # solvers hold the interpreter lock and C globals
        results = pool.imap_unordered(partial(solve_one, judge), todo)
        for _ in todo:
            try:
                yield results.next(timeout=max(0.0, min(end - time.monotonic(), 1e6)))
            except TimeoutError:
                return


def solve_one(judge: BoundedSolve, work: tuple[int, Any]) -> tuple[int, tuple[float, float]]:
    """One instance, in whatever process; without a cost if nothing was found in time."""
    try:
        return work[0], judge(work[1])
    except Infeasible:
        return work[0], (np.nan, np.nan)


def ignore_interrupts() -> None:
    """Ctrl-C is for the process that keeps the file; it ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
