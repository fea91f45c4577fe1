"""Searches without a policy: construct a plan, then let local search improve it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from rhumbline.problems import Plan
from rhumbline.search.after_search import AfterSearch, AfterSearchRun, Candidates
from rhumbline.search.driver import Budget, Progress
from rhumbline.search.first_plans import first_solutions, latest_end
from rhumbline.search.solution import Candidate, Solution
from rhumbline.search.without_policy.host_task import HostTask, describe_size


def improve_constructions(
    task: HostTask,
    budget: Budget,
    watch: Callable[[Progress], None] | None,
    after: AfterSearch,
    warm_start: Sequence[Plan | None] = (),
) -> tuple[list[Solution], bool]:
    """Run all phases after a search on given and constructed plans, within one budget.

    Returns the solutions, and whether Ctrl-C ended the run early. It may come at any time.
    """
    after.check(task.problem.name, budget)
    start_time = time.monotonic() - task.preparation_seconds
    run = AfterSearchRun(task, budget, after, start_time, watch)
    task.account.warm = warm_start
    interrupted = False
    try:
        found = first_solutions(task.instances, warm_start, 0.0)
    except KeyboardInterrupt:
        interrupted = True
        end = latest_end(is_interrupted=True)
        found = first_solutions(task.instances, warm_start, 0.0, end)
    instances = [first_candidates(solution, run.seconds) for solution in found]
    if not interrupted:
        try:
            run.report(instances, "construction")
            run.run_phases(instances)
        except KeyboardInterrupt:
            interrupted = True
    try:
        return [run.result(candidates) for candidates in instances], interrupted
    except KeyboardInterrupt:  # the plans are there, and a moment more is enough
        return [run.result(candidates) for candidates in instances], True


def first_candidates(solution: Solution, seconds: float) -> Candidates:
    """Return the first plan of an instance, found after some seconds."""
    trace = ((0, seconds, float(solution.cost)),)
    first = replace(solution, seconds=seconds, trace=trace)
    plan = Candidate(solution.plan, solution.cost, solution.phase)
    return Candidates(first, [plan])


def plan_of_work(task: HostTask, after: AfterSearch) -> str:
    """Return what is done instead of a search by the policy, for users."""
    size = describe_size(task.instances[0], task.domain)
    if after.then:
        return f"{size}: local search ({after.then}) from a constructed plan"
    return f"{size}: a constructed plan is the result; local search needs --seconds"
