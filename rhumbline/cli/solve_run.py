"""The work of `rhumb solve`: read and check everything, search each group, put out results."""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rhumbline.cli.output import render
from rhumbline.cli.output.files import (
    OutputPaths,
    check_replaceable,
    plan_stems,
    prepare_folder,
    unique_stems,
)
from rhumbline.cli.output.progress import Overview, ProgressUpdater, is_terminal, show_progress
from rhumbline.cli.output.results import ResultOutput, Trace, Verbosity, open_trace
from rhumbline.cli.process import ExitCode, defer_signals, print_note
from rhumbline.cli.signals import SignalGate
from rhumbline.cli.solve_request import FileOptions
from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError
from rhumbline.files import plan_suffix_for
from rhumbline.files.discovery import discover_files, skipped_text
from rhumbline.files.plans import match_plan_files
from rhumbline.files.standard_input import is_standard_input
from rhumbline.inputs import instances_from
from rhumbline.pipeline import (
    DEFAULT_BUDGET,
    GroupResult,
    GroupRun,
    Listener,
    SolveRequest,
    group_instances,
    solve_groups,
)
from rhumbline.search.after_search import Improvement
from rhumbline.search.driver import Progress
from rhumbline.search.without_policy.host_task import HostTask


@dataclass(frozen=True)
class SolveJob:
    """What has been read and checked: the results to come, and where they go."""

    results: Iterator[GroupResult]
    count: int  # of instances
    listener: "SearchPrinter"
    gate: SignalGate
    output: ResultOutput
    trace: Path | None


@dataclass
class SearchPrinter(Listener):
    """Prints what is about to be searched, shows the progress and writes the trace."""

    request: SolveRequest
    verbosity: Verbosity
    gate: SignalGate
    overview: Overview
    trace: Trace | None = None
    display: ExitStack = field(default_factory=ExitStack)
    show: ProgressUpdater | None = None

    @property
    def hears_improvements(self) -> bool:
        """Whether there is a trace."""
        return self.trace is not None

    def group_started(self, run: GroupRun) -> None:
        """Print the header and the warnings of a group, and begin to show its progress."""
        self.overview.begin_group()
        if self.overview.finished and not is_terminal():
            status = self.overview.status()
            self.note(status)
        header = group_header(run)
        self.note(header)
        warnings = group_warnings(run, self.request)
        for warning in warnings:
            self.note(warning)
        if not self.verbosity.quiet:
            instances = run.task.instances
            display = show_progress(instances, self.request.budget, self.overview)
            self.show = self.display.enter_context(display)

    def check_interruption(self) -> None:
        """Raise a signal that came between two groups, or before the first one."""
        self.gate.raise_if_received()

    def progress(self, progress: Progress) -> None:
        """Show how far the search is."""
        if self.show:
            self.show(progress)

    def improved(self, found: Improvement) -> None:
        """Write a line of the trace."""
        if self.trace:
            self.trace.write(found)

    def note(self, line: str) -> None:
        """Print a line on stderr."""
        self.verbosity.note(line)

    def group_ended(self, run: GroupRun) -> None:
        """Take the progress away."""
        self.display.close()


def prepare_job(
    input_paths: Sequence[Path],
    request: SolveRequest,
    options: FileOptions,
    paths: OutputPaths,
    verbosity: Verbosity,
    gate: SignalGate,
) -> SolveJob:
    """Read all instances of all files and folders, and check everything before the first search."""
    began = time.monotonic()
    read = read_inputs(input_paths, options)
    report_omissions(read, verbosity)
    instances = read.instances
    gate.close()  # from now on, a signal is answered with plans
    warm_start = match_plan_files(instances, options.warm_starts)
    may_wait = any(is_standard_input(path) for path in input_paths)  # for another program
    reading_seconds = 0.0 if may_wait else time.monotonic() - began
    request = replace(request, warm_start=warm_start, reading_seconds=reading_seconds)
    groups = len(group_instances(instances, request.augment))
    overview = Overview(len(instances), groups, request.budget, request.total_seconds)
    listener = SearchPrinter(request, verbosity, gate, overview)
    with gate.raise_at_once():
        results = solve_groups(instances, request, listener)
    paths = prepare_output_paths(paths, instances, request.after.top)
    if request.budget is DEFAULT_BUDGET:
        verbosity.note(
            "no budget given: up to 1,600 attempts and then local search, 30 seconds at most "
            "(--attempts, --seconds, --then none)"
        )
    if len(instances) > 1:
        verbosity.note(overview.plan())
    return SolveJob(
        results=results,
        count=len(instances),
        listener=listener,
        gate=gate,
        output=ResultOutput(request, paths, verbosity, read.files, len(read.errors)),
        trace=options.trace,
    )


@dataclass
class ReadInputs:
    """The instances of a call, the file of each, and what was left out."""

    instances: list[Any] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    skipped: list[Path] = field(default_factory=list)  # files of folders that are no instances
    errors: list[InputError] = field(default_factory=list)  # of files that cannot be used


def read_inputs(paths: Sequence[Path], options: FileOptions) -> ReadInputs:
    """Read the instances of all files and folders.

    Raises the first error without --skip-bad; with it all errors are collected. If nothing can be
    used at all, the errors are printed and the last one is raised.
    """
    read = ReadInputs()
    for path in paths:
        with collect_error(read, options):
            found = discover_files(path)
            read.skipped += found.skipped
            for file in found.files:
                with collect_error(read, options):
                    instances = instances_from(file, options.vehicles, options.capacity)
                    read.instances += instances
                    read.files += [file] * len(instances)
    if read.errors and not read.instances:
        *others, last = read.errors
        for error in others:
            print_note(f"error: {error}")
        raise last
    return read


@contextmanager
def collect_error(read: ReadInputs, options: FileOptions) -> Generator[None, None, None]:
    """Keep the error of an unusable file with --skip-bad; raise it without."""
    try:
        yield
    except InputError as error:
        if not options.skip_bad:
            raise
        read.errors.append(error)


def report_omissions(read: ReadInputs, verbosity: Verbosity) -> None:
    """Print the errors of skipped files, and name the files of folders that are no instances."""
    for error in read.errors:
        print_note(f"error: {error}")
    if read.skipped:
        verbosity.note(skipped_text(read.skipped))


def run_job(job: SolveJob) -> int:
    """Put out the results of each group until all are done or a signal comes.

    Return the exit code.
    """
    output = job.output
    with open_trace(job.trace) as trace:
        job.listener.trace = trace
        try:
            while True:
                with (
                    job.gate.raise_at_once()
                ):  # signals raise only while the solve loop can answer them
                    result = next(job.results, None)
                if result is None:
                    break
                with defer_signals():
                    output.deliver(result)
                job.listener.overview.end_group(len(result.group.places))
                if result.interrupted:
                    raise KeyboardInterrupt
                if not output.has_outlet:
                    break
        except KeyboardInterrupt:
            report_interruption(output.finished, job.count, output.verbosity)
            return ExitCode.INTERRUPTED
    if trace and trace.has_failed:
        output.has_failed = True
    if output.bad_files:
        files = render.format_count(output.bad_files, "file", "files")
        print_note(f"error: {files} could not be used and had to be skipped; see above")
    return output.exit_code


def prepare_output_paths(paths: OutputPaths, instances: Sequence[Any], top: int) -> OutputPaths:
    """Add the file names for the best `top` plans of each instance; refuse unwritable files."""
    names = [instance.name for instance in instances]
    stems = plan_stems(unique_stems(names), top)
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
    policy = f"policy {run.policy.name}" if run.policy else ""
    if isinstance(task, HostTask):
        return render.host_task_line(task, policy, run.after.then)
    if run.policy and run.policy.facts:
        policy += f" (trained at {run.policy.facts.trained_at})"
    search = render.strategy_text(run.strategy_name, run.strategy)
    if task.copies > 1:
        search += f", {task.copies} symmetries"
    if run.after.then:
        search += ", with " if run.after.concurrent else ", then "
        search += run.after.then
    return render.task_line(task, policy, search)


def group_warnings(run: GroupRun, request: SolveRequest) -> Iterator[str]:
    """Yield what a user should know before the search of a group."""
    problem = run.task.problem
    facts = run.policy.facts if run.policy else None
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


def report_interruption(finished: int, total: int, verbosity: Verbosity) -> None:
    """Print what an interruption left; missing results are reported even with --quiet."""
    if not finished:
        print_note("interrupted before any plan was found")
    elif finished < total:
        print_note(f"interrupted; {total - finished:,} of {total:,} instances were not reached")
    else:
        verbosity.note("interrupted; these plans are the best found so far")
