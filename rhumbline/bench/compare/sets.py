"""The sets of a comparison: test sets, validation instances of any size, and files.

Validation instances are drawn like those of the test sets, with another seed. Settings are chosen
on these, never on a test set.
"""

import re
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from rhumbline.bench.instance_sets import InstanceSet, load_set
from rhumbline.bench.results import Warn
from rhumbline.bench.suite import SetSpec
from rhumbline.errors import InputError
from rhumbline.files import read_many
from rhumbline.files.discovery import find_instance_files
from rhumbline.formats.safe_io import read_bytes
from rhumbline.problems.cvrp import CVRPInstance, default_capacity
from rhumbline.problems.distributions.varied import vary_tsp
from rhumbline.problems.jssp import jssp_from_tables
from rhumbline.problems.jssp.rules import MAX_RANDOM_DURATION
from rhumbline.problems.standard_sets import CVRP_SETS, JSSP_SETS, TSP_SETS
from rhumbline.problems.tsp import TSP, TSPInstance

REFERENCES = Path(__file__).parents[3] / "benchmarks" / "reference"  # of a clone
VALIDATION_SEED = 4321
VARIED_TSP_SHARE = 0.7  # of the instances are not uniform, as in mixed training
CUSTOMERS_PER_ROUTE = (6, 10, 16, 24)  # of the four kinds of varied CVRP instances, about
CLUSTERS = 8
CLUSTER_DEVIATION = 0.07
# Problem and digest of each standard test set.
TEST_SETS = {
    **{name: ("tsp", one.digest) for name, one in TSP_SETS.items()},
    **{name: ("cvrp", one.digest) for name, one in CVRP_SETS.items()},
    **{name: ("jssp", one.digest) for name, one in JSSP_SETS.items()},
}


@dataclass(frozen=True)
class SetSelection:
    """Which instances of a set are used, and whether they are drawn for validation."""

    first: int = 100
    skip: int = 0
    validation: bool = False
    varied: bool = False
    references: Path = REFERENCES

    def __post_init__(self) -> None:
        if self.first < 1 or not 0 <= self.skip < self.first:
            raise InputError(
                f"--skip {self.skip} of the first {self.first} leaves nothing to solve"
            )
        if self.varied and not self.validation:
            raise InputError("--varied is for --validation: test sets cannot be varied")


def load_sets(place: str, selection: SetSelection, warn: Warn) -> list[InstanceSet]:
    """Return the sets that a word names: one, or for files one of each problem."""
    if selection.validation:
        return [draw_validation_set(place, selection)]
    if place in TEST_SETS:
        return [load_test_set(place, selection)]
    if Path(place).exists() or any(sign in place for sign in "/*?["):
        return read_file_sets(place, selection, warn)
    known = ", ".join(TEST_SETS)
    raise InputError(f"{place}: no such file, and no test set; known: {known}")


def load_test_set(name: str, selection: SetSelection) -> InstanceSet:
    """Return the first instances of a standard test set, with references if there is a file."""
    problem, digest = TEST_SETS[name]
    file = selection.references / f"{name}.npz"
    spec = SetSpec(
        f"{name}, first {selection.first}",
        problem,
        recipe=name,
        sha256=digest,
        first=selection.first,
        reference=str(file.resolve()) if file.is_file() else "",
    )
    return skip_instances(load_set(spec, Path()), selection.skip)


def skip_instances(found: InstanceSet, count: int) -> InstanceSet:
    """Return a set without its first instances; references go with their instances."""
    if not count:
        return found
    digest = sha256(f"{found.digest} {count}".encode()).hexdigest()[:16]
    return replace(
        found,
        spec=replace(found.spec, name=f"{found.spec.name} without {count}"),
        instances=found.instances[count:],
        references=found.references[count:],
        digest=digest,
    )


def read_file_sets(place: str, selection: SetSelection, warn: Warn) -> list[InstanceSet]:
    """Return the instances of files, smallest first, as one set for each problem.

    A file that cannot be read is reported and left out.
    """
    instances = list[Any]()
    digest = sha256()
    for path in find_instance_files(place):
        try:
            instances += read_many(path)
        except InputError as error:
            warn(f"left out: {error}")
            continue
        digest.update(sha256(read_bytes(path)).digest())
    if not instances:
        raise InputError(f"{place}: no file could be read")
    sets = list[InstanceSet]()
    for problem in dict.fromkeys(instance.problem for instance in instances):
        mine = [instance for instance in instances if instance.problem == problem]
        mine.sort(key=lambda instance: (instance.size, instance.name))
        used = tuple(mine[selection.skip : selection.first])
        if used:
            sets.append(make_file_set(place, problem, used, digest.hexdigest()))
    return sets


def make_file_set(place: str, problem: str, instances: tuple[Any, ...], digest: str) -> InstanceSet:
    """Return a set of instances from files; references are the best known costs beside them."""
    names = [instance.name for instance in instances]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{place}: two instances are called '{name}'")
    known = tuple(instance.best_known for instance in instances)
    folder = re.sub(r"[^\w.-]", "", Path(place).name)
    title = f"{folder or 'files'}, {problem}"
    referee = "best known" if any(known) else ""
    facts = f"{digest} {problem} {names} {known}"
    return InstanceSet(
        spec=SetSpec(title, problem, files=place),
        instances=instances,
        references=known,
        referee=referee,
        digest=sha256(facts.encode()).hexdigest()[:16],
    )


# --- validation instances


@dataclass(frozen=True)
class DrawnInstances:
    """Instances of one problem, and the arrays that tell them from others."""

    problem: str
    instances: list[Any]
    arrays: list[np.ndarray]


def draw_validation_set(name: str, selection: SetSelection) -> InstanceSet:
    """Return instances of the distribution of a test set, of the size that the name says."""
    draw = draw_varied if selection.varied else draw_uniform
    drawn = draw(name, selection.first)
    digest = sha256()
    for array in drawn.arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    kind = "varied validation" if selection.varied else "validation"
    title = f"{name}, {kind}, first {selection.first}"
    found = InstanceSet(
        spec=SetSpec(title, drawn.problem, recipe=kind),
        instances=tuple(drawn.instances),
        references=(None,) * selection.first,
        referee="",
        digest=digest.hexdigest()[:16],
    )
    return skip_instances(found, selection.skip)


def draw_uniform(name: str, count: int) -> DrawnInstances:
    """Return instances as the test sets have them, such as tsp150, vrp100 or jssp10x10 names."""
    problem, size = parse_set_name(name)
    rng = np.random.RandomState(VALIDATION_SEED)
    if problem == "jssp":
        return draw_uniform_jssp(size, count, rng)
    if problem == "tsp":
        return tsp_instances(rng.uniform(size=(count, int(size), 2)))
    xy = rng.uniform(size=(count, int(size) + 1, 2))
    demands = rng.randint(1, 10, size=(count, int(size)))
    capacity = default_capacity(int(size))
    instances = [
        make_cvrp_instance(number, nodes, demand, capacity)
        for number, (nodes, demand) in enumerate(zip(xy, demands, strict=True))
    ]
    return DrawnInstances("cvrp", instances, [xy, demands])


def draw_varied(name: str, count: int) -> DrawnInstances:
    """Return instances of other layouts: those of mixed training for TSP, four kinds of CVRP."""
    problem, size = parse_set_name(name)
    if problem == "jssp":
        raise InputError("--varied is for sets such as vrp300 or tsp200")
    if problem == "cvrp":
        return draw_varied_cvrp(int(size), count)
    rng = torch.Generator().manual_seed(VALIDATION_SEED + int(size))
    batch = vary_tsp(TSP().sample(count, int(size), rng), VARIED_TSP_SHARE, rng)
    return tsp_instances(batch.xy.double().numpy())


def parse_set_name(name: str) -> tuple[str, str]:
    """Return the problem and the size that the name of a validation set says."""
    match = re.fullmatch(r"(tsp|vrp)([1-9]\d*)|(jssp)([1-9]\d*x[1-9]\d*)", name)
    if not match:
        raise InputError(
            f"no validation instances are called {name}; "
            "expected tsp150, vrp100, jssp10x10 and the like"
        )
    kind = match[1] or match[3]
    return "cvrp" if kind == "vrp" else kind, match[2] or match[4]


def tsp_instances(xy: Float[np.ndarray, "count N 2"]) -> DrawnInstances:
    """Return TSP instances of these coordinates."""
    instances = list[Any]()
    for number, nodes in enumerate(xy):
        instance = TSPInstance(f"{number}", "EXACT_2D", xy=nodes)
        instances.append(instance)
    return DrawnInstances("tsp", instances, [xy])


def draw_uniform_jssp(size: str, count: int, rng: np.random.RandomState) -> DrawnInstances:
    """Return job shops in which each job visits each machine once."""
    jobs, machines = (int(number) for number in size.split("x"))
    shape = (count, jobs, machines)
    durations = rng.randint(1, MAX_RANDOM_DURATION + 1, size=shape)
    orders = rng.uniform(size=shape).argsort(2)
    instances = list[Any]()
    for number in range(count):
        times = durations[number]
        order = orders[number]
        instance = jssp_from_tables(times, order, f"{number}")
        instances.append(instance)
    return DrawnInstances("jssp", instances, [durations, orders])


def draw_varied_cvrp(size: int, count: int) -> DrawnInstances:
    """Return uniform and clustered customers in turns, with two kinds of demands and routes of
    four lengths.
    """
    rng = np.random.RandomState(VALIDATION_SEED + size)
    instances = list[Any]()
    arrays = list[np.ndarray]()
    for number in range(count):
        kind = number % len(CUSTOMERS_PER_ROUTE)
        is_clustered = kind % 2 == 1
        xy = draw_clusters(size, rng) if is_clustered else rng.uniform(size=(size + 1, 2))
        largest_demand = 9 if kind < 2 else 100
        demands = rng.randint(1, largest_demand + 1, size=size)
        capacity = int(CUSTOMERS_PER_ROUTE[kind] * demands.mean())
        instance = make_cvrp_instance(number, xy, demands, capacity)
        instances.append(instance)
        arrays += [xy, demands]
    return DrawnInstances("cvrp", instances, arrays)


def draw_clusters(size: int, rng: np.random.RandomState) -> Float[np.ndarray, "N 2"]:
    """Return a depot and customers, each near one of a few centres."""
    nodes = size + 1
    centres = rng.uniform(size=(CLUSTERS, 2))
    owner = rng.randint(CLUSTERS, size=nodes)
    offset = rng.normal(size=(nodes, 2))
    offset *= CLUSTER_DEVIATION
    xy = centres[owner] + offset
    return np.clip(xy, 0, 1)


def make_cvrp_instance(
    number: int, xy: Float[np.ndarray, "N 2"], demands: np.ndarray, capacity: int
) -> CVRPInstance:
    """Return an instance with the depot at the first of these positions."""
    name = f"{number}"
    with_depot = (0, *demands.tolist())
    return CVRPInstance(name, "EXACT_2D", with_depot, capacity, xy=xy)
