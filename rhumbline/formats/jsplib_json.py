"""Job shops as JSON: {"durations": [[3, 2], [4]], "machines": [[0, 1], [1]]}, a list for each job.

May also say "name", "best_known", "machine_count" (if some have nothing to do) and "first_machine"
(0 or 1).
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from rhumbline.errors import InputError
from rhumbline.formats.best_known import check_known_cost, with_best_makespan
from rhumbline.formats.safe_io import read_bytes
from rhumbline.problems.jssp import JSSPInstance, jssp_from_tables
from rhumbline.problems.jssp.instance import Table

REQUIRED, OPTIONAL = (
    ("durations", "machines"),
    ("name", "best_known", "machine_count", "first_machine"),
)


def read_json(path: Path) -> JSSPInstance:
    """The instance of a JSON file; its own "best_known" comes before that of other files and of
    the classics.
    """
    facts = load_object(path)
    durations, machines = (rows(path, key, facts[key]) for key in REQUIRED)
    name = facts.get("name", path.stem)
    if not isinstance(name, str):
        raise InputError.at(
            path, None, f"'name' is {json.dumps(name)[:40]}, expected a text in quotes"
        )
    count = optional_integer(path, facts, "machine_count")
    first = optional_integer(path, facts, "first_machine")
    try:
        instance = jssp_from_tables(durations, machines, name, machine_count=count, first=first)
    except InputError as error:
        raise InputError.at(path, None, str(error)) from error
    if facts.get("best_known") is None:
        return with_best_makespan(path.parent, instance)
    return replace(instance, best_known=check_known_cost(path, "best_known", facts["best_known"]))


def is_job_shop_json(path: Path) -> bool:
    """Whether a JSON file means to be a job shop, be it right or wrong."""
    return f'"{REQUIRED[0]}"'.encode() in read_bytes(path)


def load_object(path: Path) -> dict[str, Any]:
    """The object of a file, with the keys it must have and none that nobody knows."""
    try:
        facts = json.loads(read_bytes(path))
    except (
        ValueError,
        RecursionError,
    ) as error:  # bad JSON, bad UTF-8, too long a number, too deep a nesting
        raise InputError.at(
            path, getattr(error, "lineno", None), f"is not JSON ({error}); correct it"
        ) from error
    known = ", ".join(REQUIRED + OPTIONAL)
    if not isinstance(facts, dict):
        raise InputError.at(path, None, f"expected a JSON object with {' and '.join(REQUIRED)}")
    for key in REQUIRED:
        if key not in facts:
            raise InputError.at(
                path, None, f"'{key}' is missing, expected a list of numbers for each job"
            )
    for key in cast(dict[str, Any], facts):
        if key not in REQUIRED + OPTIONAL:
            raise InputError.at(path, None, f"'{key[:40]}' is not known here, expected {known}")
    return facts


def rows(path: Path, key: str, value: object) -> Table:
    """A list of lists of whole numbers."""
    if not isinstance(value, list):
        raise InputError.at(path, None, f"'{key}' must be a list of lists, one for each job")
    return tuple(
        integer_row(path, key, job, one) for job, one in enumerate(cast(list[object], value), 1)
    )


def integer_row(path: Path, key: str, job: int, value: object) -> tuple[int, ...]:
    """The whole numbers of one job."""
    items = cast(list[object], value) if isinstance(value, list) else [value]
    strange = [x for x in items if isinstance(x, bool) or not isinstance(x, int)]
    if strange or not isinstance(value, list):
        shown = json.dumps(strange[0] if strange else value)[:40]
        raise InputError.at(
            path, None, f"'{key}' of job {job}: read {shown}, expected a list of whole numbers"
        )
    return tuple(cast(list[int], value))


def optional_integer(path: Path, facts: dict[str, Any], key: str) -> int | None:
    """A whole number, or None where it is left out."""
    value = facts.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise InputError.at(
            path, None, f"'{key}' is {json.dumps(value)[:40]}, expected a whole number"
        )
    return value
