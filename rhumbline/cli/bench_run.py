"""The work of `rhumb bench` and `rhumb report`: progress on stderr, paths and tables on stdout."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rhumbline.bench.methods import BenchOptions
from rhumbline.bench.reference import ReferenceOptions, ReferenceProgress, make_references
from rhumbline.bench.report import (
    REPORT_FORMATS,
    decimal_text,
    duration_text,
    markdown_report,
    replace_section,
)
from rhumbline.bench.results import Result, costs_of, read_result_files
from rhumbline.bench.runner import RunProgress, measure_suite
from rhumbline.bench.suite import read_suite
from rhumbline.cli.output_files import prepare_folder
from rhumbline.cli.process import print_note, print_result
from rhumbline.errors import InputError
from rhumbline.formats.safe_io import read_bytes, write_text

RESULTS = Path("results")  # not in the repository
PAUSE = 5.0  # seconds between two lines of progress


def parse_folders(words: Sequence[str]) -> dict[str, str]:
    """Folders by name."""
    for word in words:
        name, _, folder = word.partition("=")
        if not name or not folder:
            raise InputError(
                f"--folder {word}: expected NAME=DIR, for example TSPLIB=instances/tsplib"
            )
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def run_suite(path: Path, out: Path | None, options: BenchOptions, quiet: bool) -> int:
    """Run a suite and print where its results are."""
    suite = read_suite(path)
    file = out or RESULTS / f"{suite.name}.jsonl"
    prepare_folder(file.parent)
    teller = ProgressPrinter(quiet)
    try:
        for standing in measure_suite(suite, file, options, print_warning, teller.tell):
            teller.tell(standing)
    except KeyboardInterrupt:
        teller.end(file)
        raise
    print_result(str(file))
    return 0


@dataclass
class ProgressPrinter:
    """Lines of progress on stderr, not more often than anybody reads them."""

    quiet: bool
    due: float = 0.0
    seconds_left: float | None = None
    last: RunProgress | None = None
    latest: tuple[Result, ...] = ()

    def tell(self, standing: RunProgress) -> None:
        """Say where a run stands if it is time to: what is running, or what was found last."""
        self.seconds_left = (
            standing.seconds_left if standing.seconds_left is not None else self.seconds_left
        )
        self.last = standing
        self.latest = standing.latest or self.latest
        finished = standing.done == standing.total
        news = standing.current or standing.latest or not self.latest or finished
        if not self.quiet and news and (time.monotonic() >= self.due or finished):
            print_note(progress_text(standing, self.latest, self.seconds_left))
            self.due = time.monotonic() + PAUSE

    def end(self, file: Path) -> None:
        """Say what an interrupted run leaves."""
        if self.last and not self.quiet:
            kept = f"{self.last.done:,} of {self.last.total:,} results are kept"
            print_note(f"{file}: {kept}; the same command goes on from there")


def progress_text(
    standing: RunProgress, latest: Sequence[Result], seconds_left: float | None
) -> str:
    """How far it is, what is running or was found last, and how long it will take."""
    parts = [f"{standing.done:,} of {standing.total:,}"]
    if standing.current:
        parts += [
            x for x in (standing.current.set, standing.current.method, standing.current.spent) if x
        ]
    elif latest:
        gaps = [r.gap for r in latest if r.gap is not None]
        costs = costs_of(latest)
        cost = f"cost {np.mean(costs):,.4f}" if costs else f"missing: {latest[0].missing}"
        parts += [
            latest[0].set,
            latest[0].method,
            cost + (f", gap {decimal_text(100 * float(np.mean(gaps)), 2)}%" if gaps else ""),
        ]
    if seconds_left is not None and standing.done < standing.total:
        parts.append(f"about {duration_text(seconds_left)} left")
    return "   ".join(parts)


def print_warning(text: str) -> None:
    """A warning on stderr."""
    print_note(f"warning: {text}")


def make_effort(
    workers: int | None, minutes: float | None, again: bool, machine: str | None
) -> ReferenceOptions:
    """What the user said, the rest as usual."""
    return ReferenceOptions(
        workers or 1, float("inf") if minutes is None else minutes, again, machine or ""
    )


def run_references(
    path: Path,
    options: BenchOptions,
    effort: ReferenceOptions,
    seconds: float | None,
    elsewhere: Path | None,
    quiet: bool,
) -> int:
    """Make the references of a suite's sets and print where they are."""
    if elsewhere and not elsewhere.is_dir():
        raise InputError(f"--from {elsewhere}: is no folder")
    suite = read_suite(path)
    due = time.monotonic() + PAUSE
    specs, _ = suite.select(options.only)
    more: dict[str, Any] = {"limit": options.limit, "seconds": seconds, "folders": options.folders}
    more["made_elsewhere"] = elsewhere
    last: dict[Path, ReferenceProgress] = {}
    for filled in make_references(suite, specs, effort, **more):
        last[filled.file] = filled
        if not quiet and time.monotonic() >= due:
            print_note(f"{filled.file}: {filled.done:,} of {filled.total:,}")
            due = time.monotonic() + PAUSE
    for filled in last.values():
        if filled.done < filled.total:
            print_note(
                f"{filled.file}: has {filled.done:,} of {filled.total:,}; the same command goes on from there"
            )
        print_result(str(filled.file))
    return 0


def print_report(files: Sequence[Path], kind: str, plots: Path | None, into: Path | None) -> int:
    """Print the tables of result files or put them into a page, and draw what can be drawn of
    them.
    """
    if plots:
        from rhumbline.plots import require_matplotlib

        require_matplotlib()
        prepare_folder(plots)
    results = read_result_files(files, print_warning)
    if not results:
        raise InputError(f"{files[0]}: holds no results; run `rhumb bench` first")
    closed: BrokenPipeError | None = None
    try:
        print_result(
            str(update_page(into, results)) if into else REPORT_FORMATS[kind](results).rstrip("\n")
        )
    except (
        BrokenPipeError
    ) as error:  # `rhumb report ... | head` wants fewer lines, not fewer figures
        closed = error
    if plots:
        draw_figures(results, plots)
    if closed:
        raise closed
    return 0


def draw_figures(results: Sequence[Result], folder: Path) -> None:
    """All figures that can be drawn, each told when it is there."""
    from rhumbline.bench.figures import draw_all

    for path in draw_all(results, folder):
        print_note(f"-> {path}")


def update_page(path: Path, results: Sequence[Result]) -> Path:
    """A page with the tables of each suite between its marks."""
    page = read_bytes(path).decode("utf-8", errors="replace")
    for suite in dict.fromkeys(r.suite for r in results):
        changed = replace_section(
            page, suite, markdown_report([r for r in results if r.suite == suite])
        )
        if changed is None:
            marks = f"'<!-- suite: {suite} -->' and '<!-- end: {suite} -->'"
            raise InputError.at(
                path,
                None,
                f"has no place for suite '{suite}'; write {marks} where its tables belong",
            )
        page = changed
    write_text(path, page)
    return path
