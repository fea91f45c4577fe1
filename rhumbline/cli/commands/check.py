"""`rhumb check`: verify and price plans that already exist."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhumbline.cli.options import flag
from rhumbline.cli.process import defer_signals, print_note, print_result, run_command
from rhumbline.errors import Infeasible, InputError

if TYPE_CHECKING:
    from rhumbline.files.plan_checks import PlanCheck


@dataclass(frozen=True)
class Limits:
    """What replaces the limits in the files; None leaves them."""

    vehicles: int | None
    capacity: float | None


@dataclass
class CheckFiles:
    """Files with instances and files with plans."""

    instances: list[Path] = field(default_factory=list[Path])
    plans: list[Path] = field(default_factory=list[Path])
    shown: dict[str, str] = field(default_factory=dict[str, str])  # displayed names by path

    def replace_names(self, text: str) -> str:
        """Return a text with displayed names in place of those of temporary files."""
        for name, shown in self.shown.items():
            text = text.replace(name, shown)
        return text


def check_command(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE PLAN",
            help="Instances and plans (.tour, .sol, .sched, --json output), or folders with both; "
            "- is standard input.",
        ),
    ],
    vehicles: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="At most K vehicles. [the file's]")
    ] = None,
    capacity: Annotated[
        float | None, typer.Option(metavar="Q", help="Capacity of each vehicle. [the file's]")
    ] = None,
    as_json: Annotated[bool, flag("--json", "One JSON object per plan instead of text.")] = False,
) -> None:
    """Verify plans and price them in the metric of their files. The exit code is 5 if one breaks a
    rule.

    A plan belongs to the instance of the same name; with one instance any name is accepted.

    Example: rhumb check examples/harbour100.tsp examples/harbour100.opt.tour
    """
    limits = Limits(vehicles, capacity)
    exit_code = run_command(lambda: check_given_plans(paths, limits, as_json))
    raise typer.Exit(exit_code)


def check_given_plans(paths: Sequence[Path], limits: Limits, as_json: bool) -> int:
    """Check every plan and print what is found; return the exit code."""
    with defer_signals():
        from rhumbline.files.plan_checks import check_plan_files
        from rhumbline.inputs import instances_from
    with ExitStack() as stack:
        files = sort_files(paths, stack)
        instances: list[Any] = []
        for file in files.instances:
            instances += instances_from(file, limits.vehicles, limits.capacity)
        found: list[PlanCheck] = []
        for one in check_plan_files(instances, files.plans):
            found.append(one)
            line = check_json(one) if as_json else check_line(one)
            print_result(files.replace_names(line))
    checked = {id(one.instance) for one in found}
    unchecked = [instance.name for instance in instances if id(instance) not in checked]
    if unchecked:
        shown = ", ".join(unchecked[:3])
        if len(unchecked) > 3:
            shown += ", ..."
        print_note(f"no plan for {len(unchecked):,} of {len(instances):,} instances: {shown}")
    return Infeasible.exit_code if any(one.violation for one in found) else 0


def sort_files(paths: Sequence[Path], stack: ExitStack) -> CheckFiles:
    """Return which files hold instances and which hold plans; folders are searched."""
    from rhumbline.files.discovery import find_instance_files, has_wildcard
    from rhumbline.files.standard_input import is_standard_input, standard_input_file
    from rhumbline.formats.safe_io import read_bytes

    files = CheckFiles()
    for path in paths:
        if is_standard_input(path):
            path = stack.enter_context(standard_input_file())
            files.shown[str(path)] = "standard input"
        if path.is_dir():
            inside = [file for file in sorted(path.iterdir()) if file.is_file()]
            plans = [file for file in inside if holds_plans(file)]
            files.plans += plans
            if not plans or any(holds_instance(file) for file in inside):
                files.instances += find_instance_files(path)
        elif holds_plans(path):
            files.plans.append(path)
        elif not path.exists() and not has_wildcard(str(path)):
            read_bytes(path)  # raises, and suggests the file that was meant
        else:
            files.instances += find_instance_files(path)
    for kind, there in (("instance", files.instances), ("plan", files.plans)):
        if not there:
            given = ", ".join(map(str, paths[:3]))
            raise InputError(f"there is no {kind} in {given}; give FILE and PLAN")
    return files


def holds_plans(file: Path) -> bool:
    """Return whether a file holds plans, by its suffix; the content decides about JSON."""
    from rhumbline.files.plans import RESULT_SUFFIXES, plan_domains

    suffix = file.suffix.lower()
    if suffix in RESULT_SUFFIXES:
        return file.is_file() and has_results(file)
    return suffix in plan_domains()


def has_results(file: Path) -> bool:
    """Return whether a JSON file has a result, which has the keys "name" and "plan"."""
    from rhumbline.files.plans import read_plan_results

    if file.suffix.lower() == ".jsonl":
        return True
    try:
        return bool(read_plan_results(file))
    except InputError:
        return False


def holds_instance(file: Path) -> bool:
    """Return whether a file of a folder holds an instance."""
    from rhumbline.files.discovery import holds_instances

    return holds_instances(file) and not holds_plans(file)


def check_line(found: "PlanCheck") -> str:
    """Format what is found as a line of text."""
    from rhumbline.cli.output.render import SEPARATOR, format_cost, gap_parts

    instance = found.instance
    parts = [instance.name]
    if found.cost is not None:
        parts.append(f"cost {format_cost(found.cost, instance.has_integer_costs)}")
    parts += gap_parts(found)
    if found.violation:
        parts.append(f"INVALID: {found.violation}")
    else:
        parts += ["verified", str(found.path)]
    return SEPARATOR.join(parts)


def check_json(found: "PlanCheck") -> str:
    """Format what is found as JSON."""
    facts: dict[str, Any] = {
        "name": found.instance.name,
        "problem": found.instance.problem,
        "plan_file": str(found.path),
        "verified": found.violation is None,
        "cost": found.cost,
        "gap": found.gap,
        "best_known": found.instance.best_known,
        "violation": found.violation,
    }
    return json.dumps(facts)
