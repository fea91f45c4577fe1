"""What `rhumb solve` was asked for: the strategy, its settings, and the phases after the search."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import typer

from rhumbline import api
from rhumbline.checkpoint import DEFAULT_CHECKPOINTS
from rhumbline.decoding import EngineName
from rhumbline.errors import InputError
from rhumbline.improvers import SOLVER_NAMES
from rhumbline.search.after_search import AfterSearch, Improvement
from rhumbline.search.driver import Budget
from rhumbline.search.strategies import (
    DEFAULT_STRATEGIES,
    build_strategy,
    default_strategy,
    default_strategy_for_task,
    strategy_class,
)
from rhumbline.search.task import Task


@dataclass(frozen=True)
class AfterSearchOptions:
    """The options besides the search: warm starts, polish, a second solver, top plans, a trace."""

    warm_starts: tuple[Path, ...] = ()
    polish: bool = False
    then: str | None = None
    top: int = 1
    trace: Path | None = None

    def check_usage(self, seconds: float | None) -> None:
        """Refuse what is wrong whatever is installed and whatever the files hold."""
        if self.then is None:
            return
        if self.then not in SOLVER_NAMES:
            message = f"'{self.then}' is not known; known: {', '.join(SOLVER_NAMES)}"
            raise typer.BadParameter(message, param_hint="--then")
        if seconds is None:
            message = "it takes the second half of the --seconds, so give them"
            raise typer.BadParameter(message, param_hint="--then")

    def after_search(self, file: TextIO | None) -> AfterSearch:
        """Return the same for the driver; improvements are written to `file`, if one is given."""
        improved = None if file is None else partial(write_trace_line, file)
        return AfterSearch(self.top, self.polish, self.then, improved)


def write_trace_line(file: TextIO, found: Improvement) -> None:
    """Write an improvement as a line of JSON."""
    line = {
        "name": found.instance.name,
        "attempts": found.attempts,
        "seconds": round(found.seconds, 3),
        "cost": found.cost,
        "phase": found.phase,
    }
    file.write(json.dumps(line) + "\n")


@dataclass(frozen=True)
class SolveRequest:
    """What to search with."""

    strategy: Any  # None without --search: it depends on the policy and the settings
    search: str | None
    policy: str | None
    attempts: int | None
    seconds: float | None
    seed: int
    device: str
    engine: EngineName
    threads: int | None = None
    augment: int = 1
    vehicles: int | None = None  # the limit on the vehicles of a plan; None leaves it to the files
    after: AfterSearchOptions = AfterSearchOptions()
    settings: tuple[str, ...] = ()

    def policy_name(self, problem: str) -> str:
        """Return the policy as the user calls it."""
        return self.policy or DEFAULT_CHECKPOINTS[problem]

    @property
    def has_budget(self) -> bool:
        """Return whether the user gave a budget."""
        return bool(self.attempts or self.seconds)

    @property
    def budget(self) -> Budget:
        """Return the budget of the user, or the default."""
        if self.has_budget:
            return Budget(self.attempts, self.seconds)
        return api.DEFAULT_BUDGET

    def strategy_for(self, task: Task) -> tuple[str, Any]:
        """Return the name of the strategy for a task, and the strategy."""
        return self.pick_strategy([default_strategy_for_task(task), default_strategy(task.policy)])

    def pick_strategy(self, defaults: Sequence[str]) -> tuple[str, Any]:
        """Return the strategy of the user, or the first default that accepts the settings.

        The name comes first.
        """
        if not (self.search or self.strategy):
            return first_strategy_accepting(self.settings, defaults)
        name = self.search or defaults[0]
        return name, self.strategy or choose_strategy(name, self.settings)

    def facts(self, task: Task) -> dict[str, Any]:
        """Return how a result was found, for JSON."""
        name, _ = self.strategy_for(task)
        facts: dict[str, Any] = {
            "search": name,
            "policy": self.policy_name(task.problem.solves),
            "engine": task.resolved_engine,
            "seed": self.seed,
        }
        if self.augment > 1:
            facts["augment"] = self.augment
        return facts


def choose_strategy(name: str, settings: Sequence[str]) -> Any:
    """Return the strategy of a name with settings; any error there is wrong usage."""
    hint = "--search"
    try:
        strategy_class(name)
        hint = "--set"
        return build_strategy(name, settings)
    except InputError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from error


def first_strategy_accepting(settings: Sequence[str], names: Sequence[str]) -> tuple[str, Any]:
    """Return the first of some strategies that accepts the settings: its name and the strategy.

    If none does, raise the error of the first one that has these fields, or else of the very first.
    """
    errors: dict[str, typer.BadParameter] = {}
    for name in names:
        try:
            return name, choose_strategy(name, settings)
        except typer.BadParameter as error:
            errors[name] = error
    wanted = {text.partition("=")[0].strip() for text in settings}
    for name in names:
        known = {field.name for field in fields(strategy_class(name))}
        if wanted <= known:
            raise errors[name]
    raise errors[names[0]]


def check_default_settings(settings: Sequence[str]) -> None:
    """Refuse settings that no default strategy accepts; which one it is depends on the files."""
    first_strategy_accepting(settings, DEFAULT_STRATEGIES)
