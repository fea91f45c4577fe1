"""Read instances from text files and datasets, and write plans.

A new format is one module and one line in each of the tables below.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rhumbline.errors import InputError
from rhumbline.formats.dataset import load_dataset
from rhumbline.formats.jsplib import is_job_shop_file, read_jsp, write_schedule
from rhumbline.formats.jsplib_json import read_json
from rhumbline.formats.sections import read_type
from rhumbline.formats.tsplib import read_tsp, write_tour
from rhumbline.formats.vrplib import read_vrp, write_sol
from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.jssp import JSSPInstance, Schedule
from rhumbline.problems.tsp import Tour, TSPInstance

__all__ = ["plan_suffix", "plan_suffix_for", "read", "read_many", "write_plan"]

AnyInstance = TSPInstance | CVRPInstance | JSSPInstance
AnyPlan = Tour | Routes | Schedule

# By suffix of the file name.
INSTANCE_READERS: dict[str, Callable[[Path], AnyInstance]] = {
    ".tsp": read_tsp,
    ".vrp": read_vrp,
    ".jsp": read_jsp,
    ".json": read_json,
}
# By the TYPE header of a file with another suffix.
READERS_BY_TYPE: dict[str, Callable[[Path], AnyInstance]] = {
    "TSP": read_tsp,
    "CVRP": read_vrp,
}
# Suffix and writer by type of the plan.
WRITERS: dict[type[AnyPlan], tuple[str, Callable[[Path, Any, Any, str], None]]] = {
    Tour: (".tour", write_tour),
    Routes: (".sol", write_sol),
    Schedule: (".sched", write_schedule),
}
PLAN_OF_INSTANCE: dict[type[AnyInstance], type[AnyPlan]] = {
    TSPInstance: Tour,
    CVRPInstance: Routes,
    JSSPInstance: Schedule,
}
DATASET_SUFFIX = ".safetensors"


def read(path: str | Path) -> AnyInstance:
    """Read the instance of a file. The content decides where the suffix is unknown."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == DATASET_SUFFIX:
        message = "is a dataset of many instances, expected one; use read_many"
        raise InputError.at(path, None, message)
    reader = INSTANCE_READERS.get(suffix) or reader_of(path)
    return reader(path)


def reader_of(path: Path) -> Callable[[Path], AnyInstance]:
    """Return the reader for a file, judged by its content.

    Job shops begin with numbers. Other files have a header; without a TYPE they are TSPs.
    """
    if path.is_fifo():  # it can be read only once
        known = ", ".join(INSTANCE_READERS)
        advice = f"save it under a name that ends in {known}"
        raise InputError.at(path, None, f"is a pipe, expected a file; {advice}")
    if is_job_shop_file(path):
        return read_jsp
    return READERS_BY_TYPE.get(read_type(path), read_tsp)


def read_many(path: str | Path) -> list[AnyInstance]:
    """Read all instances of a dataset, or the one instance of a text file."""
    path = Path(path)
    if path.suffix.lower() == DATASET_SUFFIX:
        return [*load_dataset(path)]
    return [read(path)]


def plan_suffix(plan: AnyPlan) -> str:
    """Return the file suffix of a plan."""
    suffix, _ = WRITERS[type(plan)]
    return suffix


def plan_suffix_for(instance: AnyInstance) -> str:
    """Return the file suffix of plans for an instance."""
    suffix, _ = WRITERS[PLAN_OF_INSTANCE[type(instance)]]
    return suffix


def write_plan(path: str | Path, plan: AnyPlan, instance: AnyInstance, comment: str) -> None:
    """Write a plan in the format of its problem."""
    kind = type(plan)
    _, writer = WRITERS[kind]
    writer(Path(path), plan, instance, comment)
