"""CP-SAT of OR-Tools (Apache-2.0) for schedules.

The best plan is its hint, and no start is later than that plan's end. Tours as a circuit constraint
were tried and left out: from a random tour of kroA200 it was at 148,006 after 4 seconds, where LKH
had the optimum of 29,368.
"""

import math
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from rhumbline.errors import Infeasible
from rhumbline.local_search.threads import run_interruptible
from rhumbline.problems.jssp import JSSPInstance, Schedule


def prepare() -> None:
    """Do nothing: there are no kernels to compile."""


def improve(
    instance: JSSPInstance,
    plans: Sequence[Schedule],
    seconds: float,
    seed: int,
    on_plan: Callable[[Schedule], None],
) -> None:
    """Report the schedules of one run, none later than the best plan."""
    began = time.monotonic()
    model, starts = build_model(instance, plans[0])
    passed = time.monotonic() - began
    # Also on fewer cores: the mixture of searches is better than any one of them.
    solver = make_solver(seconds - passed, seed, workers=8)

    def work(report: Callable[[Schedule], None]) -> None:
        listener = make_listener(starts, report)
        solver.solve(model, listener)

    run_interruptible(work, solver.stop_search, on_plan)


def make_listener(starts: Sequence[Sequence[Any]], report: Callable[[Schedule], None]) -> Any:
    """Return the object that CP-SAT calls with each solution, which is better than the last."""
    cp_model: Any = import_module("ortools.sat.python.cp_model")

    class Listener(cp_model.CpSolverSolutionCallback):
        """Has the values of the variables, like a solver."""

        def on_solution_callback(self) -> None:
            """Report a solution. CP-SAT's threads call this one at a time."""
            report(solver_schedule(self, starts))

    return Listener()


def solve_with_bound(
    instance: JSSPInstance, seconds: float, hint: Schedule | None = None
) -> tuple[Schedule, float]:
    """Return the best schedule that one thread finds, and a lower bound of the makespan.

    The search begins with the schedule `hint`, if there is one.
    """
    model, starts = build_model(instance, hint)
    solver = make_solver(seconds, 0, workers=1)
    parameters = solver.parameters
    parameters.linearization_level = 0  # 2 to 3 % shorter in 40 s on two of 20x15
    best = hint
    if run_solver(solver, model):
        best = solver_schedule(solver, starts)
    if best is None:
        raise Infeasible(f"{instance.name}: CP-SAT found no schedule in {seconds:g} s")
    lowest = solver.best_objective_bound - 1e-6
    bound = math.ceil(lowest)
    return best, float(bound)


def build_model(
    instance: JSSPInstance, hint: Schedule | None = None
) -> tuple[Any, list[list[Any]]]:
    """Return CP-SAT's model and the variables of all starts, by job.

    Each operation is an interval, and those of a machine do not overlap. Nothing is later than the
    end of the schedule `hint`, if there is one.
    """
    cp_model: Any = import_module("ortools.sat.python.cp_model")  # takes a second of its own

    model: Any = cp_model.CpModel()
    limit = total_duration(instance) if hint is None else hint.cost(instance)
    starts = [[model.new_int_var(0, limit, "") for _ in row] for row in instance.durations]
    machines: list[list[Any]] = [[] for _ in range(instance.machine_count)]
    makespan = model.new_int_var(0, limit, "")
    for job, step, machine, duration in instance.operations:
        start, *following = starts[job][step:]
        interval = model.new_fixed_size_interval_var(start, duration, "")
        machines[machine].append(interval)
        successor = following[0] if following else makespan
        model.add(successor >= start + duration)
        if hint is not None:
            model.add_hint(start, hint.starts[job][step])
    for intervals in machines:
        model.add_no_overlap(intervals)
    model.minimize(makespan)
    return model, starts


def total_duration(instance: JSSPInstance) -> int:
    """Return the sum of all durations, which no sensible schedule exceeds."""
    by_job = [sum(row) for row in instance.durations]
    return sum(by_job)


def make_solver(seconds: float, seed: int, workers: int) -> Any:
    """Return CP-SAT's solver with its limits."""
    cp_model: Any = import_module("ortools.sat.python.cp_model")

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(0.01, seconds)
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.num_workers = workers
    # Its own handler would end the search without letting us know of Ctrl-C.
    solver.parameters.catch_sigint_signal = False
    return solver


def run_solver(solver: Any, model: Any) -> bool:
    """Run the solver; return whether it found a schedule."""
    cp_model: Any = import_module("ortools.sat.python.cp_model")

    status = run_interruptible(
        lambda report: solver.solve(model),
        solver.stop_search,
    )
    return status in (cp_model.OPTIMAL, cp_model.FEASIBLE)


def solver_schedule(solver: Any, starts: Sequence[Sequence[Any]]) -> Schedule:
    """Return the values of the variables as a schedule."""
    rows: list[tuple[int, ...]] = []
    for row in starts:
        values = map(solver.value, row)
        starts_of_job = tuple(values)
        rows.append(starts_of_job)
    return Schedule(tuple(rows))
