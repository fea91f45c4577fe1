"""Instances as mappings: the keys that each form has, and what is said about others."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rhumbline.errors import LIMITS, InputError, shorten_repr
from rhumbline.problems.metrics import METRIC_LIMITS, check_matrix_size
from rhumbline.problems.tsp.instance import tsp_from_matrix
from rhumbline.registry import did_you_mean


@dataclass(frozen=True)
class MappingForm:
    """The keys of a mapping that describes an instance."""

    kind: str  # in messages, such as "a TSP"
    needed: tuple[str, ...]
    optional: tuple[str, ...] = ("name", "best_known")

    def fits(self, facts: Mapping[str, Any]) -> bool:
        """Return whether a mapping has all needed keys and no unknown ones."""
        needed = set(self.needed)
        known = needed.union(self.optional)
        given = set(facts)
        return needed <= given <= known

    def score(self, facts: Mapping[str, Any]) -> float:
        """Return how much a mapping resembles this form: equal keys count more than close ones."""
        points = 0.0
        for key in facts:
            if key in self.needed:
                points += 1.0
            elif key in self.optional:
                points += 0.3
            elif did_you_mean(str(key), self.needed):
                points += 0.8
        return points - 0.1 * len(self.needed)


def find_form(facts: Mapping[str, Any], forms: Iterable[MappingForm]) -> MappingForm | None:
    """Return the first form that fits a mapping, or None."""
    return next((form for form in forms if form.fits(facts)), None)


def explain_keys(facts: Mapping[str, Any], forms: Iterable[MappingForm]) -> str:
    """Return what is wrong with the keys of a mapping, compared with the form it resembles most."""
    form = max(forms, key=lambda one: one.score(facts))
    known = (*form.needed, *form.optional)
    unknown = [str(key) for key in facts if key not in known]
    problems: list[str] = []
    guesses = ""
    for key in unknown:
        guess = did_you_mean(key, known)
        guesses += guess
        problems.append(f"{shorten_repr(key)} is not known{guess}")
    absent = [f"'{key}'" for key in form.needed if key not in facts]
    missing = [key for key in absent if key not in guesses]
    if missing:
        names = " and ".join(missing)
        verb = "is" if len(missing) == 1 else "are"
        problems.append(f"{names} {verb} missing")
    shown = "; ".join(problems[:3])
    needed = ", ".join(form.needed)
    optional = ", ".join(form.optional)
    return f"{shown}; {form.kind} has {needed} and perhaps {optional}"


def name_from(facts: Mapping[str, Any], default: str) -> str:
    """Return the name of a mapping, which must be a text."""
    name = facts.get("name", default)
    if not isinstance(name, str):
        raise InputError(f"{default}: 'name' is {shorten_repr(name)}, expected a text")
    check_name_length(name, default)
    return name or default


def check_name_length(name: str, where: str) -> None:
    """Refuse a name that is too long for messages and names of files."""
    most = LIMITS.max_name_characters
    length = len(name)
    if length <= most:
        return
    found = f"'name' has {length:,} characters"
    expected = f"expected at most {most}"
    raise InputError(f"{where}: {found}, {expected}")


def best_known_from(facts: Mapping[str, Any], name: str) -> float | None:
    """Return the best known cost of a mapping, or None."""
    cost = facts.get("best_known")
    if cost is None:
        return None
    is_number = isinstance(cost, int | float | np.number) and not isinstance(cost, bool)
    if is_number and 0 <= cost < 1e18:
        return float(cost)
    raise InputError(
        f"{name}: 'best_known' is {shorten_repr(cost)}, expected a number of 0 or more"
    )


def number_table(value: Any, key: str, name: str) -> np.ndarray:
    """Return rows of real numbers as a two-dimensional array."""
    try:
        table = np.asarray(value)
    except ValueError as error:
        expected = "expected rows of equal length"
        raise InputError(f"{name}: the {key} have rows of unequal lengths, {expected}") from error
    if table.ndim != 2 or table.dtype.kind not in "iuf":
        found = f"got shape {table.shape} of {table.dtype}"
        raise InputError(f"{name}: the {key} must be a list of rows of numbers, {found}")
    return table


def distance_matrix(value: Any, key: str, name: str) -> np.ndarray:
    """Return a symmetric matrix of distances."""
    if isinstance(value, list | tuple):  # before it becomes an array
        check_matrix_size(value, name)
    table = number_table(value, key, name)
    check_matrix_size(table, name)
    if not np.isfinite(table).all():
        raise InputError(f"{name}: the {key} contain NaN or infinite numbers")
    if table.size and np.abs(table).max() > METRIC_LIMITS.max_number:
        limit = f"numbers beyond {METRIC_LIMITS.max_number:g}, up to which costs are exact"
        raise InputError(f"{name}: the {key} contain {limit}; use another unit")
    matrix = tsp_from_matrix(table, name).matrix
    assert matrix is not None
    return matrix
