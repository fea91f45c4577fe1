"""JSSP instances from mappings, as users give them to `rhumbline.solve`."""

from collections.abc import Mapping
from typing import Any

from rhumbline.errors import InputError, shorten_repr
from rhumbline.problems.jssp.instance import JSSPInstance, jssp_from_arrays


def jssp_from_python(source: Any) -> list[JSSPInstance] | None:
    """Return the instance of a mapping with rows of durations and machines."""
    if not isinstance(source, Mapping):
        return None
    facts: Mapping[str, Any] = source
    needed = {"durations", "machines"}
    known = needed | {"name", "machine_count", "first_machine"}
    if not needed <= set(facts) <= known:
        return None
    numbers: dict[str, int | None] = {}
    for key in ("machine_count", "first_machine"):
        value = facts.get(key)
        if isinstance(value, bool) or not isinstance(value, int | None):
            raise InputError(f"{key} is {shorten_repr(value)}, expected a whole number")
        numbers[key] = value
    name = str(facts.get("name", "arrays"))
    durations = facts["durations"]
    return [jssp_from_arrays(durations, facts["machines"], name, **numbers)]
