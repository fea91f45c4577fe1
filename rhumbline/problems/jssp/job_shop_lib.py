"""Job shops as the Python package job_shop_lib writes them: `JobShopInstance.to_dict`.

{"name": "ft06", "duration_matrix": [[...]], "machines_matrix": [[...]], "metadata": {...}}, where
the metadata of its benchmark instances have "optimum", "upper_bound" and "lower_bound".
"""

from collections.abc import Mapping
from typing import Any

from rhumbline.errors import InputError
from rhumbline.problems.mappings import MappingForm, name_from

# What instances may have besides, and what it stands for.
UNSUPPORTED_TABLES = {
    "release_dates_matrix": "release dates",
    "deadlines_matrix": "deadlines",
    "due_dates_matrix": "due dates",
}

LIBRARY_FORM = MappingForm(
    "a job shop of job_shop_lib",
    ("duration_matrix", "machines_matrix"),
    ("name", "metadata", *UNSUPPORTED_TABLES),
)


def from_library(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping in our own keys; machines count from 0."""
    name = name_from(facts, "job shop")
    for key, what in UNSUPPORTED_TABLES.items():
        if facts.get(key):
            raise InputError(f"{name}: {what} ('{key}') are not supported; remove them")
    machines = facts["machines_matrix"]
    own: dict[str, Any] = {
        "durations": facts["duration_matrix"],
        "machines": single_machines(machines, name),
        "first_machine": 0,
    }
    if "name" in facts:
        own["name"] = facts["name"]
    known = best_known_of(facts.get("metadata"))
    if known is not None:
        own["best_known"] = known
    return own


def single_machines(machines: Any, name: str) -> Any:
    """Return the machines, where lists of one machine for an operation become that machine."""
    if not isinstance(machines, list):
        return machines
    table: list[Any] = []
    for job, row in enumerate(machines, 1):
        if not isinstance(row, list):
            return machines
        for step, entry in enumerate(row, 1):
            if isinstance(entry, list) and len(entry) != 1:
                found = f"operation {step} of job {job} may use {len(entry)} machines"
                raise InputError(f"{name}: {found}; flexible job shops are not supported")
        table.append([entry[0] if isinstance(entry, list) else entry for entry in row])
    return table


def best_known_of(metadata: Any) -> Any:
    """Return the optimum of the metadata, or the upper bound, or None."""
    if not isinstance(metadata, Mapping):
        return None
    entries: Mapping[str, Any] = metadata
    optimum = entries.get("optimum")
    upper_bound = entries.get("upper_bound")
    return upper_bound if optimum is None else optimum
