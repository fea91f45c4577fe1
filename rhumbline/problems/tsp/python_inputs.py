"""TSP instances from arrays and mappings, as users give them to `rhumbline.solve`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rhumbline.errors import InputError
from rhumbline.problems.mappings import (
    MappingForm,
    best_known_from,
    distance_matrix,
    find_form,
    name_from,
    number_table,
)
from rhumbline.problems.tsp.instance import TSPInstance, tsp_from_array

TSP_FORMS = (
    MappingForm("a TSP", ("coordinates",)),
    MappingForm("a TSP", ("distances",)),
    MappingForm("a TSP", ("matrix",)),
)


def tsp_from_python(source: Any) -> list[TSPInstance] | None:
    """Return the instance of an array or a mapping, or those of a batch of coordinates [B, N, 2].

    A mapping has the key "coordinates", or "distances" (also called "matrix").
    """
    if isinstance(source, Mapping):
        facts: Mapping[str, Any] = source
        if find_form(facts, TSP_FORMS) is None:
            return None
        instance = tsp_from_facts(facts, "mapping")
        return [instance]
    if not isinstance(source, np.ndarray):
        return None
    if source.ndim == 3:
        return [tsp_from_array(xy, f"array-{i}") for i, xy in enumerate(source, 1)]
    return [tsp_from_array(source)]


def tsp_from_facts(facts: Mapping[str, Any], default_name: str) -> TSPInstance:
    """Return the instance of a mapping that fits one of the `TSP_FORMS`."""
    name = name_from(facts, default_name)
    known = best_known_from(facts, name)
    if "coordinates" in facts:
        xy = number_table(facts["coordinates"], "coordinates", name)
        if xy.shape[1] != 2:
            found = f"rows of {xy.shape[1]} numbers"
            raise InputError(f"{name}: the coordinates have {found}, expected x and y")
        return replace(tsp_from_array(xy, name), best_known=known)
    key = "distances" if "distances" in facts else "matrix"
    matrix = distance_matrix(facts[key], key, name)
    if not len(matrix):
        raise InputError(f"{name}: has no cities, expected 1 or more")
    return TSPInstance(name, "EXPLICIT", matrix=matrix, best_known=known)
