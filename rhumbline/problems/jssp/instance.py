"""Job-shop instances and schedules on the host, exact. Nothing here needs torch.

A job is a chain of operations, each on one machine for a whole number of time units. Jobs may
differ in length, leave machines out and come back to them, and operations may take no time at all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rhumbline.errors import Infeasible, InputError

MAX_HORIZON = 2**31 - 1  # all durations together; devices count time in 32 bits
MAX_JOBS, MAX_MACHINES = 100, 100
MAX_CELLS = (
    2_500  # jobs times operations of the longest job: 100 jobs of 20, with room for uneven ones
)

UNCLEAR = "use machine 0, or say which is the first by first_machine = 0 or 1"

Table = tuple[tuple[int, ...], ...]  # a row for each job


class Operation(NamedTuple):
    """One step of a job, counted from 0."""

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
    machine_count: int  # M; some machines may have nothing to do
    first_machine: int = 0  # the number that the file gives to machine 0
    best_known: float | None = None

    def __post_init__(self) -> None:
        self.check_shape()
        for operation in self.operations:
            if operation.duration < 0:
                raise InputError(
                    f"{self.name}: {self.called(operation)} takes {operation.duration}, expected 0 or more"
                )
            if not 0 <= operation.machine < self.machine_count:
                last = self.first_machine + self.machine_count - 1
                found = f"is on machine {operation.machine + self.first_machine}"
                raise InputError(
                    f"{self.name}: {self.called(operation)} {found}, expected {self.first_machine} to {last}"
                )
        if self.horizon > MAX_HORIZON:
            message = f"all durations together are {self.horizon:,}, at most {MAX_HORIZON:,} are supported"
            raise InputError(f"{self.name}: {message}; use a coarser unit of time")

    def check_shape(self) -> None:
        """Numbers of jobs, machines and operations."""
        lengths = [len(row) for row in self.durations]
        if lengths != [len(row) for row in self.machines]:
            raise InputError(
                f"{self.name}: durations and machines differ in shape, expected one of each per operation"
            )
        if not 1 <= len(lengths) <= MAX_JOBS:
            raise InputError(f"{self.name}: has {len(lengths)} jobs; 1 to {MAX_JOBS} are supported")
        if not 1 <= self.machine_count <= MAX_MACHINES:
            raise InputError(
                f"{self.name}: has {self.machine_count} machines; 1 to {MAX_MACHINES} are supported"
            )
        if 0 in lengths:
            raise InputError(
                f"{self.name}: job {lengths.index(0) + 1} has no operation, expected at least one; remove it"
            )
        if max(lengths) * len(lengths) > MAX_CELLS:
            found = f"{len(lengths)} jobs with up to {max(lengths)} operations"
            raise InputError(f"{self.name}: has {found}; the product may be {MAX_CELLS:,} at most")

    @property
    def job_count(self) -> int:
        """Number of jobs."""
        return len(self.durations)

    @cached_property
    def size(self) -> int:
        """Number of operations."""
        return sum(map(len, self.durations))

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Jobs, operations of the longest job, machines."""
        return self.job_count, max(map(len, self.durations)), self.machine_count

    @property
    def details(self) -> str:
        """Numbers of jobs and machines, for people."""
        counts = {"job": self.job_count, "machine": self.machine_count}
        return ", ".join(f"{count} {noun}{'s' * (count != 1)}" for noun, count in counts.items())

    @cached_property
    def horizon(self) -> int:
        """All durations together: no sensible schedule takes longer."""
        return sum(map(sum, self.durations))

    @property
    def operations(self) -> Iterator[Operation]:
        """All operations, job after job."""
        for job, (durations, machines) in enumerate(
            zip(self.durations, self.machines, strict=True)
        ):
            for step, (duration, machine) in enumerate(zip(durations, machines, strict=True)):
                yield Operation(job, step, machine, duration)

    def called(self, operation: Operation) -> str:
        """An operation in a person's words, counted from 1."""
        return f"operation {operation.step + 1} of job {operation.job + 1}"

    @cached_property
    def lower_bound(self) -> int:
        """No schedule is shorter: the longest job, and each machine's work between the least
        before and behind it.
        """
        chains = [[0, *np.cumsum(row, dtype=np.int64).tolist()] for row in self.durations]
        work = [0] * self.machine_count
        heads = [self.horizon] * self.machine_count
        tails = [self.horizon] * self.machine_count
        for job, step, machine, duration in self.operations:
            work[machine] += duration
            heads[machine] = min(heads[machine], chains[job][step])
            tails[machine] = min(tails[machine], chains[job][-1] - chains[job][step + 1])
        busy = [h + w + t for h, w, t in zip(heads, work, tails, strict=True) if w]
        return max([chain[-1] for chain in chains] + busy)


@dataclass(frozen=True)
class Schedule:
    """The start time of each operation of each job."""

    starts: Table

    def check(self, instance: JSSPInstance) -> None:
        """Raise `Infeasible` unless operations all have a start, follow one another in each job and
        share no machine.

        Of two operations on a machine one must have ended when the other begins. So operations
        without duration may begin together, and where another one begins or ends, but not in the
        middle of one.
        """
        self.check_shape(instance)
        for operation in instance.operations:
            start = self.starts[operation.job][operation.step]
            if start < 0:
                raise Infeasible(
                    f"{instance.name}: {instance.called(operation)} starts at {start}, before time 0"
                )
            if operation.step and start < self.end(instance, operation.job, operation.step - 1):
                raise Infeasible(
                    f"{instance.name}: {instance.called(operation)} starts at {start}, before the one before it ends"
                )
        self.check_machines(instance)

    def check_shape(self, instance: JSSPInstance) -> None:
        """One start for each operation."""
        if len(self.starts) != instance.job_count:
            raise Infeasible(
                f"{instance.name}: the schedule has {len(self.starts)} jobs of {instance.job_count}"
            )
        for job, (starts, durations) in enumerate(
            zip(self.starts, instance.durations, strict=True), 1
        ):
            if len(starts) != len(durations):
                found = f"{len(starts)} starts for {len(durations)} operations"
                raise Infeasible(f"{instance.name}: job {job} has {found}")

    def check_machines(self, instance: JSSPInstance) -> None:
        """No overlaps: in order of start (and end, where starts are equal) each ends before the
        next begins.
        """
        by_machine: dict[int, list[tuple[int, int, Operation]]] = {}
        for operation in instance.operations:
            start = self.starts[operation.job][operation.step]
            by_machine.setdefault(operation.machine, []).append(
                (start, start + operation.duration, operation)
            )
        for machine, work in by_machine.items():
            for (_, end, first), (start, _, second) in pairwise(sorted(work)):
                if start < end:
                    busy = f"when {instance.called(first)} is there until {end}"
                    where = (
                        f"on machine {machine + instance.first_machine} {instance.called(second)}"
                    )
                    raise Infeasible(f"{instance.name}: {where} starts at {start}, {busy}")

    def end(self, instance: JSSPInstance, job: int, step: int) -> int:
        """When an operation is over."""
        return self.starts[job][step] + instance.durations[job][step]

    def cost(self, instance: JSSPInstance) -> int:
        """The makespan: when the last operation is over."""
        return max(
            self.end(instance, operation.job, operation.step) for operation in instance.operations
        )

    def to_file_numbers(self, instance: JSSPInstance) -> list[list[int]]:
        """The start times of each job in the order of its operations."""
        return [list(row) for row in self.starts]


def jssp_from_arrays(
    durations: Sequence[Any] | np.ndarray,
    machines: Sequence[Any] | np.ndarray,
    name: str = "arrays",
    *,
    machine_count: int | None = None,
    first_machine: int | None = None,
) -> JSSPInstance:
    """An instance from a row of durations and a row of machines for each job; rows may differ in
    length.

    Where `first_machine` is not given, machines are numbered from 0, or from 1 if all of 1..M occur
    and 0 does not.
    """
    tables = integer_rows(durations, "durations", name), integer_rows(machines, "machines", name)
    return jssp_from_tables(*tables, name, machine_count=machine_count, first=first_machine)


def jssp_from_tables(
    durations: Table,
    machines: Table,
    name: str,
    *,
    machine_count: int | None = None,
    first: int | None = None,
) -> JSSPInstance:
    """An instance whose machines are numbered from `first`, or as the numbers themselves tell."""
    numbers = {m for row in machines for m in row}
    first = first_machine(numbers, machine_count) if first is None else first
    if first is None:
        found = f"machines {min(numbers)} to {max(numbers)} occur, so that they may count from 0 or from 1"
        raise InputError(f"{name}: {found}; {UNCLEAR}")
    if first not in (0, 1):
        raise InputError(f"{name}: the first machine is {first}, expected 0 or 1")
    shifted = tuple(tuple(m - first for m in row) for row in machines)
    used = 1 + max(numbers, default=first) - first
    return JSSPInstance(
        name, durations, shifted, used if machine_count is None else machine_count, first
    )


def first_machine(numbers: set[int], count: int | None) -> int | None:
    """Whether machines are numbered from 0 or from 1; None where both can be meant.

    The numbers of `count` machines tell it by a 0, or by the last one. Where nobody says how many there are, all of
    1..M without 0 are taken for M machines: a machine 0 that alone has nothing to do would be odd.
    """
    if not numbers or min(numbers) <= 0:
        return 0
    if count is None:
        return 1 if numbers == set(range(1, max(numbers) + 1)) else None
    return 1 if max(numbers) >= count else None


def integer_rows(rows: Sequence[Any] | np.ndarray, what: str, name: str) -> Table:
    """Rows of whole numbers, as Python's own."""
    try:
        table = [np.asarray(row) for row in rows]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name}: the {what} must be rows of whole numbers, one row for each job"
        ) from error
    for job, row in enumerate(table, 1):
        real = (
            not row.size
            or np.issubdtype(row.dtype, np.integer)
            or np.issubdtype(row.dtype, np.floating)
        )
        if row.ndim != 1 or not real or not np.isfinite(row).all() or (row != np.rint(row)).any():
            raise InputError(f"{name}: the {what} of job {job} must be a row of whole numbers")
    return tuple(tuple(int(x) for x in row) for row in table)
