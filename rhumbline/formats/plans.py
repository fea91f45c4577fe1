"""Plans to start from: solution files (.tour, .sol, .sched), results of `rhumb solve --json`, or
plans in memory.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rhumbline.errors import Infeasible, InputError
from rhumbline.formats.jsplib import read_schedule
from rhumbline.formats.safe_io import read_bytes
from rhumbline.formats.tsplib import read_tour
from rhumbline.formats.vrplib import read_sol
from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.jssp import JSSPInstance, Schedule
from rhumbline.problems.tsp import Tour, TSPInstance

AnyPlan = Tour | Routes | Schedule
GivenPlan = str | Path | AnyPlan
Results = dict[str, list[tuple[int | None, dict[str, Any]]]]  # by name: lines and what stands there

PLAN_READERS: dict[str, tuple[str, Callable[[Path, Any], AnyPlan]]] = {
    ".tour": ("tsp", read_tour),
    ".sol": ("cvrp", read_sol),
    ".sched": ("jssp", read_schedule),
}
RESULT_SUFFIXES = (".json", ".jsonl")


def plans_for(
    instances: Sequence[Any], given: GivenPlan | Sequence[GivenPlan | None] | None
) -> list[AnyPlan | None]:
    """For each instance the plan that belongs to it, checked, or None. A list has one entry for
    each instance.
    """
    if given is None:
        return [None] * len(instances)
    several = isinstance(given, Sequence) and not isinstance(given, str)
    if not several and len(instances) != 1:
        raise InputError(
            f"one plan to start from, but {len(instances):,} instances; give a list with one for each"
        )
    each: list[Any] = list(given) if several else [given]  # pyright: ignore[reportArgumentType]
    if len(each) != len(instances):
        raise InputError(
            f"{len(each)} plans to start from, but {len(instances):,} instances; use None for no plan"
        )
    return [
        None if one is None else resolve_plan(one, instance)
        for one, instance in zip(each, instances, strict=True)
    ]


def match_plan_files(instances: Sequence[Any], paths: Sequence[Path]) -> list[AnyPlan | None]:
    """For each instance the plan that one of the files has for it, or None; a file that helps
    nobody is an error.

    Files of results say the names of their instances. Any other file belongs to the only instance,
    or to the one whose name it has, perhaps with more behind a dot: kroA100.tour, kroA100.opt.tour.
    """
    plans: list[AnyPlan | None] = [None] * len(instances)
    for path in paths:
        found = results(path) if path.suffix.lower() in RESULT_SUFFIXES else None
        for place in places_for_file(instances, path, found):
            if plans[place] is not None:
                raise InputError.at(
                    path, None, f"is a second plan for {instances[place].name}, expected one"
                )
            instance = instances[place]
            plans[place] = (
                read_plan(path, instance) if found is None else pick_plan(path, found, instance)
            )
    return plans


def places_for_file(instances: Sequence[Any], path: Path, found: Results | None) -> list[int]:
    """The places of the instances that a file has plans for."""
    if len(instances) == 1:
        return [0]
    alike = (i.name for i in instances if f"{path.stem}.".startswith(f"{i.name}."))
    names = {max(alike, key=len, default="")} if found is None else found.keys()
    places = [place for place, instance in enumerate(instances) if instance.name in names]
    if not places:
        known = some_of([i.name for i in instances])
        raise InputError.at(
            path, None, f"belongs to none of the {len(instances):,} instances ({known}) by name"
        )
    return places


def some_of(names: Sequence[str], most: int = 3) -> str:
    """The first of several names, with dots for the others."""
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])


def resolve_plan(given: GivenPlan, instance: Any) -> AnyPlan:
    """A plan of an instance, read if it is a path; refused, with the reason, unless it is
    feasible.
    """
    if isinstance(given, str | Path):
        return read_plan(Path(given), instance)
    if type(given) is not PLAN_TYPES[instance.problem]:
        raise InputError(
            f"{instance.name}: a {type(given).__name__} is no plan for a {instance.problem}"
        )
    try:
        given.check(instance)
    except Infeasible as error:
        raise InputError(f"the plan to start from is infeasible: {error}") from error
    return given


def read_plan(path: Path, instance: TSPInstance | CVRPInstance | JSSPInstance) -> AnyPlan:
    """The plan of a file, which must be feasible for the instance."""
    ending = path.suffix.lower()
    if ending in RESULT_SUFFIXES:
        return pick_plan(path, results(path), instance)
    if ending not in PLAN_READERS:
        known = ", ".join([*PLAN_READERS, *RESULT_SUFFIXES])
        raise InputError.at(
            path, None, f"a plan cannot be read from '{ending}' files, expected one of {known}"
        )
    problem, reader = PLAN_READERS[ending]
    if ending == ".tour":
        check_name(path, instance.name)
    if problem != instance.problem:
        raise InputError.at(
            path, None, f"holds a plan for {problem}, but {instance.name} is a {instance.problem}"
        )
    return reader(path, instance)


def check_name(path: Path, name: str) -> None:
    """Refuse a tour that says it belongs elsewhere: any order of so many cities would pass as
    feasible.

    Tours are named kroA100, kroA100.tour or kroA100.opt.tour; cities that come as an array have no
    name to compare.
    """
    for number, line in enumerate(
        read_bytes(path).decode("utf-8", errors="replace").splitlines(), 1
    ):
        key, _, value = line.partition(":")
        own = value.strip().split(".")[0]
        wanted = name.split(".", maxsplit=1)[0]
        if (
            key.strip().upper() == "NAME"
            and own
            and not name.startswith("array")
            and own.lower() != wanted.lower()
        ):
            message = (
                f"is a tour of {own}, not of {name}; if it fits all the same, take out this line"
            )
            raise InputError.at(path, number, message)


def pick_plan(path: Path, found: Results, instance: Any) -> AnyPlan:
    """The plan that a file of results has for an instance."""
    for line, result in found.get(instance.name, ()):
        if result.get("problem", instance.problem) == instance.problem:
            return parse_plan(path, line, result["plan"], instance)
    others = [
        f"{result.get('problem', 'instance')} {name}"
        for name, some in found.items()
        for _, result in some
    ]
    only = f"only for {some_of(others)}" if others else "nor for any other"
    raise InputError.at(path, None, f"has no plan for {instance.problem} {instance.name}, {only}")


def results(path: Path) -> Results:
    """The results in a file by the names of their instances, each with its line, if that is known.

    There is one on each line, as `rhumb solve --json` prints them, or they are laid out in any
    other way, or in lists.
    """
    found: Results = {}
    for line, value in values(path, read_bytes(path).decode("utf-8", errors="replace")):
        each = [(None, one) for one in value] if isinstance(value, list) else [(line, value)]
        for where, one in each:
            result = check_result(path, where, one)
            found.setdefault(str(result["name"]), []).append((where, result))
    return found


def values(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """The JSON values of a text, one after the other, and the lines where they begin."""
    decoder = json.JSONDecoder()
    at = skip_space(text, 0)
    line = 1
    counted = 0
    while at < len(text):
        line = line + text.count("\n", counted, at)
        counted = at
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            line, why = (
                (error.lineno, error.msg)
                if isinstance(error, json.JSONDecodeError)
                else (line, error)
            )
            raise InputError.at(
                path, line, f"is not JSON ({why}), expected results of `rhumb solve --json`"
            ) from error
        yield line, value
        at = skip_space(text, at)


def skip_space(text: str, at: int) -> int:
    """The next place that is not white."""
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def check_result(path: Path, line: int | None, result: Any) -> dict[str, Any]:
    """One result."""
    if not isinstance(result, dict) or not {"name", "plan"} <= set(result):
        raise InputError.at(
            path,
            line,
            'expected an object with "name" and "plan", as `rhumb solve --json` prints it',
        )
    return result


def parse_plan(path: Path, line: int | None, numbers: Any, instance: Any) -> AnyPlan:
    """A plan from the numbers that its file uses."""
    try:
        plan = PARSERS[instance.problem](numbers, instance)
        plan.check(instance)
    except (TypeError, ValueError, KeyError) as error:
        what = (
            "a list of whole numbers"
            if instance.problem == "tsp"
            else "a list of lists of whole numbers"
        )
        message = f'"plan" is no plan for {instance.name}, expected {what} that the instance knows'
        raise InputError.at(path, line, message) from error
    except Infeasible as error:
        raise InputError.at(path, line, f"is no plan for {error}") from error
    return plan


def parse_tour(numbers: Any, instance: TSPInstance) -> Tour:
    """A tour in the file's own node numbers."""
    city = {number: index for index, number in enumerate(instance.node_numbers)}
    return Tour(tuple(city[number] for number in numbers))


def integer_lists(numbers: Any) -> tuple[tuple[int, ...], ...]:
    """Lists of whole numbers."""
    rows = tuple(tuple(row) for row in numbers)
    if any(type(x) is not int for row in rows for x in row):
        raise TypeError("not a whole number")
    return rows


def parse_routes(numbers: Any, instance: CVRPInstance) -> Routes:
    """Return the routes in the file's own customer numbers, without empty ones."""
    return Routes(tuple(row for row in integer_lists(numbers) if row))


def parse_schedule(numbers: Any, instance: JSSPInstance) -> Schedule:
    """Return the start times of each job's operations."""
    return Schedule(integer_lists(numbers))


PLAN_TYPES: dict[str, type[AnyPlan]] = {"tsp": Tour, "cvrp": Routes, "jssp": Schedule}
PARSERS: dict[str, Callable[[Any, Any], AnyPlan]] = {
    "tsp": parse_tour,
    "cvrp": parse_routes,
    "jssp": parse_schedule,
}
