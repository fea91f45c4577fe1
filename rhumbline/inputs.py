"""Paths, arrays and mappings to instances."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError
from rhumbline.files import read_many
from rhumbline.files.discovery import find_instance_files
from rhumbline.problems import Instance
from rhumbline.problems.cvrp import with_fleet

CVRP_ARRAYS = "vehicle routing is a tuple: depot, customers, demands, capacity"  # in messages

SolveInput = str | Path | np.ndarray | torch.Tensor | Mapping[str, Any] | Instance


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
    return [with_fleet(instance, vehicles) for instance in instances]


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
    converted = convert_by_domains(source)
    if converted is not None:
        return converted
    if isinstance(source, Mapping):
        refuse_mapping(source)
    if not isinstance(source, Sequence):
        expected = "expected a path, an array, a mapping or a list of these"
        raise InputError(f"{expected}, got {type(source).__name__}")
    parts: Sequence[Any] = source
    if parts and isinstance(parts[0], list | tuple):
        return convert_source(number_array(parts))
    return [instance for part in parts for instance in convert_source(part)]


def convert_by_domains(source: Any) -> list[Any] | None:
    """Return the instances of an object by the first problem that knows it, or None."""
    for _, domain in DOMAINS.working():
        if isinstance(source, domain.instance):
            return [source]
        converted = domain.from_python(source) if domain.from_python else None
        if converted is not None:
            return converted
    return None


def refuse_mapping(facts: Mapping[str, Any]) -> NoReturn:
    """Raise for a mapping that is an instance of no problem."""
    known = "durations, machines and perhaps a name, machine_count and first_machine"
    given = ", ".join(map(str, facts))
    raise InputError(f"a mapping must have {known}; it has {given} ({CVRP_ARRAYS})")


def number_array(nested: Sequence[Any]) -> np.ndarray:
    """Return nested lists of numbers as an array."""
    try:
        return np.asarray(nested, dtype=np.float64)
    except (TypeError, ValueError) as error:
        message = f"nested lists must hold numbers in rows of equal length; {CVRP_ARRAYS}"
        raise InputError(message) from error
