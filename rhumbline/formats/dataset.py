"""Datasets: many random instances of one size in one safetensors file.

Routing problems have a tensor `xy` [B, N, 2]; CVRP also `demand` [B, N], depot first, and
`capacity` [B]. Job shops have `duration` and `machine` [B, J, O], a row of operations for each job,
with machines numbered from 0. The metadata holds a JSON note on the origin.
"""

import json
import math
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from rhumbline.errors import InputError, shorten
from rhumbline.formats.safe_io import read_bytes, write_bytes
from rhumbline.problems.cvrp import CVRPBatch, CVRPInstance, cvrp_from_arrays
from rhumbline.problems.jssp import JSSPBatch, JSSPInstance
from rhumbline.problems.metrics import METRIC_LIMITS
from rhumbline.problems.tsp import TSP, TSPBatch, TSPInstance


@dataclass(frozen=True)
class SliceTuning:
    """How much of a dataset is in memory at once."""

    max_numbers: int = 1 << 22  # of a tensor: 16 MB in float32


TUNING = SliceTuning()


def save_dataset(
    path: Path,
    xy: Float[np.ndarray, "B N 2"],
    about: dict[str, str],
    *,
    demand: Int[np.ndarray, "B N"] | None = None,
    capacity: Int[np.ndarray, "B"] | None = None,
) -> None:
    """Write routing instances in the precision of the arrays.

    Equal input gives equal bytes, so files can be compared by hash.
    """
    check_coordinates(path, xy)
    arrays = {
        "xy": xy,
        "demand": demand,
        "capacity": capacity,
    }
    write_arrays(path, arrays, about)


def save_job_shops(
    path: Path,
    duration: Int[np.ndarray, "B J O"],
    machine: Int[np.ndarray, "B J O"],
    about: dict[str, str],
) -> None:
    """Write job shops as 32-bit integers, which hold any horizon; equal input gives equal bytes."""
    job_shops_from_tables(path, duration, machine)  # raises if they are invalid
    arrays = {
        "duration": duration.astype(np.int32),
        "machine": machine.astype(np.int32),
    }
    write_arrays(path, arrays, about)


def save_batch(path: Path, batch: TSPBatch | CVRPBatch | JSSPBatch, about: dict[str, str]) -> None:
    """Write the instances of a sampled batch."""
    if isinstance(batch, JSSPBatch):
        duration = batch.duration[..., :-1].numpy()  # without the column behind the last operation
        machine = batch.machine[..., :-1].numpy()
        save_job_shops(path, duration, machine, about)
    elif isinstance(batch, TSPBatch):
        save_dataset(path, batch.xy.numpy(), about)
    else:
        demand = batch.demand.numpy()
        capacity = batch.capacity.numpy()
        save_dataset(path, batch.xy.numpy(), about, demand=demand, capacity=capacity)


def write_arrays(
    path: Path, arrays: Mapping[str, np.ndarray | None], about: dict[str, str]
) -> None:
    """Write the arrays that are not None."""
    tensors: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        if array is not None:
            contiguous = np.ascontiguousarray(array)
            tensors[name] = contiguous
    # One metadata entry: safetensors writes several in an order that changes from run to run.
    note = json.dumps(about, sort_keys=True)
    metadata = {"about": note}
    content = save(tensors, metadata=metadata)
    write_bytes(path, content)


def load_dataset(path: Path) -> list[TSPInstance] | list[CVRPInstance] | list[JSSPInstance]:
    """Read the instances of a file, named after it and counted from 1.

    Distances are in the unrounded Euclidean metric.
    """
    tensors = load_tensors(path)
    if "xy" in tensors:
        return routing_from_tensors(path, tensors)
    return job_shops_from_tables(path, tensors["duration"], tensors["machine"])


def routing_from_tensors(
    path: Path, tensors: dict[str, np.ndarray], first: int = 1
) -> list[TSPInstance] | list[CVRPInstance]:
    """Return the routing instances of some rows, of which the first has the number `first`."""
    xy = check_coordinates(path, tensors["xy"])
    xy = xy.astype(np.float64)
    names = [instance_name(path, number) for number in range(first, first + len(xy))]
    if "demand" not in tensors:
        rows = zip(names, xy, strict=True)
        return [TSPInstance(name, "EXACT_2D", xy=points) for name, points in rows]
    demand, capacity = check_loads(path, tensors)
    instances: list[CVRPInstance] = []
    for index, limit in enumerate(capacity.tolist()):
        points = xy[index]
        instance = cvrp_from_arrays(
            depot=points[0],
            customers=points[1:],
            demands=demand[index, 1:],
            capacity=limit,
            name=names[index],
        )
        instances.append(instance)
    return instances


def stream_dataset(path: Path) -> Iterator[Any]:
    """Yield the instances of a dataset as `load_dataset` returns them, holding a slice at a time.

    What is wrong in a slice is raised when its turn comes.
    """
    names = tensor_names(path)
    is_known = "xy" in names or {"duration", "machine"} <= names
    if not is_known or not row_count(path):
        load_dataset(path)  # says what is wrong with the file
        return
    with open_tensors(path) as file:
        if "xy" in names:
            yield from stream_routing(path, file, names & {"xy", "demand", "capacity"})
        else:
            yield from stream_job_shops(path, file)


@contextmanager
def open_tensors(path: Path) -> Generator[Any, None, None]:
    """Open a file of tensors; yield an object with `get_slice`."""
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except (SafetensorError, OSError) as error:
        message = f"is not a dataset in safetensors format ({shorten(str(error))}); make it again"
        raise InputError.at(path, None, message) from error


def stream_routing(path: Path, file: Any, names: frozenset[str]) -> Iterator[Any]:
    """Yield routing instances."""
    slices = {name: file.get_slice(name) for name in names}
    shape = slices["xy"].get_shape()
    for first, end in slice_bounds(shape):
        tensors: dict[str, np.ndarray] = {}
        for name, rows in slices.items():
            tensors[name] = rows[first:end]
        yield from routing_from_tensors(path, tensors, first + 1)


def stream_job_shops(path: Path, file: Any) -> Iterator[Any]:
    """Yield job shops. A first pass counts the machines of all of them."""
    machines = file.get_slice("machine")
    bounds = list(slice_bounds(machines.get_shape()))
    machine_count = 0
    for first, end in bounds:
        machine_count = max(machine_count, count_machines(machines[first:end]))
    for first, end in bounds:
        duration = file.get_slice("duration")[first:end]
        rows = ShopRows(first + 1, machine_count or None)
        yield from job_shops_from_tables(path, duration, machines[first:end], rows)


def count_machines(machine: np.ndarray) -> int:
    """Return the number of machines of a slice; 0 if it is unusable, which is refused later."""
    if not machine.size or not are_integers(machine):
        return 0
    last = int(machine.max())
    return last + 1


def slice_bounds(shape: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first row of each slice and the row behind it."""
    count = shape[0]
    numbers_in_row = max(1, math.prod(shape[1:]))
    step = max(1, TUNING.max_numbers // numbers_in_row)
    for first in range(0, count, step):
        end = min(count, first + step)
        yield first, end


def instance_name(path: Path, number: int) -> str:
    """Return the name of an instance of a dataset, counted from 1."""
    return f"{path.stem}-{number:04}"


def check_loads(path: Path, tensors: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return demands and capacities of the shape of `xy`.

    Their values are checked with each instance.
    """
    count, nodes, _ = tensors["xy"].shape
    demand = tensors["demand"]
    capacity = tensors.get("capacity", np.zeros(0))
    are_valid = (
        are_integers(demand, capacity),
        demand.shape == (count, nodes),
        capacity.shape == (count,),
    )
    if not all(are_valid):
        found = f"{describe_array(demand)} and {describe_array(capacity)}"
        expected = "expected whole numbers [instances, nodes] and [instances]"
        message = f"'demand' and 'capacity' are {found}, {expected}"
        raise InputError.at(path, None, message)
    return demand, capacity


@dataclass(frozen=True)
class ShopRows:
    """Which rows of a dataset of job shops two tables hold."""

    first: int = 1  # the number of the first row
    machine_count: int | None = None  # None: as many as these rows use


def job_shops_from_tables(
    path: Path, duration: np.ndarray, machine: np.ndarray, rows: ShopRows | None = None
) -> list[JSSPInstance]:
    """Return the job shops of two tables, with as many machines as any of them uses."""
    rows = rows or ShopRows()
    are_valid = (
        are_integers(duration, machine),
        duration.ndim == 3,
        duration.shape == machine.shape,
        duration.size > 0,
    )
    if not all(are_valid):
        found = f"{describe_array(duration)} and {describe_array(machine)}"
        expected = "expected whole numbers [instances, jobs, operations]"
        message = f"'duration' and 'machine' are {found}, {expected}"
        raise InputError.at(path, None, message)
    machine_count = rows.machine_count or int(machine.max()) + 1
    tables = zip(duration.tolist(), machine.tolist(), strict=True)
    shops: list[JSSPInstance] = []
    try:
        for number, (durations, machines) in enumerate(tables, rows.first):
            shop = JSSPInstance(
                name=instance_name(path, number),
                durations=tuple(map(tuple, durations)),
                machines=tuple(map(tuple, machines)),
                machine_count=machine_count,
            )
            shops.append(shop)
    except InputError as error:
        raise InputError.at(path, None, str(error)) from error
    return shops


def tensor_names(path: Path) -> frozenset[str]:
    """Return the names of a file's tensors from its header; none if it cannot be read."""
    return frozenset(read_tensor_facts(path))


def row_count(path: Path) -> int | None:
    """Return the number of instances of a dataset from its header; None if it cannot be read."""
    header = read_tensor_facts(path)
    facts = header.get("xy") or header.get("duration")
    shape = facts.get("shape") if isinstance(facts, dict) else None
    return shape[0] if shape else None


def read_tensor_facts(path: Path) -> dict[str, Any]:
    """Return the facts of each tensor of a file by its name; none if the file cannot be read."""
    max_header_bytes = 100_000_000  # what safetensors allows
    if not path.is_file():
        return {}
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(max_header_bytes, path.stat().st_size):
                return {}
            header = dict(json.loads(file.read(length)))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}
    header.pop("__metadata__", None)
    return header


def load_tensors(path: Path) -> dict[str, np.ndarray]:
    """Read the tensors of a file: with `xy`, or with `duration` and `machine`; shapes unchecked."""
    content = read_bytes(path)
    try:
        tensors = load(content)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        # The file is damaged, or it has a type that numpy does not have.
        message = f"is not a dataset in safetensors format ({shorten(str(error))}); make it again"
        raise InputError.at(path, None, message) from error
    if "xy" not in tensors and not {"duration", "machine"} <= set(tensors):
        found = shorten(", ".join(sorted(tensors)[:5])) or "nothing"
        expected = "expected a tensor 'xy' of coordinates"
        raise InputError.at(path, None, f"{expected}, read {found}; is it a checkpoint?")
    return tensors


def check_coordinates(path: Path, xy: np.ndarray) -> Float[np.ndarray, "B N 2"]:
    """Return the coordinates, or raise unless the package solves such instances."""
    count = nodes = width = 0
    if xy.ndim == 3:
        count, nodes, width = xy.shape
    is_float = np.issubdtype(xy.dtype, np.floating)
    if not count or width != 2 or not is_float:
        expected = "expected floating-point coordinates [instances, cities, 2]"
        raise InputError.at(path, None, f"'xy' is {describe_array(xy)}, {expected}")
    if not 1 <= nodes <= TSP.max_size:
        expected = f"expected 1 to {TSP.max_size}, the limit here"
        raise InputError.at(path, None, f"'xy' has {nodes} nodes, {expected}")
    if not np.isfinite(xy).all():
        message = "'xy' has NaN or infinite coordinates, expected finite ones; make it again"
        raise InputError.at(path, None, message)
    if np.abs(xy).max() > METRIC_LIMITS.max_number:
        limit = f"'xy' has numbers beyond {METRIC_LIMITS.max_number:g}, up to which costs are exact"
        raise InputError.at(path, None, f"{limit}; use another unit")
    return xy


def are_integers(*arrays: np.ndarray) -> bool:
    """Return whether all arrays hold integers."""
    return all(np.issubdtype(array.dtype, np.integer) for array in arrays)


def describe_array(array: np.ndarray) -> str:
    """Return an array's type and shape for messages."""
    shape = list(array.shape)
    return f"{array.dtype} {shape}"
