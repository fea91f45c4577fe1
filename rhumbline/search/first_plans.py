"""Plans before the network has found any: given ones, and constructions on the host.

They are the result of a search that was interrupted, or out of time, before its first plan.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rhumbline.domains import DOMAINS
from rhumbline.problems import Plan
from rhumbline.search.solution import Candidate, Solution, unmet_limit


@dataclass(frozen=True)
class FirstPlansTuning:
    """How long constructions may take."""

    # For the instances of a group after an interruption. 10,000 tours of 100 cities take 3 s.
    max_seconds_after_interrupt: float = 8.0
    # Share of the seconds of a run for the plans that are announced before its search.
    announced_share: float = 0.05


TUNING = FirstPlansTuning()


def construct_plan(instance: Any) -> Plan | None:
    """Return a cheap plan of an instance, or None if its problem has no construction."""
    name = instance.problem
    construct = DOMAINS[name].construct if name in DOMAINS else None
    return construct(instance) if construct else None


def first_candidate(instance: Any, given: Plan | None) -> Candidate | None:
    """Return the given plan, else the constructed one, else None."""
    if given is not None:
        return Candidate(given, given.cost(instance), "warm start")
    plan = construct_plan(instance)
    if plan is None:
        return None
    return Candidate(plan, plan.cost(instance), "construction")


def latest_end(is_interrupted: bool) -> float:
    """Return when constructions have to end: soon after an interruption, otherwise never."""
    if not is_interrupted:
        return math.inf
    return time.monotonic() + TUNING.max_seconds_after_interrupt


def first_solutions(
    instances: Sequence[Any], given: Sequence[Plan | None], seconds: float, end: float = math.inf
) -> list[Solution]:
    """Return verified solutions without a search, for all instances or the first of them.

    They are fewer if the time `end` comes first, or if the problem has no construction. `seconds`
    is what the solutions say that they took.
    """
    solutions = list[Solution]()
    no_plans = [None] * len(instances)
    plans = given or no_plans
    for instance, plan in zip(instances, plans, strict=True):
        candidate = first_candidate(instance, plan)
        if candidate is None or time.monotonic() > end:
            break
        solution = first_solution(instance, candidate, seconds)
        solutions.append(solution)
    return solutions


def first_solution(instance: Any, first: Candidate, seconds: float) -> Solution:
    """Return the verified solution that a plan without an attempt is."""
    unmet = None
    if first.phase == "construction":
        unmet = unmet_limit(first.plan, instance, 0)
    return Solution(instance, first.plan, first.cost, 0, seconds, phase=first.phase, unmet=unmet)


def construct_within(
    instances: Sequence[Any], given: Sequence[Plan | None], seconds: float
) -> Iterator[tuple[int, Plan]]:
    """Yield constructed plans with their rows, while time lasts, where none is given."""
    end = time.monotonic() + seconds
    plans = given or [None] * len(instances)
    for row, (instance, known) in enumerate(zip(instances, plans, strict=True)):
        if time.monotonic() > end:
            return
        plan = None if known is not None else construct_plan(instance)
        if plan is not None:
            yield row, plan
