"""The driver of every search: it owns the clock and the budget, and ends in verified plans."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from jaxtyping import Float
from torch import Tensor

from rhumbline.decoding.engines import CompiledEngine
from rhumbline.errors import InputError
from rhumbline.kernels.threads import SHARED_CORES
from rhumbline.search.first_plans import first_solutions, latest_end
from rhumbline.search.solution import Solution, incumbent
from rhumbline.search.strategies import build_strategy
from rhumbline.search.strategy import (
    Distributions,
    PlainStrategy,
    Step,
    Strategy,
    as_strategy,
    check_strategy_needs,
    engine_for,
)
from rhumbline.search.task import Task
from rhumbline.search.task.account import Spent
from rhumbline.search.without_policy.host_task import HostTask


@dataclass(frozen=True)
class Budget:
    """When to stop: after some attempts on each instance or some seconds, whichever comes first."""

    attempts: int | None = None
    seconds: int | float | None = None

    def __post_init__(self) -> None:
        attempts = self.attempts
        seconds = self.seconds
        if attempts is None and seconds is None:
            raise InputError("a budget needs attempts, seconds or both")
        if attempts is not None and not is_of_kind(attempts, Integral):
            raise InputError(f"attempts must be a whole number, not {attempts!r}")
        if seconds is not None and not is_of_kind(seconds, Real):
            raise InputError(f"seconds must be a number, not {seconds!r}")
        if attempts is not None and attempts < 1:
            raise InputError(f"attempts must be at least 1, not {attempts}")
        if seconds is not None and not seconds > 0:
            raise InputError(f"seconds must be more than 0, not {seconds}")
        if seconds == float("inf"):
            advice = "for as long as you like, give attempts and stop with Ctrl-C"
            raise InputError(f"seconds must be finite; {advice}")


def is_of_kind(value: Any, kind: type) -> bool:
    """Return whether a value is a number of a kind, including NumPy's but not booleans."""
    return isinstance(value, kind) and not isinstance(value, bool)


@dataclass(frozen=True)
class Progress:
    """The state of a search after a step."""

    attempts: int  # spent on each instance
    seconds: float
    best: Float[Tensor, "B"]  # cheapest cost so far, in the instances' own units
    latest: Float[Tensor, "B"]  # cheapest cost of the latest step
    latents: Float[Tensor, "B K Z"] | None  # what the latest step tried
    phase: str = "search"  # then "polish", or the name of a classical solver
    # The cheapest cost under each latent, in the instances' own units, with surcharges
    latent_costs: Float[Tensor, "B K"] | None = None
    distributions: Distributions | None = None  # that the strategy draws latents from
    solver: str | None = None  # that works at the same time as the search


def search(
    strategy: PlainStrategy,
    task: Task,
    budget: Budget,
    watch: Callable[[Progress], None] | None = None,
) -> tuple[list[Solution], bool]:
    """Run a search to its end, or until Ctrl-C.

    Returns the incumbents, and whether the search was interrupted.
    """
    ready = prepare_strategy(strategy, task)
    trace = list[Progress]()
    start_time = time.monotonic()
    interrupted = False
    try:
        for progress in run_steps(ready, task, budget):
            trace.append(progress)
            if watch:
                watch(progress)
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.monotonic() - start_time
    return collect_solutions(task, seconds, trace, interrupted=interrupted), interrupted


def stream(strategy: PlainStrategy | str, task: Task, budget: Budget) -> Iterator[Progress]:
    """Search until the budget is spent, yielding after every step.

    `strategy` is a name or an object. `task.account` holds the incumbents.
    """
    check_stream_arguments(task, budget)
    chosen = build_strategy(strategy) if isinstance(strategy, str) else strategy
    return run_steps(prepare_strategy(chosen, task), task, budget)


def check_stream_arguments(task: object, budget: object) -> None:
    """Raise unless a search can be streamed over these, with how to make them."""
    if not isinstance(task, Task):
        expected = "expected a task, such as rhumbline.prepare('a280.tsp')"
        raise InputError(f"the task is {type(task).__name__}; {expected}")
    if not isinstance(budget, Budget):
        expected = "expected a budget, such as rhumbline.Budget(seconds=5)"
        raise InputError(f"the budget is {type(budget).__name__}; {expected}")


def prepare_strategy(strategy: PlainStrategy, task: Task) -> Strategy[Any]:
    """Refuse what cannot work, choose the engine and compile kernels, before the clock runs."""
    ready = as_strategy(strategy)
    check_strategy_needs(ready, task)
    size = task.problem.action_count(task.batch)
    task.engine = engine_for(ready, task.engine, task.device, size)
    engine = task.engine_to_use()
    if isinstance(engine, CompiledEngine):
        engine.load(task.problem)
    ready.compile(task)
    return ready


def run_steps(strategy: Strategy[Any], task: Task, budget: Budget) -> Iterator[Progress]:
    """Start the clock, and search with a prepared strategy until the budget is spent.

    Yields after every step that has made rollouts.
    """
    # Abort after this many consecutive steps that spend no attempt: such a search would not end.
    max_empty_steps = 100
    with SHARED_CORES.share(budget.seconds is not None):
        start_time = start_clock(task, budget)
        try:
            state = strategy.init(task)
        except Spent:
            return
        if state is None:
            advice = "return an empty object instead"
            raise InputError(f"the strategy's init returned None, which ends a search; {advice}")
        empty_steps = 0
        while state is not None:
            best_before = task.account.best
            spent_before = count_spent(task)
            last_state = state
            step = None
            try:
                step = Step(*strategy.step(task, state))
                state = step.state
            except Spent:
                state = None
                strategy.finish(task, last_state)
            if task.account.best is not best_before:  # the account has new rollouts
                distributions = strategy.distributions(last_state)
                yield make_progress(task, step, distributions, time.monotonic() - start_time)
            empty_steps = empty_steps + 1 if count_spent(task) == spent_before else 0
            if empty_steps == max_empty_steps:
                trouble = "without trying anything, and would never end"
                raise InputError(f"the strategy made {empty_steps} steps {trouble}")


def make_progress(
    task: Task, step: Step | None, distributions: Distributions | None, seconds: float
) -> Progress:
    """Return the state of a search after a step, or after one that the budget has cut short."""
    best = task.account.best
    assert best is not None, "rollouts have costs"
    latest = best if step is None else step.rollouts.cost.flatten(1).amin(1)
    return Progress(
        attempts=task.account.attempts,
        seconds=seconds,
        best=displayed_cost(task, best),
        latest=displayed_cost(task, latest),
        latents=None if step is None else step.latents,
        latent_costs=None if step is None else costs_of_latents(task, step),
        distributions=distributions,
    )


def costs_of_latents(task: Task, step: Step) -> Float[Tensor, "B K"] | None:
    """Return the cheapest cost under each latent of a step, in the instances' own units.

    Returns None if rollouts are not by latent. Steps of other packages may leave the latents out.
    """
    cost = step.rollouts.cost
    latents: Any = step.latents
    if latents is None or cost.ndim != 3 or cost.shape[1] != latents.shape[1]:
        return None
    scale = task.original_batch.scale
    if len(cost) != len(scale):  # the strategy looks at each copy of an instance by itself
        scale = task.batch.scale
    return cost.amin(2) * scale[:, None]


def start_clock(task: Task, budget: Budget) -> float:
    """Set the limits of the task; return the time at which its clock starts."""
    start_time = time.monotonic()
    task.account.start_time = start_time
    task.account.limit = budget.attempts
    task.account.deadline = start_time + budget.seconds if budget.seconds else None
    return start_time


def count_spent(task: Task) -> tuple[int, int]:
    """Return the attempts and the spare trajectories: every rollout changes one of them."""
    return task.account.attempts, task.account.spare_trajectories


def displayed_cost(task: Task, cost: Float[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Convert costs of a search to the costs that users see.

    These are in the instances' own units, and without surcharges, such as the one for vehicles
    beyond the limit.
    """
    batch = task.original_batch
    plain_cost = task.domain.plain_cost
    if plain_cost is not None:
        cost = plain_cost(batch, cost)
    return cost * batch.scale


def collect_solutions(
    task: Task | HostTask, seconds: float, trace: Sequence[Progress], *, interrupted: bool = False
) -> list[Solution]:
    """Decode, check and price the incumbents of a task on the host.

    Where there is none, the constructed plan is the solution. There are fewer solutions than
    instances if a problem has no construction, or if time is short after an interruption.
    """
    account = task.account
    end = latest_end(interrupted)
    if account.actions is None or account.best is None:
        return first_solutions(task.instances, account.warm, seconds, end)
    warm_start = account.warm or [None] * len(task.instances)
    solutions = list[Solution]()
    costs_by_step = [progress.best.tolist() for progress in trace]
    has_plan = account.best.isfinite().tolist()
    rows = zip(task.instances, account.actions.tolist(), warm_start, has_plan, strict=True)
    for row, (instance, actions, given, has_actions) in enumerate(rows):
        if not (has_actions or account.attempts):
            first = first_solutions([instance], [given], seconds, end)
            if not first:
                break
            solutions += first
            continue
        plan = task.problem.decode(instance, actions)
        best, unmet = incumbent(instance, plan, given, account.attempts)
        pairs = zip(trace, costs_by_step, strict=True)
        steps = tuple((p.attempts, p.seconds, costs[row]) for p, costs in pairs)
        solution = Solution(
            instance,
            best.plan,
            best.cost,
            account.attempts,
            seconds,
            trace=steps,
            phase=best.phase,
            unmet=unmet,
        )
        solutions.append(solution)
    return solutions
