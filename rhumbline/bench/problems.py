"""What suites and comparisons know about each problem, in one record for each.

The problem of an outside package has no record. Its instances come from files, its plans are drawn
and measured like all others, and what needs a part of a record is refused in a sentence.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rhumbline.bench import draw
from rhumbline.bench.baselines import BASELINES
from rhumbline.bench.suite import SetSpec
from rhumbline.problems.cvrp import CVRPInstance, cvrp_from_arrays
from rhumbline.problems.jssp import JSSPInstance, jssp_from_arrays
from rhumbline.problems.standard_sets import (
    CVRP_SETS,
    JSSP_SETS,
    TSP_SETS,
    JobShopSet,
    StandardSet,
)
from rhumbline.problems.tsp import TSPInstance, tsp_from_array


@dataclass(frozen=True)
class Recipes:
    """How the instances of a suite are drawn."""

    # The standard test sets by name, which are recipes too
    standard: Mapping[str, StandardSet] | Mapping[str, JobShopSet]
    # The numbers of all instances of a set, a row for each
    draw: Callable[[SetSpec], np.ndarray]
    # An instance from its row and its name
    make: Callable[[np.ndarray, str], Any]


@dataclass(frozen=True)
class ValidationSets:
    """How instances are drawn that are like those of the test sets, of any size."""

    # Names of sets are this word and a size, such as vrp150.
    prefix: str
    # From the size and the number of instances
    uniform: Callable[[str, int], draw.DrawnInstances]
    # Of other layouts
    varied: Callable[[str, int], draw.DrawnInstances] | None = None
    # What the size looks like
    size_pattern: str = r"[1-9]\d*"


@dataclass(frozen=True)
class ReferenceSolver:
    """The solver that makes the references of a problem, and its budget."""

    solver: str
    # Per instance
    seconds: float | None = None
    settings: Mapping[str, int] = field(default_factory=dict[str, int])
    # How the solver runs, in words
    mode: str = "one thread"

    def with_seconds(self, seconds: float | None) -> "ReferenceSolver":
        """Return the same solver with the seconds that a user gives, if it takes any."""
        if not BASELINES[self.solver].needs_seconds:
            return self
        return replace(self, seconds=seconds or self.seconds)

    @property
    def description(self) -> str:
        """The solver with its version and its budget."""
        baseline = BASELINES[self.solver]
        words = [baseline.versioned_title]
        words += [f"{name} {value}" for name, value in self.settings.items()]
        if self.seconds:
            words.append(f"{self.seconds:g} s per instance")
        words.append(self.mode)
        return ", ".join(words)


def range_text(sizes: Sequence[int]) -> str:
    """Return the smallest and the largest of sorted sizes, or the only one."""
    smallest = sizes[0]
    largest = sizes[-1]
    if len(sizes) == 1:
        return f"{smallest}"
    return f"{smallest} to {largest}"


def node_size_text(set_name: str, sizes: Sequence[int]) -> str:
    """Return how many nodes the instances of a set have."""
    return f"size {range_text(sizes)}"


def job_shop_size_text(set_name: str, sizes: Sequence[int]) -> str:
    """Return jobs and machines if the name of a set says so, otherwise operations."""
    shape = re.search(r"(\d+)x(\d+)", set_name)
    if shape:
        jobs, machines = shape.groups()
        if list(sizes) == [int(jobs) * int(machines)]:
            return f"{jobs} jobs x {machines} machines"
    return f"{range_text(sizes)} operations"


@dataclass(frozen=True)
class BenchProblem:
    """What suites and comparisons know about a problem. An outside problem has the defaults."""

    recipes: Recipes | None = None
    validation: ValidationSets | None = None
    # Makes an instance on which a solver warms up
    tiny: Callable[[], Any] | None = None
    reference: ReferenceSolver | None = None
    # What the size of an instance counts
    unit: str = "nodes"
    # How large instances are, from the name of their set and their sorted sizes
    size_text: Callable[[str, Sequence[int]], str] = node_size_text


def tiny_tsp() -> TSPInstance:
    """Return six cities."""
    return tsp_from_array(tiny_positions())


def tiny_cvrp() -> CVRPInstance:
    """Return a depot and five customers."""
    depot, *customers = tiny_positions()
    demands = np.arange(1, 6)
    return cvrp_from_arrays(depot, np.array(customers), demands, 10)


def tiny_positions() -> np.ndarray:
    """Return six positions in the unit square."""
    x = [0.1, 0.9, 0.8, 0.3, 0.5, 0.2]
    y = [0.2, 0.1, 0.7, 0.9, 0.4, 0.6]
    return np.stack([x, y], axis=1)


def tiny_jssp() -> JSSPInstance:
    """Return two jobs on two machines."""
    durations = np.array([[3, 2], [2, 4]])
    machines = np.array([[0, 1], [0, 1]])
    return jssp_from_arrays(durations, machines, "tiny")


BENCH_PROBLEMS: dict[str, BenchProblem] = {
    "tsp": BenchProblem(
        recipes=Recipes(TSP_SETS, draw.draw_tsp, draw.make_tsp),
        validation=ValidationSets("tsp", draw.draw_uniform_tsp, draw.draw_varied_tsp),
        tiny=tiny_tsp,
        reference=ReferenceSolver("lkh", settings={"runs": 10}),
    ),
    "cvrp": BenchProblem(
        recipes=Recipes(CVRP_SETS, draw.draw_cvrp, draw.make_cvrp),
        validation=ValidationSets("vrp", draw.draw_uniform_cvrp, draw.draw_varied_cvrp),
        tiny=tiny_cvrp,
        reference=ReferenceSolver("hgs", seconds=5.0),
    ),
    "jssp": BenchProblem(
        recipes=Recipes(JSSP_SETS, draw.draw_jssp, draw.make_jssp),
        validation=ValidationSets(
            "jssp", draw.draw_uniform_jssp, size_pattern=r"[1-9]\d*x[1-9]\d*"
        ),
        tiny=tiny_jssp,
        reference=ReferenceSolver("cpsat", seconds=60.0, mode="one thread, no linear relaxation"),
        unit="operations",
        size_text=job_shop_size_text,
    ),
}


def find_bench_problem(name: str) -> BenchProblem:
    """Return the record of a problem. That of an outside problem has only defaults."""
    return BENCH_PROBLEMS.get(name, BenchProblem())
