"""Results in words and as JSON: pure functions to text."""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from rhumbline.search.after_search import AfterSearch
from rhumbline.search.solution import CostChange, Solution
from rhumbline.search.task import Task

GAP = "   "  # between the parts of a line


def format_cost(cost: float, whole: bool) -> str:
    """A cost with thousands separators; decimals only where the metric has them."""
    return f"{cost:,.0f}" if whole else f"{cost:,.4f}"


def format_cost_change(before: float, after: float, whole: bool) -> str:
    """What a phase made of a cost."""
    return f"{format_cost(before, whole)} -> {format_cost(after, whole)}"


def format_count(count: int, one: str, many: str) -> str:
    """A number with its noun."""
    return f"{count:,} {one if count == 1 else many}"


def gap_parts(solution: Solution) -> list[str]:
    """The distance to the best known cost, if there is one."""
    known = solution.instance.best_known
    whole = solution.instance.has_integer_costs
    if solution.gap is None:
        return []
    return [
        f"gap {solution.gap:.2%} to {format_cost(known, whole and known == int(known))} (best known)"
    ]


def phase_parts(name: str | None, change: CostChange | None, whole: bool) -> list[str]:
    """The cost before and after a phase, and what went wrong there."""
    if change is None:
        return []
    costs = f"{name} {format_cost_change(change.before, change.after, whole)}"
    return [f"{costs} ({change.trouble})" if change.trouble else costs]


def after_search_parts(solution: Solution, finish: AfterSearch) -> list[str]:
    """What came of the phases besides the search."""
    whole = solution.instance.has_integer_costs
    parts = [
        *phase_parts("polish", solution.polish, whole),
        *phase_parts(finish.then, solution.then, whole),
    ]
    if solution.phase == "warm start":
        parts.append("nothing better than the warm start")
    if solution.others:
        costs = ", ".join(format_cost(other.cost, whole) for other in solution.others)
        parts.append(f"{format_count(len(solution.others), 'other plan', 'other plans')}: {costs}")
    return parts


def result_line(
    solution: Solution, width: int, written: Sequence[Path], finish: AfterSearch
) -> str:
    """One instance's result for people."""
    parts = [
        f"{solution.instance.name:<{width}}  cost {format_cost(solution.cost, solution.instance.has_integer_costs)}",
        *gap_parts(solution),
        *after_search_parts(solution, finish),
        format_count(solution.attempts, "attempt", "attempts"),
        f"{solution.seconds:.1f} s",
        "verified",
        *([f"-> {', '.join(map(str, written))}"] if written else []),
    ]
    return GAP.join(parts)


def result_json(solution: Solution, problem: str, facts: dict[str, Any]) -> str:
    """One instance's result for programs; `facts` say how it was found."""
    found = {
        "name": solution.instance.name,
        "problem": problem,
        "cost": solution.cost,
        "plan": solution.plan.to_file_numbers(solution.instance),
        "attempts": solution.attempts,
        "seconds": round(solution.seconds, 3),
        "verified": True,  # `harvest` has checked it, or raised
        "gap": solution.gap,
    }
    return json.dumps(found | facts)


def after_search_facts(solution: Solution, finish: AfterSearch) -> dict[str, Any]:
    """What came of the phases besides the search, for JSON; nothing where none was wanted, null
    where none began.
    """
    facts: dict[str, Any] = {}
    if finish.polish:
        facts["polish"] = phase_facts(solution.polish)
    if finish.then:
        facts["then"] = phase_facts(solution.then, solver=finish.then)
    if facts or solution.phase != "search":
        facts["phase"] = solution.phase
    if finish.top > 1:
        plans = [
            (solution.cost, solution.plan, solution.phase),
            *((o.cost, o.plan, o.phase) for o in solution.others),
        ]
        facts["plans"] = [
            {"cost": c, "plan": p.to_file_numbers(solution.instance), "phase": f}
            for c, p, f in plans
        ]
    return facts


def phase_facts(change: CostChange | None, **facts: Any) -> dict[str, Any] | None:
    """The cost before and after a phase; None if Ctrl-C came before it began."""
    if change is None:
        return None
    trouble = {"trouble": change.trouble} if change.trouble else {}
    return facts | {"before": change.before, "after": change.after} | trouble


def summary_line(solutions: Sequence[Solution]) -> str:
    """The mean over several instances."""
    gaps = [s.gap for s in solutions if s.gap is not None]
    parts = [
        f"{len(solutions):,} instances",
        f"mean cost {np.mean([s.cost for s in solutions]):,.4f}",
    ]
    if len(gaps) == len(solutions):
        parts.append(f"mean gap {np.mean(gaps):.2%}")
    return GAP.join([*parts, f"{solutions[0].seconds:.1f} s"])


def task_line(task: Task, policy: str, search: str) -> str:
    """What is about to be searched and how."""
    return GAP.join(
        [
            instances_text(task),
            *fleet_text(task),
            policy,
            search,
            f"{task.device.type}, {task.resolved_engine}",
        ]
    )


def instances_text(task: Task) -> str:
    """Name or number of the instances, their size, details and starts."""
    several = len(task.instances) > 1
    who = f"{len(task.instances):,} instances, " if several else f"{task.instances[0].name}  "
    one, many = task.problem.nouns
    size = task.problem.item_count(task.instances[0])
    starts = task.starts.shape[1]
    details = "/".join(sorted({i.details for i in task.instances}))
    some = (
        f", {starts:,} of {size:,} starts" if 1 < starts < size else ""
    )  # schedules all start from nothing
    return f"{who}{task.problem.solves}, {format_count(size, one, many)}, {details}{some}"


def fleet_text(task: Task) -> list[str]:
    """The limit on vehicles, if all instances have the same."""
    limits = {getattr(instance, "vehicles", None) for instance in task.instances}
    return [
        f"at most {format_count(limit, 'vehicle', 'vehicles')}"
        for limit in limits
        if limit and len(limits) == 1
    ]


def strategy_text(name: str, strategy: Any) -> str:
    """The strategy, its components if it has some, and every other setting that is not the usual
    one.
    """
    parts = [name]
    for field in fields(strategy):
        value = getattr(strategy, field.name)
        if field.name == "components":
            parts.append(format_count(value, "component", "components"))
        elif value != field.default:
            parts.append(f"{field.name} {value}")
    return ", ".join(parts)
