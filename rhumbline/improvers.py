"""Classical solvers that improve given plans: our local searches, and external solvers.

They know problems but no policies, and each is an optional extra. A solver is a module with a
function `improve(instance, plans, seconds, seed, on_plan)`. Given plans come cheapest first. The
solver calls `on_plan` with better and better plans, if it finds any. After Ctrl-C it reports its
last plan before it passes `KeyboardInterrupt` on (`local_search.threads.run_interruptible`). Most
solvers calculate with integers, so the caller checks and prices the plans. A module may have a
function `prepare()` for work before the clock runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rhumbline.errors import InputError, MissingExtra


@dataclass(frozen=True)
class Solver:
    """A classical solver: what it solves, and where it comes from."""

    module: str
    package: str
    extra: str
    problems: tuple[str, ...]


SOLVERS = {
    "ils": Solver("rhumbline.local_search.tour_ils", "numba", "cpu", ("tsp",)),
    "lkh": Solver("rhumbline.external.lkh", "elkai", "lkh", ("tsp",)),
    "pyvrp": Solver("rhumbline.external.pyvrp", "pyvrp", "solvers", ("tsp", "cvrp")),
    "ruin": Solver("rhumbline.local_search.route_ruin_recreate", "numba", "cpu", ("cvrp",)),
    "tabu": Solver("rhumbline.local_search.schedule_tabu", "numba", "cpu", ("jssp",)),
    "cpsat": Solver("rhumbline.external.cpsat", "ortools", "solvers", ("jssp",)),
}
# Our own solvers, which "auto" stands for.
OWN_SOLVERS = {"tsp": "ils", "cvrp": "ruin", "jssp": "tabu"}
SOLVER_NAMES = ("auto", *SOLVERS)


def resolve_solver(name: str, problem: str) -> str:
    """Return the solver that a name stands for."""
    if name != "auto":
        return name
    return OWN_SOLVERS.get(problem, name)


def require_solver(name: str, problem: str) -> None:
    """Raise unless the solver is known, can solve the problem and is installed."""
    if name not in SOLVERS:
        raise InputError(f"'{name}' is no solver; known: {', '.join(SOLVER_NAMES)}")
    solver = SOLVERS[name]
    if problem not in solver.problems:
        able = [other for other, one in SOLVERS.items() if problem in one.problems]
        raise InputError(
            f"{name} solves {' and '.join(solver.problems)}, not {problem}; use {' or '.join(able)}"
        )
    if find_spec(solver.package) is None:
        raise MissingExtra(
            f"{name} needs {solver.package}; get it with: pip install 'rhumbline[{solver.extra}]'"
        )


def prepare_solver(name: str) -> None:
    """Load a solver and do its preparations, before the clock runs; raise if it is broken."""
    solver = SOLVERS[name]
    try:
        import_module(solver.package)
    except Exception as error:
        raise MissingExtra(
            f"{name} needs {solver.package}, which is installed but fails: {error}"
        ) from error
    module: Any = import_module(solver.module)
    if hasattr(module, "prepare"):
        module.prepare()


def improve_plans(
    name: str,
    instance: Any,
    plans: Sequence[Any],
    seconds: float,
    seed: int,
    on_plan: Callable[[Any], None],
) -> None:
    """Pass each better plan that a solver finds in `seconds` to `on_plan`; the last is its best."""
    module: Any = import_module(SOLVERS[name].module)
    module.improve(instance, plans, seconds, seed, on_plan)
