"""Paths, arrays and mappings as instances."""

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

CVRP_ARRAYS = "vehicle routing is a tuple: depot, customers, demands, capacity"

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
    """Instances behind a path, an array ([N, 2], [N, N] or a batch [B, N, 2]), an instance, or a
    list of these.

    A path is a file, a folder of files or a pattern of their names.

    Vehicle routing is four arrays: the depot [2], customers [n, 2], demands [n] and the capacity;
    `vehicles` limits it. A job shop is a mapping with rows of "durations" and "machines", arrays or
    lists, and perhaps a "name".
    """
    found = convert_source(tensors_to_arrays(source))
    return (
        found if vehicles is None else [cvrp.with_fleet(instance, vehicles) for instance in found]
    )


def tensors_to_arrays(source: Any) -> Any:
    """The same without tensors: these become arrays, also inside lists."""
    if isinstance(source, torch.Tensor):
        return source.numpy(force=True)
    if isinstance(source, list | tuple):
        return [tensors_to_arrays(one) for one in source]  # pyright: ignore[reportUnknownVariableType]
    return source


def convert_source(source: Any) -> list[Any]:
    """The same without the limit."""
    if isinstance(source, (str, Path)):
        return [instance for file in find_instance_files(source) for instance in read_many(file)]
    if isinstance(source, TSPInstance | CVRPInstance | JSSPInstance):
        return [source]
    if isinstance(source, Mapping):
        return [jssp_from_mapping(source)]
    if isinstance(source, np.ndarray):
        if source.ndim == 3:
            return [tsp_from_array(x, f"array-{i + 1}") for i, x in enumerate(source)]
        return [tsp_from_array(source)]
    if not isinstance(source, Sequence):
        raise InputError(
            f"expected a path, an array, a mapping or a list of these, got {type(source).__name__}"
        )
    if is_cvrp_arrays(source):
        return [cvrp.cvrp_from_arrays(*source)]
    if all(is_cvrp_arrays(one) for one in source):
        return [cvrp.cvrp_from_arrays(*one, name=f"arrays-{i + 1}") for i, one in enumerate(source)]
    if isinstance(source[0], list | tuple):
        return convert_source(number_array(source))
    return [x for one in source for x in convert_source(one)]


def is_cvrp_arrays(source: Any) -> bool:
    """Whether these are a depot, customers, demands and a capacity: three sequences and a
    number.
    """
    if not isinstance(source, list | tuple) or len(source) != 4:
        return False
    *sequences, last = source
    number = isinstance(last, int | float | np.number) or (
        isinstance(last, np.ndarray) and not last.ndim
    )
    return number and all(isinstance(x, list | tuple | np.ndarray) for x in sequences)


def jssp_from_mapping(facts: Mapping[str, Any]) -> JSSPInstance:
    """The job shop of a mapping."""
    needed = {"durations", "machines"}
    optional = {"name", "machine_count", "first_machine"}
    if not needed <= set(facts) <= needed | optional:
        known = "durations, machines and perhaps a name, machine_count and first_machine"
        has = ", ".join(map(str, facts))
        raise InputError(f"a mapping must have {known}; it has {has} ({CVRP_ARRAYS})")
    numbers = {key: facts.get(key) for key in ("machine_count", "first_machine")}
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | None):
            raise InputError(f"{key} is {value!r}, expected a whole number")
    return jssp_from_arrays(
        facts["durations"], facts["machines"], str(facts.get("name", "arrays")), **numbers
    )


def number_array(nested: Sequence[Any]) -> np.ndarray:
    """Nested lists of numbers as an array."""
    try:
        return np.asarray(nested, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"nested lists must hold numbers in rows of equal length; {CVRP_ARRAYS}"
        ) from error
