"""The work of `rhumb solve`: read and check everything, search each group, write and print."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO, cast

from rhumbline.cli import render
from rhumbline.cli.output_files import (
    OutputPaths,
    check_replaceable,
    plan_stems,
    prepare_folder,
    unique_stems,
)
from rhumbline.cli.process import INTERRUPTED, defer_signals, print_note, print_result
from rhumbline.cli.progress import BarUpdater, show_progress
from rhumbline.cli.signals import SignalGate
from rhumbline.cli.solve_request import FileOptions, write_trace_line
from rhumbline.domains import DOMAINS
from rhumbline.errors import Infeasible, InputError
from rhumbline.files import plan_suffix_for, write_plan
from rhumbline.files.discovery import find_instance_files
from rhumbline.files.plans import match_plan_files
from rhumbline.formats.safe_io import error_reason
from rhumbline.inputs import instances_from
from rhumbline.pipeline import (
    DEFAULT_BUDGET,
    GroupResult,
    GroupRun,
    Listener,
    SolveRequest,
    solve_groups,
)
from rhumbline.search.after_search import AfterSearch, Improvement
from rhumbline.search.driver import Progress
from rhumbline.search.solution import Solution


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
class SolveJob:
    """What has been read and checked: the results to come, and where they go."""

    results: Iterator[GroupResult]
    count: int  # of instances
    request: SolveRequest
    listener: "SearchPrinter"
    gate: SignalGate
    paths: OutputPaths
    verbosity: Verbosity
    files: Sequence[Path]  # where each instance comes from
    trace: Path | None


@dataclass
class SearchPrinter(Listener):
    """Prints what is about to be searched, draws the progress bar and writes the trace."""

    request: SolveRequest
    verbosity: Verbosity
    gate: SignalGate
    trace: TextIO | None = None
    bar: ExitStack = field(default_factory=ExitStack)
    update_bar: BarUpdater | None = None

    @property
    def hears_improvements(self) -> bool:
        """Whether there is a trace."""
        return self.trace is not None

    def group_started(self, run: GroupRun) -> None:
        """Print the header and the warnings of a group, and begin the bar."""
        self.note(group_header(run))
        for warning in group_warnings(run, self.request):
            self.note(warning)
        bar = show_progress(run.task.instances, self.request.budget, self.verbosity.quiet)
        self.update_bar = self.bar.enter_context(bar)

    def check_interruption(self) -> None:
        """Raise a signal that came between two groups, or before the first one."""
        self.gate.raise_if_received()

    def progress(self, progress: Progress) -> None:
        """Move the bar."""
        if self.update_bar:
            self.update_bar(progress)

    def improved(self, found: Improvement) -> None:
        """Write a line of the trace."""
        if self.trace:
            write_trace_line(self.trace, found)

    def note(self, line: str) -> None:
        """Print a line on stderr."""
        self.verbosity.note(line)

    def group_ended(self, run: GroupRun) -> None:
        """Take the bar away."""
        self.bar.close()


def prepare_job(
    input_paths: Sequence[Path],
    request: SolveRequest,
    options: FileOptions,
    paths: OutputPaths,
    verbosity: Verbosity,
    gate: SignalGate,
) -> SolveJob:
    """Read all instances of all files and folders, and check everything before the first search."""
    files: list[Path] = []
    instances: list[Any] = []
    for file in [file for path in input_paths for file in find_instance_files(path)]:
        found = instances_from(file, options.vehicles)
        instances += found
        files += [file] * len(found)
    request = replace(request, warm_start=match_plan_files(instances, options.warm_starts))
    gate.close()  # from now on, a signal is answered with plans
    listener = SearchPrinter(request, verbosity, gate)
    with gate.opened():
        results = solve_groups(instances, request, listener)
    paths = prepare_output_paths(paths, instances, request.after.top)
    if request.budget is DEFAULT_BUDGET:
        verbosity.note(
            "no budget given: up to 1,600 attempts and then local search, 30 seconds at most "
            "(--attempts, --seconds, --then none)"
        )
    return SolveJob(
        results=results,
        count=len(instances),
        request=request,
        listener=listener,
        gate=gate,
        paths=paths,
        verbosity=verbosity,
        files=files,
        trace=options.trace,
    )


def run_job(job: SolveJob) -> int:
    """Write and print the results of each group until all are done or a signal comes.

    Return the exit code.
    """
    finished = 0
    unmet = 0
    with open_trace(job.trace) as job.listener.trace:
        try:
            for result in next_results(job):
                with defer_signals():
                    write_results(result, job)
                    finished += len(result.solutions)
                    unmet += sum(solution.unmet is not None for solution in result.solutions)
                if result.interrupted:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            report_interruption(finished, job.count, job.verbosity)
            return INTERRUPTED
    return Infeasible.exit_code if unmet else 0


def next_results(job: SolveJob) -> Iterator[GroupResult]:
    """Yield the results; signals raise only while the solve loop can answer them."""
    while True:
        with job.gate.opened():
            result = next(job.results, None)
        if result is None:
            return
        yield result


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
    """Add the file names for the best `top` plans of each instance; refuse unwritable files."""
    stems = plan_stems(unique_stems([instance.name for instance in instances]), top)
    suffixes = tuple(plan_suffix_for(instance) for instance in instances)
    paths = replace(paths, stems=tuple(stems), suffixes=suffixes)
    if paths.plot:
        from rhumbline.plots import require_matplotlib

        require_matplotlib()
        for instance in instances:
            DOMAINS[instance.problem].require("draw", "drawing a plan")
    if paths.output or paths.plot:
        prepare_folder(paths.output or Path())
        for index in range(len(instances)):
            check_replaceable(paths.files(index, top))
    return paths


def group_header(run: GroupRun) -> str:
    """Return the line before a group."""
    task = run.task
    policy = f"policy {run.policy.name}"
    if run.policy.facts:
        policy += f" (trained at {run.policy.facts.trained_at})"
    search = render.strategy_text(run.strategy_name, run.strategy)
    if task.copies > 1:
        search += f", {task.copies} symmetries"
    if run.after.then:
        search += f", then {run.after.then}"
    return render.task_line(task, policy, search)


def group_warnings(run: GroupRun, request: SolveRequest) -> Iterator[str]:
    """Yield what a user should know before the search of a group."""
    problem = run.task.problem
    facts = run.policy.facts
    count = problem.item_count(run.task.instances[0])
    # From there on local search finds much that the policy misses.
    is_far = facts is not None and count > 1.5 * facts.largest
    if is_far and not (run.after.polish or run.after.then):
        size = render.format_count(count, *problem.nouns)
        tools = run.task.domain.plans
        advice = "expect a larger gap"
        if tools and tools.polisher:
            advice += ", and try --polish"
        yield f"{size} are far beyond what this policy was trained at: {advice}"


def write_results(result: GroupResult, job: SolveJob) -> None:
    """Write all files of a group, then print its results.

    Plans that exceed a limit are neither written nor printed: they are reported as errors.
    """
    found = result.by_place()
    kept = {index: solution for index, solution in found.items() if not solution.unmet}
    for index, solution in kept.items():
        write_files(index, solution, job)
    print_results(kept, result, job)
    for solution in found.values():
        if solution.unmet:
            print_note(f"error: {solution.unmet}")


def print_results(kept: Mapping[int, Solution], result: GroupResult, job: SolveJob) -> None:
    """Print the result of each instance of a group, and their mean on stderr."""
    run = result.run
    after_search = run.after if run else AfterSearch()
    solutions = list(kept.values())
    width = max((len(solution.instance.name) for solution in solutions), default=0)
    for index, solution in kept.items():
        if job.verbosity.as_json:
            facts = run_facts(run, job.request)
            facts["file"] = str(job.files[index])  # several may hold instances of one name
            facts |= render.after_search_facts(solution, after_search)
            line = render.result_json(solution, solution.instance.problem, facts)
        else:
            written = job.paths.files(index, 1 + len(solution.others))
            line = render.result_line(solution, width, written, after_search)
        print_result(line)
    if len(solutions) > 1:
        job.verbosity.note(render.summary_line(solutions))


def run_facts(run: GroupRun | None, request: SolveRequest) -> dict[str, Any]:
    """Return how a result was found, for JSON; an interruption may have come before all that."""
    facts: dict[str, Any] = {
        "search": run.strategy_name if run else None,
        "policy": run.policy.name if run else None,
        "engine": run.task.resolved_engine if run else None,
        "seed": request.seed,
    }
    if request.augment > 1:
        facts["augment"] = request.augment
    return facts


def write_files(index: int, solution: Solution, job: SolveJob) -> None:
    """Write the plans of an instance (--output) and its picture (--plot)."""
    instance = solution.instance
    found = [solution, *solution.others]
    files = job.paths.plans(index, len(found))  # none without --output
    for file, one in zip(files, found, strict=False):
        cost = render.format_cost(one.cost, instance.has_integer_costs).replace(",", "")
        write_plan(file, cast(Any, one.plan), instance, f"cost {cost}, found by rhumbline")
    picture = job.paths.picture(index)
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
