"""CP-SAT of OR-Tools (Apache-2.0) for schedules. The best plan is its hint, and no start is later than that plan's end.

Tours as a circuit constraint were tried and left out: from a random tour of kroA200 it was at 148,006 after 4 seconds,
where LKH had the optimum of 29,368.
"""

import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from rhumbline.problems.schedule import JSSPInstance, Schedule

WORKERS = 8  # also on fewer cores: the mixture of searches is better than any one of them


def improve(instance: JSSPInstance, plans: Sequence[Schedule], seconds: float, seed: int) -> Schedule | None:
    """The best schedule of one run, no later than the best plan."""
    began = time.monotonic()
    model, starts = model_of(instance, plans[0].cost(instance))
    for row, hints in zip(starts, plans[0].starts, strict=True):
        for start, hint in zip(row, hints, strict=True):
            model.add_hint(start, hint)
    solver = solved(model, seconds - (time.monotonic() - began), seed, WORKERS)
    return solver and Schedule(tuple(tuple(solver.value(x) for x in row) for row in starts))


def model_of(instance: JSSPInstance, limit: int) -> tuple[Any, list[list[Any]]]:
    """One interval for each operation; those of a machine do not overlap. Also the variables of all starts."""
    cp_model: Any = import_module("ortools.sat.python.cp_model")  # takes a second of its own

    model: Any = cp_model.CpModel()
    starts = [[model.new_int_var(0, limit, "") for _ in row] for row in instance.durations]
    machines: list[list[Any]] = [[] for _ in range(instance.machine_count)]
    makespan = model.new_int_var(0, limit, "")
    for job, step, machine, duration in instance.operations:
        start = starts[job][step]
        machines[machine].append(model.new_fixed_size_interval_var(start, duration, ""))
        behind = starts[job][step + 1] if step + 1 < len(starts[job]) else makespan
        model.add(behind >= start + duration)
    for intervals in machines:
        model.add_no_overlap(intervals)
    model.minimize(makespan)
    return model, starts


def solved(model: Any, seconds: float, seed: int, workers: int) -> Any | None:
    """A solver that has found something, or None."""
    cp_model: Any = import_module("ortools.sat.python.cp_model")

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(0.01, seconds)
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.num_workers = workers
    return solver if solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
