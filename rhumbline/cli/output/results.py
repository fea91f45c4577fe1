"""Results on their way out: printed first, then written as plans, then drawn; and the trace.

Whatever fails here loses neither the other outputs nor the other results.
"""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from rhumbline.cli.output import render
from rhumbline.cli.output.files import OutputPaths
from rhumbline.cli.process import ExitCode, discard_stdout, print_note, print_result
from rhumbline.errors import Infeasible, InputError, OutputFailed, RhumbError
from rhumbline.files import write_plan
from rhumbline.formats.safe_io import error_reason
from rhumbline.pipeline import GroupResult, GroupRun, SolveRequest
from rhumbline.search.after_search import AfterSearch, Improvement
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


@dataclass
class ResultOutput:
    """Prints, writes and draws the results of each group, and remembers what failed."""

    request: SolveRequest
    paths: OutputPaths
    verbosity: Verbosity
    files: Sequence[Path]  # where each instance comes from
    bad_files: int = 0  # input files that were skipped
    finished: int = 0  # instances with a result
    has_exceeded: bool = False  # whether a plan exceeds a limit of its instance
    has_failed: bool = False  # whether an output could not be written
    reader_has_left: bool = False  # whether stdout is a closed pipe
    stdout_works: bool = True

    @property
    def has_outlet(self) -> bool:
        """Whether results are still printed, or written to files."""
        return self.stdout_works or self.paths.output is not None

    @property
    def exit_code(self) -> int:
        """The exit code for what failed, the gravest first; 0 if nothing did."""
        if self.reader_has_left:
            return ExitCode.READER_LEFT
        if self.has_exceeded:
            return Infeasible.exit_code
        if self.bad_files:
            return InputError.exit_code
        if self.has_failed:
            return OutputFailed.exit_code
        return 0

    def deliver(self, result: GroupResult) -> None:
        """Print the results of a group, then write its plans, then draw them."""
        found = result.by_place()
        self.finished += len(found)
        self.print_results(found, result)
        for index, solution in found.items():
            self.write_plans(index, solution)
        for solution in found.values():
            if solution.unmet:
                self.has_exceeded = True
                print_note(f"error: {solution.unmet}")
        if self.paths.plot:
            for index, solution in found.items():
                self.draw(index, solution)

    def print_results(self, found: Mapping[int, Solution], result: GroupResult) -> None:
        """Print the result of each instance of a group, and their mean on stderr."""
        run = result.run
        after_search = run.after if run else AfterSearch()
        solutions = list(found.values())
        names = [solution.instance.name for solution in solutions]
        width = max(map(len, names), default=0)
        for index, solution in found.items():
            if self.verbosity.as_json:
                facts = run_facts(run, self.request)
                facts["file"] = str(self.files[index])  # several may hold instances of one name
                facts |= render.after_search_facts(solution, after_search)
                line = render.result_json(solution, solution.instance.problem, facts)
            else:
                written = self.paths.files(index, 1 + len(solution.others))
                line = render.result_line(solution, width, written, after_search)
            self.print_line(line)
        if len(solutions) > 1:
            self.verbosity.note(render.summary_line(solutions))

    def print_line(self, line: str) -> None:
        """Print a line on stdout, unless a line before has failed."""
        if not self.stdout_works:
            return
        try:
            print_result(line)
        except BrokenPipeError:
            self.reader_has_left = True
            self.stdout_works = False
            discard_stdout()
        except OutputFailed as error:
            self.fail(f"error: {error}")
            self.stdout_works = False

    def write_plans(self, index: int, solution: Solution) -> None:
        """Write the plans of an instance (--output)."""
        instance = solution.instance
        whole = instance.has_integer_costs
        found = [solution, *solution.others]
        count = len(found)
        files = self.paths.plans(index, count)  # none without --output
        for file, one in zip(files, found, strict=False):
            plan = one.plan
            cost = render.format_cost(one.cost, whole)
            plain_cost = cost.replace(",", "")
            comment = f"cost {plain_cost}, found by rhumbline"
            excess = render.excess_over_limit(plan, instance)
            if excess:
                comment += f", over the limit: {excess}"
            try:
                write_plan(file, cast(Any, plan), instance, comment)
            except (RhumbError, OSError) as error:
                reason = describe_failure(file, error)
                self.fail(f"error: {reason}")

    def draw(self, index: int, solution: Solution) -> None:
        """Draw the best plan of an instance (--plot).

        A picture is an extra, so that no error in drawing it ends the call.
        """
        from rhumbline.plots import save_plan

        picture = self.paths.picture(index)
        assert picture is not None
        try:
            save_plan(picture, solution.instance, cast(Any, solution.plan))
        except Exception as error:
            self.fail(f"warning: {describe_failure(picture, error)}")

    def fail(self, line: str) -> None:
        """Print what failed, and remember that something did."""
        self.has_failed = True
        print_note(line)


def describe_failure(file: Path, error: Exception) -> str:
    """Return why a file was not written. Our own messages name it already."""
    if isinstance(error, RhumbError):
        return str(error)
    if isinstance(error, OSError):
        reason = error_reason(error)
        return f"{file}: cannot be written: {reason}"
    kind = type(error).__name__
    return f"{file}: cannot be drawn: {kind}: {error}"


def run_facts(run: GroupRun | None, request: SolveRequest) -> dict[str, Any]:
    """Return how a result was found, for JSON; without a search there is no run."""
    facts: dict[str, Any] = {
        "search": run.strategy_name if run else None,
        "policy": run.policy.name if run and run.policy else None,
        "engine": run.task.resolved_engine if run else None,
        "seed": request.seed,
    }
    if request.augment > 1:
        facts["augment"] = request.augment
    return facts


# --- the trace


@dataclass
class Trace:
    """A file of improvements. The first failure ends it with a warning, but not the search."""

    path: Path
    file: TextIO
    has_failed: bool = False

    def write(self, found: Improvement) -> None:
        """Write an improvement as a line, unless a line before has failed."""
        if self.has_failed:
            return
        line = {
            "name": found.instance.name,
            "attempts": found.attempts,
            "seconds": round(found.seconds, 3),
            "cost": found.cost,
            "phase": found.phase,
        }
        try:
            self.file.write(json.dumps(line) + "\n")
        except OSError as error:
            self.has_failed = True
            reason = error_reason(error)
            print_note(f"warning: {self.path}: the trace ends here, it cannot be written: {reason}")

    def close(self) -> None:
        """Close the file; its lines are written already, so a failure loses nothing more."""
        with suppress(OSError):
            self.file.close()


@contextmanager
def open_trace(path: Path | None) -> Generator[Trace | None, None, None]:
    """Open the file of a trace, which is written line by line; yield None without one."""
    if path is None:
        yield None
        return
    try:
        file = path.open("w", encoding="utf-8", buffering=1)
    except (OSError, ValueError) as error:
        message = f"{path}: cannot be written: {error_reason(error)}; choose another place"
        raise InputError(message) from error
    trace = Trace(path, file)
    try:
        yield trace
    finally:
        trace.close()
