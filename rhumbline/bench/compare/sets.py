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

from rhumbline.bench.draw import DrawnInstances
from rhumbline.bench.instance_sets import InstanceSet, load_set
from rhumbline.bench.problems import BENCH_PROBLEMS, ValidationSets
from rhumbline.bench.results import Warn
from rhumbline.bench.suite import SetSpec
from rhumbline.errors import InputError
from rhumbline.files import read_many
from rhumbline.files.discovery import find_instance_files
from rhumbline.formats.safe_io import read_bytes
from rhumbline.registry import suggest_known


def find_test_sets() -> dict[str, tuple[str, str]]:
    """Return the problem and the digest of each standard test set."""
    found: dict[str, tuple[str, str]] = {}
    for problem, record in BENCH_PROBLEMS.items():
        if not record.recipes:
            continue
        standard = record.recipes.standard
        for name, one in standard.items():
            found[name] = (problem, one.digest)
    return found


TEST_SETS = find_test_sets()


@dataclass(frozen=True)
class SetSelection:
    """Which instances of a set are used, and whether they are drawn for validation."""

    first: int = 100
    skip: int = 0
    validation: bool = False
    varied: bool = False
    references: Path = Path(__file__).parents[3] / "benchmarks" / "reference"  # of a clone

    def __post_init__(self) -> None:
        has_instances = 0 <= self.skip < self.first
        if self.first < 1 or not has_instances:
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
    known = suggest_known(place, TEST_SETS)
    raise InputError(f"{place}: no such file, and no test set{known}")


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
    last_part = Path(place).name
    folder = re.sub(r"[^\w.-]", "", last_part)
    title = f"{folder or 'files'}, {problem}"
    referee = "best known" if any(known) else ""
    facts = f"{digest} {problem} {names} {known}"
    set_digest = sha256(facts.encode()).hexdigest()
    return InstanceSet(
        spec=SetSpec(title, problem, files=place),
        instances=instances,
        references=known,
        referee=referee,
        digest=set_digest[:16],
    )


# --- validation instances


def draw_validation_set(name: str, selection: SetSelection) -> InstanceSet:
    """Return instances of the distribution of a test set, of the size that the name says."""
    problem, _ = parse_set_name(name)
    draw = draw_varied_set if selection.varied else draw_uniform_set
    drawn = draw(name, selection.first)
    digest = sha256()
    for array in drawn.arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    kind = "varied validation" if selection.varied else "validation"
    title = f"{name}, {kind}, first {selection.first}"
    found = InstanceSet(
        spec=SetSpec(title, problem, recipe=kind),
        instances=tuple(drawn.instances),
        references=(None,) * selection.first,
        referee="",
        digest=digest.hexdigest()[:16],
    )
    return skip_instances(found, selection.skip)


def draw_uniform_set(name: str, count: int) -> DrawnInstances:
    """Return instances as the test sets have them, such as tsp150, vrp100 or jssp10x10 names."""
    problem, size = parse_set_name(name)
    by_problem = validation_sets()
    sets = by_problem[problem]
    return sets.uniform(size, count)


def draw_varied_set(name: str, count: int) -> DrawnInstances:
    """Return instances of other layouts: those of mixed training for TSP, four kinds of CVRP."""
    problem, size = parse_set_name(name)
    draw = validation_sets()[problem].varied
    if draw is None:
        raise InputError("--varied is for sets such as vrp300 or tsp200")
    return draw(size, count)


def parse_set_name(name: str) -> tuple[str, str]:
    """Return the problem and the size that the name of a validation set says."""
    for problem, sets in validation_sets().items():
        match = re.fullmatch(f"{sets.prefix}({sets.size_pattern})", name)
        if match:
            return problem, match[1]
    raise InputError(
        f"no validation instances are called {name}; "
        "expected tsp150, vrp100, jssp10x10 and the like"
    )


def validation_sets() -> dict[str, ValidationSets]:
    """Return how validation instances are drawn, by problem."""
    found: dict[str, ValidationSets] = {}
    for name, record in BENCH_PROBLEMS.items():
        if record.validation:
            found[name] = record.validation
    return found
