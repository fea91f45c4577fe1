"""CP-SAT of OR-Tools (Apache-2.0) for schedules. The best plan is its hint, and no start is later
than that plan's end.

Tours as a circuit constraint were tried and left out: from a random tour of kroA200 it was at
148,006 after 4 seconds, where LKH had the optimum of 29,368.
"""

import math
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from rhumbline.errors import Infeasible
from rhumbline.local_search.threads import run_interruptible
from rhumbline.problems.jssp import JSSPInstance, Schedule

WORKERS = 8  # also on fewer cores: the mixture of searches is better than any one of them


Found = Callable[[Schedule], None]


def improve(
    instance: JSSPInstance, plans: Sequence[Schedule], seconds: float, seed: int, found: Found
) -> None:
    """The schedules of one run, none later than the best plan."""
    began = time.monotonic()
    model, starts = build_model(instance, plans[0])
    solver = make_solver(seconds - (time.monotonic() - began), seed, WORKERS)
    run_interruptible(
        lambda tell: solver.solve(model, listener(starts, tell)), solver.stop_search, found
    )


def listener(starts: Sequence[Sequence[Any]], tell: Found) -> Any:
    """What CP-SAT calls with each solution, which is better than the one before."""
    cp_model: Any = import_module("ortools.sat.python.cp_model")

    class Listener(cp_model.CpSolverSolutionCallback):
        """It is asked for values like a solver."""

        def on_solution_callback(self) -> None:
            """By CP-SAT's threads, one at a time."""
            tell(solver_schedule(self, starts))

    return Listener()


def solve_with_bound(
    instance: JSSPInstance, seconds: float, hint: Schedule | None = None
) -> tuple[Schedule, float]:
    """The best schedule of one thread and a bound that none is below; from a schedule, if there
    is one.
    """
    model, starts = build_model(instance, hint)
    solver = make_solver(seconds, 0, workers=1)
    solver.parameters.linearization_level = 0  # 2 to 3 % shorter in 40 s on two of 20x15
    best = solver_schedule(solver, starts) if run_solver(solver, model) else hint
    if best is None:
        raise Infeasible(f"{instance.name}: CP-SAT found no schedule in {seconds:g} s")
    return best, float(math.ceil(solver.best_objective_bound - 1e-6))


def build_model(
    instance: JSSPInstance, hint: Schedule | None = None
) -> tuple[Any, list[list[Any]]]:
    """One interval for each operation; those of a machine do not overlap. Also the variables of all
    starts.

    Nothing is later than the end of a schedule that is known.
    """
    cp_model: Any = import_module("ortools.sat.python.cp_model")  # takes a second of its own

    model: Any = cp_model.CpModel()
    limit = sum(map(sum, instance.durations)) if hint is None else hint.cost(instance)
    starts = [[model.new_int_var(0, limit, "") for _ in row] for row in instance.durations]
    machines: list[list[Any]] = [[] for _ in range(instance.machine_count)]
    makespan = model.new_int_var(0, limit, "")
    for job, step, machine, duration in instance.operations:
        start = starts[job][step]
        machines[machine].append(model.new_fixed_size_interval_var(start, duration, ""))
        behind = starts[job][step + 1] if step + 1 < len(starts[job]) else makespan
        model.add(behind >= start + duration)
        if hint is not None:
            model.add_hint(start, hint.starts[job][step])
    for intervals in machines:
        model.add_no_overlap(intervals)
    model.minimize(makespan)
    return model, starts


def make_solver(seconds: float, seed: int, workers: int) -> Any:
    """A solver with its limits."""
    cp_model: Any = import_module("ortools.sat.python.cp_model")

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(0.01, seconds)
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.num_workers = workers
    solver.parameters.catch_sigint_signal = (
        False  # it would end the search, and nobody would know why
    )
    return solver


def run_solver(solver: Any, model: Any) -> bool:
    """Whether a schedule was found."""
    cp_model: Any = import_module("ortools.sat.python.cp_model")

    status = run_interruptible(lambda tell: solver.solve(model), solver.stop_search)
    return status in (cp_model.OPTIMAL, cp_model.FEASIBLE)


def solver_schedule(solver: Any, starts: Sequence[Sequence[Any]]) -> Schedule:
    """The values of the variables."""
    return Schedule(tuple(tuple(solver.value(x) for x in row) for row in starts))
