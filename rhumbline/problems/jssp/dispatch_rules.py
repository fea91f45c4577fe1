"""Priority rules for job shops, as baselines. Plain NumPy, on the host.

Whenever operations compete, a rule says whose job goes first. A *non-delay* schedule never lets a
machine wait while it has work. An *active* one may wait, but only for an operation that comes
before the first of the waiting ones could end (Giffler & Thompson 1960). Some optimum is always
active, while none may be non-delay.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from rhumbline.errors import InputError, shorten
from rhumbline.problems.jssp.instance import JSSPInstance, Schedule
from rhumbline.registry import suggest_known


@dataclass(frozen=True)
class DispatchState:
    """The next operation of each job, as a rule sees it."""

    duration: Int[np.ndarray, "J"]
    start: Int[np.ndarray, "J"]  # the earliest
    ready: Int[np.ndarray, "J"]  # when the job arrived at the machine: its last operation's end
    work: Int[np.ndarray, "J"]  # time that the job still needs, the next operation included
    left: Int[np.ndarray, "J"]  # operations that the job still needs
    uniform: Float[np.ndarray, "J"]


# The job of the least number goes first; of equal ones the first in the file.
RULES: dict[str, Callable[[DispatchState], np.ndarray]] = {
    "spt": lambda state: state.duration,  # shortest processing time
    "mwkr": lambda state: -state.work,  # most work remaining
    "fifo": lambda state: state.ready,  # first in, first out
    "mopnr": lambda state: -state.left,  # most operations remaining
    "random": lambda state: state.uniform,
}


def dispatch(
    instance: JSSPInstance, rule: str = "mwkr", kind: str = "non-delay", seed: int = 0
) -> Schedule:
    """Return the verified schedule of a rule; only 'random' depends on the seed."""
    if rule not in RULES:
        raise InputError(f"there is no rule '{shorten(rule)}'{suggest_known(rule, RULES)}")
    if kind not in SCHEDULE_KINDS:
        known = suggest_known(kind, SCHEDULE_KINDS)
        raise InputError(f"there is no kind of schedules '{shorten(kind)}'{known}")
    rng = np.random.default_rng(seed)
    operations = simulate_rule(instance, RULES[rule], SCHEDULE_KINDS[kind], rng)
    starts = [[0] * len(row) for row in instance.durations]
    for job, step, start in operations:
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
    """Yield job, step and start of one operation after the other, each job's in their order."""
    never = 2**62  # start of a finished job
    durations, machines, work = operation_tables(instance)
    lengths = np.asarray([len(row) for row in instance.durations])
    jobs = np.arange(len(lengths))
    step = np.zeros_like(jobs)
    ready = np.zeros_like(jobs)
    free = np.zeros(instance.machine_count, dtype=np.int64)
    for _ in range(instance.size):
        machine = machines[jobs, step]
        duration = durations[jobs, step]
        earliest = np.maximum(ready, free[machine])
        start = np.where(step < lengths, earliest, never)
        state = DispatchState(
            duration=duration,
            start=start,
            ready=ready,
            work=work[jobs, step],
            left=lengths - step,
            uniform=rng.random(len(jobs)),
        )
        is_candidate = candidates(start, duration, machine)
        choices = np.flatnonzero(is_candidate)
        priorities = rule(state)[choices]
        job = int(choices[priorities.argmin()])
        yield job, int(step[job]), int(start[job])
        end = start[job] + duration[job]
        ready[job] = end
        free[machine[job]] = end
        step[job] += 1


def operation_tables(instance: JSSPInstance) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return durations, machines and work left before each step, [J, T + 1].

    They are 0 behind the last operation of a job.
    """
    jobs, longest, _ = instance.shape
    shape = (jobs, longest + 1)
    durations = np.zeros(shape, dtype=np.int64)
    machines = np.zeros_like(durations)
    for job, step, machine, duration in instance.operations:
        durations[job, step] = duration
        machines[job, step] = machine
    from_end = durations[:, ::-1].cumsum(axis=1)
    work = from_end[:, ::-1]
    return durations, machines, work


def non_delay_candidates(
    start: np.ndarray, duration: np.ndarray, machine: np.ndarray
) -> np.ndarray:
    """Return True where an operation can begin as early as any."""
    return start == start.min()


def active_candidates(start: np.ndarray, duration: np.ndarray, machine: np.ndarray) -> np.ndarray:
    """Return True for the operation that can end first and its rivals.

    Rivals are those on its machine that can begin before its end.
    """
    end = start + duration
    first = end.argmin()
    on_machine = machine == machine[first]
    candidates = on_machine & (start < end[first])
    candidates[first] = True  # an operation of duration 0 does not begin before it ends
    return candidates


SCHEDULE_KINDS: dict[str, Callable[..., np.ndarray]] = {
    "non-delay": non_delay_candidates,
    "active": active_candidates,
}
