"""Text files to instances, and plans to text files. A new format is one module and one line in
each dict below.
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

# By ending of the file name.
INSTANCE_READERS: dict[str, Callable[[Path], AnyInstance]] = {
    ".tsp": read_tsp,
    ".vrp": read_vrp,
    ".jsp": read_jsp,
    ".json": read_json,
}
# By the TYPE that a file of another ending says.
READERS_BY_TYPE: dict[str, Callable[[Path], AnyInstance]] = {
    "TSP": read_tsp,
    "CVRP": read_vrp,
}
# Ending and writer by type of the plan.
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
    """The instance of a file. Files of other endings tell by their beginning what they hold."""
    path = Path(path)
    if path.suffix.lower() == DATASET_SUFFIX:
        raise InputError.at(
            path, None, "is a dataset of many instances, expected one; use read_many"
        )
    return (INSTANCE_READERS.get(path.suffix.lower()) or reader_of(path))(path)


def reader_of(path: Path) -> Callable[[Path], AnyInstance]:
    """Job shops begin with numbers; the others have a header, and without TYPE in it they are
    TSPs.
    """
    if path.is_fifo():  # it can be read only once
        known = ", ".join(INSTANCE_READERS)
        raise InputError.at(
            path, None, f"is a pipe, expected a file; save it under a name that ends in {known}"
        )
    return read_jsp if is_job_shop_file(path) else READERS_BY_TYPE.get(read_type(path), read_tsp)


def read_many(path: str | Path) -> list[AnyInstance]:
    """All instances of a file: those of a dataset, or the one of a text file."""
    path = Path(path)
    return [*load_dataset(path)] if path.suffix.lower() == DATASET_SUFFIX else [read(path)]


def plan_suffix(plan: AnyPlan) -> str:
    """The file ending of the format that belongs to a plan's problem."""
    return WRITERS[type(plan)][0]


def plan_suffix_for(instance: AnyInstance) -> str:
    """The same for plans of an instance that is yet to be solved."""
    return WRITERS[PLAN_OF_INSTANCE[type(instance)]][0]


def write_plan(path: str | Path, plan: AnyPlan, instance: AnyInstance, comment: str) -> None:
    """Write a plan in the format that belongs to its problem."""
    WRITERS[type(plan)][1](Path(path), plan, instance, comment)
