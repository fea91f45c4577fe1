"""Paths, arrays, tables and mappings to instances."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
import torch

from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError, shorten_repr
from rhumbline.files import DATASET_SUFFIX, read_many, stream_many
from rhumbline.files.discovery import find_instance_files
from rhumbline.files.standard_input import is_standard_input, standard_input_file
from rhumbline.formats.plain.csv_files import is_csv, read_csv
from rhumbline.formats.plain.node_table import Table, instance_from_table
from rhumbline.formats.plain.routing_json import ALL_FORMS
from rhumbline.problems import Instance
from rhumbline.problems.cvrp import CVRPInstance, with_fleet
from rhumbline.problems.cvrp.instance import check_array_demands
from rhumbline.problems.decimals import scale_loads
from rhumbline.problems.mappings import explain_keys
from rhumbline.problems.metrics import METRIC_LIMITS


@runtime_checkable
class DataFrame(Protocol):
    """A table as pandas and polars have it; neither package is imported."""

    @property
    def columns(self) -> Any:
        """Return the names of the columns."""

    def to_dict(self) -> Any:
        """Return the table in another form, which is not used: arrays have no such method."""

    def __getitem__(self, column: Any) -> Any:
        """Return a column."""


SolveInput = str | Path | np.ndarray | torch.Tensor | Mapping[str, Any] | Instance | DataFrame


def instances_from(
    source: SolveInput | Sequence[Any],
    vehicles: int | None = None,
    capacity: int | float | None = None,
) -> list[Any]:
    """Return the instances of a path, an array, a table, a mapping, an instance, or a list of them.

    A path is a file, a folder of files, a pattern of file names, or "-" for standard input. For TSP
    an array has shape [N, 2] (coordinates), [N, N] (distances) or [B, N, 2] (a batch of
    coordinates), and a mapping has "coordinates" or "distances".
    CVRP is a tuple of the depot [2], the customers [n, 2], the demands [n] and the capacity, or a
    mapping with these names; with "distances" row 0 is the depot. A DataFrame, or a list of
    mappings with x and y, has a row for each node. `vehicles` and `capacity` replace what files
    say.
    JSSP is a mapping with rows of "durations" and "machines", arrays or lists, and optionally
    a "name", a "machine_count" and the "first_machine".
    """
    if capacity is not None:
        check_capacity(capacity)
    arrays = tensors_to_arrays(source)
    instances = convert_source(arrays, capacity)
    return [with_limits(instance, vehicles, capacity) for instance in instances]


def with_limits(instance: Any, vehicles: int | None, capacity: int | float | None) -> Any:
    """Return the instance with the fleet that a user gave, if any."""
    if capacity is not None:
        instance = with_capacity(instance, capacity)
    return instance if vehicles is None else with_fleet(instance, vehicles)


def stream_instances(
    place: str | Path, vehicles: int | None = None, capacity: int | float | None = None
) -> Iterator[Any]:
    """Yield the instances of a path as `instances_from` returns them, file by file.

    Datasets are read in slices, so that they may be larger than memory.
    """
    if is_standard_input(place):
        yield from instances_from(place, vehicles, capacity)
        return
    for file in find_instance_files(place):
        if file.suffix.lower() != DATASET_SUFFIX:
            yield from instances_from(file, vehicles, capacity)
            continue
        if capacity is not None:
            check_capacity(capacity)
        for instance in stream_many(file):
            yield with_limits(instance, vehicles, capacity)


def tensors_to_arrays(source: Any) -> Any:
    """Return the source with arrays in the place of tensors, also inside lists and mappings."""
    if isinstance(source, torch.Tensor):
        return source.numpy(force=True)
    if isinstance(source, list | tuple):
        parts: Sequence[Any] = source
        return [tensors_to_arrays(part) for part in parts]
    if isinstance(source, Mapping):
        facts: Mapping[str, Any] = source
        return {key: tensors_to_arrays(value) for key, value in facts.items()}
    return source


def convert_source(source: Any, capacity: int | float | None = None) -> list[Any]:
    """Return the instances of a source without tensors, with the fleets that the files give."""
    if isinstance(source, (str, Path)):
        return instances_of_path(source, capacity)
    if is_table(source):
        return [instance_from_table(table_of(source, capacity))]
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
        numbers = number_array(parts)
        return convert_source(numbers)
    return [instance for part in parts for instance in convert_source(part, capacity)]


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
    reason = explain_keys(facts, ALL_FORMS)
    raise InputError(f"a mapping is no instance: {reason}")


def number_array(nested: Sequence[Any]) -> np.ndarray:
    """Return nested lists of numbers as an array."""
    try:
        return np.asarray(nested, dtype=np.float64)
    except (TypeError, ValueError) as error:
        message = "nested lists must hold numbers in rows of equal length"
        advice = "vehicle routing is a tuple: depot, customers, demands, capacity"
        raise InputError(f"{message}; {advice}") from error


# --- files


def instances_of_path(place: str | Path, capacity: int | float | None) -> list[Any]:
    """Return the instances of a file, a folder, a pattern or standard input."""
    if is_standard_input(place):
        with standard_input_file() as file:
            return instances_of_file(file, capacity)
    files = find_instance_files(place)
    return [instance for file in files for instance in instances_of_file(file, capacity)]


def instances_of_file(file: Path, capacity: int | float | None) -> list[Any]:
    """Return the instances of a file; a table may need the capacity to become an instance."""
    suffix = file.suffix.lower()
    may_be_table = suffix in ("", ".csv")
    if capacity is not None and may_be_table and is_csv(file):
        return [read_csv(file, capacity)]
    return read_many(file)


def check_capacity(capacity: Any) -> None:
    """Raise unless a capacity is a finite number above 0."""
    is_valid = False
    if isinstance(capacity, int | float | np.number):
        is_valid = 0 < capacity <= METRIC_LIMITS.max_number
    if isinstance(capacity, bool) or not is_valid:
        found = f"capacity is {shorten_repr(capacity)}"
        expected = f"expected a number above 0 and up to {METRIC_LIMITS.max_number:g}"
        raise InputError(f"{found}, {expected}")


def with_capacity(instance: Any, capacity: Any) -> CVRPInstance:
    """Return the instance with vehicles of this capacity, whatever its file says."""
    if not isinstance(instance, CVRPInstance):
        found = f"this is '{instance.problem}'"
        wanted = "a capacity is for vehicle routing"
        raise InputError(f"{instance.name}: {wanted}, {found}")
    factor = instance.load_factor
    demands = [demand if factor == 1 else demand / factor for demand in instance.demands[1:]]
    check_array_demands(instance.name, np.asarray(demands), capacity)
    loads = scale_loads(instance.name, demands, capacity)
    return replace(
        instance,
        demands=(0, *loads.demands),
        capacity=loads.capacity,
        load_factor=loads.factor,
    )


# --- tables


def is_table(source: Any) -> bool:
    """Return whether this is a DataFrame, or a list of mappings with x or y."""
    if isinstance(source, DataFrame):
        return True
    if not isinstance(source, list) or not source:
        return False
    rows: list[Any] = source
    return all(isinstance(row, Mapping) and has_positions(row) for row in rows)


def has_positions(row: Mapping[str, Any]) -> bool:
    """Return whether a mapping has x or y among its keys, as the row of a table."""
    names = {column_name(key) for key in row}
    return not names.isdisjoint(("x", "y"))


def column_name(key: object) -> str:
    """Return the name of a column without capitals and spaces around it."""
    text = str(key)
    return text.strip().lower()


def table_of(source: Any, capacity: int | float | None) -> Table:
    """Return the table of a DataFrame or of a list of mappings."""
    given: Any = source
    keys: Sequence[Any]
    if isinstance(source, list):
        given = columns_of_rows(source)
        keys = list(given)
    else:
        keys = list(source.columns)
    columns: dict[str, list[Any]] = {}
    for key in keys:
        name = column_name(key)
        if name in columns:
            raise InputError(f"table: column {shorten_repr(name)} is there twice, expected once")
        columns[name] = list(given[key])
    return Table("table", columns, capacity=capacity)


def columns_of_rows(rows: list[Mapping[Any, Any]]) -> dict[Any, list[Any]]:
    """Return the columns of mappings with a row each; None is where a row has no such key."""
    keys = dict[Any, None]()
    for row in rows:
        keys |= dict.fromkeys(row)
    columns: dict[Any, list[Any]] = {}
    for key in keys:
        cells = [row.get(key) for row in rows]
        columns[key] = cells
    return columns
