"""Paths, arrays and mappings to instances."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rhumbline.errors import InputError
from rhumbline.formats import read_many
from rhumbline.formats.discovery import find_instance_files
from rhumbline.problems import cvrp
from rhumbline.problems.cvrp import CVRPInstance
from rhumbline.problems.jssp import JSSPInstance, jssp_from_arrays
from rhumbline.problems.tsp import TSPInstance, tsp_from_array

CVRP_ARRAYS = "vehicle routing is a tuple: depot, customers, demands, capacity"  # in messages

SolveInput = (
    str
    | Path
    | np.ndarray
    | torch.Tensor
    | Mapping[str, Any]
    | TSPInstance
    | CVRPInstance
    | JSSPInstance
)


def instances_from(source: SolveInput | Sequence[Any], vehicles: int | None = None) -> list[Any]:
    """Return the instances of a path, an array, a mapping, an instance, or a list of these.

    A path is a file, a folder of files or a pattern of file names. For TSP an array has shape
    [N, 2] (coordinates), [N, N] (distances) or [B, N, 2] (a batch of coordinates).
    CVRP is a tuple of the depot [2], the customers [n, 2], the demands [n] and the capacity;
    `vehicles` limits its fleet, whatever the files say.
    JSSP is a mapping with rows of "durations" and "machines", arrays or lists, and optionally
    a "name", a "machine_count" and the "first_machine".
    """
    instances = convert_source(tensors_to_arrays(source))
    if vehicles is None:
        return instances
    return [cvrp.with_fleet(instance, vehicles) for instance in instances]


def tensors_to_arrays(source: Any) -> Any:
    """Return the source with arrays in the place of tensors, also inside lists."""
    if isinstance(source, torch.Tensor):
        return source.numpy(force=True)
    if isinstance(source, list | tuple):
        parts: Sequence[Any] = source
        return [tensors_to_arrays(part) for part in parts]
    return source


def convert_source(source: Any) -> list[Any]:
    """Return the instances of a source without tensors, with the fleets that the files give."""
    if isinstance(source, (str, Path)):
        return [instance for file in find_instance_files(source) for instance in read_many(file)]
    if isinstance(source, TSPInstance | CVRPInstance | JSSPInstance):
        return [source]
    if isinstance(source, Mapping):
        return [jssp_from_mapping(source)]
    if isinstance(source, np.ndarray):
        return instances_from_array(source)
    if not isinstance(source, Sequence):
        expected = "expected a path, an array, a mapping or a list of these"
        raise InputError(f"{expected}, got {type(source).__name__}")
    if is_cvrp_arrays(source):
        return [cvrp.cvrp_from_arrays(*source)]
    if all(is_cvrp_arrays(part) for part in source):
        return [
            cvrp.cvrp_from_arrays(*part, name=f"arrays-{i}") for i, part in enumerate(source, 1)
        ]
    if isinstance(source[0], list | tuple):
        return convert_source(number_array(source))
    return [instance for part in source for instance in convert_source(part)]


def instances_from_array(array: np.ndarray) -> list[TSPInstance]:
    """Return the TSP instance of an array, or those of a batch of coordinates."""
    if array.ndim == 3:
        return [tsp_from_array(xy, f"array-{i}") for i, xy in enumerate(array, 1)]
    return [tsp_from_array(array)]


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


def jssp_from_mapping(facts: Mapping[str, Any]) -> JSSPInstance:
    """Return the JSSP instance of a mapping."""
    needed = {"durations", "machines"}
    optional = {"name", "machine_count", "first_machine"}
    keys = set(facts)
    if not needed <= keys <= needed | optional:
        known = "durations, machines and perhaps a name, machine_count and first_machine"
        given = ", ".join(map(str, facts))
        raise InputError(f"a mapping must have {known}; it has {given} ({CVRP_ARRAYS})")
    numbers: dict[str, int | None] = {}
    for key in ("machine_count", "first_machine"):
        value = facts.get(key)
        if isinstance(value, bool) or not isinstance(value, int | None):
            raise InputError(f"{key} is {value!r}, expected a whole number")
        numbers[key] = value
    name = str(facts.get("name", "arrays"))
    durations = facts["durations"]
    return jssp_from_arrays(durations, facts["machines"], name, **numbers)


def number_array(nested: Sequence[Any]) -> np.ndarray:
    """Return nested lists of numbers as an array."""
    try:
        return np.asarray(nested, dtype=np.float64)
    except (TypeError, ValueError) as error:
        message = f"nested lists must hold numbers in rows of equal length; {CVRP_ARRAYS}"
        raise InputError(message) from error
