"""The work of `rhumb solve`: read and check everything, search each group, write and print."""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO, cast

import torch

from rhumbline import api
from rhumbline.checkpoint import TrainingFacts
from rhumbline.cli import render
from rhumbline.cli.output_files import (
    OutputPaths,
    check_replaceable,
    plan_stems,
    prepare_folder,
    unique_stems,
)
from rhumbline.cli.process import INTERRUPTED, defer_signals, print_note, print_result
from rhumbline.cli.progress import show_progress
from rhumbline.cli.solve_request import SolveRequest
from rhumbline.errors import Infeasible, InputError
from rhumbline.formats import plan_suffix_for, write_plan
from rhumbline.formats.discovery import find_instance_files
from rhumbline.formats.plans import match_plan_files
from rhumbline.formats.safe_io import error_reason
from rhumbline.inputs import instances_from
from rhumbline.policies import Policy
from rhumbline.search.after_search import AfterSearch, solve_task
from rhumbline.search.driver import collect_solutions
from rhumbline.search.solution import Solution
from rhumbline.search.strategies import possible_defaults
from rhumbline.search.strategy import as_strategy
from rhumbline.search.task import Task

# Times the largest training instance; beyond it local search finds much that the policy misses.
FAR_FROM_TRAINING = 1.5


@dataclass(frozen=True)
class Verbosity:
    """What to print."""

    as_json: bool
    quiet: bool

    def note(self, line: str) -> None:
        """Print a line on stderr, unless --quiet was given."""
        if not self.quiet:
            print_note(line)


@dataclass(frozen=True)
class SolveContext:
    """All that a group needs besides its task."""

    request: SolveRequest
    paths: OutputPaths
    verbosity: Verbosity
    policies: dict[str, tuple[Policy[Any, Any, Any], TrainingFacts]]  # by problem
    after_search: AfterSearch
    warm_starts: Sequence[Any]  # a plan for each instance, or None
    files: Sequence[Path]  # where each instance comes from


def solve_files(
    places: Sequence[Path], request: SolveRequest, paths: OutputPaths, verbosity: Verbosity
) -> int:
    """Solve all instances of all files and return the exit code.

    Everything is read and checked before the first search.
    """
    files: list[Path] = []
    instances: list[Any] = []
    for file in [file for place in places for file in find_instance_files(place)]:
        found = instances_from(file, request.vehicles)
        instances += found
        files += [file] * len(found)
    warm_starts = match_plan_files(instances, request.after.warm_starts)
    after_search = request.after.after_search(None)
    problems = api.problem_names(instances)
    for problem in problems:
        after_search.check(problem, request.budget)
    paths = prepare_output_paths(paths, instances, request.after.top)
    policies = {
        problem: api.load_policy_with_facts(request.policy, problem) for problem in problems
    }
    for policy, _ in policies.values():
        request.pick_strategy(possible_defaults(policy))  # refuses wrong settings
    if not request.has_budget:
        verbosity.note(
            "no budget given: up to 1,600 attempts or 30 seconds, whichever comes first "
            "(--attempts, --seconds)"
        )
    with open_trace(request.after.trace) as trace:
        after_search = request.after.after_search(trace)
        context = SolveContext(
            request, paths, verbosity, policies, after_search, warm_starts, files
        )
        return solve_groups(instances, context)


@contextmanager
def open_trace(path: Path | None) -> Generator[TextIO | None, None, None]:
    """Open the file for improvements, which is written line by line; yield None without one."""
    if path is None:
        yield None
        return
    try:
        file = path.open("w", encoding="utf-8", buffering=1)
    except (OSError, ValueError) as error:
        message = f"{path}: cannot be written: {error_reason(error)}; choose another place"
        raise InputError(message) from error
    with file:
        yield file


def prepare_output_paths(paths: OutputPaths, instances: Sequence[Any], top: int) -> OutputPaths:
    """Add the file names of each instance for its best `top` plans, and test all places."""
    stems = plan_stems(unique_stems([instance.name for instance in instances]), top)
    suffixes = tuple(plan_suffix_for(instance) for instance in instances)
    paths = replace(paths, stems=tuple(stems), suffixes=suffixes)
    if paths.plot:
        from rhumbline.plots import require_matplotlib

        require_matplotlib()
    if paths.output or paths.plot:
        prepare_folder(paths.output or Path())
        for place in range(len(instances)):
            check_replaceable(paths.files(place, top))
    return paths


def solve_groups(instances: Sequence[Any], context: SolveContext) -> int:
    """Solve one group after the other until all are done or a signal comes.

    Return the exit code.
    """
    finished = 0
    unmet = 0
    try:
        for found in solve_each_group(instances, context):
            finished += len(found)
            unmet += sum(solution.unmet is not None for solution in found)
    except KeyboardInterrupt:
        report_interruption(finished, len(instances), context.verbosity)
        return INTERRUPTED
    return Infeasible.exit_code if unmet else 0


def solve_each_group(instances: Sequence[Any], context: SolveContext) -> Iterator[list[Solution]]:
    """Yield the solutions of each group after they were written and printed."""
    request = context.request
    device = api.find_device(request.device)
    if request.threads:
        torch.set_num_threads(request.threads)  # the fused engine uses this number too
    policies = {problem: policy for problem, (policy, _) in context.policies.items()}
    groups = api.make_tasks(
        instances,
        policies,
        seed=request.seed,
        device=device,
        engine=request.engine,
        augment=request.augment,
        strategy=request.strategy,
    )
    for group, task in groups:
        context.verbosity.note(group_header(task, context))
        for warning in group_warnings(task, context):
            context.verbosity.note(warning)
        warm = [context.warm_starts[place] for place in group.places]
        found, interrupted = run_search(task, context, warm)
        with defer_signals():
            write_results(group, found, task, context)
            yield found
        if interrupted:
            raise KeyboardInterrupt


def group_header(task: Task, context: SolveContext) -> str:
    """Return the line before a group."""
    request = context.request
    problem = task.problem.solves
    _, facts = context.policies[problem]
    policy = f"policy {request.policy_name(problem)} (trained at {facts.trained_at})"
    search = render.strategy_text(*request.strategy_for(task))
    if task.copies > 1:
        search += f", {task.copies} symmetries"
    return render.task_line(task, policy, search)


def group_warnings(task: Task, context: SolveContext) -> Iterator[str]:
    """Yield what a user should know before the search of a group."""
    _, facts = context.policies[task.problem.solves]
    after_search = context.after_search
    count = task.problem.item_count(task.instances[0])
    is_far = count > FAR_FROM_TRAINING * facts.largest
    if is_far and not (after_search.polish or after_search.then):
        size = render.format_count(count, *task.problem.nouns)
        advice = "expect a larger gap, and try --polish"
        yield f"{size} are far beyond what this policy was trained at: {advice}"


def run_search(
    task: Task, context: SolveContext, warm: Sequence[Any]
) -> tuple[list[Solution], bool]:
    """Search a group and return verified solutions, and whether a signal ended the search."""
    request = context.request
    began = time.monotonic()
    name, strategy = request.strategy_for(task)
    with show_progress(task.instances, request.budget, context.verbosity.quiet) as watch:
        try:
            found, interrupted = solve_task(
                strategy, task, request.budget, watch, context.after_search, warm
            )
        except KeyboardInterrupt:  # it came after the search, while plans were being checked
            found = collect_solutions(task, time.monotonic() - began, ())
            interrupted = True
    if interrupted:
        return found, True
    if not found:
        raise Infeasible("the search ended without a plan")
    attempts = found[0].attempts
    if as_strategy(strategy).finite and attempts != request.attempts:
        made = render.format_count(attempts, "attempt", "attempts")
        limit = f" of {request.attempts:,}" if request.attempts else ""
        context.verbosity.note(f"{name} ended by itself after {made}{limit}: it repeats nothing")
    return found, False


def write_results(
    group: api.Group, found: Sequence[Solution], task: Task, context: SolveContext
) -> None:
    """Write all files of a group, then print its results.

    Plans that exceed a limit are neither written nor printed: they are reported as errors.
    """
    kept: list[tuple[int, Solution]] = []
    for place, solution in zip(group.places, found, strict=False):
        if not solution.unmet:
            kept.append((place, solution))
    for place, solution in kept:
        write_files(place, solution, context)
    print_results(kept, task, context)
    for solution in found:
        if solution.unmet:
            print_note(f"error: {solution.unmet}")


def print_results(kept: Sequence[tuple[int, Solution]], task: Task, context: SolveContext) -> None:
    """Print the result of each instance of a group, and their mean on stderr."""
    problem = task.problem
    after_search = context.after_search.settled(problem.name)
    solutions = [solution for _, solution in kept]
    width = max((len(solution.instance.name) for solution in solutions), default=0)
    for place, solution in kept:
        if context.verbosity.as_json:
            facts = context.request.facts(task)
            facts["file"] = str(context.files[place])  # several may hold instances of one name
            facts |= render.after_search_facts(solution, after_search)
            line = render.result_json(solution, problem.solves, facts)
        else:
            written = context.paths.files(place, 1 + len(solution.others))
            line = render.result_line(solution, width, written, after_search)
        print_result(line)
    if len(solutions) > 1:
        context.verbosity.note(render.summary_line(solutions))


def write_files(place: int, solution: Solution, context: SolveContext) -> None:
    """Write the plans of an instance (--output) and its picture (--plot)."""
    instance = solution.instance
    found = [solution, *solution.others]
    files = context.paths.plans(place, len(found))  # none without --output
    for file, one in zip(files, found, strict=False):
        cost = render.format_cost(one.cost, instance.has_integer_costs).replace(",", "")
        write_plan(file, cast(Any, one.plan), instance, f"cost {cost}, found by rhumbline")
    picture = context.paths.picture(place)
    if picture:
        from rhumbline.plots import save_plan

        save_plan(picture, instance, cast(Any, solution.plan))


def report_interruption(finished: int, total: int, verbosity: Verbosity) -> None:
    """Print what an interruption left; missing results are reported even with --quiet."""
    if not finished:
        print_note("interrupted before any plan was found")
    elif finished < total:
        print_note(f"interrupted; {total - finished:,} of {total:,} instances were not reached")
    else:
        verbosity.note("interrupted; these plans are the best found so far")
