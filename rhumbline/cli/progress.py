"""Live progress on a terminal. Nothing is drawn if stderr is not a terminal."""

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

BarUpdater = Callable[[Progress], None]


class Clock(ProgressColumn):
    """The seconds since the search began; it runs on during long steps."""

    def render(self, task: BarTask) -> Text:
        """Return the time now."""
        return Text(f"{task.elapsed or 0.0:6.1f} s")


@contextmanager
def show_progress(
    instances: Sequence[Any], budget: Budget, quiet: bool
) -> Generator[BarUpdater | None, None, None]:
    """Show a progress bar while the context lasts and yield the function that updates it.

    Yields None if nothing is to be drawn.
    """
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


def make_bar_updater(bar: Bar, line: Any, instances: Sequence[Any], budget: Budget) -> BarUpdater:
    """Return a function that updates the bar, at most every 0.1 s during the search."""
    seconds_between_updates = 0.1  # reading costs waits for the device
    due = time.monotonic()
    phase = "search"
    cost_before_phase = 0.0

    def update(progress: Progress) -> None:
        nonlocal due, phase, cost_before_phase
        if time.monotonic() < due and progress.phase == "search":
            return
        best = np.asarray(progress.best.tolist())
        latest = np.asarray(progress.latest.tolist())
        if progress.phase != phase:  # the first report of a phase comes when it begins
            phase = progress.phase
            cost_before_phase = float(best.mean())
        if phase == "search":
            text = search_status(instances, progress.attempts, best, latest)
        else:
            text = phase_status(instances, progress.attempts, phase, cost_before_phase, best)
        bar.update(line, completed=budget_fraction(progress, budget), text=text)
        due = time.monotonic() + seconds_between_updates

    return update


def budget_fraction(progress: Progress, budget: Budget) -> float:
    """Return the spent fraction of the budget, by time or by attempts, whichever is larger."""
    fraction = 0.0
    if budget.seconds:
        fraction = progress.seconds / budget.seconds
    if budget.attempts:
        fraction = max(fraction, progress.attempts / budget.attempts)
    return min(1.0, fraction)


def search_status(
    instances: Sequence[Any], attempts: int, best: np.ndarray, latest: np.ndarray
) -> str:
    """Format the attempts, costs and gap of a search; costs of several instances are means."""
    whole = shows_whole_costs(instances)
    best_cost = format_cost(best.mean(), whole)
    latest_cost = format_cost(latest.mean(), whole)
    label = mean_label(instances)
    gap = mean_gap_text(instances, best)
    costs = f"{label}best {best_cost}   latest {latest_cost}"
    return f"  attempts {attempts:,}   {costs}{gap}"


def phase_status(
    instances: Sequence[Any], attempts: int, phase: str, before: float, best: np.ndarray
) -> str:
    """Format the same for a phase after the search, with the cost before the phase and now."""
    whole = shows_whole_costs(instances)
    change = format_cost_change(before, best.mean(), whole)
    label = mean_label(instances)
    gap = mean_gap_text(instances, best)
    return f"  attempts {attempts:,}   {phase} {label}{change}{gap}"


def shows_whole_costs(instances: Sequence[Any]) -> bool:
    """Return whether costs are shown without decimals; a mean has decimals."""
    return len(instances) == 1 and instances[0].has_integer_costs


def mean_label(instances: Sequence[Any]) -> str:
    """Return "mean " if the costs shown are means over several instances."""
    return "mean " if len(instances) > 1 else ""


def mean_gap_text(instances: Sequence[Any], best: np.ndarray) -> str:
    """Format the mean optimality gap, or return "" unless all best known costs are known."""
    known = [instance.best_known for instance in instances]
    if not all(known):
        return ""
    costs = np.asarray(known)
    gaps = (best - costs) / np.abs(costs)
    return f"   gap {np.mean(gaps):.2%}"
