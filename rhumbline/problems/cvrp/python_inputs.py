"""CVRP instances from tuples of arrays and mappings, as users give them to `rhumbline.solve`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rhumbline.errors import InputError, shorten_repr
from rhumbline.problems.cvrp.instance import (
    CVRPInstance,
    check_array_demands,
    cvrp_from_arrays,
)
from rhumbline.problems.decimals import scale_loads
from rhumbline.problems.mappings import (
    MappingForm,
    best_known_from,
    distance_matrix,
    find_form,
    name_from,
    number_table,
)

CVRP_FORMS = tuple(
    MappingForm("a CVRP", (*network, "demands", "capacity"), ("vehicles", "name", "best_known"))
    for network in (("depot", "customers"), ("coordinates",), ("distances",), ("matrix",))
)


def cvrp_from_python(source: Any) -> list[CVRPInstance] | None:
    """Return the instance of a mapping or of four arrays, or those of a list of these.

    Four arrays are a depot, customers, demands and a capacity.
    """
    if isinstance(source, Mapping):
        facts: Mapping[str, Any] = source
        if find_form(facts, CVRP_FORMS) is None:
            return None
        return [cvrp_from_facts(facts, "mapping")]
    if is_cvrp_arrays(source):
        return [cvrp_from_arrays(*source)]
    if not isinstance(source, list | tuple) or not source:
        return None
    parts: Sequence[Any] = source
    if not all(is_cvrp_arrays(part) for part in parts):
        return None
    return [cvrp_from_arrays(*part, name=f"arrays-{i}") for i, part in enumerate(parts, 1)]


def is_cvrp_arrays(source: Any) -> bool:
    """Return whether this is a depot, customers, demands (sequences) and a capacity (a number)."""
    if not isinstance(source, list | tuple) or len(source) != 4:
        return False
    *sequences, capacity = source
    is_number = isinstance(capacity, int | float | np.number)
    is_scalar = isinstance(capacity, np.ndarray) and not capacity.ndim
    if not (is_number or is_scalar):
        return False
    return all(isinstance(part, list | tuple | np.ndarray) for part in sequences)


def cvrp_from_facts(facts: Mapping[str, Any], default_name: str) -> CVRPInstance:
    """Return the instance of a mapping that fits one of the `CVRP_FORMS`.

    Row 0 of the distances, or of the coordinates of all nodes, is the depot. The demands are then
    those of all nodes, beginning with the 0 of the depot, or those of the customers alone.
    """
    name = name_from(facts, default_name)
    known = best_known_from(facts, name)
    vehicles = vehicles_from(facts, name)
    capacity = capacity_from(facts, name)
    if "depot" in facts:
        instance = cvrp_from_arrays(
            facts["depot"], facts["customers"], facts["demands"], capacity, name, vehicles
        )
        return replace(instance, best_known=known)
    keys = ("coordinates", "distances", "matrix")
    key = next(key for key in keys if key in facts)
    has_coordinates = key == "coordinates"
    if has_coordinates:
        nodes = number_table(facts[key], key, name)
    else:
        nodes = distance_matrix(facts[key], key, name)
    demands = customer_demands(facts["demands"], len(nodes), name)
    if has_coordinates:
        instance = cvrp_from_arrays(nodes[0], nodes[1:], demands, capacity, name, vehicles)
    else:
        instance = cvrp_from_matrix(nodes, demands, capacity, name, vehicles)
    return replace(instance, best_known=known)


def cvrp_from_matrix(
    matrix: np.ndarray, demands: np.ndarray, capacity: Any, name: str, vehicles: int | None
) -> CVRPInstance:
    """Return an instance from distances [N, N] and demands [N - 1]."""
    count = len(matrix) - 1
    if count < 1:
        raise InputError(f"{name}: has {count} customers, expected 1 or more")
    check_array_demands(name, demands, capacity)
    limit = np.asarray(capacity)[()]
    loads = scale_loads(name, demands, limit)
    return CVRPInstance(
        name,
        "EXPLICIT",
        (0, *loads.demands),
        loads.capacity,
        matrix=matrix,
        vehicles=vehicles,
        load_factor=loads.factor,
    )


def customer_demands(value: Any, nodes: int, name: str) -> np.ndarray:
    """Return the demands of the customers, given those of all nodes or of the customers."""
    table = number_table([value], "demands", name)
    demands = table[0]
    if len(demands) == nodes - 1:
        return demands
    if len(demands) != nodes:
        expected = f"expected {nodes}, beginning with 0 for the depot, or {nodes - 1} without it"
        raise InputError(f"{name}: has {len(demands)} demands of {nodes} nodes, {expected}")
    if demands[0] != 0:
        found = f"the depot (row 0) demands {demands[0]}"
        raise InputError(f"{name}: {found}, expected 0; put the depot first")
    return demands[1:]


def capacity_from(facts: Mapping[str, Any], name: str) -> Any:
    """Return the capacity of a mapping, a number or an array of one."""
    capacity = facts["capacity"]
    is_number = isinstance(capacity, int | float | np.number | np.ndarray)
    if not is_number or isinstance(capacity, bool):
        raise InputError(f"{name}: the capacity is {shorten_repr(capacity)}, expected a number")
    return capacity


def vehicles_from(facts: Mapping[str, Any], name: str) -> int | None:
    """Return the limit on the vehicles of a mapping, or None."""
    vehicles = facts.get("vehicles")
    if vehicles is None:
        return None
    is_whole = isinstance(vehicles, int | np.integer) and not isinstance(vehicles, bool)
    if is_whole and vehicles > 0:
        return int(vehicles)
    found = f"'vehicles' is {shorten_repr(vehicles)}"
    raise InputError(f"{name}: {found}, expected a whole number of 1 or more")
