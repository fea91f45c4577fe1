"""Draw the instances of recipes, for suites, and those of validation sets, for comparisons."""

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float

from rhumbline.bench.suite import SetSpec
from rhumbline.errors import InputError
from rhumbline.problems.cvrp import CVRPInstance, cvrp_from_arrays, default_capacity
from rhumbline.problems.cvrp.rules import MAX_RANDOM_DEMAND
from rhumbline.problems.distributions.mutations import sample_mutated_set
from rhumbline.problems.jssp import JSSPInstance, jssp_from_arrays
from rhumbline.problems.standard_sets import (
    CVRP_SETS,
    JSSP_SETS,
    TSP_SETS,
    cvrp_set,
    jssp_set,
    tsp_set,
)
from rhumbline.problems.tsp import TSPInstance

RecipeArray = Float[np.ndarray, "count N F"]


# --- recipes


def draw_tsp(spec: SetSpec) -> RecipeArray:
    """Return coordinates [count, N, 2]."""
    if spec.recipe in TSP_SETS:
        return tsp_set(spec.recipe)
    return draw_positions(spec, spec.size, TSP_SETS)


def draw_cvrp(spec: SetSpec) -> RecipeArray:
    """Return coordinates and demands [count, N, 3], the depot first.

    The capacity follows from the size.
    """
    if spec.recipe in CVRP_SETS:
        xy, demands, _ = cvrp_set(spec.recipe)
    else:
        xy = draw_positions(spec, spec.size + 1, CVRP_SETS)
        rng = np.random.default_rng([spec.seed, 1])
        shape = xy.shape[:2]
        demands = rng.integers(1, MAX_RANDOM_DEMAND + 1, shape)
        demands[:, 0] = 0
    column = demands[..., None].astype(np.float64)
    return np.concatenate([xy, column], axis=2)


def draw_positions(spec: SetSpec, nodes: int, standard: Mapping[str, Any]) -> RecipeArray:
    """Return the positions [count, nodes, 2] of a recipe that all routing problems share."""
    if spec.count < 1 or spec.size < 1:
        raise InputError(f"set '{spec.name}': a recipe needs a size and a count of at least 1")
    if spec.recipe == "uniform":
        return np.random.default_rng(spec.seed).random((spec.count, nodes, 2))
    if spec.recipe != "mutated":
        refuse_recipe(spec, ["uniform", "mutated", *standard])
    if spec.power is None:
        raise InputError(
            f"set '{spec.name}': the recipe 'mutated' needs a power, for example power = 0.5"
        )
    return sample_mutated_set(spec.count, nodes, spec.power, spec.seed)


def draw_jssp(spec: SetSpec) -> np.ndarray:
    """Return durations and machines [count, 2, J, M] of a standard set."""
    if spec.recipe not in JSSP_SETS:
        refuse_recipe(spec, list(JSSP_SETS))
    return jssp_set(spec.recipe)


def refuse_recipe(spec: SetSpec, known: list[str]) -> NoReturn:
    """Raise: there is no such recipe for the problem of a set."""
    raise InputError(
        f"set '{spec.name}': no recipe '{spec.recipe}' for {spec.problem}; "
        f"known: {', '.join(known)}"
    )


def make_tsp(row: Float[np.ndarray, "N 2"], name: str) -> TSPInstance:
    """Make a TSP instance from its coordinates."""
    return TSPInstance(name, "EXACT_2D", xy=row)


def make_cvrp(row: Float[np.ndarray, "N 3"], name: str) -> CVRPInstance:
    """Make a CVRP instance from its coordinates and demands."""
    depot = row[0, :2]
    customers = row[1:, :2]
    demands = row[1:, 2]
    capacity = default_capacity(len(customers))
    return cvrp_from_arrays(depot, customers, demands, capacity, name)


def make_jssp(row: np.ndarray, name: str) -> JSSPInstance:
    """Make a JSSP instance from its durations and machines [2, J, M]."""
    return jssp_from_arrays(row[0], row[1], name)
