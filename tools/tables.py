"""Measure every table of the reproduction and write it into the docs: `make tables SECONDS=540`.

    python -m tools.tables --check                      # what is left, and how long it takes
    python -m tools.tables --seconds 540 --out FOLDER   # with a GPU; repeat until nothing is left
    python -m tools.tables --collect FOLDER/*           # in the clone that commits the lines

A row is a method on a set. It is measured again if its weights, settings, instances or references
have changed since its lines in research/lines. Rows of the table of 29 come first.

A call measures what fits into its seconds. It writes each result at once, and the next call
continues from there. At its end, lines go to research/lines and tables to docs/results. Replaced
lines go to research/lines/older.

Figures are drawn from these lines, and from files in research/figures (tools/figures/data.py). A
call measures these files after the rows; with `--only`, only if a pattern matches `figures`.

`--kernels FILE` is for machines that start without compiled kernels. It unpacks those of an earlier
call, and packs those of this call into FOLDER/kernels.tgz.
"""

import argparse
import gzip
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from functools import cache
from glob import escape
from hashlib import sha256
from math import ceil
from pathlib import Path

from rhumbline.bench.instance_sets import expected_digest
from rhumbline.bench.methods import BenchOptions, describe_search
from rhumbline.bench.report import compact_report, duration_text
from rhumbline.bench.results import (
    FIELDS,
    Origin,
    Result,
    group_results,
    lock_results,
    read_result_files,
    read_results,
    resume,
)
from rhumbline.bench.runner import (
    count_results,
    origin_of,
    pending_jobs,
    prepare_pairs,
    run_jobs,
)
from rhumbline.bench.suite import Method, SetSpec, Suite, read_suite
from rhumbline.errors import RhumbError
from rhumbline.pipeline import find_device
from tools.figures.data import FIGURE_DATA, collect_data, describe_data, measure_data
from tools.gap_tables import ROOT, read_ledger, update_page
from tools.run_plan import pack, unpack
from tools.table29 import merge_rows, rows_of_ledger, rows_of_lines, table_of_29

# Suites and methods in order of value; the first pattern that matches a row is its place.
PLAN = (
    ("standard", "COMPASS"),
    ("standard", "default search*"),
    ("standard", "COMPASS, job shop"),
    ("mutated-*", "COMPASS"),
    ("mutated-*", "default search"),
    ("mutated-*", "*mixed training"),
    ("standard", "*"),
    ("few-shot", "*"),
    ("jssp-8000", "*"),
    ("ablation", "*"),
    ("jssp-systems", "*"),
    ("mutated-*", "*"),
    ("augmentation", "*"),
    ("whole", "*"),
    ("strategies", "*"),
)
NAMES = (
    "standard",
    "mutated-tsp",
    "mutated-cvrp",
    "few-shot",
    "jssp-8000",
    "ablation",
    "jssp-systems",
    "augmentation",
    "strategies",
    "whole",
)
INDEX = ROOT / "docs" / "results" / "index.md"
PAGE = ROOT / "docs" / "results" / "tables.md"


@dataclass(frozen=True)
class TimeEstimates:
    """Times on an H200 in seconds, to estimate which rows fit into a call."""

    # Per call: imports, first steps, and kernels (eight commands at once compiled them in 105 s)
    call: float = 120.0
    # Per row: instances are drawn, weights are loaded, and a warm-up run is made
    row: float = 3.0
    # Longest job, because an interrupted job is lost
    job: float = 90.0
    # Per attempt on an instance of 100 nodes, if no similar row was measured
    attempt: float = 30e-6
    # Times grow with this power of the number of nodes or operations
    growth: float = 2.0
    # At the end of a call, for lines and pages
    end: float = 25.0
    # Commands that compile at the same time
    compilers: int = 8


ESTIMATES = TimeEstimates()


@dataclass(frozen=True)
class Row:
    """A method on a set of a suite, with the digests that its current result lines have."""

    suite: Suite
    spec: SetSpec
    method: Method
    set_hash: str
    solver: str

    @property
    def name(self) -> tuple[str, str, str]:
        """Return the names of the suite, the set and the method."""
        return self.suite.name, self.spec.name, self.method.name

    @property
    def result_count(self) -> int:
        """Return the number of results of a complete row."""
        return (self.spec.first or 0) * len(self.suite.seeds)

    @property
    def rank(self) -> int:
        """Return the place in the plan."""
        for place, (suite, method) in enumerate(PLAN):
            if fnmatch(self.suite.name, suite) and fnmatch(self.method.name, method):
                return place
        return len(PLAN)

    def is_current(self, result: Result) -> bool:
        """Return whether a result has the current weights, settings, instances and references."""
        facts = (result.suite, result.set, result.method)
        if facts != self.name or result.budget != self.method.budget_text:
            return False
        return (result.set_hash, result.solver) == (self.set_hash, self.solver)


@dataclass(frozen=True)
class Status:
    """How many current results a row has, and why it is not complete."""

    row: Row
    done: int
    reason: str = ""  # why it is not complete

    @property
    def is_complete(self) -> bool:
        """Return whether nothing is left to measure."""
        return not self.reason

    @property
    def missing_count(self) -> int:
        """Return the number of results to measure."""
        return self.row.result_count - self.done


@dataclass
class ResultStore:
    """The committed result lines of the suites, and where a call writes new ones."""

    suites: Path = ROOT / "suites"
    lines: Path = ROOT / "research" / "lines"
    names: Sequence[str] = NAMES
    results: list[Result] = field(default_factory=list[Result])
    older: list[Result] = field(default_factory=list[Result])  # replaced by newer ones

    def read(self) -> "ResultStore":
        """Read all committed lines of the suites."""
        self.results = [line for file in self.files() for line in read_results(file, print)]
        older = sorted((self.lines / "older").glob("*.jsonl.gz"))
        self.older = [line for file in older for line in read_results(file, print)]
        return self

    def files(self) -> list[Path]:
        """Return the files of the suites' lines."""
        found = sorted(self.lines.glob("*.jsonl.gz"))
        return [path for path in found if suite_of(path, self.names)]

    def rows(self) -> list[Row]:
        """Return all rows of all suites, those of most value first."""
        rows: list[Row] = []
        for name in self.names:
            rows += rows_of_suite(read_suite(self.suites / f"{name}.toml"))
        return sorted(rows, key=lambda row: row.rank)


def suite_of(path: Path, names: Sequence[str]) -> str:
    """Return the suite that a file of lines belongs to, by its name; "" if it is not in `names`."""
    fitting = [name for name in names if path.name.split(".")[0] == name]
    fitting += [name for name in names if path.name.startswith(f"{name}-")]
    return max(fitting, key=len, default="")


def rows_of_suite(suite: Suite) -> list[Row]:
    """Return the rows of a suite that a policy solves. Only weights are loaded."""
    rows: list[Row] = []
    for spec in suite.sets:
        digest = expected_digest(spec, suite.folder)
        for method in suite.methods:
            if method.solver == "policy" and method.applies_to(spec.name):
                solver = describe_cached(method, spec.problem)
                rows.append(Row(suite, spec, method, digest, solver))
    return rows


DESCRIPTIONS: dict[str, str] = {}


def describe_cached(method: Method, problem: str) -> str:
    """Return how result lines describe a search. Weights are read once per method and problem."""
    key = repr((method, problem))
    if key not in DESCRIPTIONS:
        DESCRIPTIONS[key] = describe_search(method, problem)
    return DESCRIPTIONS[key]


# --- what is left


Lines = Mapping[tuple[str, str, str], Sequence[Result]]  # by suite, set and method


def lines_by_name(results: Sequence[Result]) -> Lines:
    """Return result lines by the names of their rows."""
    return group_results(results, lambda result: (result.suite, result.set, result.method))


def status_of(row: Row, lines: Lines) -> Status:
    """Return how many current results a row has. Only results of one origin count together."""
    row_results = lines.get(row.name, ())
    current = [result for result in row_results if row.is_current(result)]
    groups = group_results(current, origin_of_result)
    done = max((len(group) for group in groups.values()), default=0)
    if done >= row.result_count:
        return Status(row, done)
    if current:
        return Status(row, done, f"{done:,} of {row.result_count:,} measured")
    return Status(row, 0, stale_reason(row, row_results))


def stale_reason(row: Row, results: Sequence[Result]) -> str:
    """Return in words how results differ from what would be measured today."""
    if not results:
        return "not measured"
    newest = max(results, key=lambda result: result.when)
    if newest.solver == row.solver:
        return "other instances or references"
    settings = row.solver.split(" (weights ")[0]
    if newest.solver.split(" (weights ")[0] == settings:
        return "older weights"
    return "other settings"


def origin_of_result(result: Result) -> Origin:
    """Return the origin of a result line."""
    return Origin(result.suite, result.suite_hash, result.commit, result.machine)


@dataclass(frozen=True)
class MeasuredTime:
    """A measured time: seconds per instance of a strategy with a number of attempts."""

    set: str
    size: int
    strategy: str
    attempts: int
    seconds: float
    date: str


def measured_times(results: Sequence[Result]) -> list[MeasuredTime]:
    """Return the times of result lines and of the ledger, the newest last."""
    times: list[MeasuredTime] = []
    for row in read_ledger(ROOT / "research" / "notebooks" / "gaps.jsonl"):
        if row.seconds and row.budget.isdigit() and row.where != "CPU":
            size = size_of_set(row.set)
            seconds = row.seconds / row.first
            attempts = int(row.budget)
            times.append(MeasuredTime(row.set, size, row.strategy, attempts, seconds, row.date))
    groups = group_results(results, row_and_day)
    for row_results in groups.values():
        first = row_results[0]
        total = sum(result.seconds / result.together for result in row_results)
        strategy = first.solver.split(",")[0]
        attempts = first.attempts or 1
        seconds = total / len(row_results)
        size = size_of_set(first.set)
        times.append(MeasuredTime(first.set, size, strategy, attempts, seconds, first.when[:10]))
    return sorted(times, key=lambda measured: measured.date)


def row_and_day(result: Result) -> tuple[str, str, str, str]:
    """Return the name of the row of a result, and the day it was measured."""
    return result.suite, result.set, result.method, result.when[:10]


def size_of_set(name: str) -> int:
    """Return nodes or operations of a set, by its name; 100 if the name does not say."""
    digits = name.removeprefix("jssp").split("-")[0]
    if "x" in digits:
        jobs, machines = digits.split("x")
        return int(jobs) * int(machines)
    number = "".join(sign for sign in digits if sign.isdigit())
    return int(number) if number else 100


def seconds_per_instance(row: Row, times: Sequence[MeasuredTime]) -> float:
    """Estimate the seconds of an instance, by the most similar row that was measured."""
    if row.method.seconds is not None:
        return row.method.seconds
    attempts = row.method.attempts or 1
    size = size_of_set(row.spec.name)
    scale = (size / 100) ** ESTIMATES.growth
    guess = ESTIMATES.attempt * attempts * scale
    kind = row.spec.name[:3]
    similar = [
        measured
        for measured in times
        if measured.strategy == row.method.strategy and measured.set[:3] == kind
    ]
    if not similar:
        return guess

    def distance(measured: MeasuredTime) -> tuple[bool, int, float]:
        other = max(measured.attempts / attempts, attempts / measured.attempts)
        return measured.set != row.spec.name, abs(measured.size - size), other

    best = min(reversed(similar), key=distance)
    return best.seconds * (size / best.size) ** ESTIMATES.growth * attempts / best.attempts


@dataclass(frozen=True)
class Forecast:
    """A row that is left, and the seconds that it will take."""

    status: Status
    seconds: float


def forecasts(store: ResultStore) -> list[Forecast]:
    """Return the rows that are left, in order of value, with their times."""
    times = measured_times([*store.older, *store.results])
    lines = lines_by_name(store.results)
    found: list[Forecast] = []
    for row in store.rows():
        status = status_of(row, lines)
        if not status.is_complete:
            seconds = ESTIMATES.row + status.missing_count * seconds_per_instance(row, times)
            found.append(Forecast(status, seconds))
    return found


def method_and_reason(forecast: Forecast) -> tuple[str, str]:
    """Return the method of a row that is left, and why it is left."""
    return forecast.status.row.method.name, forecast.status.reason


def describe_left(left: Sequence[Forecast], seconds: float) -> str:
    """Return for each suite and method how many rows are left, why, and how long they take."""
    lines: list[str] = []
    total = sum(each.seconds for each in left)
    by_suite = group_results(left, lambda each: each.status.row.suite.name)
    for suite, of_suite in by_suite.items():
        minutes = duration_text(sum(each.seconds for each in of_suite))
        lines.append(f"{suite}: {len(of_suite)} rows, about {minutes}")
        by_reason = group_results(of_suite, method_and_reason)
        for (method, reason), rows in by_reason.items():
            sets = ", ".join(each.status.row.spec.name for each in rows)
            spent = duration_text(sum(each.seconds for each in rows))
            lines.append(f"  {method}: {reason}, {spent}: {sets}")
    calls = ceil(total / max(1.0, seconds - ESTIMATES.call - ESTIMATES.end))
    lines.append(f"{len(left)} rows are left, about {duration_text(total)} of a GPU")
    if left:
        lines[-1] += f": about {calls} calls of {seconds:g} s"
    return "\n".join(lines)


# --- measuring


def fill_call(left: Sequence[Forecast], seconds: float) -> list[Forecast]:
    """Return the rows that fit into a call, in order of value; if none fits, the first row."""
    chosen: list[Forecast] = []
    room = seconds
    for each in left:
        if each.seconds <= room:
            chosen.append(each)
            room -= each.seconds
    return chosen or list(left[:1])


def compile_in_parallel(chosen: Sequence[Forecast], until: float) -> None:
    """Compile the kernels of rows on all cores, because one after another takes minutes."""
    commands: list[list[str]] = []
    for row in rows_with_kernels([each.status.row for each in chosen]):
        path = row.suite.folder / f"{row.suite.name}.toml"
        words = [sys.executable, "-m", "tools.run_suite", str(path), "--compile-only", "--quiet"]
        commands.append(
            [*words, "--only", escape(row.spec.name), "--only", escape(row.method.name)]
        )
    running: list[subprocess.Popen[bytes]] = []
    try:
        while (commands or running) and time.monotonic() < until:
            running = [process for process in running if process.poll() is None]
            while commands and len(running) < ESTIMATES.compilers:
                words = commands.pop(0)
                running.append(subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL))
            time.sleep(0.2)
    finally:  # no compilation may use the GPU while rows are measured
        for process in running:
            process.kill()
            process.wait()


def rows_with_kernels(rows: Sequence[Row]) -> list[Row]:
    """Return one row for each group with equal kernels: same search, size and instance count."""
    found: dict[tuple[str, int, int | None], Row] = {}
    for row in rows:
        key = (row.solver, size_of_set(row.spec.name), row.spec.first)
        found.setdefault(key, row)
    return list(found.values())


@dataclass
class Call:
    """One call within a time limit."""

    store: ResultStore
    out: Path
    until: float  # on the monotonic clock
    device: str = "auto"

    def run(self, chosen: Sequence[Forecast]) -> None:
        """Measure rows until the time is over. Rows on one set of a suite are measured together.

        If rows fail, for example by lack of memory, the next set follows.
        """
        groups = group_results(
            chosen, lambda each: (each.status.row.suite.name, each.status.row.spec.name)
        )
        with suppress(KeyboardInterrupt):
            for names, of_set in groups.items():
                try:
                    self.measure(of_set)
                except (RhumbError, RuntimeError) as error:
                    print(f"{', '.join(names)}: failed: {error}", flush=True)

    def measure(self, of_set: Sequence[Forecast]) -> None:
        """Measure the missing results of some methods on one set."""
        row = of_set[0].status.row
        methods = [escape(each.status.row.method.name) for each in of_set]
        options = BenchOptions(only=(escape(row.spec.name), *methods), device=self.device)
        print(f"{row.suite.name}, {row.spec.name}: {', '.join(methods)}", flush=True)
        origin = origin_of(row.suite, options)
        out = self.out / f"{row.suite.name}-{digest_of(origin)}.jsonl"
        self.restore(out)
        pairs = prepare_pairs(row.suite, options)
        by_method = {each.status.row.method.name: each for each in of_set}
        for pair in pairs:
            each = by_method[pair.method.name]
            seconds = (each.seconds - ESTIMATES.row) / each.status.missing_count
            largest = max(1, int(ESTIMATES.job / max(seconds, 1e-9)))
            pair.runner.together = min(pair.runner.together, largest)
        digests = {row.spec.name: row.set_hash}
        with lock_results(out):
            done = resume(out, origin, digests, print)
            jobs = list(pending_jobs(pairs, row.suite.seeds, None, done))
            total = count_results(pairs, row.suite.seeds, None)
            for progress in run_jobs(jobs, total, origin, out):
                if time.monotonic() > self.until:
                    raise KeyboardInterrupt
                if progress.latest:
                    print(f"  {progress.done:,} of {progress.total:,}", flush=True)

    def restore(self, out: Path) -> None:
        """Unpack the lines of an earlier call with the same origin, to continue from them."""
        packed = self.store.lines / f"{out.name}.gz"
        if packed.exists() and not out.exists():
            out.write_bytes(gzip.decompress(packed.read_bytes()))


@cache
def digest_of(origin: Origin) -> str:
    """Return a digest of an origin, which distinguishes the files of one suite."""
    text = json.dumps(asdict(origin))
    return sha256(text.encode()).hexdigest()[:8]


def interrupt_after(seconds: float) -> None:
    """Interrupt this process after some seconds, as Ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))


# --- lines


def collect(store: ResultStore, files: Iterable[Path]) -> None:
    """Add new lines to the committed ones. Lines that they replace go to the folder `older`."""
    fresh = [path for path in files if path.exists() and path.stat().st_size]
    for path in fresh:
        target = store.lines / f"{path.name.removesuffix('.gz')}.gz"
        both = [target, path] if target.exists() else [path]
        write_lines(target, read_result_files(both, print))
    store.read()
    lines = lines_by_name(store.results)
    complete = [row for row in store.rows() if status_of(row, lines).is_complete]
    best = {row.name: best_origin(row, lines) for row in complete}
    hashes = {row.name[:2]: row.set_hash for row in complete}
    for path in store.files():
        kept: list[Result] = []
        replaced: list[Result] = []
        for result in read_results(path, print):
            (replaced if is_replaced(result, best, hashes) else kept).append(result)
        if replaced:
            older = store.lines / "older" / path.name
            older.parent.mkdir(exist_ok=True)
            before = read_results(older, print) if older.exists() else []
            write_lines(older, [*before, *replaced])
            write_lines(path, kept)
    store.read()


def is_replaced(
    result: Result,
    best: Mapping[tuple[str, str, str], Origin],
    hashes: Mapping[tuple[str, str], str],
) -> bool:
    """Return whether a complete row of current results makes a line obsolete.

    Either that row has the same method and the `best` origin, or it has the same set with other
    instances or references. Lines of different instances cannot be reported together.
    """
    if result.set_hash != hashes.get(result.set_key, result.set_hash):
        return True
    origin = origin_of_result(result)
    return origin != best.get((*result.set_key, result.method), origin)


def best_origin(row: Row, lines: Lines) -> Origin:
    """Return the origin of the newest complete results of a row."""
    current = [result for result in lines[row.name] if row.is_current(result)]
    groups = group_results(current, origin_of_result)
    whole = {
        origin: results for origin, results in groups.items() if len(results) >= row.result_count
    }
    return max(whole, key=lambda origin: whole[origin][0].when)


def write_lines(path: Path, results: Sequence[Result]) -> None:
    """Write compressed lines, equal bytes for equal lines. Without lines, remove the file."""
    if not results:
        path.unlink(missing_ok=True)
        return
    text = "".join(json.dumps(as_table(result)) + "\n" for result in results)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def as_table(result: Result) -> dict[str, object]:
    """Return the fields of a result as its line has them."""
    return {name: getattr(result, name) for name in FIELDS.known}


# --- pages


def page_tables(store: ResultStore) -> tuple[dict[str, str], dict[str, str]]:
    """Return the generated parts of the index, and of the page of all suites."""
    everything = [*store.results, *store.older]
    rows = merge_rows(rows_of_ledger(), rows_of_lines(everything))
    index = {"table-of-29": table_of_29(rows)}
    tables: dict[str, str] = {}
    lines = lines_by_name(store.results)
    statuses = [status_of(row, lines) for row in store.rows()]
    for name in store.names:
        of_suite = [result for result in store.results if result.suite == name]
        tables[name] = compact_report(of_suite) if of_suite else "Not measured."
        suite_statuses = [status for status in statuses if status.row.suite.name == name]
        tables[f"{name}-status"] = describe_statuses(suite_statuses)
    return index, tables


def describe_statuses(statuses: Sequence[Status]) -> str:
    """Return a list of the rows that are stale or not measured, with reasons."""
    left = [status for status in statuses if not status.is_complete]
    if not left:
        return "All rows use the shipped weights."
    lines: list[str] = []
    for reason, with_reason in group_results(left, lambda status: status.reason).items():
        methods = group_results(with_reason, lambda status: status.row.method.name)
        texts = [f"{name} ({sets_text(rows, statuses)})" for name, rows in methods.items()]
        lines.append(f"- {reason}: {'; '.join(texts)}")
    return "\n".join(["Rows to measure:", "", *lines])


def sets_text(rows: Sequence[Status], statuses: Sequence[Status]) -> str:
    """Return the sets of some rows of a method, or `all sets`."""
    name = rows[0].row.method.name
    of_method = [status for status in statuses if status.row.method.name == name]
    if len(rows) == len(of_method) and len(rows) > 2:
        return "all sets"
    return ", ".join(status.row.spec.name for status in rows)


def write_pages(store: ResultStore, index: Path = INDEX, page: Path = PAGE) -> None:
    """Write the tables into the docs."""
    for path, tables in zip((index, page), page_tables(store), strict=True):
        path.write_text(update_page(path, tables), encoding="utf-8")


def main() -> None:
    """Check, measure or collect, and write the pages."""
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("--check", action="store_true", help="measure and write nothing")
    parser.add_argument("--collect", type=Path, nargs="*", help="lines of calls elsewhere")
    parser.add_argument("--seconds", type=float, default=540.0, help="of this call")
    parser.add_argument("--out", type=Path, default=Path("results/tables"))
    parser.add_argument("--only", action="append", default=[], help="a suite, such as 'mutated-*'")
    parser.add_argument("--device", default="cuda", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--kernels", type=Path, default=None, help="compiled by earlier calls")
    given = parser.parse_args()
    began = time.monotonic()
    store = ResultStore().read()
    if given.collect is not None:
        collect_files(store, given.collect)
        write_pages(store)
        return
    left = [each for each in forecasts(store) if is_selected(each.status.row.suite.name, given)]
    print(describe_left(left, given.seconds), flush=True)
    if is_selected("figures", given):
        print(describe_data(FIGURE_DATA), flush=True)
    if not given.check:
        measure_call(store, left, given, began)


def is_selected(name: str, given: argparse.Namespace) -> bool:
    """Return whether `--only` selects a suite, or `figures`; without it, all are selected."""
    return not given.only or any(fnmatch(name, pattern) for pattern in given.only)


def collect_files(store: ResultStore, files: Sequence[Path]) -> None:
    """Add result lines to the committed ones, and copy data of figures into the repository."""
    others = collect_data(files, FIGURE_DATA)
    collect(store, [path for path in others if ".jsonl" in path.suffixes])


def measure_call(
    store: ResultStore, left: Sequence[Forecast], given: argparse.Namespace, began: float
) -> None:
    """Measure what fits into the seconds of this call; then collect lines and write the pages."""
    device = find_device(given.device)
    given.out.mkdir(parents=True, exist_ok=True)
    until = began + given.seconds - ESTIMATES.end
    compiling = ESTIMATES.call if device.type == "cuda" else 0.0
    chosen = fill_call(left, until - time.monotonic() - compiling)
    interrupt_after(until - time.monotonic())
    if given.kernels and given.kernels.exists():
        unpack(given.kernels)
    with suppress(KeyboardInterrupt):
        if device.type == "cuda":
            compile_in_parallel(chosen, time.monotonic() + 1.5 * compiling)
        Call(store, given.out, until, given.device).run(chosen)
        if is_selected("figures", given):
            measure_data(given.out, until - time.monotonic(), FIGURE_DATA)
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    if given.kernels:
        pack(given.out / "kernels.tgz")
    collect_files(store, sorted(given.out.iterdir()))
    write_pages(store)
    print(describe_left(forecasts(store), given.seconds))


if __name__ == "__main__":
    main()
