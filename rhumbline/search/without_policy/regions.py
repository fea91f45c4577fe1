"""Large-neighbourhood search: the policy solves regions of a plan that is too large for it.

A region is an instance of a size that the policy knows. The policy's plan replaces the present
routes if it costs less (measured in docs/polish.md).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rhumbline.problems import Plan
from rhumbline.search.driver import Budget, search
from rhumbline.search.strategies.greedy_sampling import Sampling, Uniform
from rhumbline.search.task import make_task
from rhumbline.search.without_policy.host_task import HostTask


@dataclass(frozen=True)
class RegionSearchTuning:
    """Limits of the search by regions."""

    attempts: int = 1  # of the policy on a region: a solution from each of its customers
    seconds_between_reports: float = 0.3  # a plan of 10,000 customers is checked in 0.02 s
    max_missing: int = 20  # consecutive draws without a region, before the search ends


TUNING = RegionSearchTuning()


@dataclass
class RegionSearch:
    """A search by regions of one plan; `report` is called with better plans."""

    task: HostTask
    regions: Any  # of the domain, such as `problems.cvrp.regions.RouteRegions`
    end: float  # of `time.monotonic()`
    report: Callable[[Plan], None]
    attempts: int = 0  # regions that were solved
    has_news: bool = False
    last_report: float = 0.0

    def run(self) -> None:
        """Solve regions until the time is over; the last report is the best plan of all."""
        rng = np.random.default_rng(self.task.seed)
        missing = 0
        try:
            while time.monotonic() < self.end and missing < TUNING.max_missing:
                region = self.regions.choose(rng)
                missing = missing + 1 if region is None else 0
                if region is not None:
                    self.solve(region)
                if time.monotonic() > self.last_report + TUNING.seconds_between_reports:
                    self.report_news()
        finally:
            self.report_news()

    def solve(self, region: Any) -> None:
        """Let the policy solve a region, and keep its plan if it costs less."""
        policy = self.task.policy
        assert policy is not None, "regions are solved by a policy"
        part = make_task(
            self.task.problem,
            policy,
            [region.instance],
            seed=self.task.seed + self.attempts,
            device=self.task.device,
            engine=self.task.engine,
        )
        strategy: Any = Sampling(population=1, temperature=0.0)
        if policy.space.size:
            strategy = Uniform(population=1, temperature=0.0)
        left = max(1e-3, self.end - time.monotonic())
        solutions, interrupted = search(strategy, part, Budget(TUNING.attempts, left))
        self.task.resolved_engine = part.resolved_engine
        self.attempts += 1
        for solution in solutions:
            if solution.unmet is None and solution.cost < region.cost:
                self.regions.put_back(region, solution.plan)
                self.has_news = True
        if interrupted:
            raise KeyboardInterrupt

    def report_news(self) -> None:
        """Report the plan, if it is better than the one before."""
        self.last_report = time.monotonic()
        if self.has_news:
            self.has_news = False
            self.report(self.regions.plan)
