"""JSSP instances from mappings, as users give them to `rhumbline.solve`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np

from rhumbline.errors import InputError, shorten_repr
from rhumbline.problems.decimals import advise_scaling
from rhumbline.problems.jssp.instance import JSSPInstance, jssp_from_arrays
from rhumbline.problems.jssp.job_shop_lib import LIBRARY_FORM, from_library
from rhumbline.problems.mappings import MappingForm, best_known_from, find_form, name_from

JSSP_FORMS = (
    MappingForm(
        "a job shop",
        ("durations", "machines"),
        ("name", "best_known", "machine_count", "first_machine"),
    ),
    LIBRARY_FORM,
)


def jssp_from_python(source: Any) -> list[JSSPInstance] | None:
    """Return the instance of a mapping with rows of durations and machines."""
    if not isinstance(source, Mapping):
        return None
    facts: Mapping[str, Any] = source
    form = find_form(facts, JSSP_FORMS)
    if form is None:
        return None
    if form is LIBRARY_FORM:
        facts = from_library(facts)
    numbers: dict[str, int | None] = {}
    for key in ("machine_count", "first_machine"):
        value = facts.get(key)
        is_number_or_none = isinstance(value, int | None) and not isinstance(value, bool)
        if not is_number_or_none:
            raise InputError(f"{key} is {shorten_repr(value)}, expected a whole number")
        numbers[key] = value
    name = name_from(facts, "arrays")
    durations = facts["durations"]
    refuse_decimal_durations(durations, name)
    machines = facts["machines"]
    instance = jssp_from_arrays(durations, machines, name, **numbers)
    known = best_known_from(facts, name)
    return [replace(instance, best_known=known)]


def refuse_decimal_durations(durations: Sequence[Any] | np.ndarray, name: str) -> None:
    """Raise at durations with decimals, with the factor that makes them whole.

    They are not scaled without being asked: the makespan and all start times are in their unit.
    """
    decimals = decimal_durations(durations)
    if decimals:
        found = f"durations such as {decimals[0]} have decimals, expected whole numbers"
        raise InputError(f"{name}: {found}; {advise_scaling('durations', decimals)}")


def decimal_durations(durations: Any) -> list[Any]:
    """Return the finite numbers of a table that are not whole."""
    found: list[Any] = []
    if not isinstance(durations, Sequence | np.ndarray) or isinstance(durations, str):
        return found
    rows: Any = durations
    for row in rows:
        if isinstance(row, Sequence | np.ndarray) and not isinstance(row, str):
            found += [x for x in row if is_decimal(x)]
    return found


def is_decimal(number: Any) -> bool:
    """Return whether a value is a finite number that is not whole."""
    if not isinstance(number, float | np.floating):
        return False
    is_finite = isfinite(number)
    is_whole = is_finite and number == int(number)
    return is_finite and not is_whole
