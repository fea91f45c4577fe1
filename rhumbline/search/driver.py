"""The driver of every search: it owns the clock and the budget, and ends in verified plans."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from jaxtyping import Float
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.problems.cvrp import CVRPBatch
from rhumbline.search.solution import Solution, incumbent
from rhumbline.search.strategy import Strategy, engine_for
from rhumbline.search.task import Spent, Task

# steps without an attempt, after which a search has gone astray: only attempts bring it to its end
IDLE = 100


@dataclass(frozen=True)
class Budget:
    """When to stop: after so many attempts on each instance, or so many seconds, whichever comes
    first.
    """

    attempts: int | None = None
    seconds: int | float | None = None

    def __post_init__(self) -> None:
        if self.attempts is None and self.seconds is None:
            raise InputError("a budget needs attempts, seconds or both")
        if not (self.attempts is None or is_of(self.attempts, Integral)):
            raise InputError(f"attempts must be a whole number, not {self.attempts!r}")
        if not (self.seconds is None or is_of(self.seconds, Real)):
            raise InputError(f"seconds must be a number, not {self.seconds!r}")
        if self.attempts is not None and self.attempts < 1:
            raise InputError(f"attempts must be at least 1, not {self.attempts}")
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"seconds must be more than 0, not {self.seconds}")
        if self.seconds == float("inf"):
            raise InputError(
                "seconds must be finite; for as long as you like, give attempts and stop with Ctrl-C"
            )


def is_of(value: Any, kind: type) -> bool:
    """Whether something is a number of a kind, NumPy's too; yes and no are none."""
    return isinstance(value, kind) and not isinstance(value, bool)


@dataclass(frozen=True)
class Progress:
    """Where a search stands after a step."""

    attempts: int  # spent on each instance
    seconds: float
    best: Float[Tensor, "B"]  # cheapest cost so far, in the instances' own units
    latest: Float[Tensor, "B"]  # cheapest cost of the latest step
    latents: Float[Tensor, "B K Z"] | None  # what the latest step tried
    phase: str = "search"  # then "polish", or the name of a classical solver


def search(
    strategy: Strategy[Any],
    task: Task,
    budget: Budget,
    watch: Callable[[Progress], None] | None = None,
) -> tuple[list[Solution], bool]:
    """Run a search to its end, or until Ctrl-C; the incumbents either way, and whether it was
    interrupted.
    """
    prepare_strategy(strategy, task)
    trace = list[Progress]()
    start_time = time.monotonic()
    interrupted = False
    try:
        for progress in stream(strategy, task, budget):
            trace.append(progress)
            if watch:
                watch(progress)
    except KeyboardInterrupt:
        interrupted = True
    return collect_solutions(task, time.monotonic() - start_time, trace), interrupted


def stream(strategy: Strategy[Any], task: Task, budget: Budget) -> Iterator[Progress]:
    """Search until the budget is spent, yielding after every step; `task.ledger` holds the
    incumbents.
    """
    task.engine = engine_for(
        strategy, task.engine, task.device, task.problem.action_count(task.batch)
    )
    prepare_strategy(strategy, task)
    start_time = task.start_time = time.monotonic()
    task.account.limit = budget.attempts
    task.account.deadline = start_time + budget.seconds if budget.seconds else None
    state = strategy.init(task)
    idle = 0
    if state is None:
        raise InputError(
            "the strategy's init returned None, which ends a search; return an empty object instead"
        )
    while state is not None:
        known = task.account.best
        tried = None
        latest = None
        reached = state
        paid = task.account.attempts, task.spare_trajectories
        try:
            state, tried, rolled = strategy.step(task, state)
            latest = rolled.cost.flatten(1).amin(1)
        except Spent:
            state = None
            getattr(strategy, "conclude", nothing)(task, reached)
        best = task.account.best
        if best is not None and best is not known:  # something was entered
            best, latest = (
                displayed_cost(task.original_batch, best),
                displayed_cost(task.original_batch, best if latest is None else latest),
            )
            yield Progress(
                task.account.attempts, time.monotonic() - start_time, best, latest, tried
            )
        idle = idle + 1 if paid == (task.account.attempts, task.spare_trajectories) else 0
        if idle == IDLE:
            raise InputError(
                f"the strategy made {IDLE} steps without trying anything, and would never end"
            )


def prepare_strategy(strategy: Strategy[Any], task: Task) -> None:
    """What a strategy has to do before the clock runs; most have nothing."""
    getattr(strategy, "prepare", nothing)(task)


def nothing(task: Task, state: Any = None) -> None:
    """How most strategies prepare and conclude."""


def displayed_cost(batch: Any, cost: Float[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Costs of a search as users see them: in the instances' own units, without surcharges for
    vehicles.
    """
    return (batch.without_surcharge(cost) if isinstance(batch, CVRPBatch) else cost) * batch.scale


def collect_solutions(task: Task, seconds: float, trace: Sequence[Progress]) -> list[Solution]:
    """The incumbents of a task, decoded, checked and priced on the host."""
    warm = task.account.warm or [None] * len(task.instances)
    if task.account.actions is None or (not task.account.attempts and None in warm):
        return []
    found: list[Solution] = []
    bests = [p.best.tolist() for p in trace]
    rows = zip(task.instances, task.account.actions.tolist(), warm, strict=True)
    for row, (instance, actions, given) in enumerate(rows):
        best, unmet = incumbent(
            instance, task.problem.decode(instance, actions), given, task.account.attempts
        )
        steps = tuple(
            (p.attempts, p.seconds, costs[row]) for p, costs in zip(trace, bests, strict=True)
        )
        facts = (task.account.attempts, seconds, steps, best.phase)
        found.append(Solution(instance, best.plan, best.cost, *facts, unmet=unmet))
    return found
