"""Progress on stderr: a live bar on a terminal, else a line now and then for many instances."""

import math
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, TextColumn
from rich.progress import Progress as Bar
from rich.progress import Task as BarTask
from rich.text import Text

from rhumbline.cli.output.render import (
    SEPARATOR,
    format_cost,
    format_cost_change,
    format_count,
    format_duration,
)
from rhumbline.cli.process import print_note
from rhumbline.search.driver import Budget, Progress

SECONDS_BETWEEN_LINES = 10.0
ProgressUpdater = Callable[[Progress], None]


@dataclass
class Overview:
    """How far a call is that solves several groups of instances, one after the other."""

    instances: int
    groups: int
    budget: Budget  # of each group
    total_seconds: int | float | None  # of all groups together
    finished: int = 0  # instances
    finished_groups: int = 0
    start_time: float = field(default_factory=time.monotonic)
    group_start: float = 0.0

    def begin_group(self) -> None:
        """Start the clock of a group."""
        self.group_start = time.monotonic()

    def end_group(self, instances: int) -> None:
        """Count a group that is over, with the number of its instances."""
        self.finished += instances
        self.finished_groups += 1

    def plan(self) -> str:
        """Format what is to be done and how long it takes at most."""
        instances = format_count(self.instances, "instance", "instances")
        groups = format_count(self.groups, "group", "groups")
        limit = self.limit_text()
        return f"{instances} in {groups}: {limit}"

    def limit_text(self) -> str:
        """Format the limit of the whole call."""
        seconds = self.budget.seconds
        total = self.total_seconds
        if seconds is None:
            attempts = format_count(self.budget.attempts or 0, "attempt", "attempts")
            return f"{attempts} for each instance"
        sum_of_groups = self.groups * seconds
        if total is not None and total <= sum_of_groups:
            return f"at most {format_duration(total)} in all"
        if self.groups == 1:
            return f"at most {format_duration(seconds)}"
        product = f"{self.groups:,} x {format_duration(seconds)}"
        return f"at most {product} = {format_duration(sum_of_groups)}"

    def seconds_left(self) -> float | None:
        """Return how long the call still takes at most, or None if there is no limit of time."""
        seconds = self.budget.seconds
        if seconds is None:
            return None
        now = time.monotonic()
        of_group = seconds - (now - self.group_start)
        groups_after = self.groups - self.finished_groups - 1
        of_others = groups_after * seconds
        left = max(0.0, of_group) + of_others
        if self.total_seconds is not None:
            spent = now - self.start_time
            left = min(left, self.total_seconds - spent)
        return max(0.0, left)

    def expected_seconds_left(self) -> float | None:
        """Return how long the groups to come take if they are like those before, if any."""
        if not self.finished_groups:
            return None
        groups_left = self.groups - self.finished_groups
        spent = self.group_start - self.start_time
        per_group = spent / self.finished_groups
        in_group = time.monotonic() - self.group_start
        expected = groups_left * per_group
        return max(0.0, expected - in_group)

    def status(self, search: str = "") -> str:
        """Format how many instances are done, how their search is and how much time is left."""
        parts = [f"{self.finished:,} of {self.instances:,} instances done"]
        if search:
            parts.append(search)
        left = self.seconds_left()
        expected = self.expected_seconds_left()
        if left is not None:
            whole_seconds = math.ceil(left)
            duration = format_duration(whole_seconds)
            parts.append(f"at most {duration} left")
        elif expected is not None:
            whole_seconds = math.ceil(expected)
            duration = format_duration(whole_seconds)
            parts.append(f"about {duration} left")
        return SEPARATOR.join(parts)


def is_terminal() -> bool:
    """Return whether stderr is a terminal, where progress is drawn."""
    return sys.stderr.isatty()


class Clock(ProgressColumn):
    """The seconds since the search began; it runs on during long steps."""

    def render(self, task: BarTask) -> Text:
        """Return the time now."""
        seconds = task.elapsed or 0.0
        return Text(f"{seconds:6.1f} s")


@contextmanager
def show_progress(
    instances: Sequence[Any], budget: Budget, overview: Overview
) -> Generator[ProgressUpdater | None, None, None]:
    """Show the progress of a group while the context lasts and yield the function that updates it.

    That is a bar on a terminal. Elsewhere it is a line every `SECONDS_BETWEEN_LINES` if the call
    has several instances, and None for a single one.
    """
    if not is_terminal():
        several = overview.instances > 1
        yield make_line_printer(instances, overview) if several else None
        return
    columns = (
        TextColumn("  "),
        BarColumn(24),
        Clock(),
        TextColumn("{task.fields[text]}", markup=False),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("", total=1.0, text="")
        yield make_bar_updater(bar, line, instances, budget, overview)


def make_line_printer(instances: Sequence[Any], overview: Overview) -> ProgressUpdater:
    """Return a function that prints a line of progress whenever one is due."""
    due = time.monotonic() + SECONDS_BETWEEN_LINES
    describe = make_describer(instances)

    def update(progress: Progress) -> None:
        nonlocal due
        if time.monotonic() < due and progress.phase == "search":
            return
        text = describe(progress).strip()
        if time.monotonic() >= due:
            print_note(overview.status(text))
            due = time.monotonic() + SECONDS_BETWEEN_LINES

    return update


def make_bar_updater(
    bar: Bar,
    line: Any,
    instances: Sequence[Any],
    budget: Budget,
    overview: Overview | None = None,
) -> ProgressUpdater:
    """Return a function that updates the bar, at most every 0.1 s during the search.

    The bar of a call with several instances also says how many are done, and the time left.
    """
    seconds_between_updates = 0.1  # reading costs waits for the device
    due = time.monotonic()
    describe = make_describer(instances)

    def update(progress: Progress) -> None:
        nonlocal due
        is_early = time.monotonic() < due
        if is_early and progress.phase == "search":
            return
        text = describe(progress)
        if overview and overview.instances > 1:
            text = "  " + overview.status(text.strip())
        fraction = budget_fraction(progress, budget)
        bar.update(line, completed=fraction, text=text)
        due = time.monotonic() + seconds_between_updates

    return update


def make_describer(instances: Sequence[Any]) -> Callable[[Progress], str]:
    """Return a function that formats reports, which must include the first one of each phase."""
    phase = "search"
    cost_before_phase = 0.0

    def describe(progress: Progress) -> str:
        nonlocal phase, cost_before_phase
        best = np.asarray(progress.best.tolist())
        latest = np.asarray(progress.latest.tolist())
        is_new_phase = progress.phase != phase
        if is_new_phase:  # the first report of a phase comes when it begins
            phase = progress.phase
            cost_before_phase = float(best.mean())
        if phase == "search":
            status = search_status(instances, progress.attempts, best, latest)
            return status + solver_text(progress.solver)
        return phase_status(instances, progress.attempts, phase, cost_before_phase, best)

    return describe


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


def solver_text(solver: str | None) -> str:
    """Format the solver that works at the same time as a search, if there is one."""
    return f"   with {solver}" if solver else ""


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
    is_single = len(instances) == 1
    return is_single and instances[0].has_integer_costs


def mean_label(instances: Sequence[Any]) -> str:
    """Return "mean " if the costs shown are means over several instances."""
    has_several = len(instances) > 1
    return "mean " if has_several else ""


def mean_gap_text(instances: Sequence[Any], best: np.ndarray) -> str:
    """Format the mean optimality gap, or return "" unless all best known costs are known."""
    known = [instance.best_known for instance in instances]
    if not all(known):
        return ""
    costs = np.asarray(known)
    excess = best - costs
    gaps = excess / np.abs(costs)
    mean_gap = np.mean(gaps)
    return f"   gap {mean_gap:.2%}"
