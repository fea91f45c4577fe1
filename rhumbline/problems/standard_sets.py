"""The field's standard test sets, regenerated bit for bit from their seeds and checked by hash."""

from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Int

from rhumbline.errors import InputError, shorten
from rhumbline.registry import suggest_known


@dataclass(frozen=True)
class StandardSet:
    """Recipe of a routing set: one seed of NumPy's legacy generator for the whole file."""

    size: int  # cities or customers
    count: int
    seed: int
    digest: str  # first 32 hex digits of the SHA-256 over the float64 bytes
    capacity: int = 0  # of vehicles


@dataclass(frozen=True)
class JobShopSet:
    """Recipe of a job-shop set."""

    jobs: int
    machines: int
    digest: str  # over the int32 bytes
    count: int = 100
    seed: int = 200


SetRecipe = TypeVar("SetRecipe")

TSP_SETS = {
    "tsp100": StandardSet(100, 10_000, 1234, "e16413180f18711fc3adeae6f9528518"),
    "tsp125": StandardSet(125, 1_000, 1235, "0747023340d78d23fb499c146e0f01db"),
    "tsp150": StandardSet(150, 1_000, 1235, "0396c6e697c14c89d19b36cc22446c8b"),
    "tsp200": StandardSet(200, 1_000, 1235, "1a44b500ef93e22c519940f397f883b2"),
}
CVRP_SETS = {
    "vrp100": StandardSet(100, 10_000, 1234, "960e0cda2ce7440f55601df5f74221b1", 50),
    "vrp125": StandardSet(125, 1_000, 1235, "1cfa12202661ee8657e17ea72d15e025", 55),
    "vrp150": StandardSet(150, 1_000, 1235, "5f8ca6e257515659c79d84f73c56848a", 60),
    "vrp200": StandardSet(200, 1_000, 1235, "a09d0ce45db0144444acee8df2db6844", 70),
}

JSSP_SETS = {
    "jssp10x10": JobShopSet(10, 10, "fca0b967bf000233bfd98e91bd4518cd"),
    "jssp15x15": JobShopSet(15, 15, "bba266e527cd42208b44246da67444ec"),
    "jssp20x15": JobShopSet(20, 15, "6acbdc4f897a28899c30483a23cb3ef3"),
}


def tsp_set(name: str) -> Float[np.ndarray, "count N 2"]:
    """Return the coordinates of a standard TSP test set.

    Raises if this NumPy draws other numbers than the published ones.
    """
    recipe = find_set(TSP_SETS, name)
    stream = np.random.RandomState(recipe.seed)
    xy = stream.uniform(size=(recipe.count, recipe.size, 2))
    check_digest(name, recipe.digest, xy)
    return xy


def cvrp_set(name: str) -> tuple[Float[np.ndarray, "count N 2"], Int[np.ndarray, "count N"], int]:
    """Return positions, demands (the depot's first) and the capacity of a standard CVRP test set.

    Raises as `tsp_set` does.
    """
    recipe = find_set(CVRP_SETS, name)
    count = recipe.count
    size = recipe.size
    stream = np.random.RandomState(recipe.seed)
    depots = stream.uniform(size=(count, 1, 2))
    customers = stream.uniform(size=(count, size, 2))
    demands = stream.randint(1, 10, size=(count, size))
    shape = (count, size + 1, 3)
    nodes = np.zeros(shape)  # x, y and demand
    nodes[:, :1, :2] = depots
    nodes[:, 1:, :2] = customers
    nodes[:, 1:, 2] = demands
    check_digest(name, recipe.digest, nodes)
    xy = nodes[..., :2].copy()
    demand = nodes[..., 2].astype(np.int64)
    return xy, demand, recipe.capacity


def jssp_set(name: str) -> Int[np.ndarray, "count 2 J M"]:
    """Return durations and machines (from 0) of a standard job-shop set (Zhang et al. 2020).

    Raises as `tsp_set` does.
    """
    recipe = find_set(JSSP_SETS, name)
    shape = (recipe.jobs, recipe.machines)
    stream = np.random.RandomState(recipe.seed)
    shops = np.empty((recipe.count, 2, *shape), dtype=np.int32)
    for shop in shops:
        shop[0] = stream.randint(1, 99, size=shape)
        shop[1] = stream.random_sample(shape).argsort(axis=1)
    check_digest(name, recipe.digest, shops)
    return shops


def find_set(sets: dict[str, SetRecipe], name: str) -> SetRecipe:
    """Return the recipe of a set."""
    if name not in sets:
        raise InputError(f"no standard set '{shorten(name)}'{suggest_known(name, sets)}")
    return sets[name]


def check_digest(name: str, digest: str, drawn: np.ndarray) -> None:
    """Raise unless the array has the published hash."""
    contents = np.ascontiguousarray(drawn).tobytes()
    found = sha256(contents).hexdigest()
    if found[:32] != digest:
        message = "the regenerated set does not have the published hash"
        raise InputError(f"{name}: {message}; this NumPy draws other numbers")
