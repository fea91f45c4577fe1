"""Classical solvers that improve given plans: our local searches, and external solvers.

They know problems but no policies, and each is an optional extra. Every solver is a module that
defines what `SolverModule` lists.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from threading import Event
from typing import Any, Protocol, cast

from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError, MissingExtra, shorten
from rhumbline.problems.cvrp import Routes
from rhumbline.problems.jssp import Schedule
from rhumbline.problems.metrics import METRIC_LIMITS
from rhumbline.problems.tsp import Tour
from rhumbline.registry import suggest_known


@dataclass(frozen=True)
class Solver:
    """A classical solver: the plans it improves, its module, and the package and extra it needs."""

    plan_types: tuple[type[Any], ...]
    module: str
    package: str
    extra: str
    needs_table: bool = False  # of all distances, which large instances do not have
    # True if the module is a `StoppableModule`. Our own local searches are; their kernels release
    # Python's global lock.
    is_stoppable: bool = False


class SolverModule(Protocol):
    """What the module of a solver defines. It imports its package only when it is used."""

    def prepare(self) -> None:
        """Do all work that need not count against the clock, such as compiling kernels."""
        ...

    def improve(
        self,
        instance: Any,
        plans: Sequence[Any],
        seconds: float,
        seed: int,
        on_plan: Callable[[Any], None],
    ) -> None:
        """Call `on_plan` with better and better plans, if there are any, for about `seconds`.

        Given plans come cheapest first. After Ctrl-C the solver reports its last plan before it
        passes `KeyboardInterrupt` on (`local_search.threads.run_interruptible`). Most solvers
        calculate with integers, so the caller checks and prices the plans.
        """
        ...


class StoppableModule(Protocol):
    """A solver that another thread can end."""

    def improve(
        self,
        instance: Any,
        plans: Sequence[Any],
        seconds: float,
        seed: int,
        on_plan: Callable[[Any], None],
        stopped: Event | None = None,
    ) -> None:
        """Do the same as a `SolverModule`, but end soon after `stopped` is set.

        The call reports its last plan before it returns. Each call needs an event of its own,
        because it sets the event when it ends.
        """
        ...


SOLVERS = {
    "ils": Solver((Tour,), "rhumbline.local_search.tour_ils", "numba", "cpu", is_stoppable=True),
    "lkh": Solver((Tour,), "rhumbline.external.lkh", "elkai", "lkh", needs_table=True),
    "pyvrp": Solver(
        (Tour, Routes), "rhumbline.external.pyvrp", "pyvrp", "solvers", needs_table=True
    ),
    "ruin": Solver(
        (Routes,), "rhumbline.local_search.route_ruin_recreate", "numba", "cpu", is_stoppable=True
    ),
    "tabu": Solver(
        (Schedule,), "rhumbline.local_search.schedule_tabu", "numba", "cpu", is_stoppable=True
    ),
    "cpsat": Solver((Schedule,), "rhumbline.external.cpsat", "ortools", "solvers"),
}
# "auto" stands for the domain's `improver`, where it can help.
SOLVER_NAMES = ("auto", "none", *SOLVERS)


def load_solver(name: str) -> SolverModule:
    """Return the module of a solver; its package need not be installed."""
    module = import_module(SOLVERS[name].module)
    return cast(SolverModule, module)


def load_stoppable(name: str) -> StoppableModule:
    """Return the module of a solver that another thread can end."""
    assert SOLVERS[name].is_stoppable, name
    module: Any = load_solver(name)
    return module


def solved_problems(name: str) -> list[str]:
    """Return the names of the problems whose plans a solver improves."""
    plan_types = SOLVERS[name].plan_types
    return [problem for problem, domain in DOMAINS.working() if domain.plan in plan_types]


def resolve_solver(name: str, problem: str) -> str:
    """Return the solver that a name stands for; "auto" itself if the problem has none."""
    if name != "auto" or problem not in DOMAINS:
        return name
    return DOMAINS[problem].improver or name


def available_improver(problem: str) -> str | None:
    """Return our own local search for a problem; None if there is none that works here."""
    domain = DOMAINS.get(problem)
    if domain is None or domain.improver is None or domain.plans is None:
        return None
    try:
        import_module(SOLVERS[domain.improver].package)
    except Exception:  # not installed, or broken
        return None
    return domain.improver


def require_solver(name: str, problem: str) -> None:
    """Raise unless the solver is known, can solve the problem and is installed."""
    able = [other for other in SOLVERS if problem in solved_problems(other)]
    if not able:
        raise InputError(f"no solver improves plans of {problem}; leave the solver out")
    if name not in SOLVERS:
        raise InputError(f"'{shorten(name)}' is no solver{suggest_known(name, SOLVER_NAMES)}")
    if name not in able:
        known = " and ".join(solved_problems(name))
        raise InputError(f"{name} solves {known}, not {problem}; use {' or '.join(able)}")
    solver = SOLVERS[name]
    if find_spec(solver.package) is None:
        raise MissingExtra(
            f"{name} needs {solver.package}; get it with: pip install 'rhumbline[{solver.extra}]'"
        )


def check_size(name: str, instance: Any) -> None:
    """Raise if an instance is too large for a solver that needs a table of all distances."""
    if not SOLVERS[name].needs_table or instance.has_table:
        return
    what = shorten(instance.name)
    limit = f"{name} takes up to {METRIC_LIMITS.max_table_nodes:,} nodes"
    found = f"there are {instance.size:,}"
    own = DOMAINS[instance.problem].improver
    raise InputError(f"{what}: {limit}, and {found}; use {own}")


def prepare_solver(name: str) -> None:
    """Load a solver and do its preparations, before the clock runs; raise if it is broken."""
    solver = SOLVERS[name]
    try:
        import_module(solver.package)
    except Exception as error:
        raise MissingExtra(
            f"{name} needs {solver.package}, which is installed but fails: {error}"
        ) from error
    load_solver(name).prepare()


def improve_plans(
    name: str,
    instance: Any,
    plans: Sequence[Any],
    seconds: float,
    seed: int,
    on_plan: Callable[[Any], None],
) -> None:
    """Pass each better plan that a solver finds in `seconds` to `on_plan`; the last is its best."""
    solver = load_solver(name)
    solver.improve(instance, plans, seconds, seed, on_plan)
