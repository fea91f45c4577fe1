"""What a search returns: plans that were checked and priced on the host, and which phase found
them.
"""

from dataclasses import dataclass
from typing import Any

from rhumbline.errors import LimitExceeded
from rhumbline.problems import Plan


@dataclass(frozen=True)
class CostChange:
    """The best cost before and after a phase, and what went wrong in it, if anything did."""

    before: int | float
    after: int | float
    trouble: str = ""


@dataclass(frozen=True)
class Candidate:
    """A verified plan, its cost in the instance's own metric, and the phase that found it."""

    plan: Plan
    cost: int | float
    phase: str


@dataclass(frozen=True, repr=False)
class Solution:
    """A verified plan. `cost` was recomputed on the host in the instance's own metric.

    `unmet` says which limit of the instance the best plan does not keep; `solve` raises it, the
    command line prints it.
    """

    instance: Any
    plan: Plan
    cost: int | float
    attempts: int
    seconds: float
    trace: tuple[tuple[int, float, float], ...] = ()  # attempts, seconds, best cost after each step
    # what found the plan: "warm start", "search", "polish", or the name of a classical solver
    phase: str = "search"
    polish: CostChange | None = None
    then: CostChange | None = None
    others: tuple[Candidate, ...] = ()  # the next best different plans, cheapest first
    unmet: str | None = None

    @property
    def gap(self) -> float | None:
        """Distance to the best known cost as a fraction of it, if one is known."""
        known = self.instance.best_known
        return None if not known else (self.cost - known) / known

    def __repr__(self) -> str:
        gap = "" if self.gap is None else f", gap {self.gap:.2%}"
        spent = f"{self.attempts:,} attempts, {self.seconds:.1f} s"
        return f"<Solution of {self.instance.name}: cost {self.cost:g}{gap}, {spent}>"


def incumbent(
    instance: Any, plan: Plan, warm: Plan | None, attempts: int
) -> tuple[Candidate, str | None]:
    """The plan that a search has found, or the one that it was given, if that is no worse in the
    file's own metric.

    The other half says which limit of the instance the plan does not keep.
    """
    unmet = unmet_limit(plan, instance, attempts)
    cost = plan.cost(instance)
    if warm is not None and (unmet or warm.cost(instance) <= cost):
        return Candidate(warm, warm.cost(instance), "warm start"), None
    return Candidate(plan, cost, "search"), unmet


def unmet_limit(plan: Plan, instance: Any, attempts: int) -> str | None:
    """Check a plan; what to say if it breaks no rule but a limit of its instance."""
    try:
        plan.check(instance)
    except LimitExceeded as error:
        tried = f"{attempts:,} attempt" if attempts == 1 else f"{attempts:,} attempts"
        return f"{error}; {tried} found none within the limit: search longer, or allow more"
    return None
