"""Many random instances of one size in one safetensors file.

A tensor `xy` [B, N, 2] and a JSON note; for vehicle routing also `demand` [B, N], depot first, and
`capacity` [B]. Job shops have `duration` and `machine` [B, J, O] instead, a row of operations for
each job, and machines from 0.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.numpy import load, save

from rhumbline.errors import InputError
from rhumbline.formats.safe_io import read_bytes, write_bytes
from rhumbline.problems.cvrp import CVRPBatch, CVRPInstance, cvrp_from_arrays
from rhumbline.problems.jssp import JSSPBatch, JSSPInstance
from rhumbline.problems.tsp import TSP, TSPBatch, TSPInstance


def save_dataset(
    path: Path,
    xy: Float[np.ndarray, "B N 2"],
    about: dict[str, str],
    *,
    demand: Int[np.ndarray, "B N"] | None = None,
    capacity: Int[np.ndarray, "B"] | None = None,
) -> None:
    """Write arrays in the precision they have; equal input gives equal bytes, so files can be
    hashed.
    """
    check_coordinates(path, xy)
    write_arrays(path, {"xy": xy, "demand": demand, "capacity": capacity}, about)


def save_job_shops(
    path: Path,
    duration: Int[np.ndarray, "B J O"],
    machine: Int[np.ndarray, "B J O"],
    about: dict[str, str],
) -> None:
    """The same for job shops, in 32 bits, which hold any horizon."""
    job_shops_from_tables(path, duration, machine)
    tables = {"duration": duration.astype(np.int32), "machine": machine.astype(np.int32)}
    write_arrays(path, tables, about)


def save_batch(path: Path, batch: TSPBatch | CVRPBatch | JSSPBatch, about: dict[str, str]) -> None:
    """Write the instances of a batch that was sampled."""
    if isinstance(
        batch, JSSPBatch
    ):  # behind the last operation its tables have a column of nothing
        return save_job_shops(
            path, batch.duration[..., :-1].numpy(), batch.machine[..., :-1].numpy(), about
        )
    if isinstance(batch, TSPBatch):
        return save_dataset(path, batch.xy.numpy(), about)
    loads = {"demand": batch.demand.numpy(), "capacity": batch.capacity.numpy()}
    return save_dataset(path, batch.xy.numpy(), about, **loads)


def write_arrays(
    path: Path, arrays: Mapping[str, np.ndarray | None], about: dict[str, str]
) -> None:
    """Write the arrays that are there."""
    tensors = {name: np.ascontiguousarray(x) for name, x in arrays.items() if x is not None}
    # One entry: safetensors writes several in an order that changes from run to run.
    write_bytes(path, save(tensors, metadata={"about": json.dumps(about, sort_keys=True)}))


def load_dataset(path: Path) -> list[TSPInstance] | list[CVRPInstance] | list[JSSPInstance]:
    """The instances of a file, named after it and counted from 1; distances are in the unrounded
    Euclidean metric.
    """
    tensors = load_tensors(path)
    if "xy" not in tensors:
        return job_shops_from_tables(path, tensors["duration"], tensors["machine"])
    xy = check_coordinates(path, tensors["xy"]).astype(np.float64)
    names = [f"{path.stem}-{place:04}" for place in range(1, len(xy) + 1)]
    if "demand" not in tensors:
        return [
            TSPInstance(name, "EXACT_2D", xy=points) for name, points in zip(names, xy, strict=True)
        ]
    demand, capacity = check_loads(path, tensors)
    rows = zip(names, xy, demand, capacity.tolist(), strict=True)
    return [cvrp_from_arrays(x[0], x[1:], q[1:], c, name) for name, x, q, c in rows]


def check_loads(path: Path, tensors: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Demands and capacities that belong to `xy`; their values are checked with each instance."""
    demand = tensors["demand"]
    capacity = tensors.get("capacity", np.zeros(0))
    whole = np.issubdtype(demand.dtype, np.integer) and np.issubdtype(capacity.dtype, np.integer)
    if not whole or demand.shape != tensors["xy"].shape[:2] or capacity.shape != demand.shape[:1]:
        shapes = f"{demand.dtype} {list(demand.shape)} and {capacity.dtype} {list(capacity.shape)}"
        message = f"'demand' and 'capacity' are {shapes}, expected whole numbers [instances, nodes] and [instances]"
        raise InputError.at(path, None, message)
    return demand, capacity


def job_shops_from_tables(
    path: Path, duration: np.ndarray, machine: np.ndarray
) -> list[JSSPInstance]:
    """The job shops of two tables, with as many machines as any of them uses."""
    whole = np.issubdtype(duration.dtype, np.integer) and np.issubdtype(machine.dtype, np.integer)
    if not whole or duration.ndim != 3 or duration.shape != machine.shape or not duration.size:
        shapes = (
            f"{duration.dtype} {list(duration.shape)} and {machine.dtype} {list(machine.shape)}"
        )
        message = f"'duration' and 'machine' are {shapes}, expected whole numbers [instances, jobs, operations]"
        raise InputError.at(path, None, message)
    count = int(machine.max()) + 1
    pairs = enumerate(zip(duration.tolist(), machine.tolist(), strict=True), 1)
    try:
        return [
            JSSPInstance(f"{path.stem}-{n:04}", tuple(map(tuple, d)), tuple(map(tuple, m)), count)
            for n, (d, m) in pairs
        ]
    except InputError as error:
        raise InputError.at(path, None, str(error)) from error


def load_tensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file, whatever their shapes; `xy`, or `duration` and `machine`, are among
    them.
    """
    content = read_bytes(path)
    try:
        tensors = load(content)
    except (
        SafetensorError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:  # damaged, or a type numpy does not have
        raise InputError.at(
            path, None, f"is not a dataset in safetensors format ({error}); make it anew"
        ) from error
    if "xy" not in tensors and not {"duration", "machine"} <= set(tensors):
        found = ", ".join(sorted(tensors)[:5]) or "nothing"
        raise InputError.at(
            path, None, f"expected a tensor 'xy' of coordinates, read {found}; is it a checkpoint?"
        )
    return tensors


def check_coordinates(path: Path, xy: np.ndarray) -> Float[np.ndarray, "B N 2"]:
    """The same array, or an error unless it holds instances that the package solves."""
    if xy.ndim != 3 or xy.shape[2] != 2 or not np.issubdtype(xy.dtype, np.floating) or not len(xy):
        message = f"'xy' is {xy.dtype} {list(xy.shape)}, expected floating-point coordinates [instances, cities, 2]"
        raise InputError.at(path, None, message)
    if not 1 <= xy.shape[1] <= TSP.max_size:
        raise InputError.at(
            path,
            None,
            f"'xy' has {xy.shape[1]} nodes, expected 1 to {TSP.max_size}, the limit here",
        )
    if not np.isfinite(xy).all():
        raise InputError.at(
            path, None, "'xy' has NaN or infinite coordinates, expected finite ones; make it anew"
        )
    return xy
