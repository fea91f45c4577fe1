"""Live progress on a terminal. Nothing is drawn where stderr is none."""

import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, TextColumn
from rich.progress import Progress as Bar
from rich.progress import Task as BarTask
from rich.text import Text

from rhumbline.cli.render import format_cost, format_cost_change
from rhumbline.search.driver import Budget, Progress

Watch = Callable[[Progress], None]
PAUSE = 0.1  # seconds between two updates: reading costs waits for the device


class Clock(ProgressColumn):
    """Seconds since the search began; runs on during long steps."""

    def render(self, task: BarTask) -> Text:
        """The time now."""
        return Text(f"{task.elapsed or 0.0:6.1f} s")


@contextmanager
def show_progress(
    instances: Sequence[Any], budget: Budget, quiet: bool
) -> Generator[Watch | None, None, None]:
    """A watcher that draws while the context lasts, or None where nothing should be drawn."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("  "),
        BarColumn(24),
        Clock(),
        TextColumn("{task.fields[text]}", markup=False),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("", total=1.0, text="")
        yield make_bar_updater(bar, line, instances, budget)


def make_bar_updater(bar: Bar, line: Any, instances: Sequence[Any], budget: Budget) -> Watch:
    """A function that moves the bar, not more often than eyes can see."""
    due = time.monotonic()
    phase = "search"
    before = 0.0

    def watch(progress: Progress) -> None:
        nonlocal due, phase, before
        if time.monotonic() >= due or progress.phase != "search":
            best, latest = (np.asarray(x.tolist()) for x in (progress.best, progress.latest))
            if progress.phase != phase:  # a phase tells first that it begins
                phase = progress.phase
                before = float(best.mean())
            if phase == "search":
                text = search_status(instances, progress.attempts, best, latest)
            else:
                text = phase_status(instances, progress.attempts, phase, before, best)
            bar.update(line, completed=budget_fraction(progress, budget), text=text)
            due = time.monotonic() + PAUSE

    return watch


def budget_fraction(progress: Progress, budget: Budget) -> float:
    """How much of the budget is spent, by the clock or by attempts, whichever is more."""
    by_time = progress.seconds / budget.seconds if budget.seconds else 0.0
    by_attempts = progress.attempts / budget.attempts if budget.attempts else 0.0
    return min(1.0, max(by_time, by_attempts))


def shows_whole_costs(instances: Sequence[Any]) -> bool:
    """Whether the cost that is shown has no decimals; a mean has."""
    return len(instances) == 1 and instances[0].has_integer_costs


def search_status(
    instances: Sequence[Any], attempts: int, best: np.ndarray, latest: np.ndarray
) -> str:
    """Attempts, costs and gap of a search; means over several instances."""
    whole = shows_whole_costs(instances)
    costs = f"best {format_cost(best.mean(), whole)}   latest {format_cost(latest.mean(), whole)}"
    return f"  attempts {attempts:,}   {mean_of(instances)}{costs}{mean_gap_text(instances, best)}"


def phase_status(
    instances: Sequence[Any], attempts: int, phase: str, before: float, best: np.ndarray
) -> str:
    """The same of a phase behind the search, and what it has made of the cost so far."""
    costs = format_cost_change(before, best.mean(), shows_whole_costs(instances))
    return f"  attempts {attempts:,}   {phase} {mean_of(instances)}{costs}{mean_gap_text(instances, best)}"


def mean_of(instances: Sequence[Any]) -> str:
    """What the costs of several instances are."""
    return "mean " if len(instances) > 1 else ""


def mean_gap_text(instances: Sequence[Any], best: np.ndarray) -> str:
    """The mean gap, if all best known costs are known."""
    known = [i.best_known for i in instances]
    return f"   gap {np.mean(best / np.asarray(known) - 1.0):.2%}" if all(known) else ""
