"""Results as text and as JSON: pure functions."""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rhumbline.domains import DOMAINS
from rhumbline.errors import LimitExceeded
from rhumbline.problems import Plan
from rhumbline.problems.cvrp import CVRPInstance
from rhumbline.search.after_search import AfterSearch
from rhumbline.search.solution import CostChange, Solution
from rhumbline.search.task import Task
from rhumbline.search.without_policy.host_task import HostTask

SEPARATOR = "   "  # between the parts of a line


def format_cost(cost: float, whole: bool) -> str:
    """Format a cost with thousands separators; only unrounded metrics have decimals."""
    if whole:
        return f"{cost:,.0f}"
    return f"{cost:,.4f}"


def format_cost_change(before: float, after: float, whole: bool) -> str:
    """Format the cost before and after a phase."""
    cost_before = format_cost(before, whole)
    cost_after = format_cost(after, whole)
    return f"{cost_before} -> {cost_after}"


def format_count(count: int, one: str, many: str) -> str:
    """Format a number with its noun."""
    noun = one if count == 1 else many
    return f"{count:,} {noun}"


class Priced(Protocol):
    """A plan that was priced: a solution, or a plan that was checked."""

    @property
    def instance(self) -> Any:
        """Return the instance, with its best known cost."""

    @property
    def gap(self) -> float | None:
        """Return the relative distance to the best known cost, if there is one."""


def gap_parts(solution: Priced) -> list[str]:
    """Return the optimality gap as a part of a line, or nothing if no best cost is known."""
    gap = solution.gap
    if gap is None:
        return []
    instance = solution.instance
    known = instance.best_known
    whole = instance.has_integer_costs and known == int(known)
    cost = format_cost(known, whole)
    return [f"gap {gap:.2%} to {cost} (best known)"]


def phase_parts(name: str | None, change: CostChange | None, whole: bool) -> list[str]:
    """Return the cost before and after a phase, with what went wrong there, as a part of a line."""
    if change is None:
        return []
    costs = f"{name} {format_cost_change(change.before, change.after, whole)}"
    if change.trouble:
        return [f"{costs} ({change.trouble})"]
    return [costs]


def after_search_parts(solution: Solution, after_search: AfterSearch) -> list[str]:
    """Return the results of the phases besides the search as parts of a line."""
    whole = solution.instance.has_integer_costs
    parts = phase_parts("polish", solution.polish, whole)
    parts += phase_parts(after_search.then, solution.then, whole)
    if solution.phase == "warm start":
        parts.append("nothing better than the warm start")
    if solution.phase == "construction":
        parts.append("from construction")
    if solution.others:
        number = len(solution.others)
        count = format_count(number, "other plan", "other plans")
        texts = [format_cost(other.cost, whole) for other in solution.others]
        costs = ", ".join(texts)
        parts.append(f"{count}: {costs}")
    return parts


def result_line(
    solution: Solution, width: int, written: Sequence[Path], after_search: AfterSearch
) -> str:
    """Format the result of one instance as a line for people.

    `width` is the number of characters for the name; `written` are the files of the instance.
    """
    instance = solution.instance
    cost = format_cost(solution.cost, instance.has_integer_costs)
    excess = excess_over_limit(solution.plan, instance)
    parts = [
        f"{instance.name:<{width}}  cost {cost}",
        *gap_parts(solution),
        *after_search_parts(solution, after_search),
        format_count(solution.attempts, "attempt", "attempts"),
        f"{solution.seconds:.1f} s",
        f"OVER THE LIMIT: {excess}" if excess else "verified",
    ]
    if written:
        paths = ", ".join(map(str, written))
        parts.append(f"-> {paths}")
    return SEPARATOR.join(parts)


def result_json(solution: Solution, problem: str, facts: dict[str, Any]) -> str:
    """Format the result of one instance as JSON; `facts` say how it was found."""
    all_facts = result_facts(solution, problem) | facts
    return json.dumps(all_facts)


def result_facts(solution: Solution, problem: str) -> dict[str, Any]:
    """Return the result of one instance, for JSON.

    The plan has been checked in any case, or the search has raised an error. One that only exceeds
    a limit is not called verified, and has the key "over_limit".
    """
    excess = excess_over_limit(solution.plan, solution.instance)
    found = {
        "name": solution.instance.name,
        "problem": problem,
        "cost": solution.cost,
        "plan": solution.plan.to_file_numbers(solution.instance),
        "attempts": solution.attempts,
        "seconds": round(solution.seconds, 3),
        "verified": excess is None,
        "gap": solution.gap,
    }
    if excess:
        found["over_limit"] = excess
    return found | plan_facts(problem, solution.plan, solution.instance)


def excess_over_limit(plan: Plan, instance: Any) -> str | None:
    """Return by how much a plan exceeds a limit of its instance, such as the number of vehicles.

    None means that it obeys all limits.
    """
    try:
        plan.check(instance)
    except LimitExceeded as error:
        return error.excess
    return None


def plan_facts(problem: str, plan: Any, instance: Any) -> dict[str, Any]:
    """Return what the domain says of a plan besides its numbers, for JSON."""
    domain = DOMAINS.get(problem)
    if domain is None or domain.files.plan_facts is None:
        return {}
    return domain.files.plan_facts(plan, instance)


def after_search_facts(solution: Solution, after_search: AfterSearch) -> dict[str, Any]:
    """Return the results of the phases besides the search, for JSON.

    A phase that was not requested has no key; one that did not begin is null.
    """
    facts: dict[str, Any] = {}
    if after_search.polish:
        facts["polish"] = phase_facts(solution.polish)
    if after_search.then:
        facts["then"] = phase_facts(solution.then, solver=after_search.then)
    if facts or solution.phase != "search":
        facts["phase"] = solution.phase
    if after_search.top > 1:
        facts["plans"] = [
            {
                "cost": found.cost,
                "plan": found.plan.to_file_numbers(solution.instance),
                "phase": found.phase,
                **plan_facts(solution.instance.problem, found.plan, solution.instance),
            }
            for found in (solution, *solution.others)
        ]
    return facts


def phase_facts(change: CostChange | None, **facts: Any) -> dict[str, Any] | None:
    """Return the cost before and after a phase, or None if Ctrl-C came before it began."""
    if change is None:
        return None
    facts |= {"before": change.before, "after": change.after}
    if change.trouble:
        facts["trouble"] = change.trouble
    return facts


def summary_line(solutions: Sequence[Solution]) -> str:
    """Format the mean results of several instances."""
    count = len(solutions)
    costs = [solution.cost for solution in solutions]
    mean_cost = np.mean(costs)
    parts = [
        f"{count:,} instances",
        f"mean cost {mean_cost:,.4f}",
    ]
    gaps = [solution.gap for solution in solutions if solution.gap is not None]
    if len(gaps) == count:
        mean_gap = np.mean(gaps)
        parts.append(f"mean gap {mean_gap:.2%}")
    seconds = solutions[0].seconds
    parts.append(f"{seconds:.1f} s")
    return SEPARATOR.join(parts)


def format_duration(seconds: float) -> str:
    """Format a duration in the two units that suit it: "10 s", "1 min 40 s", "2 h 5 min"."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole_seconds = round(seconds)
    minutes, rest = divmod(whole_seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts: list[str] = []
    if hours:
        parts.append(f"{hours:,} h")
    if minutes:
        parts.append(f"{minutes} min")
    if rest and not hours:
        parts.append(f"{rest} s")
    return " ".join(parts)


def task_line(task: Task, policy: str, search: str) -> str:
    """Format what is about to be searched and how."""
    engine = f"{task.device.type}, {task.resolved_engine}"
    instances = instances_text(task)
    size = task.problem.item_count(task.instances[0])
    starts = task.starts.shape[1]
    if 1 < starts < size:  # a job shop has a single start
        instances += f", {starts:,} of {size:,} starts"
    fleet = fleet_parts(task)
    return SEPARATOR.join([instances, *fleet, policy, search, engine])


def host_task_line(task: HostTask, policy: str, solver: str | None) -> str:
    """Format what is about to be solved without encoding it, and by which solver."""
    search = "construction, then regions" if policy else "construction"
    if solver:
        search += f", then {solver}"
    instances = instances_text(task)
    fleet = fleet_parts(task)
    device = task.device.type
    parts = [instances, *fleet, policy, search, device]
    return SEPARATOR.join(filter(None, parts))


def instances_text(task: Task | HostTask) -> str:
    """Format the name or number of the instances, their size and details."""
    count = len(task.instances)
    first = task.instances[0]
    problem = task.problem
    names = f"{first.name}  "
    if count > 1:
        names = f"{count:,} instances, "
    size = problem.item_count(first)
    items = format_count(size, *problem.nouns)
    details = {instance.details for instance in task.instances}
    all_details = "/".join(sorted(details))
    return f"{names}{problem.solves}, {items}, {all_details}"


def fleet_parts(task: Task | HostTask) -> list[str]:
    """Return the limit on vehicles as a part of a line, if all instances have the same limit."""
    limits: set[int | None] = set()
    for instance in task.instances:
        has_fleet = isinstance(instance, CVRPInstance)
        limits.add(instance.vehicles if has_fleet else None)
    limit = limits.pop()
    if limits or not limit:
        return []
    vehicles = format_count(limit, "vehicle", "vehicles")
    return [f"at most {vehicles}"]


def strategy_text(name: str, strategy: Any) -> str:
    """Format a strategy with its components, if any, and every setting that is not the default."""
    parts = [name]
    for field in fields(strategy):
        value = getattr(strategy, field.name)
        if field.name == "components":
            count = format_count(value, "component", "components")
            parts.append(count)
        elif value != field.default:
            parts.append(f"{field.name} {value}")
    return ", ".join(parts)
