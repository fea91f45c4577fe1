"""Dispatching rules for the job shop: quick schedules by hand-made priorities, as baselines. Plain
numpy, on the host.

Whenever operations compete, a rule says whose job goes first. A *non-delay* schedule never lets a
machine wait while it has work. An *active* one may wait, but only for an operation that comes
before the first of the waiting ones could end (Giffler & Thompson 1960); some optimum is always
active, while none may be non-delay.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from rhumbline.errors import InputError
from rhumbline.problems.jssp.instance import JSSPInstance, Schedule

NEVER = 2**62


@dataclass(frozen=True)
class DispatchState:
    """The shop as a rule sees it: an entry for each job, about its next operation."""

    duration: Int[np.ndarray, "J"]
    start: Int[np.ndarray, "J"]  # the earliest
    ready: Int[
        np.ndarray, "J"
    ]  # when the job arrived at the machine: the end of its last operation
    work: Int[np.ndarray, "J"]  # time that the job still needs, the next operation included
    left: Int[np.ndarray, "J"]  # operations that the job still needs
    uniform: Float[np.ndarray, "J"]


# The job of the least number goes first; of equal ones the first in the file.
RULES: dict[str, Callable[[DispatchState], np.ndarray]] = {
    "spt": lambda floor: floor.duration,  # shortest processing time
    "mwkr": lambda floor: -floor.work,  # most work remaining
    "fifo": lambda floor: floor.ready,  # first in, first out
    "mopnr": lambda floor: -floor.left,  # most operations remaining
    "random": lambda floor: floor.uniform,
}


def dispatch(
    instance: JSSPInstance, rule: str = "mwkr", kind: str = "non-delay", seed: int = 0
) -> Schedule:
    """The verified schedule of a rule; only 'random' looks at the seed."""
    if rule not in RULES or kind not in SCHEDULE_KINDS:
        known = f"rules {', '.join(RULES)}; kinds {', '.join(SCHEDULE_KINDS)}"
        raise InputError(f"there is no rule '{rule}' for '{kind}' schedules; known: {known}")
    starts = [[0] * len(row) for row in instance.durations]
    for job, step, start in simulate_rule(
        instance, RULES[rule], SCHEDULE_KINDS[kind], np.random.default_rng(seed)
    ):
        starts[job][step] = start
    schedule = Schedule(tuple(map(tuple, starts)))
    schedule.check(instance)
    return schedule


def simulate_rule(
    instance: JSSPInstance,
    rule: Callable[[DispatchState], np.ndarray],
    candidates: Callable[..., np.ndarray],
    rng: np.random.Generator,
) -> Iterator[tuple[int, int, int]]:
    """Job, step and start of one operation after the other, each job's in their order."""
    durations, machines, work = operation_tables(instance)
    lengths = np.asarray([len(row) for row in instance.durations])
    jobs = np.arange(len(lengths))
    step = np.zeros_like(jobs)
    ready = np.zeros_like(jobs)
    free = np.zeros(instance.machine_count, dtype=np.int64)
    for _ in range(instance.size):
        machine = machines[jobs, step]
        duration = durations[jobs, step]
        start = np.where(step < lengths, np.maximum(ready, free[machine]), NEVER)
        floor = DispatchState(
            duration, start, ready, work[jobs, step], lengths - step, rng.random(len(jobs))
        )
        among = np.flatnonzero(candidates(start, duration, machine))
        job = int(among[rule(floor)[among].argmin()])
        yield job, int(step[job]), int(start[job])
        ready[job] = free[machine[job]] = start[job] + duration[job]
        step[job] += 1


def operation_tables(instance: JSSPInstance) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Durations, machines and work still to do before each step, [J, T + 1], zeros behind the
    last operation.
    """
    jobs, longest, _ = instance.shape
    durations, machines = np.zeros((2, jobs, longest + 1), dtype=np.int64)
    for job, step, machine, duration in instance.operations:
        durations[job, step], machines[job, step] = duration, machine
    return durations, machines, durations[:, ::-1].cumsum(axis=1)[:, ::-1]


def non_delay_candidates(
    start: np.ndarray, duration: np.ndarray, machine: np.ndarray
) -> np.ndarray:
    """Where an operation can begin as early as any."""
    return start == start.min()


def active_candidates(start: np.ndarray, duration: np.ndarray, machine: np.ndarray) -> np.ndarray:
    """The operation that can end first, and those that can begin before that on its machine."""
    end = start + duration
    first = end.argmin()
    among = (machine == machine[first]) & (start < end[first])
    among[first] = True  # an operation without duration does not begin before it ends
    return among


SCHEDULE_KINDS: dict[str, Callable[..., np.ndarray]] = {
    "non-delay": non_delay_candidates,
    "active": active_candidates,
}
