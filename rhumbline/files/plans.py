"""Initial plans: solution files (.tour, .sol, .sched), `rhumb solve --json` results, or objects."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rhumbline.domain import Domain
from rhumbline.domains import DOMAINS
from rhumbline.errors import (
    Infeasible,
    InputError,
    PlanError,
    explain_parse_error,
    shorten,
)
from rhumbline.formats.safe_io import LIMITS, read_bytes
from rhumbline.problems import Plan

GivenPlan = str | Path | Plan
# Results by the name of their instance: the line, if it is known, and the JSON object.
ResultsByName = dict[str, list[tuple[int | None, dict[str, Any]]]]

RESULT_SUFFIXES = (".json", ".jsonl")


def plans_for(
    instances: Sequence[Any], given: GivenPlan | Sequence[GivenPlan | None] | None
) -> list[Plan | None]:
    """Return the checked plan of each instance, or None.

    A list has one entry for each instance. A single plan is for a single instance.
    """
    count = len(instances)
    plans: list[Plan | None] = [None] * count
    if given is None:
        return plans
    each: Sequence[Any] = [given]
    if isinstance(given, Sequence) and not isinstance(given, str):
        each = given
    elif count != 1:
        found = f"one plan to start from, but {count:,} instances"
        raise InputError(f"{found}; give a list with one for each")
    if len(each) != count:
        found = f"{len(each)} plans to start from, but {count:,} instances"
        raise InputError(f"{found}; use None for no plan")
    for place, plan in enumerate(each):
        if plan is not None:
            plans[place] = resolve_plan(plan, instances[place])
    return plans


def match_plan_files(instances: Sequence[Any], paths: Sequence[Path]) -> list[Plan | None]:
    """Return the plan that one of the files has for each instance, or None.

    A file with results names its instances. Any other file belongs to the only instance, or to the
    one whose name it has, perhaps with more behind a dot: kroA100.tour, kroA100.opt.tour. A file
    that belongs to no instance is an error, and so is a second plan for an instance.
    """
    plans: list[Plan | None] = [None] * len(instances)
    for path in paths:
        suffix = path.suffix.lower()
        holds_results = suffix in RESULT_SUFFIXES
        results = read_plan_results(path) if holds_results else None
        for place in places_for_file(instances, path, results):
            instance = instances[place]
            if plans[place] is not None:
                name = shorten(instance.name)
                message = f"is a second plan for {name}, expected one"
                raise InputError.at(path, None, message)
            if results is None:
                plans[place] = read_plan(path, instance)
            else:
                plans[place] = pick_plan(path, results, instance)
    return plans


def places_for_file(
    instances: Sequence[Any], path: Path, results: ResultsByName | None
) -> list[int]:
    """Return the places of the instances that a file has plans for."""
    if len(instances) == 1:
        return [0]
    if results is None:
        alike = (i.name for i in instances if f"{path.stem}.".startswith(f"{i.name}."))
        names = {max(alike, key=len, default="")}
    else:
        names = set(results)
    places = [place for place, instance in enumerate(instances) if instance.name in names]
    if not places:
        known = first_names([i.name for i in instances])
        message = f"belongs to none of the {len(instances):,} instances ({known}) by name"
        raise InputError.at(path, None, message)
    return places


def first_names(names: Sequence[str], limit: int = 3) -> str:
    """Return the first names of a list, with dots for the others."""
    first = names[:limit]
    shown = [shorten(name) for name in first]
    if len(names) > limit:
        shown.append("...")
    return ", ".join(shown)


def resolve_plan(given: GivenPlan, instance: Any) -> Plan:
    """Return a plan for an instance, read if it is a path; raise unless it is feasible."""
    if isinstance(given, str | Path):
        return read_plan(Path(given), instance)
    if type(given) is not DOMAINS[instance.problem].plan:
        name = shorten(instance.name)
        kind = type(given).__name__
        raise InputError(f"{name}: a {kind} is no plan for a {instance.problem}")
    try:
        given.check(instance)
    except Infeasible as error:
        raise InputError(f"the plan to start from is infeasible: {error}") from error
    return given


def read_plan(path: Path, instance: Any) -> Plan:
    """Read the plan of a file, which must be feasible for the instance."""
    suffix = path.suffix.lower()
    if suffix in RESULT_SUFFIXES:
        results = read_plan_results(path)
        return pick_plan(path, results, instance)
    formats = DOMAINS[instance.problem].files
    if formats.read_plan and suffix == formats.plan_suffix:
        return formats.read_plan(path, instance)
    by_suffix = plan_domains()
    if suffix not in by_suffix:
        known = ", ".join([*by_suffix, *RESULT_SUFFIXES])
        message = f"a plan cannot be read from '{shorten(suffix)}' files, expected one of {known}"
        raise InputError.at(path, None, message)
    problem = by_suffix[suffix].name
    message = f"holds a plan for {problem}, but {shorten(instance.name)} is a {instance.problem}"
    raise InputError.at(path, None, message)


def plan_domains() -> dict[str, Domain]:
    """Return the domains whose plans have files of their own, by the suffix of these files."""
    found: dict[str, Domain] = {}
    for _, domain in DOMAINS.working():
        if domain.files.read_plan:
            found.setdefault(domain.files.plan_suffix, domain)
    return found


def pick_plan(path: Path, results: ResultsByName, instance: Any) -> Plan:
    """Return the plan that a file of results has for an instance."""
    found = pick_results(path, results, instance)
    line, result = found[0]
    numbers = result["plan"]
    return parse_plan(path, line, numbers, instance)


def pick_results(
    path: Path, results: ResultsByName, instance: Any
) -> list[tuple[int | None, dict[str, Any]]]:
    """Return the results that a file has for an instance, one at least."""
    wanted = instance.problem
    found = [
        (line, result)
        for line, result in results.get(instance.name, ())
        if result.get("problem", wanted) == wanted
    ]
    if found:
        return found
    others: list[str] = []
    for name, entries in results.items():
        for _, result in entries:
            problem = result.get("problem", "instance")
            others.append(f"{shorten(problem)} {shorten(name)}")
    only = "nor for any other"
    if others:
        only = f"only for {first_names(others)}"
    message = f"has no plan for {wanted} {shorten(instance.name)}, {only}"
    raise InputError.at(path, None, message)


def read_plan_results(path: Path) -> ResultsByName:
    """Read the results in a file by the names of their instances.

    `rhumb solve --json` prints one result per line. Any other layout of JSON values is read too,
    and lists of results, whose lines are unknown.
    """
    results: ResultsByName = {}
    content = read_bytes(path, LIMITS.max_text_bytes)
    text = content.decode("utf-8", errors="replace")
    for line, value in json_values(path, text):
        is_list = isinstance(value, list)
        place = None if is_list else line
        entries = value if is_list else [value]
        for entry in entries:
            result = check_result(path, place, entry)
            name = name_of_result(path, place, result)
            same_name = results.setdefault(name, [])
            same_name.append((place, result))
    return results


def json_values(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """Yield the JSON values of a text and the lines where they begin."""
    decoder = json.JSONDecoder()
    line = 1
    counted = 0  # line breaks before this place are counted in `line`
    at = skip_space(text, 0)
    while at < len(text):
        line += text.count("\n", counted, at)
        counted = at
        try:
            value, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            message = f"is not JSON ({error.msg}), expected results of `rhumb solve --json`"
            raise InputError.at(path, error.lineno, message) from error
        except (ValueError, RecursionError) as error:  # a huge number, deep nesting
            reason = explain_parse_error(error)
            message = f"is not JSON ({reason}), expected results of `rhumb solve --json`"
            raise InputError.at(path, line, message) from error
        yield line, value
        at = skip_space(text, at)


def skip_space(text: str, at: int) -> int:
    """Return the next place in a text that is not white space."""
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def check_result(path: Path, line: int | None, result: Any) -> dict[str, Any]:
    """Return a result, or raise unless it is an object with a name and a plan."""
    if not isinstance(result, dict) or not {"name", "plan"} <= set(result):
        message = 'expected an object with "name" and "plan", as `rhumb solve --json` prints it'
        raise InputError.at(path, line, message)
    return result


def name_of_result(path: Path, line: int | None, result: dict[str, Any]) -> str:
    """Return the name of the instance of a result."""
    name = result["name"]
    if isinstance(name, list | dict):
        shown = shorten(name)
        message = f'"name" is {shown}, expected the name of an instance'
        raise InputError.at(path, line, message)
    return str(name)


def parse_plan(path: Path, line: int | None, numbers: Any, instance: Any) -> Plan:
    """Return a feasible plan from the numbers that its file uses."""
    domain = DOMAINS[instance.problem]
    parse = domain.files.parse_plan
    if parse is None:
        domain.refuse("a plan from a result")
    try:
        plan = parse(numbers, instance)
        plan.check(instance)
    except (TypeError, ValueError, KeyError) as error:
        expected = f"expected {domain.files.plan_form} that the instance knows"
        message = f'"plan" is no plan for {shorten(instance.name)}, {expected}'
        kind = PlanError if isinstance(error, KeyError) else InputError
        raise kind.at(path, line, message) from error
    except Infeasible as error:
        raise PlanError.at(path, line, f"is no plan for {error}") from error
    return plan
