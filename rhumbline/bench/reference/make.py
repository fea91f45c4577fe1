"""Make references: solve with strong classical solvers what a reference file lacks."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing import Pool, TimeoutError
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rhumbline.bench import provenance
from rhumbline.bench.baselines import BASELINES, SolverTask
from rhumbline.bench.instance_sets import load_set, reference_path
from rhumbline.bench.problems import BENCH_PROBLEMS, ReferenceSolver, find_bench_problem
from rhumbline.bench.reference.file import References, add_references, read_references
from rhumbline.bench.suite import SetSpec, Suite
from rhumbline.errors import Infeasible, InputError
from rhumbline.external import cpsat

# From an instance to the cost of a checked plan and a lower bound, which is NaN if there is none
BoundedSolve = Callable[[Any], tuple[float, float]]


@dataclass(frozen=True)
class ReferenceTuning:
    """Numbers that decide how references are made."""

    seconds_between_writes: float = 20.0
    # A pool of processes does not wait for an infinite time.
    max_wait_seconds: float = 1e6


TUNING = ReferenceTuning()


@dataclass(frozen=True)
class ReferenceOptions:
    """How much work goes into references, and on which machine."""

    # Number of processes, each of which solves one instance at a time
    workers: int = 1
    minutes: float = float("inf")
    # Also solve instances that have a cost, unless it is proven
    again: bool = False
    # The machine in words, by default its processor
    machine: str = ""
    # Per instance, for solvers that take them; by default those of the reference solver
    seconds: float | None = None
    # A folder whose files of the same names are merged first
    merge_from: Path | None = None

    @property
    def made_on(self) -> str:
        """The day, the machine and the number of processes."""
        today = datetime.now(UTC)
        machine = self.machine or provenance.processor_name()
        processes = f"{self.workers} process"
        if self.workers > 1:
            processes += "es"
        return f"{today:%Y-%m-%d}, {machine}, {processes}"


@dataclass(frozen=True)
class ReferenceProgress:
    """How far a reference file is."""

    file: Path
    # Number of instances with a cost, and of all instances
    done: int
    total: int


class SolvedInstance(NamedTuple):
    """The cost and the bound of an instance, NaN where there is none."""

    place: int
    cost: float
    bound: float


def make_references(
    suite: Suite,
    specs: Sequence[SetSpec],
    options: ReferenceOptions,
    *,
    limit: int | None = None,
    folders: Mapping[str, str] | None = None,
) -> Iterator[ReferenceProgress]:
    """Solve the instances that the reference files of some sets lack, and yield the progress.

    These are as many instances as the suite uses, or the first `limit`. `folders` holds what the
    $NAMES in file patterns stand for.
    """
    specs = [spec for spec in specs if spec.reference]
    if not specs:
        raise InputError(f"suite '{suite.name}': no set that was asked for names a reference file")
    end = time.monotonic() + 60 * options.minutes
    for spec in specs:
        solver = find_reference_solver(spec.problem).with_seconds(options.seconds)
        if options.minutes > 0:  # Merging files needs no solver.
            BASELINES[solver.solver].require()
        wanted = replace(spec, first=None) if limit else spec
        instance_set = load_set(wanted, suite.folder, folders, referenced=False)
        minutes_left = (end - time.monotonic()) / 60
        file = reference_path(spec, suite.folder)
        if options.merge_from:
            merge_file(file, options.merge_from / file.name)
        yield from fill_references(
            file,
            instance_set.instances[:limit],
            make_solve(solver),
            solver.description,
            replace(options, minutes=minutes_left),
        )


def find_reference_solver(problem: str) -> ReferenceSolver:
    """Return the solver that makes the references of a problem. Raises if there is none."""
    solver = find_bench_problem(problem).reference
    if solver is None:
        known = [name for name, found in BENCH_PROBLEMS.items() if found.reference]
        raise InputError(
            f"references for {problem}: no classical solver is known for it, only for "
            f"{', '.join(known)}; leave its sets out with --only"
        )
    return solver


def merge_file(file: Path, other: Path) -> None:
    """Add the references of another file, if it exists."""
    if other.exists():
        add_references(file, read_references(other))


def make_solve(solver: ReferenceSolver) -> BoundedSolve:
    """Return a function that solves an instance with a reference solver and its budget."""
    if solver.solver == "cpsat":
        return partial(solve_by_cpsat, seconds=solver.seconds or 0.0)
    return partial(solve_by_baseline, solver=solver)


def solve_by_baseline(instance: Any, solver: ReferenceSolver) -> tuple[float, float]:
    """Solve an instance with a solver that proves no bound."""
    task = SolverTask(instance, solver.seconds, 0, solver.settings)
    baseline = BASELINES[solver.solver]
    plan = baseline.solve(task)
    return plan.cost(instance), np.nan


def solve_by_cpsat(instance: Any, seconds: float, hint: Any = None) -> tuple[float, float]:
    """Solve an instance with CP-SAT on one thread, which may prove that its plan is optimal.

    `hint` is a schedule to start from.
    """
    schedule, bound = cpsat.solve_with_bound(instance, seconds, hint)
    schedule.check(instance)
    return schedule.cost(instance), bound


def fill_references(
    file: Path,
    instances: Sequence[Any],
    solve: BoundedSolve,
    made_by: str,
    options: ReferenceOptions,
) -> Iterator[ReferenceProgress]:
    """Solve the instances that have no cost in a file, and yield the progress.

    The file is written every 20 s, and at the end, whatever causes it.
    """
    total = len(instances)
    stored = read_references(file) if file.exists() else References.empty(0)
    stored = stored.first(total)
    is_done = stored.is_proven if options.again else stored.has_cost
    pending = [(place, instances[place]) for place in np.flatnonzero(~is_done).tolist()]
    done = total - len(pending)
    found = References.empty(total, made_by, options.made_on)
    next_write = time.monotonic() + TUNING.seconds_between_writes
    yield ReferenceProgress(file, done, total)
    try:
        for solved in solve_all(solve, pending, options):
            found.cost[solved.place] = solved.cost
            found.bound[solved.place] = solved.bound
            done += 1
            if time.monotonic() >= next_write:
                add_references(file, found)
                next_write = time.monotonic() + TUNING.seconds_between_writes
            yield ReferenceProgress(file, done, total)
    finally:
        if found.has_cost.any():
            add_references(file, found)


def solve_all(
    solve: BoundedSolve, pending: Sequence[tuple[int, Any]], options: ReferenceOptions
) -> Iterator[SolvedInstance]:
    """Yield solved instances as they come, until all are solved or the minutes have passed."""
    end = time.monotonic() + 60 * options.minutes
    if options.workers == 1:
        for place_and_instance in pending:
            if time.monotonic() >= end:
                return
            yield solve_one(solve, place_and_instance)
        return
    # Processes, because solvers hold the interpreter lock and have global variables in C.
    with Pool(options.workers, initializer=leave_interrupts_to_parent) as pool:
        results = pool.imap_unordered(partial(solve_one, solve), pending)
        for _ in pending:
            seconds_left = min(end - time.monotonic(), TUNING.max_wait_seconds)
            try:
                yield results.next(timeout=max(0.0, seconds_left))
            except TimeoutError:
                return


def solve_one(solve: BoundedSolve, place_and_instance: tuple[int, Any]) -> SolvedInstance:
    """Solve one instance, in whatever process."""
    place, instance = place_and_instance
    try:
        cost, bound = solve(instance)
    except Infeasible:
        return SolvedInstance(place, np.nan, np.nan)
    return SolvedInstance(place, cost, bound)


def leave_interrupts_to_parent() -> None:
    """Ignore Ctrl-C, which is for the process that writes the file. That one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
