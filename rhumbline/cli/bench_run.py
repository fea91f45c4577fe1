"""The work of `rhumb bench` and `rhumb report`: progress on stderr, paths and tables on stdout."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from rhumbline.bench.methods import BenchOptions
from rhumbline.bench.reference.make import ReferenceOptions, ReferenceProgress, make_references
from rhumbline.bench.report import (
    REPORT_FORMATS,
    decimal_text,
    duration_text,
    replace_section,
)
from rhumbline.bench.results import Result, costs_of, read_result_files
from rhumbline.bench.runner import RunProgress, measure_suite
from rhumbline.bench.suite import read_suite
from rhumbline.cli.output.files import prepare_folder
from rhumbline.cli.process import print_note, print_result
from rhumbline.errors import InputError
from rhumbline.formats.safe_io import read_bytes, write_text


def parse_folders(words: Sequence[str]) -> dict[str, str]:
    """Parse NAME=DIR options to folders by name."""
    folders: dict[str, str] = {}
    for word in words:
        name, _, folder = word.partition("=")
        if not name or not folder:
            example = "for example TSPLIB=instances/tsplib"
            raise InputError(f"--folder {word}: expected NAME=DIR, {example}")
        folders[name] = folder
    return folders


def default_results_file(stem: str) -> Path:
    """Return where results are added if no file is named; the folder is not in the repository."""
    return Path("results", f"{stem}.jsonl")


def run_suite(path: Path, out: Path | None, options: BenchOptions, quiet: bool) -> int:
    """Run a suite and print the path of its results; return the exit code."""
    suite = read_suite(path)
    file = out or default_results_file(suite.name)
    prepare_folder(file.parent)
    printer = ProgressPrinter(quiet)
    try:
        for progress in measure_suite(suite, file, options, print_warning, printer.update):
            printer.update(progress)
    except KeyboardInterrupt:
        printer.report_interruption(file)
        raise
    print_result(str(file))
    return 0


@dataclass
class ProgressPrinter:
    """Prints lines of progress on stderr, at most every `seconds_between_lines`."""

    seconds_between_lines: ClassVar[float] = 5.0
    quiet: bool
    due: float = 0.0
    seconds_left: float | None = None
    last: RunProgress | None = None
    latest: tuple[Result, ...] = ()

    def update(self, progress: RunProgress) -> None:
        """Remember the state of a run, and print what is running or was found last if it is due."""
        if progress.seconds_left is not None:
            self.seconds_left = progress.seconds_left
        self.last = progress
        self.latest = progress.latest or self.latest
        finished = progress.done == progress.total
        news = progress.current or progress.latest or not self.latest or finished
        if self.quiet or not news:
            return
        is_due = finished or time.monotonic() >= self.due
        if is_due:
            text = progress_text(progress, self.latest, self.seconds_left)
            print_note(text)
            self.due = time.monotonic() + self.seconds_between_lines

    def report_interruption(self, file: Path) -> None:
        """Print how many results an interrupted run has left in its file."""
        if self.quiet or not self.last:
            return
        progress = self.last
        kept = f"{progress.done:,} of {progress.total:,} results are kept"
        print_note(f"{file}: {kept}; the same command goes on from there")


def progress_text(
    progress: RunProgress, latest: Sequence[Result], seconds_left: float | None
) -> str:
    """Format how far a run is, what is running or was found last, and the time left."""
    parts = [f"{progress.done:,} of {progress.total:,}"]
    if progress.current:
        current = progress.current
        known = (current.set, current.method, current.spent)
        parts += filter(None, known)
    elif latest:
        first = latest[0]
        parts += [first.set, first.method, results_text(latest)]
    if seconds_left is not None and progress.done < progress.total:
        parts.append(f"about {duration_text(seconds_left)} left")
    return "   ".join(parts)


def results_text(results: Sequence[Result]) -> str:
    """Format the mean cost and gap of some results, or why there are none."""
    costs = costs_of(results)
    text = f"missing: {results[0].missing}"
    if costs:
        mean_cost = np.mean(costs)
        text = f"cost {mean_cost:,.4f}"
    gaps = [result.gap for result in results if result.gap is not None]
    if gaps:
        mean_gap = float(np.mean(gaps))
        percent = 100 * mean_gap
        text += f", gap {decimal_text(percent, 2)}%"
    return text


def print_warning(text: str) -> None:
    """Print a warning on stderr."""
    print_note(f"warning: {text}")


def make_reference_options(
    workers: int | None, minutes: float | None, again: bool, machine: str | None
) -> ReferenceOptions:
    """Return the effort for references, with defaults for what the user did not give."""
    return ReferenceOptions(
        workers=workers or 1,
        minutes=float("inf") if minutes is None else minutes,
        again=again,
        machine=machine or "",
    )


def run_references(
    path: Path,
    options: BenchOptions,
    reference_options: ReferenceOptions,
    seconds: float | None,
    elsewhere: Path | None,
    quiet: bool,
) -> int:
    """Make the references of a suite's sets and print the paths of their files."""
    if elsewhere and not elsewhere.is_dir():
        raise InputError(f"--from {elsewhere}: is no folder")
    suite = read_suite(path)
    seconds_between_lines = ProgressPrinter.seconds_between_lines
    due = time.monotonic() + seconds_between_lines
    specs, _ = suite.select(options.only)
    complete_options = replace(reference_options, seconds=seconds, merge_from=elsewhere)
    updates = make_references(
        suite,
        specs,
        complete_options,
        limit=options.limit,
        folders=options.folders,
    )
    last: dict[Path, ReferenceProgress] = {}
    for filled in updates:
        last[filled.file] = filled
        if not quiet and time.monotonic() >= due:
            print_note(f"{filled.file}: {filled.done:,} of {filled.total:,}")
            due = time.monotonic() + seconds_between_lines
    for filled in last.values():
        if filled.done < filled.total:
            count = f"{filled.done:,} of {filled.total:,}"
            print_note(f"{filled.file}: has {count}; the same command goes on from there")
        print_result(str(filled.file))
    return 0


def print_report(files: Sequence[Path], kind: str, plots: Path | None, into: Path | None) -> int:
    """Print the tables of result files, or put them into a page, and draw the figures."""
    if plots:
        from rhumbline.plots import require_matplotlib

        require_matplotlib()
        prepare_folder(plots)
    results = read_result_files(files, print_warning)
    if not results:
        raise InputError(f"{files[0]}: holds no results; run `rhumb bench` first")
    closed_pipe: BrokenPipeError | None = None
    try:
        if into:
            print_result(str(update_page(into, results, kind)))
        else:
            print_result(REPORT_FORMATS[kind](results).rstrip("\n"))
    except BrokenPipeError as error:  # `rhumb report ... | head` still wants its figures
        closed_pipe = error
    if plots:
        draw_figures(results, plots)
    if closed_pipe:
        raise closed_pipe
    return 0


def draw_figures(results: Sequence[Result], folder: Path) -> None:
    """Draw all figures that the results allow, and print the path of each."""
    from rhumbline.bench.figures import draw_all

    for path in draw_all(results, folder):
        print_note(f"-> {path}")


def update_page(path: Path, results: Sequence[Result], kind: str) -> Path:
    """Write the tables of each suite between its marks in a Markdown page."""
    content = read_bytes(path)
    page = content.decode("utf-8", errors="replace")
    names = [result.suite for result in results]
    suites = dict.fromkeys(names)
    for suite in suites:
        of_suite = [result for result in results if result.suite == suite]
        tables = REPORT_FORMATS[kind](of_suite)
        changed = replace_section(page, suite, tables)
        if changed is None:
            marks = f"'<!-- suite: {suite} -->' and '<!-- end: {suite} -->'"
            found = f"has no place for suite '{suite}'"
            message = f"{found}; write {marks} where its tables belong"
            raise InputError.at(path, None, message)
        page = changed
    write_text(path, page)
    return path
