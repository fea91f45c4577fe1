"""Job shops as JSON: {"durations": [[3, 2], [4]], "machines": [[0, 1], [1]]}, a list for each job.

Optional keys: "name", "best_known", "machine_count" (if some machines have no operation) and
"first_machine" (0 or 1). The objects of job_shop_lib ("duration_matrix", "machines_matrix") are
read too.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from rhumbline.errors import InputError, escape_controls, explain_parse_error, shorten, shorten_path
from rhumbline.formats.best_known import check_known_cost, with_best_makespan
from rhumbline.formats.safe_io import LIMITS, read_bytes
from rhumbline.problems.jssp.instance import JSSPInstance, Table, jssp_from_tables
from rhumbline.problems.jssp.job_shop_lib import LIBRARY_FORM, from_library
from rhumbline.problems.jssp.python_inputs import JSSP_FORMS, refuse_decimal_durations
from rhumbline.problems.mappings import check_name_length, explain_keys

REQUIRED_KEYS = ("durations", "machines")


def read_json(path: Path) -> JSSPInstance:
    """Read the instance of a JSON file.

    Its own "best_known" has priority over files beside it and over the table of classics.
    """
    facts = load_object(path)
    refuse_decimal_durations(facts["durations"], str(path))
    durations, machines = (integer_table(path, key, facts[key]) for key in REQUIRED_KEYS)
    name = facts.get("name", path.stem)
    if not isinstance(name, str):
        shown = show_json(name)
        raise InputError.at(path, None, f"'name' is {shown}, expected a text in quotes")
    check_name_length(name, shorten_path(path))
    count = optional_integer(path, facts, "machine_count")
    first = optional_integer(path, facts, "first_machine")
    try:
        name = escape_controls(name)
        instance = jssp_from_tables(durations, machines, name, machine_count=count, first=first)
    except InputError as error:
        raise InputError.at(path, None, str(error)) from error
    if facts.get("best_known") is None:
        return with_best_makespan(path.parent, instance)
    cost = check_known_cost(path, "best_known", facts["best_known"])
    return replace(instance, best_known=cost)


def is_job_shop_json(path: Path) -> bool:
    """Return whether a JSON file is meant as a job shop, valid or not."""
    content = read_bytes(path, LIMITS.max_text_bytes)
    keys = [form.needed[0] for form in JSSP_FORMS]
    quoted = [f'"{key}"'.encode() for key in keys]
    return any(key in content for key in quoted)


def load_object(path: Path) -> dict[str, Any]:
    """Read the JSON object of a file; it must have the required keys and no unknown ones."""
    try:
        facts = json.loads(read_bytes(path, LIMITS.max_text_bytes))
    except (ValueError, RecursionError) as error:  # bad JSON or UTF-8, a huge number, deep nesting
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        reason = explain_parse_error(error)
        raise InputError.at(path, line, f"is not JSON ({reason}); correct it") from error
    if isinstance(facts, dict) and LIBRARY_FORM.needed[0] in facts:
        facts = translate_library(path, cast(dict[str, Any], facts))
    known = (*REQUIRED_KEYS, "name", "best_known", "machine_count", "first_machine")
    if not isinstance(facts, dict):
        message = f"expected a JSON object with {' and '.join(REQUIRED_KEYS)}"
        raise InputError.at(path, None, message)
    for key in REQUIRED_KEYS:
        if key not in facts:
            message = f"'{key}' is missing, expected a list of numbers for each job"
            raise InputError.at(path, None, message)
    for key in cast(dict[str, Any], facts):
        if key not in known:
            message = f"'{shorten(key)}' is not known here, expected {', '.join(known)}"
            raise InputError.at(path, None, message)
    return facts


def translate_library(path: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the object of job_shop_lib in our own keys."""
    if not LIBRARY_FORM.fits(facts):
        raise InputError.at(path, None, explain_keys(facts, [LIBRARY_FORM]))
    try:
        return from_library(facts)
    except InputError as error:
        raise InputError.at(path, None, str(error)) from error


def integer_table(path: Path, key: str, value: object) -> Table:
    """Return a list of lists of whole numbers as a table, one row for each job."""
    if not isinstance(value, list):
        message = f"'{key}' must be a list of lists, one for each job"
        raise InputError.at(path, None, message)
    table: list[tuple[int, ...]] = []
    rows = cast(list[object], value)
    for job, row in enumerate(rows, 1):
        table.append(integer_row(path, key, job, row))
    return tuple(table)


def integer_row(path: Path, key: str, job: int, value: object) -> tuple[int, ...]:
    """Return the whole numbers of one job."""
    invalid = [value]
    if isinstance(value, list):
        items = cast(list[object], value)
        invalid = [item for item in items if not is_json_integer(item)]
    if invalid:
        shown = show_json(invalid[0])
        expected = "expected a list of whole numbers"
        message = f"'{key}' of job {job}: read {shown}, {expected}"
        raise InputError.at(path, None, message)
    return tuple(cast(list[int], value))


def show_json(value: object) -> str:
    """Return a JSON value for a message, scalars as JSON writes them."""
    if isinstance(value, list | dict) or is_json_integer(value):
        return shorten(cast(object, value))
    return shorten(json.dumps(value))


def is_json_integer(value: object) -> bool:
    """Return whether a JSON value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def optional_integer(path: Path, facts: dict[str, Any], key: str) -> int | None:
    """Return a whole number, or None without the key."""
    value = facts.get(key)
    if value is not None and not is_json_integer(value):
        shown = show_json(value)
        raise InputError.at(path, None, f"'{key}' is {shown}, expected a whole number")
    return value
