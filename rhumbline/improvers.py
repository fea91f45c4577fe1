"""Classical solvers that carry on from given plans. They know problems, no policies; each is an
optional extra.

A solver is a module with `improve(instance, plans, seconds, seed, found)`. It calls `found` with
better and better plans, if there are any; also after Ctrl-C with its last, before it passes
`KeyboardInterrupt` on (`aside.py`). Given plans come cheapest first. Most solvers work on whole
numbers; the caller checks and prices what they find.
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

OWN_SOLVERS = {
    "tsp": "ils",
    "cvrp": "ruin",
    "jssp": "tabu",
}  # by this project, which "auto" stands for
SOLVER_NAMES = ("auto", *SOLVERS)


def resolve_solver(name: str, problem: str) -> str:
    """The solver that a name stands for."""
    return OWN_SOLVERS.get(problem, name) if name == "auto" else name


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
    """Whatever a solver has to do once, before the clock runs; it is loaded now, so that a
    broken one is known.
    """
    solver = SOLVERS[name]
    try:
        import_module(solver.package)
    except Exception as error:
        raise MissingExtra(
            f"{name} needs {solver.package}, which is installed but fails: {error}"
        ) from error
    module: Any = import_module(SOLVERS[name].module)
    getattr(module, "prepare", lambda: None)()


def improve_plans(
    name: str,
    instance: Any,
    plans: Sequence[Any],
    seconds: float,
    seed: int,
    found: Callable[[Any], None],
) -> None:
    """Tell of the plans that a solver finds in these seconds, starting from the given ones; the
    last is its best.
    """
    module: Any = import_module(SOLVERS[name].module)
    module.improve(instance, plans, seconds, seed, found)
