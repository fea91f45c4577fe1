"""Many random instances of one size in one safetensors file: a tensor `xy` [B, N, 2] and a JSON note."""

import json
from pathlib import Path

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.numpy import load, save

from rhumbline.errors import InputError
from rhumbline.formats.atomic import read_bytes, write_bytes
from rhumbline.problems.tsp import TSP, TSPInstance


def save_dataset(path: Path, xy: Float[np.ndarray, "B N 2"], about: dict[str, str]) -> None:
    """Write coordinates in the precision they have; equal input gives equal bytes, so files can be hashed."""
    check(path, xy)
    # One entry: safetensors writes several in an order that changes from run to run.
    write_bytes(path, save({"xy": np.ascontiguousarray(xy)}, metadata={"about": json.dumps(about, sort_keys=True)}))


def load_dataset(path: Path) -> list[TSPInstance]:
    """The instances of a file, named after it and counted from 1, in the unrounded Euclidean metric."""
    xy = check(path, load_xy(path)).astype(np.float64)
    return [TSPInstance(f"{path.stem}-{place:04}", "EXACT_2D", xy=points) for place, points in enumerate(xy, 1)]


def load_xy(path: Path) -> np.ndarray:
    """The tensor `xy` of a file, whatever its shape."""
    content = read_bytes(path)
    try:
        tensors = load(content)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:  # damaged, or a type numpy does not have
        raise InputError.at(path, None, f"is not a dataset in safetensors format ({error}); make it anew") from error
    if "xy" not in tensors:
        found = ", ".join(sorted(tensors)[:5]) or "nothing"
        raise InputError.at(path, None, f"expected a tensor 'xy' of coordinates, read {found}; is it a checkpoint?")
    return tensors["xy"]


def check(path: Path, xy: np.ndarray) -> Float[np.ndarray, "B N 2"]:
    """The same array, or an error unless it holds instances that the package solves."""
    if xy.ndim != 3 or xy.shape[2] != 2 or not np.issubdtype(xy.dtype, np.floating) or not len(xy):
        message = f"'xy' is {xy.dtype} {list(xy.shape)}, expected floating-point coordinates [instances, cities, 2]"
        raise InputError.at(path, None, message)
    if not 1 <= xy.shape[1] <= TSP.largest:
        raise InputError.at(path, None, f"'xy' has {xy.shape[1]} cities, expected 1 to {TSP.largest}, the limit here")
    if not np.isfinite(xy).all():
        raise InputError.at(path, None, "'xy' has NaN or infinite coordinates, expected finite ones; make it anew")
    return xy
