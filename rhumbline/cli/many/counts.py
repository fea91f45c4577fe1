"""How far a run over many instances is, in numbers and in words."""

import time
from dataclasses import dataclass, field
from typing import ClassVar

from rhumbline.cli.output import render
from rhumbline.search.solution import Solution


@dataclass
class ManyCounts:
    """How far a run is."""

    seconds_between_lines: ClassVar[float] = 5.0

    total: int | None  # instances of our shard, if that is known
    solved: int = 0
    failed: int = 0  # instances without a plan
    over_limit: int = 0  # plans that exceed a limit of their instance
    sum_of_costs: float = 0.0
    start_time: float = field(default_factory=time.monotonic)
    next_line: float = 0.0  # when the next line of progress is due; set at the start

    def __post_init__(self) -> None:
        self.next_line = self.start_time + self.seconds_between_lines

    def count(self, solution: Solution) -> None:
        """Count an instance with a plan."""
        self.solved += 1
        self.sum_of_costs += solution.cost
        self.over_limit += solution.unmet is not None

    @property
    def done(self) -> int:
        """Instances with a result of this run."""
        return self.solved + self.failed

    @property
    def seconds(self) -> float:
        """The seconds since the run began."""
        return time.monotonic() - self.start_time

    def is_line_due(self) -> bool:
        """Return whether it is time for a line of progress; the next one is due later."""
        if time.monotonic() < self.next_line:
            return False
        self.next_line = time.monotonic() + self.seconds_between_lines
        return True

    def rate_text(self) -> str:
        """Format the instances of a second."""
        rate = self.done / max(self.seconds, 1e-9)
        decimals = 0 if rate >= 10 else 2
        return f"{rate:,.{decimals}f} per second"

    def progress_text(self, skipped: int) -> str:
        """Format how many instances are done, how fast, and how long the rest takes."""
        finished = self.done + skipped
        if self.total is None:
            parts = [f"{finished:,} done", self.rate_text()]
            return render.SEPARATOR.join(parts)
        parts = [f"{finished:,} of {self.total:,} done", self.rate_text()]
        if self.done:
            rest = max(0, self.total - finished)
            seconds_per_instance = self.seconds / self.done
            left = render.format_duration(round(rest * seconds_per_instance))
            parts.append(f"about {left} left")
        return render.SEPARATOR.join(parts)

    def summary(self, skipped: int) -> str:
        """Format the end of a run."""
        solved = render.format_count(self.solved, "instance", "instances")
        parts = [f"{solved} solved"]
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        if skipped:
            parts.append(f"{skipped:,} were there already")
        if self.solved:
            mean_cost = self.sum_of_costs / self.solved
            parts.append(f"mean cost {mean_cost:,.4f}")
        seconds = round(self.seconds, 1)
        duration = render.format_duration(seconds)
        parts.append(duration)
        if self.done:
            parts.append(self.rate_text())
        return render.SEPARATOR.join(parts)
