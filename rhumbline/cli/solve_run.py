"""The work of `rhumb solve`: read everything, check everything, search group by group, write and print."""

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
from rhumbline.checkpoint import DEFAULT, About
from rhumbline.cli import render
from rhumbline.cli.output_files import free, ranked, ready, stems
from rhumbline.cli.process import INTERRUPTED, emit, say, undisturbed
from rhumbline.cli.progress import drawn
from rhumbline.decoding import Engine
from rhumbline.errors import Infeasible, InputError
from rhumbline.formats import ending_of, write_plan
from rhumbline.formats.discovery import instance_files
from rhumbline.formats.plans import matched
from rhumbline.formats.safe_io import reason
from rhumbline.improvers import NAMES
from rhumbline.policies import Policy
from rhumbline.search.after_search import Finish, Improvement, complete
from rhumbline.search.driver import Budget, harvest
from rhumbline.search.solution import Solution
from rhumbline.search.strategies import UNNAMED, named, possible, strategy_class, usual, usual_for
from rhumbline.search.task import Task

FAR = 1.5  # times the largest instance of training; from there on local moves find much that the policy misses


@dataclass(frozen=True)
class Afterwards:
    """What is wanted besides a search."""

    warm: tuple[Path, ...] = ()
    polish: bool = False
    then: str | None = None
    top: int = 1
    trace: Path | None = None

    def check_usage(self, seconds: float | None) -> None:
        """Refuse what no installation could do."""
        if self.then is not None and self.then not in NAMES:
            known = ", ".join(NAMES)
            raise typer.BadParameter(f"'{self.then}' is not known; known: {known}", param_hint="--then")
        if self.then is not None and seconds is None:
            raise typer.BadParameter("it takes the second half of the --seconds, so give them", param_hint="--then")

    def finish(self, file: TextIO | None) -> Finish:
        """The same for the driver; improvements are written to the file."""
        return Finish(self.top, self.polish, self.then, None if file is None else lambda x: trace_line(file, x))


@dataclass(frozen=True)
class Request:
    """What to search with."""

    strategy: Any  # None, and no name: by the policy, with the settings
    search: str | None
    policy: str | None
    attempts: int | None
    seconds: float | None
    seed: int
    device: str
    engine: Engine
    threads: int | None = None
    augment: int = 1
    vehicles: int | None = None  # most of a plan; None leaves it to the files
    after: Afterwards = Afterwards()
    settings: tuple[str, ...] = ()

    def policy_name(self, problem: str) -> str:
        """The policy as the user calls it."""
        return self.policy or DEFAULT[problem]

    @property
    def budget(self) -> Budget:
        """The user's, or the usual one."""
        return Budget(self.attempts, self.seconds) if self.attempts or self.seconds else api.DEFAULT_BUDGET

    def chosen(self, task: Task) -> tuple[str, Any]:
        """The strategy for a task and its name."""
        return self.named(usual_for(task), usual(task.policy))

    def named(self, *usually: str) -> tuple[str, Any]:
        """The strategy that the user wants, or the first of the usual ones that takes the settings, and its name."""
        if self.search or self.strategy:
            name = self.search or usually[0]
            return name, self.strategy or choose_strategy(name, self.settings)
        return first_taking(self.settings, usually)

    def facts(self, task: Task) -> dict[str, Any]:
        """How a result was found, for JSON."""
        policy = self.policy_name(task.problem.solves)
        facts = {"search": self.chosen(task)[0], "policy": policy, "engine": task.taken_engine, "seed": self.seed}
        return facts | ({"augment": self.augment} if self.augment > 1 else {})


@dataclass(frozen=True)
class Places:
    """Where files go; `stems` has names for the plans of each instance once these are known, that of the best first."""

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
class Talk:
    """What to print."""

    as_json: bool
    quiet: bool

    def note(self, line: str) -> None:
        """A line on stderr, unless silence is wanted."""
        if not self.quiet:
            say(line)


@dataclass(frozen=True)
class Context:
    """All that a group needs besides its task."""

    request: Request
    places: Places
    talk: Talk
    policies: dict[str, tuple[Policy[Any, Any, Any], About]]  # by problem
    finish: Finish
    warm: Sequence[Any]  # a plan for each instance, or None
    files: Sequence[Path]  # where each instance comes from


def choose_strategy(name: str, settings: Sequence[str]) -> Any:
    """The strategy of a name with settings; whatever is wrong there is wrong usage."""
    hint = "--search"
    try:
        strategy_class(name)
        hint = "--set"
        return named(name, settings)
    except InputError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from error


def first_taking(settings: Sequence[str], names: Sequence[str]) -> tuple[str, Any]:
    """The first strategy that takes the settings, and its name.

    If none does, the reason is told of the first one that has such fields, or else of the very first.
    """
    refused, wanted = dict[str, typer.BadParameter](), {text.partition("=")[0].strip() for text in settings}
    for name in names:
        try:
            return name, choose_strategy(name, settings)
        except typer.BadParameter as error:
            refused[name] = error
    able = (name for name in names if wanted <= {field.name for field in fields(strategy_class(name))})
    raise refused[next(able, names[0])]


def check_settings(settings: Sequence[str]) -> None:
    """Refuse what no strategy takes that comes without a name; which of them it will be depends on the files."""
    first_taking(settings, UNNAMED)


def solve_files(files: Sequence[Path], request: Request, places: Places, talk: Talk) -> int:
    """Solve all instances of all files; nothing is searched before everything has been read and checked."""
    found = [file for place in files for file in instance_files(place)]
    read = [(file, instance) for file in found for instance in inputs.instances_of(file, request.vehicles)]
    files, instances = [file for file, _ in read], [instance for _, instance in read]
    warm, finish = matched(instances, request.after.warm), request.after.finish(None)
    for problem in api.problems_of(instances):
        finish.check(problem, request.budget)
    places = prepare_places(places, instances, request.after.top)
    policies = {problem: api.policy_with_facts(request.policy, problem) for problem in api.problems_of(instances)}
    for policy, _ in policies.values():
        request.named(*possible(policy))  # refuses wrong settings
    if not request.attempts and not request.seconds:
        talk.note("no budget given: up to 1,600 attempts or 30 seconds, whichever comes first (--attempts, --seconds)")
    with tracing(request.after.trace) as file:
        finish = request.after.finish(file)
        return solve_groups(instances, Context(request, places, talk, policies, finish, warm, files))


@contextmanager
def tracing(path: Path | None) -> Generator[TextIO | None, None, None]:
    """The file for improvements, written line by line, if one is wanted."""
    if path is None:
        yield None
        return
    try:
        file = path.open("w", encoding="utf-8", buffering=1)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be written: {reason(error)}; choose another place") from error
    with file:
        yield file


def trace_line(file: TextIO, found: Improvement) -> None:
    """One improvement as a line of JSON."""
    facts = {"name": found.instance.name, "attempts": found.attempts, "seconds": round(found.seconds, 3)}
    file.write(json.dumps(facts | {"cost": found.cost, "phase": found.phase}) + "\n")


def prepare_places(places: Places, instances: Sequence[Any], top: int) -> Places:
    """Places with names for so many plans of each instance, every folder made and tried."""
    endings = tuple(ending_of(i) for i in instances)
    named = replace(places, stems=tuple(ranked(stems([i.name for i in instances]), top)), endings=endings)
    if places.plot:
        from rhumbline.plots import require_matplotlib

        require_matplotlib()
    if places.output or places.plot:
        ready(places.output or Path())
        free(path for place in range(len(instances)) for path in named.files(place, top))
    return named


def solve_groups(instances: Sequence[Any], context: Context) -> int:
    """Groups one after the other until all are done or a signal comes; the exit code."""
    finished, unmet = 0, 0
    try:
        for found in solved(instances, context):
            finished += len(found)
            unmet += sum(solution.unmet is not None for solution in found)
    except KeyboardInterrupt:
        tell_interruption(finished, len(instances), context.talk)
        return INTERRUPTED
    return Infeasible.exit_code if unmet else 0


def solved(instances: Sequence[Any], context: Context) -> Iterator[list[Solution]]:
    """The solutions of each group, after they were written and printed."""
    request = context.request
    device = api.find_device(request.device)
    if request.threads:
        torch.set_num_threads(request.threads)  # the fused engine goes by it too
    policies = {problem: policy for problem, (policy, _) in context.policies.items()}
    how: dict[str, Any] = {"engine": request.engine, "augment": request.augment, "strategy": request.strategy}
    for group, task in api.tasks(instances, policies, seed=request.seed, device=device, **how):
        context.talk.note(header(task, context))
        for remark in remarks(task, context):
            context.talk.note(remark)
        found, interrupted = run_search(task, context, [context.warm[place] for place in group.places])
        with undisturbed():
            deliver(group, found, task, context)
            yield found
        if interrupted:
            raise KeyboardInterrupt


def header(task: Task, context: Context) -> str:
    """The line before a group."""
    request = context.request
    problem = task.problem.solves
    policy = f"policy {request.policy_name(problem)} (trained at {context.policies[problem][1].trained_at})"
    search = render.search_text(*request.chosen(task))
    copies = f", {task.copies} symmetries" if task.copies > 1 else ""
    return render.task_line(task, policy, search + copies)


def remarks(task: Task, context: Context) -> Iterator[str]:
    """What a user should know before the search of a group."""
    about, finish = context.policies[task.problem.solves][1], context.finish
    count = task.problem.count_of(task.instances[0])
    if count > FAR * about.largest and not (finish.polish or finish.then):
        much = render.counted(count, *task.problem.nouns)
        yield f"{much} are far beyond what this policy was trained at: expect a larger gap, and try --polish"


def run_search(task: Task, context: Context, warm: Sequence[Any]) -> tuple[list[Solution], bool]:
    """Verified incumbents, and whether a signal ended the search."""
    request, began = context.request, time.monotonic()
    name, strategy = request.chosen(task)
    with drawn(task.instances, request.budget, context.talk.quiet) as watch:
        try:
            found, interrupted = complete(strategy, task, request.budget, watch, context.finish, warm)
        except KeyboardInterrupt:  # it came after the search, while plans were being checked
            found, interrupted = harvest(task, time.monotonic() - began, ()), True
    if not found and not interrupted:
        raise Infeasible("the search ended without a plan")
    if not interrupted and getattr(strategy, "ends", False) and found[0].attempts != request.attempts:
        made = render.counted(found[0].attempts, "attempt", "attempts")
        limit = f" of {request.attempts:,}" if request.attempts else ""
        context.talk.note(f"{name} ended by itself after {made}{limit}: it repeats nothing")
    return found, interrupted


def deliver(group: api.Group, found: Sequence[Solution], task: Task, context: Context) -> None:
    """Write all files of a group, then print its results; plans that miss a limit are errors instead."""
    kept = [(place, s) for place, s in zip(group.places, found, strict=False) if not s.unmet]
    finish = context.finish.settled(task.problem.name)
    for place, solution in kept:
        write_files(place, solution, context)
    width = max((len(s.instance.name) for _, s in kept), default=0)
    for place, solution in kept:
        if context.talk.as_json:
            source = {"file": str(context.files[place])}  # several may have the same name inside
            facts = context.request.facts(task) | source | render.finish_facts(solution, finish)
            emit(render.result_json(solution, task.problem.solves, facts))
        else:
            written = context.places.files(place, 1 + len(solution.others))
            emit(render.result_line(solution, width, written, finish))
    if len(kept) > 1:
        context.talk.note(render.summary_line([s for _, s in kept]))
    for solution in found:
        if solution.unmet:
            say(f"error: {solution.unmet}")


def write_files(place: int, solution: Solution, context: Context) -> None:
    """The plans and the picture of an instance, as far as wanted."""
    found = [(solution.plan, solution.cost), *((other.plan, other.cost) for other in solution.others)]
    for file, (plan, cost) in zip(context.places.plans(place, len(found)), found, strict=False):  # none if not wanted
        text = render.cost_text(cost, solution.instance.whole).replace(",", "")
        write_plan(file, cast(Any, plan), solution.instance, f"cost {text}, found by rhumbline")
    if picture := context.places.picture(place):
        from rhumbline.plots import save_plan

        save_plan(picture, solution.instance, cast(Any, solution.plan))


def tell_interruption(finished: int, total: int, talk: Talk) -> None:
    """Say what an interruption left; missing results are said even where silence is wanted."""
    if not finished:
        say("interrupted before any plan was found")
    elif finished < total:
        say(f"interrupted; {total - finished:,} of {total:,} instances were not reached")
    else:
        talk.note("interrupted; these plans are the best found so far")
