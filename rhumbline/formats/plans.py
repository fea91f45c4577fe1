"""Initial plans: solution files (.tour, .sol, .sched), `rhumb solve --json` results, or objects."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rhumbline.errors import Infeasible, InputError
from rhumbline.formats import AnyInstance, AnyPlan
from rhumbline.formats.jsplib import read_schedule
from rhumbline.formats.safe_io import read_bytes
from rhumbline.formats.tsplib import read_tour
from rhumbline.formats.vrplib import read_sol
from rhumbline.problems.cvrp import Routes
from rhumbline.problems.jssp import Schedule
from rhumbline.problems.tsp import Tour, TSPInstance

GivenPlan = str | Path | AnyPlan
# Results by the name of their instance: the line, if it is known, and the JSON object.
ResultsByName = dict[str, list[tuple[int | None, dict[str, Any]]]]

# Problem and reader by suffix of the file name.
PLAN_READERS: dict[str, tuple[str, Callable[[Path, Any], AnyPlan]]] = {
    ".tour": ("tsp", read_tour),
    ".sol": ("cvrp", read_sol),
    ".sched": ("jssp", read_schedule),
}
RESULT_SUFFIXES = (".json", ".jsonl")


def plans_for(
    instances: Sequence[Any], given: GivenPlan | Sequence[GivenPlan | None] | None
) -> list[AnyPlan | None]:
    """Return the checked plan of each instance, or None.

    A list has one entry for each instance. A single plan is for a single instance.
    """
    count = len(instances)
    plans: list[AnyPlan | None] = [None] * count
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


def match_plan_files(instances: Sequence[Any], paths: Sequence[Path]) -> list[AnyPlan | None]:
    """Return the plan that one of the files has for each instance, or None.

    A file with results names its instances. Any other file belongs to the only instance, or to the
    one whose name it has, perhaps with more behind a dot: kroA100.tour, kroA100.opt.tour. A file
    that belongs to no instance is an error, and so is a second plan for an instance.
    """
    plans: list[AnyPlan | None] = [None] * len(instances)
    for path in paths:
        results = read_plan_results(path) if path.suffix.lower() in RESULT_SUFFIXES else None
        for place in places_for_file(instances, path, results):
            instance = instances[place]
            if plans[place] is not None:
                message = f"is a second plan for {instance.name}, expected one"
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
    shown = list(names[:limit])
    if len(names) > limit:
        shown.append("...")
    return ", ".join(shown)


def resolve_plan(given: GivenPlan, instance: Any) -> AnyPlan:
    """Return a plan for an instance, read if it is a path; raise unless it is feasible."""
    if isinstance(given, str | Path):
        return read_plan(Path(given), instance)
    if type(given) is not PLAN_TYPES[instance.problem]:
        kind = type(given).__name__
        raise InputError(f"{instance.name}: a {kind} is no plan for a {instance.problem}")
    try:
        given.check(instance)
    except Infeasible as error:
        raise InputError(f"the plan to start from is infeasible: {error}") from error
    return given


def read_plan(path: Path, instance: AnyInstance) -> AnyPlan:
    """Read the plan of a file, which must be feasible for the instance."""
    suffix = path.suffix.lower()
    if suffix in RESULT_SUFFIXES:
        return pick_plan(path, read_plan_results(path), instance)
    if suffix not in PLAN_READERS:
        known = ", ".join([*PLAN_READERS, *RESULT_SUFFIXES])
        message = f"a plan cannot be read from '{suffix}' files, expected one of {known}"
        raise InputError.at(path, None, message)
    problem, reader = PLAN_READERS[suffix]
    if suffix == ".tour":
        check_tour_name(path, instance.name)
    if problem != instance.problem:
        message = f"holds a plan for {problem}, but {instance.name} is a {instance.problem}"
        raise InputError.at(path, None, message)
    return reader(path, instance)


def check_tour_name(path: Path, name: str) -> None:
    """Raise if a tour names another instance: any tour of the same size would be feasible.

    Tours are named kroA100, kroA100.tour or kroA100.opt.tour. An instance made from an array has no
    name to compare.
    """
    wanted = name.split(".", maxsplit=1)[0]
    text = read_bytes(path).decode("utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        key, _, value = line.partition(":")
        if key.strip().upper() != "NAME":
            continue
        found = value.strip().split(".")[0]
        is_other = found.lower() != wanted.lower()
        if found and is_other and not name.startswith("array"):
            advice = "if it fits all the same, take out this line"
            message = f"is a tour of {found}, not of {name}; {advice}"
            raise InputError.at(path, number, message)


def pick_plan(path: Path, results: ResultsByName, instance: Any) -> AnyPlan:
    """Return the plan that a file of results has for an instance."""
    wanted = instance.problem
    for line, result in results.get(instance.name, ()):
        problem = result.get("problem", wanted)
        if problem == wanted:
            return parse_plan(path, line, result["plan"], instance)
    others: list[str] = []
    for name, entries in results.items():
        for _, result in entries:
            problem = result.get("problem", "instance")
            others.append(f"{problem} {name}")
    only = "nor for any other"
    if others:
        only = f"only for {first_names(others)}"
    message = f"has no plan for {wanted} {instance.name}, {only}"
    raise InputError.at(path, None, message)


def read_plan_results(path: Path) -> ResultsByName:
    """Read the results in a file by the names of their instances.

    `rhumb solve --json` prints one result per line. Any other layout of JSON values is read too,
    and lists of results, whose lines are unknown.
    """
    results: ResultsByName = {}
    text = read_bytes(path).decode("utf-8", errors="replace")
    for line, value in json_values(path, text):
        is_list = isinstance(value, list)
        place = None if is_list else line
        entries = value if is_list else [value]
        for entry in entries:
            result = check_result(path, place, entry)
            name = str(result["name"])
            results.setdefault(name, []).append((place, result))
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
            message = f"is not JSON ({error}), expected results of `rhumb solve --json`"
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


def parse_plan(path: Path, line: int | None, numbers: Any, instance: Any) -> AnyPlan:
    """Return a feasible plan from the numbers that its file uses."""
    try:
        plan = PARSERS[instance.problem](numbers, instance)
        plan.check(instance)
    except (TypeError, ValueError, KeyError) as error:
        is_flat = instance.problem == "tsp"
        what = "a list of whole numbers" if is_flat else "a list of lists of whole numbers"
        expected = f"expected {what} that the instance knows"
        message = f'"plan" is no plan for {instance.name}, {expected}'
        raise InputError.at(path, line, message) from error
    except Infeasible as error:
        raise InputError.at(path, line, f"is no plan for {error}") from error
    return plan


def parse_tour(numbers: Any, instance: TSPInstance) -> Tour:
    """Return a tour from the file's own node numbers."""
    numbered = enumerate(instance.node_numbers)
    city_of = {number: index for index, number in numbered}
    order = tuple(city_of[number] for number in numbers)
    return Tour(order)


def parse_routes(numbers: Any, _: Any) -> Routes:
    """Return routes from lists of customers; empty ones are left out."""
    return Routes(tuple(row for row in integer_lists(numbers) if row))


def parse_schedule(numbers: Any, _: Any) -> Schedule:
    """Return a schedule from the start times of each job."""
    return Schedule(integer_lists(numbers))


def integer_lists(numbers: Any) -> tuple[tuple[int, ...], ...]:
    """Return lists of whole numbers as tuples; raise `TypeError` unless they are such."""
    rows = tuple(tuple(row) for row in numbers)
    if any(type(x) is not int for row in rows for x in row):
        raise TypeError("not a whole number")
    return rows


PLAN_TYPES: dict[str, type[AnyPlan]] = {"tsp": Tour, "cvrp": Routes, "jssp": Schedule}
PARSERS: dict[str, Callable[[Any, Any], AnyPlan]] = {
    "tsp": parse_tour,
    "cvrp": parse_routes,
    "jssp": parse_schedule,
}
