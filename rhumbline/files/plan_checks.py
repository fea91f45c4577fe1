"""Verify and price plans that already exist: what `rhumb check` does."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rhumbline.errors import Infeasible, PlanError
from rhumbline.files.plans import (
    RESULT_SUFFIXES,
    parse_plan,
    pick_results,
    places_for_file,
    read_plan,
    read_plan_results,
)
from rhumbline.problems import Plan


@dataclass(frozen=True)
class PlanCheck:
    """What is found about a plan of a file. The cost is None if the plan cannot be priced."""

    instance: Any
    path: Path
    cost: int | float | None = None
    violation: str | None = None  # None: the plan obeys every rule

    @property
    def gap(self) -> float | None:
        """Return the relative distance to the best known cost, or None without one."""
        known = self.instance.best_known
        if not known or self.cost is None:
            return None
        return (self.cost - known) / abs(known)


def check_plan_files(instances: Sequence[Any], paths: Sequence[Path]) -> Iterator[PlanCheck]:
    """Yield what is found about each plan of the files, matched with instances as warm starts are.

    An instance may have several plans.
    """
    for path in paths:
        is_result = path.suffix.lower() in RESULT_SUFFIXES
        results = read_plan_results(path) if is_result else None
        for place in places_for_file(instances, path, results):
            instance = instances[place]
            if results is None:
                yield check_plan(path, instance)
                continue
            for line, result in pick_results(path, results, instance):
                yield check_result_plan(path, line, result, instance)


def check_plan(path: Path, instance: Any) -> PlanCheck:
    """Return what is found about the plan of a solution file."""
    try:
        return price_plan(path, read_plan(path, instance), instance)
    except PlanError as error:
        return PlanCheck(instance, path, violation=str(error))


def check_result_plan(
    path: Path, line: int | None, result: dict[str, Any], instance: Any
) -> PlanCheck:
    """Return what is found about the plan of a JSON result, which states its cost."""
    try:
        plan = parse_plan(path, line, result["plan"], instance)
    except PlanError as error:
        return PlanCheck(instance, path, violation=str(error))
    found = price_plan(path, plan, instance)
    stated = result.get("cost")
    if found.violation or found.cost is None:
        return found
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return found
    tolerance = 1e-6 * max(1.0, abs(found.cost))  # the stated cost may be rounded
    if abs(stated - found.cost) <= tolerance:
        return found
    message = f"the cost is said to be {stated:,g}, the plan costs {found.cost:,g}"
    violation = str(PlanError.at(path, line, message))
    return PlanCheck(instance, path, found.cost, violation)


def price_plan(path: Path, plan: Plan, instance: Any) -> PlanCheck:
    """Return the cost of a plan that visits what it should, and the limit it exceeds, if any."""
    violation = None
    try:
        plan.check(instance)
    except Infeasible as error:
        violation = str(PlanError.at(path, None, f"is no plan for {error}"))
    return PlanCheck(instance, path, plan.cost(instance), violation)
