"""Job-shop instances and schedules on the host, exact. Nothing here needs PyTorch.

A job is a chain of operations, each on one machine for a whole number of time units. Jobs may
differ in length, and may skip or revisit machines. Operations may have duration 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np

from rhumbline.errors import Infeasible, InputError, shorten


@dataclass(frozen=True)
class JobShopLimits:
    """The largest job shops that the package solves."""

    max_jobs: int = 100
    max_machines: int = 100
    max_cells: int = 2_500  # jobs times operations of the longest: 100 jobs of 20, and some room
    max_horizon: int = 2**31 - 1  # sum of all durations; devices count time in 32 bits
    max_time: int = 10**15 - 1  # of a plan; files have as many digits, float64 holds them all
    time_advice: str = "expected at most 15 digits; use a coarser unit of time"


LIMITS = JobShopLimits()

Table = tuple[tuple[int, ...], ...]  # a row for each job


class Operation(NamedTuple):
    """One step of a job. Jobs, steps and machines count from 0."""

    job: int
    step: int
    machine: int
    duration: int


@dataclass(frozen=True)
class JSSPInstance:
    """One instance: the duration and the machine (0..M-1) of each operation of each job."""

    problem = "jssp"
    has_integer_costs = True  # makespans are whole numbers

    name: str
    durations: Table
    machines: Table
    machine_count: int  # M; some machines may have no operation
    first_machine: int = 0  # the number that the file gives to machine 0
    best_known: float | None = None

    def __post_init__(self) -> None:
        self.check_shape()
        for operation in self.operations:
            self.check_operation(operation)
        if self.horizon > LIMITS.max_horizon:
            found = f"all durations together are {self.horizon:,}"
            limit = f"at most {LIMITS.max_horizon:,} are supported"
            raise self.error(f"{found}, {limit}; use a coarser unit of time")

    def error(self, message: str) -> InputError:
        """Return an error that names this instance."""
        return InputError(f"{shorten(self.name)}: {message}")

    def check_shape(self) -> None:
        """Raise unless numbers of jobs, machines and operations are consistent and supported."""
        jobs = self.job_count
        machines = self.machine_count
        lengths = [len(row) for row in self.durations]
        if lengths != [len(row) for row in self.machines]:
            expected = "expected one of each per operation"
            raise self.error(f"durations and machines differ in shape, {expected}")
        if not 1 <= jobs <= LIMITS.max_jobs:
            supported = f"1 to {LIMITS.max_jobs} are supported"
            raise self.error(f"has {jobs} jobs; {supported}")
        if not 1 <= machines <= LIMITS.max_machines:
            supported = f"1 to {LIMITS.max_machines} are supported"
            raise self.error(f"has {shorten(machines)} machines; {supported}")
        if 0 in lengths:
            job = lengths.index(0) + 1
            advice = "expected at least one; remove it"
            raise self.error(f"job {job} has no operation, {advice}")
        longest = max(lengths)
        if longest * jobs > LIMITS.max_cells:
            found = f"{jobs} jobs with up to {longest} operations"
            limit = f"the product may be {LIMITS.max_cells:,} at most"
            raise self.error(f"has {found}; {limit}")

    def check_operation(self, operation: Operation) -> None:
        """Raise unless the duration is 0 or more and the machine exists."""
        who = self.describe(operation)
        _, _, machine, duration = operation
        if not 0 <= duration <= LIMITS.max_time:
            found = f"{who} takes {shorten(duration)}"
            expected = "expected 0 or more"
            if duration > 0:
                expected = LIMITS.time_advice
            raise self.error(f"{found}, {expected}")
        if not 0 <= machine < self.machine_count:
            first = self.first_machine
            last = first + self.machine_count - 1
            number = machine + first
            found = f"is on machine {shorten(number)}"
            raise self.error(f"{who} {found}, expected {first} to {last}")

    @property
    def job_count(self) -> int:
        """Return the number of jobs."""
        return len(self.durations)

    @cached_property
    def size(self) -> int:
        """Return the number of operations."""
        return sum(map(len, self.durations))

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Return what instances of one batch share: jobs, operations of the longest, machines."""
        return self.job_count, max(map(len, self.durations)), self.machine_count

    @property
    def details(self) -> str:
        """Return the numbers of jobs and machines, for users."""
        jobs = count_with_noun(self.job_count, "job")
        machines = count_with_noun(self.machine_count, "machine")
        return f"{jobs}, {machines}"

    @cached_property
    def horizon(self) -> int:
        """Return the sum of all durations: no sensible schedule takes longer."""
        return sum(map(sum, self.durations))

    @property
    def operations(self) -> Iterator[Operation]:
        """Yield all operations, job after job."""
        jobs = zip(self.durations, self.machines, strict=True)
        for job, (durations, machines) in enumerate(jobs):
            steps = zip(durations, machines, strict=True)
            for step, (duration, machine) in enumerate(steps):
                yield Operation(job, step, machine, duration)

    def describe(self, operation: Operation) -> str:
        """Return the name of an operation for users, counted from 1."""
        return f"operation {operation.step + 1} of job {operation.job + 1}"

    def describe_machine(self, machine: int) -> str:
        """Return the name of a machine for users, counted from 1 as jobs are."""
        number = f"machine {machine + 1}"
        return number if self.first_machine else f"{number} ({machine} in the file)"

    @cached_property
    def lower_bound(self) -> int:
        """Return a lower bound on the makespan.

        It is the longest job, or the work of a machine between the least time before and the least
        time behind its operations.
        """
        ends = [[0, *accumulate(row)] for row in self.durations]
        work = [0] * self.machine_count
        heads = [self.horizon] * self.machine_count
        tails = [self.horizon] * self.machine_count
        for job, step, machine, duration in self.operations:
            row = ends[job]
            head = row[step]
            tail = row[-1] - row[step + 1]
            work[machine] += duration
            heads[machine] = min(heads[machine], head)
            tails[machine] = min(tails[machine], tail)
        bounds = [row[-1] for row in ends]
        for machine, duration in enumerate(work):
            if duration:
                bound = heads[machine] + duration + tails[machine]
                bounds.append(bound)
        return max(bounds)


@dataclass(frozen=True)
class Schedule:
    """The start time of each operation of each job."""

    starts: Table

    def check(self, instance: JSSPInstance) -> None:
        """Raise `Infeasible` unless the schedule is feasible.

        Every operation has a start, and those of a job follow one another. Of two operations on a
        machine one must end before the other begins. An operation of duration 0 may therefore begin
        together with another one, or where one begins or ends, but not in the middle of one.
        """
        self.check_shape(instance)
        for operation in instance.operations:
            job, step, _, _ = operation
            start = self.starts[job][step]
            previous_end = 0
            if step:
                previous_end = self.end(instance, job, step - 1)
            if start > LIMITS.max_time:
                found = f"{instance.describe(operation)} starts at {shorten(start)}"
                raise Infeasible(f"{shorten(instance.name)}: {found}, {LIMITS.time_advice}")
            if start < 0 or start < previous_end:
                why = "time 0" if start < 0 else "the one before it ends"
                found = f"{instance.describe(operation)} starts at {shorten(start)}"
                raise Infeasible(f"{shorten(instance.name)}: {found}, before {why}")
        self.check_machines(instance)

    def check_shape(self, instance: JSSPInstance) -> None:
        """Raise unless there is one start for each operation."""
        name = shorten(instance.name)
        jobs = len(self.starts)
        if jobs != instance.job_count:
            found = f"the schedule has {jobs} jobs of {instance.job_count}"
            raise Infeasible(f"{name}: {found}")
        for job in range(jobs):
            starts = len(self.starts[job])
            needed = len(instance.durations[job])
            if starts != needed:
                found = f"{starts} starts for {needed} operations"
                raise Infeasible(f"{name}: job {job + 1} has {found}")

    def check_machines(self, instance: JSSPInstance) -> None:
        """Raise if operations on a machine overlap.

        In order of start (and of end, where starts are equal) each must end before the next begins.
        """
        work: dict[int, list[tuple[int, int, Operation]]] = {}
        for operation in instance.operations:
            job, step, machine, duration = operation
            start = self.starts[job][step]
            entry = (start, start + duration, operation)
            work.setdefault(machine, []).append(entry)
        for machine, entries in work.items():
            for before, after in pairwise(sorted(entries)):
                _, end, first = before
                start, _, second = after
                if start < end:
                    late = instance.describe(second)
                    early = instance.describe(first)
                    found = f"on {instance.describe_machine(machine)} {late} starts at {start}"
                    busy = f"when {early} is there until {end}"
                    raise Infeasible(f"{shorten(instance.name)}: {found}, {busy}")

    def end(self, instance: JSSPInstance, job: int, step: int) -> int:
        """Return when an operation ends."""
        return self.starts[job][step] + instance.durations[job][step]

    def cost(self, instance: JSSPInstance) -> int:
        """Return the makespan: when the last operation ends."""
        ends: list[int] = []
        for job, step, _, _ in instance.operations:
            ends.append(self.end(instance, job, step))
        return max(ends)

    def to_file_numbers(self, instance: JSSPInstance) -> list[list[int]]:
        """Return the start times of each job in the order of its operations."""
        return [list(row) for row in self.starts]


def jssp_from_arrays(
    durations: Sequence[Any] | np.ndarray,
    machines: Sequence[Any] | np.ndarray,
    name: str = "arrays",
    *,
    machine_count: int | None = None,
    first_machine: int | None = None,
) -> JSSPInstance:
    """Return an instance from a row of durations and a row of machines for each job.

    Rows may differ in length. Without `first_machine`, machines are numbered from 0, or from 1 if
    all of 1..M occur and 0 does not.
    """
    duration_table = integer_rows(durations, "durations", name)
    machine_table = integer_rows(machines, "machines", name)
    return jssp_from_tables(
        duration_table, machine_table, name, machine_count=machine_count, first=first_machine
    )


def jssp_from_tables(
    durations: Table,
    machines: Table,
    name: str,
    *,
    machine_count: int | None = None,
    first: int | None = None,
) -> JSSPInstance:
    """Return an instance whose machines are numbered from `first`, or as the numbers indicate."""
    numbers = {number for row in machines for number in row}
    if first is None:
        first = infer_first_machine(numbers, machine_count)
    if first is None:
        refuse_machine_numbers(numbers, name)
    if first not in (0, 1):
        found = f"the first machine is {shorten(first)}"
        raise InputError(f"{shorten(name)}: {found}, expected 0 or 1")
    shifted = tuple(tuple(number - first for number in row) for row in machines)
    if machine_count is None:
        machine_count = 1 + max(numbers, default=first) - first
    return JSSPInstance(name, durations, shifted, machine_count, first)


def refuse_machine_numbers(numbers: set[int], name: str) -> NoReturn:
    """Raise at numbers of machines that may count from 0 or from 1."""
    highest = shorten(max(numbers))
    if max(numbers) > LIMITS.max_machines:
        supported = f"up to {LIMITS.max_machines} machines are supported"
        raise InputError(f"{shorten(name)}: machine {highest} occurs; {supported}")
    lowest = shorten(min(numbers))
    found = f"machines {lowest} to {highest} occur, so that they may count from 0 or from 1"
    advice = "use machine 0, or say which is the first by first_machine = 0 or 1"
    raise InputError(f"{shorten(name)}: {found}; {advice}")


def infer_first_machine(numbers: set[int], count: int | None) -> int | None:
    """Return whether machines are numbered from 0 or from 1; None if both are possible.

    With a known `count`, a 0 or the last number decides. Without it, all of 1..M and no 0 are taken
    for M machines, since a machine 0 without any operation would be odd.
    """
    if not numbers or min(numbers) <= 0:
        return 0
    last = max(numbers)
    if count is None:
        has_all = len(numbers) == last  # they differ and are at least 1
        return 1 if has_all else None
    return 1 if last >= count else None


def integer_rows(rows: Sequence[Any] | np.ndarray, what: str, name: str) -> Table:
    """Return rows of whole numbers as Python's own integers."""
    try:
        table = [np.asarray(row) for row in rows]
    except (TypeError, ValueError) as error:
        expected = f"the {what} must be rows of whole numbers, one row for each job"
        raise InputError(f"{name}: {expected}") from error
    for job, row in enumerate(table, 1):
        if not is_integer_row(row):
            expected = f"the {what} of job {job} must be a row of whole numbers"
            raise InputError(f"{name}: {expected}")
    return tuple(tuple(int(x) for x in row) for row in table)


def is_integer_row(row: np.ndarray) -> bool:
    """Return whether an array is one row of finite whole numbers, perhaps stored as floats."""
    is_integer = np.issubdtype(row.dtype, np.integer)
    is_real = is_integer or np.issubdtype(row.dtype, np.floating)
    if row.ndim != 1:
        return False
    if row.size and not is_real:
        return False
    is_finite = np.isfinite(row)
    is_whole = row == np.rint(row)
    is_valid = is_finite & is_whole
    return bool(is_valid.all())


def count_with_noun(count: int, noun: str) -> str:
    """Return a number and its noun, such as "1 job" or "2 jobs"."""
    if count != 1:
        noun += "s"
    return f"{count} {noun}"
