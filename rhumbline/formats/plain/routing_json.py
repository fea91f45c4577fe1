"""TSP and CVRP instances as JSON objects, with the keys of the mappings that `solve` takes.

TSP: "coordinates" or "distances". CVRP: "depot", "customers", "demands" and "capacity", or
"coordinates" or "distances" of all nodes with "demands" and "capacity"; row 0 is then the depot.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from rhumbline.errors import InputError, explain_parse_error
from rhumbline.formats.best_known import read_best_known
from rhumbline.formats.safe_io import LIMITS, read_bytes
from rhumbline.problems.cvrp.python_inputs import CVRP_FORMS, cvrp_from_facts
from rhumbline.problems.jssp.python_inputs import JSSP_FORMS
from rhumbline.problems.mappings import explain_keys, find_form
from rhumbline.problems.tsp.python_inputs import TSP_FORMS, tsp_from_facts

ALL_FORMS = (*TSP_FORMS, *CVRP_FORMS, *JSSP_FORMS)


def read_routing_json(path: Path) -> Any:
    """Read the TSP or CVRP of a JSON file."""
    facts = load_json_object(path)
    try:
        if find_form(facts, CVRP_FORMS):
            instance = cvrp_from_facts(facts, path.stem)
        elif find_form(facts, TSP_FORMS):
            instance = tsp_from_facts(facts, path.stem)
        else:
            raise InputError(explain_keys(facts, ALL_FORMS))
    except InputError as error:
        raise InputError.at(path, None, str(error)) from error
    if instance.best_known is not None:
        return instance
    return replace(instance, best_known=read_best_known(path.parent, instance.name))


def is_tsp_json(path: Path) -> bool:
    """Return whether a JSON file has the keys of a TSP."""
    has_keys = has_keys_of(path, TSP_FORMS)
    return has_keys and not is_cvrp_json(path)


def is_cvrp_json(path: Path) -> bool:
    """Return whether a JSON file has the keys of a CVRP."""
    return has_keys_of(path, CVRP_FORMS)


def has_keys_of(path: Path, forms: Any) -> bool:
    """Return whether a file is a JSON object with all needed keys of a form.

    Geographic files (GeoJSON) have "coordinates" too, beside a "type".
    """
    try:
        facts = load_json_object(path)
    except InputError:
        return False
    return "type" not in facts and any(set(form.needed) <= set(facts) for form in forms)


def load_json_object(path: Path) -> Mapping[str, Any]:
    """Read the JSON object of a file."""
    try:
        facts = json.loads(read_bytes(path, LIMITS.max_text_bytes))
    except (ValueError, RecursionError) as error:  # bad JSON or UTF-8, a huge number, deep nesting
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        reason = explain_parse_error(error)
        raise InputError.at(path, line, f"is not JSON ({reason}); correct it") from error
    if not isinstance(facts, dict):
        shop = "durations and machines (a job shop)"
        routing = "coordinates or distances (TSP; for CVRP also demands and capacity)"
        raise InputError.at(path, None, f"expected a JSON object with {shop}, or {routing}")
    return cast(dict[str, Any], facts)
