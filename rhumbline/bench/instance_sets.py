"""The instances of a set with their references: drawn by recipe and proved by checksum, or read
from files.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from rhumbline.bench.reference_file import read_references
from rhumbline.bench.suite import SetSpec
from rhumbline.errors import InputError
from rhumbline.formats import read_many
from rhumbline.formats.safe_io import read_bytes
from rhumbline.problems import PROBLEMS
from rhumbline.problems.cvrp import CVRPInstance, cvrp_from_arrays, default_capacity
from rhumbline.problems.cvrp.rules import MAX_RANDOM_DEMAND
from rhumbline.problems.distributions.mutations import sample_mutated_set
from rhumbline.problems.jssp import JSSPInstance
from rhumbline.problems.jssp import jssp_from_arrays as shop_from_arrays
from rhumbline.problems.standard_sets import (
    CVRP_SETS,
    JSSP_SETS,
    TSP_SETS,
    cvrp_set,
    jssp_set,
    tsp_set,
)
from rhumbline.problems.tsp import TSPInstance


@dataclass(frozen=True)
class InstanceSet:
    """Instances ready to be solved. `digest` changes with any of them and with the references."""

    spec: SetSpec
    instances: tuple[Any, ...]
    references: tuple[float | None, ...]
    referee: str  # who made the references
    digest: str


def load_set(
    spec: SetSpec,
    folder: Path,
    folders: Mapping[str, str] | None = None,
    *,
    referenced: bool = True,
) -> InstanceSet:
    """A set of a suite that lies in `folder`; `folders` has what $NAMES in file patterns stand
    for.
    """
    if spec.problem not in PROBLEMS:
        known = ", ".join(PROBLEMS)
        raise InputError(
            f"set '{spec.name}' is of problem '{spec.problem}', which this version does not solve (it solves {known}); "
            "leave the set out, for example with --only"
        )
    instances, digest = (
        read_instance_files(spec, folder, folders or {}) if spec.files else draw_instances(spec)
    )
    used = instances[: spec.first]
    if spec.first is not None and len(used) < spec.first:
        raise InputError(
            f"set '{spec.name}': first is {spec.first}, but there are only {len(used)} instances"
        )
    costs, referee, mark = (
        load_references(spec, folder, used, len(instances))
        if referenced
        else ([None] * len(used), "", "")
    )
    whole = sha256(f"{digest} {len(used)} {mark}".encode()).hexdigest()[:16]
    return InstanceSet(spec, tuple(used), tuple(costs), referee, whole)


RecipeArray = Float[np.ndarray, "count N F"]
InstancesAndDigest = tuple[list[Any], str]


def draw_instances(spec: SetSpec) -> InstancesAndDigest:
    """The instances of a recipe and their checksum, which must be the suite's."""
    if spec.problem not in RECIPES:
        raise InputError(
            f"set '{spec.name}': there are no recipes for problem '{spec.problem}'; use files"
        )
    array = RECIPES[spec.problem](spec)
    found = sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:32]
    if not spec.sha256:
        raise InputError(
            f"set '{spec.name}' has no sha256, so nobody could tell that instances are the same; "
            f'what is drawn here has sha256 = "{found}"'
        )
    if spec.sha256 != found:
        raise InputError(
            f"set '{spec.name}': what is drawn here has sha256 {found}, the suite says {spec.sha256}; "
            "this NumPy draws other numbers, or the recipe was changed"
        )
    make = MAKERS[spec.problem]
    return [make(row, f"{spec.name}-{place:05}") for place, row in enumerate(array, 1)], found


def draw_tsp(spec: SetSpec) -> RecipeArray:
    """Coordinates [count, N, 2]."""
    if spec.recipe in TSP_SETS:
        return tsp_set(spec.recipe)
    return draw_positions(spec, spec.size, TSP_SETS)


def draw_cvrp(spec: SetSpec) -> RecipeArray:
    """Coordinates and demands [count, N, 3], the depot first; the capacity follows from the
    size.
    """
    if spec.recipe in CVRP_SETS:
        xy, demands, _ = cvrp_set(spec.recipe)
        return np.concatenate([xy, demands[..., None].astype(np.float64)], axis=2)
    xy = draw_positions(spec, spec.size + 1, CVRP_SETS)
    demands = (
        np.random.default_rng([spec.seed, 1])
        .integers(1, MAX_RANDOM_DEMAND + 1, xy.shape[:2])
        .astype(np.float64)
    )
    demands[:, 0] = 0.0
    return np.concatenate([xy, demands[..., None]], axis=2)


def draw_positions(spec: SetSpec, nodes: int, standard: Mapping[str, Any]) -> RecipeArray:
    """Positions of the recipes that all routing problems share."""
    if spec.count < 1 or spec.size < 1:
        raise InputError(f"set '{spec.name}': a recipe needs a size and a count of at least 1")
    if spec.recipe == "uniform":
        return np.random.default_rng(spec.seed).random((spec.count, nodes, 2))
    if spec.recipe != "mutated":
        known = ", ".join(["uniform", "mutated", *standard])
        raise InputError(
            f"set '{spec.name}': no recipe '{spec.recipe}' for {spec.problem}; known: {known}"
        )
    if spec.power is None:
        raise InputError(
            f"set '{spec.name}': the recipe 'mutated' needs a power, for example power = 0.5"
        )
    return sample_mutated_set(spec.count, nodes, spec.power, spec.seed)


def make_tsp(row: Float[np.ndarray, "N 2"], name: str) -> TSPInstance:
    """One TSP instance."""
    return TSPInstance(name, "EXACT_2D", xy=row)


def make_cvrp(row: Float[np.ndarray, "N 3"], name: str) -> CVRPInstance:
    """One CVRP instance."""
    return cvrp_from_arrays(
        row[0, :2], row[1:, :2], row[1:, 2], default_capacity(len(row) - 1), name
    )


def draw_jssp(spec: SetSpec) -> np.ndarray:
    """Durations and machines [count, 2, J, M] of a standard set."""
    if spec.recipe not in JSSP_SETS:
        raise InputError(
            f"set '{spec.name}': no recipe '{spec.recipe}' for jssp; known: {', '.join(JSSP_SETS)}"
        )
    return jssp_set(spec.recipe)


def make_jssp(row: np.ndarray, name: str) -> JSSPInstance:
    """One job shop."""
    return shop_from_arrays(row[0], row[1], name)


# By problem.
RECIPES: dict[str, Callable[[SetSpec], np.ndarray]] = {
    "tsp": draw_tsp,
    "cvrp": draw_cvrp,
    "jssp": draw_jssp,
}
MAKERS: dict[str, Callable[[np.ndarray, str], Any]] = {
    "tsp": make_tsp,
    "cvrp": make_cvrp,
    "jssp": make_jssp,
}


def read_instance_files(
    spec: SetSpec, folder: Path, folders: Mapping[str, str]
) -> InstancesAndDigest:
    """The instances of all files that a pattern names, by name, and a checksum of their bytes."""
    pattern = folder / expand_folders(spec, folders)
    paths = [Path(found) for found in sorted(glob(str(pattern)))]
    if not paths:
        raise InputError(f"set '{spec.name}': no file is called {pattern}")
    found = [instance for path in paths for instance in read_many(path)]
    names = [i.name for i in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            f"set '{spec.name}': two instances are called '{twice}'; results could not be told apart"
        )
    strangers = [i for i in found if i.problem != spec.problem]
    if strangers:
        raise InputError(
            f"set '{spec.name}' is of problem '{spec.problem}'; {strangers[0].name} is '{strangers[0].problem}'"
        )
    digest = sha256(b"".join(sha256(read_bytes(p)).digest() for p in paths)).hexdigest()[:32]
    if spec.sha256 not in ("", digest):
        raise InputError(
            f"set '{spec.name}': these files have sha256 {digest}, the suite says {spec.sha256}"
        )
    return found, digest


def expand_folders(spec: SetSpec, folders: Mapping[str, str]) -> str:
    """The pattern with folders instead of $NAMES: as given, or from the environment."""

    def folder(match: re.Match[str]) -> str:
        value = folders.get(match[1]) or os.environ.get(match[1])
        if not value:
            raise InputError(
                f"set '{spec.name}' is in the folder ${match[1]}: say where with --folder {match[1]}=DIR "
                f"or the environment variable {match[1]}, or leave the set out with --only"
            )
        return str(Path(value).resolve())

    return re.sub(r"\$(\w+)", folder, spec.files)


def load_references(
    spec: SetSpec, folder: Path, used: Sequence[Any], drawn: int
) -> tuple[list[float | None], str, str]:
    """A cost to compare with for each instance, who made them, and a mark of their values."""
    if not spec.reference:
        known = [i.best_known for i in used]
        return known, "best known" if any(known) else "", repr(known)
    path = reference_path(spec, folder)
    stored = read_references(path)
    if not len(used) <= len(stored.cost) <= drawn:
        wanted = f"{len(used)}" if len(used) == drawn else f"{len(used)} to {drawn}"
        raise InputError(
            f"{path}: holds {len(stored.cost)} costs, but set '{spec.name}' needs {wanted}"
        )
    stored = stored.first(len(used))
    costs = stored.cost
    missing = np.flatnonzero(~(np.isfinite(costs) & (costs > 0)))
    if len(missing):
        raise InputError(
            f"{path}: has no cost for {len(missing)} of the first {len(used)} instances (the first is number "
            f"{missing[0] + 1}); finish it with `rhumb bench reference` or lower `first`"
        )
    return costs.tolist(), stored.makers(), sha256(costs.tobytes()).hexdigest()


def reference_path(spec: SetSpec, folder: Path) -> Path:
    """Where the references of a set are, without detours."""
    return Path(os.path.normpath(folder / spec.reference))
