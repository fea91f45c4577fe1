"""Draw the instances of recipes, for suites, and those of validation sets, for comparisons."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from jaxtyping import Float

from rhumbline.bench.suite import SetSpec
from rhumbline.errors import InputError
from rhumbline.problems.cvrp import CVRPInstance, cvrp_from_arrays, default_capacity
from rhumbline.problems.cvrp.rules import CVRP
from rhumbline.problems.distributions.mutations import sample_mutated_set
from rhumbline.problems.distributions.varied import vary_tsp
from rhumbline.problems.jssp import JSSPInstance, jssp_from_arrays
from rhumbline.problems.jssp.rules import JSSP
from rhumbline.problems.standard_sets import (
    CVRP_SETS,
    JSSP_SETS,
    TSP_SETS,
    cvrp_set,
    jssp_set,
    tsp_set,
)
from rhumbline.problems.tsp import TSP, TSPInstance
from rhumbline.registry import suggest_known


@dataclass(frozen=True)
class ValidationTuning:
    """Numbers that decide what validation instances are like."""

    # Of their own, so that settings are never chosen on test instances
    seed: int = 4321
    # Share of varied TSP instances that are not uniform, as in mixed training
    varied_tsp_share: float = 0.7
    # About, of the four kinds of varied CVRP instances
    customers_per_route: tuple[int, ...] = (6, 10, 16, 24)
    # Number of centres of clustered customers, and their standard deviation
    clusters: int = 8
    cluster_deviation: float = 0.07


VALIDATION = ValidationTuning()
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
        demands = rng.integers(1, CVRP.max_random_demand + 1, shape)
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
        f"set '{spec.name}': no recipe '{spec.recipe}' for {spec.problem}"
        f"{suggest_known(spec.recipe, known)}"
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
    durations, machines = row
    return jssp_from_arrays(durations, machines, name)


# --- validation sets


@dataclass(frozen=True)
class DrawnInstances:
    """Instances, and the arrays that distinguish them from others."""

    instances: list[Any]
    arrays: list[np.ndarray]


def draw_uniform_tsp(size: str, count: int) -> DrawnInstances:
    """Return instances with a number of uniform cities."""
    cities = int(size)
    shape = (count, cities, 2)
    rng = np.random.RandomState(VALIDATION.seed)
    xy = rng.uniform(size=shape)
    return tsp_instances(xy)


def draw_varied_tsp(size: str, count: int) -> DrawnInstances:
    """Return instances of the layouts of mixed training."""
    cities = int(size)
    rng = torch.Generator().manual_seed(VALIDATION.seed + cities)
    uniform = TSP().sample(count, cities, rng)
    batch = vary_tsp(uniform, VALIDATION.varied_tsp_share, rng)
    xy = batch.xy.double().numpy()
    return tsp_instances(xy)


def tsp_instances(xy: Float[np.ndarray, "count N 2"]) -> DrawnInstances:
    """Return TSP instances of these coordinates."""
    instances = list[Any]()
    for number, nodes in enumerate(xy):
        name = f"{number}"
        instance = make_tsp(nodes, name)
        instances.append(instance)
    return DrawnInstances(instances, [xy])


def draw_uniform_cvrp(size: str, count: int) -> DrawnInstances:
    """Return instances with a number of uniform customers, and the capacity of that number."""
    customers = int(size)
    rng = np.random.RandomState(VALIDATION.seed)
    xy = rng.uniform(size=(count, customers + 1, 2))
    demands = rng.randint(1, CVRP.max_random_demand + 1, size=(count, customers))
    capacity = default_capacity(customers)
    instances = list[Any]()
    for number in range(count):
        instance = make_cvrp_instance(number, xy[number], demands[number], capacity)
        instances.append(instance)
    return DrawnInstances(instances, [xy, demands])


def draw_varied_cvrp(size: str, count: int) -> DrawnInstances:
    """Return uniform and clustered customers in turns, with two kinds of demands.

    Routes have four lengths.
    """
    customers = int(size)
    rng = np.random.RandomState(VALIDATION.seed + customers)
    instances = list[Any]()
    arrays = list[np.ndarray]()
    for number in range(count):
        kind = number % len(VALIDATION.customers_per_route)
        is_clustered = kind % 2 == 1
        shape = (customers + 1, 2)
        xy = draw_clusters(customers, rng) if is_clustered else rng.uniform(size=shape)
        largest_demand = 9 if kind < 2 else 100
        demands = rng.randint(1, largest_demand + 1, size=customers)
        capacity = int(VALIDATION.customers_per_route[kind] * demands.mean())
        instance = make_cvrp_instance(number, xy, demands, capacity)
        instances.append(instance)
        arrays += [xy, demands]
    return DrawnInstances(instances, arrays)


def draw_clusters(customers: int, rng: np.random.RandomState) -> Float[np.ndarray, "N 2"]:
    """Return a depot and customers, each near one of a few centres."""
    nodes = customers + 1
    clusters = VALIDATION.clusters
    centres = rng.uniform(size=(clusters, 2))
    owner = rng.randint(clusters, size=nodes)
    offset = rng.normal(size=(nodes, 2))
    offset *= VALIDATION.cluster_deviation
    own_centre = centres[owner]
    xy = own_centre + offset
    return np.clip(xy, 0, 1)


def make_cvrp_instance(
    number: int, xy: Float[np.ndarray, "N 2"], demands: np.ndarray, capacity: int
) -> CVRPInstance:
    """Return an instance with the depot at the first of these positions."""
    with_depot = (0, *demands.tolist())
    return CVRPInstance(f"{number}", "EXACT_2D", with_depot, capacity, xy=xy)


def draw_uniform_jssp(size: str, count: int) -> DrawnInstances:
    """Return job shops in which each job visits each machine once."""
    jobs, machines = map(int, size.split("x"))
    rng = np.random.RandomState(VALIDATION.seed)
    shape = (count, jobs, machines)
    durations = rng.randint(1, JSSP.max_random_duration + 1, size=shape)
    orders = rng.uniform(size=shape).argsort(2)
    instances = list[Any]()
    for number in range(count):
        instance = jssp_from_arrays(durations[number], orders[number], f"{number}")
        instances.append(instance)
    return DrawnInstances(instances, [durations, orders])
