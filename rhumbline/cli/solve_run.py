"""The work of `rhumb solve`: read everything, check everything, search group by group, write and
print.
"""

import json
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TextIO, cast

import torch
import typer

from rhumbline import api, inputs
from rhumbline.checkpoint import DEFAULT_CHECKPOINTS, TrainingFacts
from rhumbline.cli import render
from rhumbline.cli.output_files import check_replaceable, plan_stems, prepare_folder, unique_stems
from rhumbline.cli.process import INTERRUPTED, defer_signals, print_note, print_result
from rhumbline.cli.progress import show_progress
from rhumbline.decoding import EngineName
from rhumbline.errors import Infeasible, InputError
from rhumbline.formats import plan_suffix_for, write_plan
from rhumbline.formats.discovery import find_instance_files
from rhumbline.formats.plans import match_plan_files
from rhumbline.formats.safe_io import error_reason
from rhumbline.improvers import SOLVER_NAMES
from rhumbline.policies import Policy
from rhumbline.search.after_search import AfterSearch, Improvement, solve_task
from rhumbline.search.driver import Budget, collect_solutions
from rhumbline.search.solution import Solution
from rhumbline.search.strategies import (
    DEFAULT_STRATEGIES,
    build_strategy,
    default_strategy,
    default_strategy_for_task,
    possible_defaults,
    strategy_class,
)
from rhumbline.search.task import Task

# times the largest instance of training; from there on local moves find much that the policy misses
FAR = 1.5


@dataclass(frozen=True)
class AfterSearchOptions:
    """What is wanted besides a search."""

    warm: tuple[Path, ...] = ()
    polish: bool = False
    then: str | None = None
    top: int = 1
    trace: Path | None = None

    def check_usage(self, seconds: float | None) -> None:
        """Refuse what no installation could do."""
        if self.then is not None and self.then not in SOLVER_NAMES:
            known = ", ".join(SOLVER_NAMES)
            raise typer.BadParameter(
                f"'{self.then}' is not known; known: {known}", param_hint="--then"
            )
        if self.then is not None and seconds is None:
            raise typer.BadParameter(
                "it takes the second half of the --seconds, so give them", param_hint="--then"
            )

    def finish(self, file: TextIO | None) -> AfterSearch:
        """The same for the driver; improvements are written to the file."""
        return AfterSearch(
            self.top,
            self.polish,
            self.then,
            None if file is None else lambda x: write_trace_line(file, x),
        )


@dataclass(frozen=True)
class SolveRequest:
    """What to search with."""

    strategy: Any  # None, and no name: by the policy, with the settings
    search: str | None
    policy: str | None
    attempts: int | None
    seconds: float | None
    seed: int
    device: str
    engine: EngineName
    threads: int | None = None
    augment: int = 1
    vehicles: int | None = None  # most of a plan; None leaves it to the files
    after: AfterSearchOptions = AfterSearchOptions()
    settings: tuple[str, ...] = ()

    def policy_name(self, problem: str) -> str:
        """The policy as the user calls it."""
        return self.policy or DEFAULT_CHECKPOINTS[problem]

    @property
    def budget(self) -> Budget:
        """The user's, or the usual one."""
        return (
            Budget(self.attempts, self.seconds)
            if self.attempts or self.seconds
            else api.DEFAULT_BUDGET
        )

    def strategy_for(self, task: Task) -> tuple[str, Any]:
        """The strategy for a task and its name."""
        return self.named(default_strategy_for_task(task), default_strategy(task.policy))

    def named(self, *usually: str) -> tuple[str, Any]:
        """The strategy that the user wants, or the first of the usual ones that takes the
        settings, and its name.
        """
        if self.search or self.strategy:
            name = self.search or usually[0]
            return name, self.strategy or choose_strategy(name, self.settings)
        return first_strategy_accepting(self.settings, usually)

    def facts(self, task: Task) -> dict[str, Any]:
        """How a result was found, for JSON."""
        policy = self.policy_name(task.problem.solves)
        facts = {
            "search": self.strategy_for(task)[0],
            "policy": policy,
            "engine": task.resolved_engine,
            "seed": self.seed,
        }
        return facts | ({"augment": self.augment} if self.augment > 1 else {})


@dataclass(frozen=True)
class OutputPaths:
    """Where files go; `stems` has names for the plans of each instance once these are known,
    that of the best first.
    """

    output: Path | None
    plot: bool
    stems: tuple[tuple[str, ...], ...] = ()
    endings: tuple[str, ...] = ()  # of the plan files: .tour, .sol

    def plans(self, place: int, count: int) -> list[Path]:
        """The files for so many plans of an instance, if they are wanted."""
        if self.output is None:
            return []
        return [self.output / f"{stem}{self.endings[place]}" for stem in self.stems[place][:count]]

    def picture(self, place: int) -> Path | None:
        """The picture of an instance, if one is wanted."""
        return (self.output or Path()) / f"{self.stems[place][0]}.png" if self.plot else None

    def files(self, place: int, count: int) -> list[Path]:
        """All files of an instance that has so many plans."""
        return [*self.plans(place, count), *filter(None, [self.picture(place)])]


@dataclass(frozen=True)
class Verbosity:
    """What to print."""

    as_json: bool
    quiet: bool

    def note(self, line: str) -> None:
        """A line on stderr, unless silence is wanted."""
        if not self.quiet:
            print_note(line)


@dataclass(frozen=True)
class SolveContext:
    """All that a group needs besides its task."""

    request: SolveRequest
    places: OutputPaths
    talk: Verbosity
    policies: dict[str, tuple[Policy[Any, Any, Any], TrainingFacts]]  # by problem
    finish: AfterSearch
    warm: Sequence[Any]  # a plan for each instance, or None
    files: Sequence[Path]  # where each instance comes from


def choose_strategy(name: str, settings: Sequence[str]) -> Any:
    """The strategy of a name with settings; whatever is wrong there is wrong usage."""
    hint = "--search"
    try:
        strategy_class(name)
        hint = "--set"
        return build_strategy(name, settings)
    except InputError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from error


def first_strategy_accepting(settings: Sequence[str], names: Sequence[str]) -> tuple[str, Any]:
    """The first strategy that takes the settings, and its name.

    If none does, the reason is told of the first one that has such fields, or else of the very
    first.
    """
    refused = dict[str, typer.BadParameter]()
    wanted = {text.partition("=")[0].strip() for text in settings}
    for name in names:
        try:
            return name, choose_strategy(name, settings)
        except typer.BadParameter as error:
            refused[name] = error
    able = (
        name for name in names if wanted <= {field.name for field in fields(strategy_class(name))}
    )
    raise refused[next(able, names[0])]


def check_default_settings(settings: Sequence[str]) -> None:
    """Refuse what no strategy takes that comes without a name; which of them it will be depends
    on the files.
    """
    first_strategy_accepting(settings, DEFAULT_STRATEGIES)


def solve_files(
    files: Sequence[Path], request: SolveRequest, places: OutputPaths, talk: Verbosity
) -> int:
    """Solve all instances of all files; nothing is searched before everything has been read and
    checked.
    """
    found = [file for place in files for file in find_instance_files(place)]
    read = [
        (file, instance)
        for file in found
        for instance in inputs.instances_from(file, request.vehicles)
    ]
    files = [file for file, _ in read]
    instances = [instance for _, instance in read]
    warm = match_plan_files(instances, request.after.warm)
    finish = request.after.finish(None)
    for problem in api.problem_names(instances):
        finish.check(problem, request.budget)
    places = prepare_output_paths(places, instances, request.after.top)
    policies = {
        problem: api.load_policy_with_facts(request.policy, problem)
        for problem in api.problem_names(instances)
    }
    for policy, _ in policies.values():
        request.named(*possible_defaults(policy))  # refuses wrong settings
    if not request.attempts and not request.seconds:
        talk.note(
            "no budget given: up to 1,600 attempts or 30 seconds, whichever comes first (--attempts, --seconds)"
        )
    with open_trace(request.after.trace) as file:
        finish = request.after.finish(file)
        return solve_groups(
            instances, SolveContext(request, places, talk, policies, finish, warm, files)
        )


@contextmanager
def open_trace(path: Path | None) -> Generator[TextIO | None, None, None]:
    """The file for improvements, written line by line, if one is wanted."""
    if path is None:
        yield None
        return
    try:
        file = path.open("w", encoding="utf-8", buffering=1)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be written: {error_reason(error)}; choose another place"
        ) from error
    with file:
        yield file


def write_trace_line(file: TextIO, found: Improvement) -> None:
    """One improvement as a line of JSON."""
    facts = {
        "name": found.instance.name,
        "attempts": found.attempts,
        "seconds": round(found.seconds, 3),
    }
    file.write(json.dumps(facts | {"cost": found.cost, "phase": found.phase}) + "\n")


def prepare_output_paths(places: OutputPaths, instances: Sequence[Any], top: int) -> OutputPaths:
    """Places with names for so many plans of each instance, every folder made and tried."""
    endings = tuple(plan_suffix_for(i) for i in instances)
    named = replace(
        places,
        stems=tuple(plan_stems(unique_stems([i.name for i in instances]), top)),
        endings=endings,
    )
    if places.plot:
        from rhumbline.plots import require_matplotlib

        require_matplotlib()
    if places.output or places.plot:
        prepare_folder(places.output or Path())
        check_replaceable(
            path for place in range(len(instances)) for path in named.files(place, top)
        )
    return named


def solve_groups(instances: Sequence[Any], context: SolveContext) -> int:
    """Groups one after the other until all are done or a signal comes; the exit code."""
    finished = 0
    unmet = 0
    try:
        for found in solve_each_group(instances, context):
            finished += len(found)
            unmet += sum(solution.unmet is not None for solution in found)
    except KeyboardInterrupt:
        report_interruption(finished, len(instances), context.talk)
        return INTERRUPTED
    return Infeasible.exit_code if unmet else 0


def solve_each_group(instances: Sequence[Any], context: SolveContext) -> Iterator[list[Solution]]:
    """The solutions of each group, after they were written and printed."""
    request = context.request
    device = api.find_device(request.device)
    if request.threads:
        torch.set_num_threads(request.threads)  # the fused engine goes by it too
    policies = {problem: policy for problem, (policy, _) in context.policies.items()}
    how: dict[str, Any] = {
        "engine": request.engine,
        "augment": request.augment,
        "strategy": request.strategy,
    }
    for group, task in api.make_tasks(instances, policies, seed=request.seed, device=device, **how):
        context.talk.note(group_header(task, context))
        for remark in group_warnings(task, context):
            context.talk.note(remark)
        found, interrupted = run_search(
            task, context, [context.warm[place] for place in group.places]
        )
        with defer_signals():
            write_results(group, found, task, context)
            yield found
        if interrupted:
            raise KeyboardInterrupt


def group_header(task: Task, context: SolveContext) -> str:
    """The line before a group."""
    request = context.request
    problem = task.problem.solves
    policy = f"policy {request.policy_name(problem)} (trained at {context.policies[problem][1].trained_at})"
    search = render.strategy_text(*request.strategy_for(task))
    copies = f", {task.copies} symmetries" if task.copies > 1 else ""
    return render.task_line(task, policy, search + copies)


def group_warnings(task: Task, context: SolveContext) -> Iterator[str]:
    """What a user should know before the search of a group."""
    about = context.policies[task.problem.solves][1]
    finish = context.finish
    count = task.problem.item_count(task.instances[0])
    if count > FAR * about.largest and not (finish.polish or finish.then):
        much = render.format_count(count, *task.problem.nouns)
        yield f"{much} are far beyond what this policy was trained at: expect a larger gap, and try --polish"


def run_search(
    task: Task, context: SolveContext, warm: Sequence[Any]
) -> tuple[list[Solution], bool]:
    """Verified incumbents, and whether a signal ended the search."""
    request = context.request
    began = time.monotonic()
    name, strategy = request.strategy_for(task)
    with show_progress(task.instances, request.budget, context.talk.quiet) as watch:
        try:
            found, interrupted = solve_task(
                strategy, task, request.budget, watch, context.finish, warm
            )
        except KeyboardInterrupt:  # it came after the search, while plans were being checked
            found = collect_solutions(task, time.monotonic() - began, ())
            interrupted = True
    if not found and not interrupted:
        raise Infeasible("the search ended without a plan")
    if (
        not interrupted
        and getattr(strategy, "ends", False)
        and found[0].attempts != request.attempts
    ):
        made = render.format_count(found[0].attempts, "attempt", "attempts")
        limit = f" of {request.attempts:,}" if request.attempts else ""
        context.talk.note(f"{name} ended by itself after {made}{limit}: it repeats nothing")
    return found, interrupted


def write_results(
    group: api.Group, found: Sequence[Solution], task: Task, context: SolveContext
) -> None:
    """Write all files of a group, then print its results; plans that miss a limit are errors
    instead.
    """
    kept = [(place, s) for place, s in zip(group.places, found, strict=False) if not s.unmet]
    finish = context.finish.settled(task.problem.name)
    for place, solution in kept:
        write_files(place, solution, context)
    width = max((len(s.instance.name) for _, s in kept), default=0)
    for place, solution in kept:
        if context.talk.as_json:
            source = {"file": str(context.files[place])}  # several may have the same name inside
            facts = (
                context.request.facts(task) | source | render.after_search_facts(solution, finish)
            )
            print_result(render.result_json(solution, task.problem.solves, facts))
        else:
            written = context.places.files(place, 1 + len(solution.others))
            print_result(render.result_line(solution, width, written, finish))
    if len(kept) > 1:
        context.talk.note(render.summary_line([s for _, s in kept]))
    for solution in found:
        if solution.unmet:
            print_note(f"error: {solution.unmet}")


def write_files(place: int, solution: Solution, context: SolveContext) -> None:
    """The plans and the picture of an instance, as far as wanted."""
    found = [
        (solution.plan, solution.cost),
        *((other.plan, other.cost) for other in solution.others),
    ]
    for file, (plan, cost) in zip(
        context.places.plans(place, len(found)), found, strict=False
    ):  # none if not wanted
        text = render.format_cost(cost, solution.instance.has_integer_costs).replace(",", "")
        write_plan(file, cast(Any, plan), solution.instance, f"cost {text}, found by rhumbline")
    if picture := context.places.picture(place):
        from rhumbline.plots import save_plan

        save_plan(picture, solution.instance, cast(Any, solution.plan))


def report_interruption(finished: int, total: int, talk: Verbosity) -> None:
    """Say what an interruption left; missing results are said even where silence is wanted."""
    if not finished:
        print_note("interrupted before any plan was found")
    elif finished < total:
        print_note(f"interrupted; {total - finished:,} of {total:,} instances were not reached")
    else:
        talk.note("interrupted; these plans are the best found so far")
