"""Text files to instances, and plans to text files. A new format is one module and one line in each dict below."""

from collections.abc import Callable
from pathlib import Path

from rhumbline.errors import InputError
from rhumbline.formats.dataset import load_dataset
from rhumbline.formats.tsplib import read_tsp, write_tour
from rhumbline.problems.tsp import Tour, TSPInstance

__all__ = ["read", "read_many", "write_plan"]

# By ending of the file name; vrplib (.vrp) and jsplib (.jsp) go here.
READERS: dict[str, Callable[[Path], TSPInstance]] = {
    ".tsp": read_tsp,
}
# By type of the plan; Routes and Schedule go here.
WRITERS: dict[type[Tour], Callable[[Path, Tour, TSPInstance, str], None]] = {
    Tour: write_tour,
}
DATASET = ".safetensors"


def read(path: str | Path) -> TSPInstance:
    """The instance of a file. Files of other endings are read as TSPLIB, whose header says what they hold."""
    path = Path(path)
    if path.suffix.lower() == DATASET:
        raise InputError.at(path, None, "is a dataset of many instances, expected one; use read_many")
    return READERS.get(path.suffix.lower(), read_tsp)(path)


def read_many(path: str | Path) -> list[TSPInstance]:
    """All instances of a file: those of a dataset, or the one of a text file."""
    path = Path(path)
    return load_dataset(path) if path.suffix.lower() == DATASET else [read(path)]


def write_plan(path: str | Path, plan: Tour, instance: TSPInstance, comment: str) -> None:
    """Write a plan in the format that belongs to its problem."""
    WRITERS[type(plan)](Path(path), plan, instance, comment)
