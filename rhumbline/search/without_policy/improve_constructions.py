"""Plans of large instances: constructed, then improved by regions or by local search."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from rhumbline.problems import Plan
from rhumbline.search.after_search import AfterSearch, AfterSearchRun, Candidates
from rhumbline.search.driver import Budget, Progress
from rhumbline.search.first_plans import first_solutions, latest_end
from rhumbline.search.solution import Candidate, Solution
from rhumbline.search.without_policy.host_task import HostTask, describe_size
from rhumbline.search.without_policy.regions import RegionSearch


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
            if task.policy and budget.seconds:
                search_end, _ = after.phase_ends(budget.seconds)
                search_regions(run, task, instances, run.start_time + search_end)
            run.run_phases(instances)
        except KeyboardInterrupt:
            interrupted = True
    try:
        return [run.result(candidates) for candidates in instances], interrupted
    except KeyboardInterrupt:  # the plans exist; a moment is enough to check them
        return [run.result(candidates) for candidates in instances], True


def first_candidates(solution: Solution, seconds: float) -> Candidates:
    """Return the first plan of an instance, found after some seconds."""
    trace = ((0, seconds, float(solution.cost)),)
    first = replace(solution, seconds=seconds, trace=trace)
    plan = Candidate(solution.plan, solution.cost, solution.phase)
    return Candidates(first, [plan])


def search_regions(
    run: AfterSearchRun, task: HostTask, instances: Sequence[Candidates], end: float
) -> None:
    """Let the policy solve regions of each plan; the instances share the time until `end`."""
    for place, candidates in enumerate(instances):
        now = time.monotonic()
        if now >= end or candidates.solution.unmet:  # regions do not reduce the number of routes
            continue
        waiting = len(instances) - place
        share = (end - now) / waiting

        def keep(plan: Plan, candidates: Candidates = candidates) -> None:
            candidates.improve(plan, "search")
            run.report(instances, "search")

        instance = candidates.solution.instance
        regions = task.domain.require("regions", "a search by regions")
        found = RegionSearch(task, regions(instance, candidates.best.plan), now + share, keep)
        try:
            found.run()
        finally:
            task.account.attempts += found.attempts
            candidates.solution = replace(candidates.solution, attempts=found.attempts)


def plan_of_work(task: HostTask, after: AfterSearch) -> str:
    """Return what is done instead of a search by the policy, for users."""
    size = describe_size(task.instances[0], task.domain)
    if task.policy:
        then = f", then local search ({after.then})" if after.then else ""
        return f"{size}: it solves regions of a constructed plan{then}"
    if after.then:
        return f"{size}: local search ({after.then}) from a constructed plan"
    return f"{size}: a constructed plan is the result; local search needs --seconds"
