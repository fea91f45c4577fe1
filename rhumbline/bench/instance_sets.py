"""Load the instances of a set with their references.

Instances are drawn by a recipe and verified by a checksum, or they are read from files.
"""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from rhumbline.bench.problems import find_bench_problem
from rhumbline.bench.reference.file import read_references
from rhumbline.bench.suite import SetSpec
from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError
from rhumbline.files import read_many
from rhumbline.formats.safe_io import read_bytes
from rhumbline.registry import suggest_known


@dataclass(frozen=True)
class InstanceSet:
    """Instances that are ready to be solved.

    `digest` changes with any of them and with their references.
    """

    spec: SetSpec
    instances: tuple[Any, ...]
    # The cost that the gap of each instance is measured against, if there is one
    references: tuple[float | None, ...]
    # Who found the references
    referee: str
    digest: str


@dataclass(frozen=True)
class InstanceReferences:
    """The references of some instances, who found them, and a digest of the costs."""

    costs: list[float | None]
    referee: str
    digest: str


@dataclass(frozen=True)
class FoundInstances:
    """The instances of a set that are used, a digest of all that it holds, and their number."""

    used: list[Any]
    digest: str
    count: int


def load_set(
    spec: SetSpec,
    folder: Path,
    folders: Mapping[str, str] | None = None,
    *,
    referenced: bool = True,
) -> InstanceSet:
    """Load a set of a suite that lies in `folder`.

    `folders` holds what the $NAMES in file patterns stand for. If `referenced` is False, the
    references are left out.
    """
    if spec.problem not in DOMAINS:
        raise InputError(
            f"set '{spec.name}' is of problem '{spec.problem}', which this version does not solve"
            f"{suggest_known(spec.problem, DOMAINS)}; leave the set out, for example with --only"
        )
    found = read_instance_files(spec, folder, folders or {}) if spec.files else draw_instances(spec)
    used = found.used
    if spec.first is not None and len(used) < spec.first:
        raise InputError(
            f"set '{spec.name}': first is {spec.first}, but there are only {len(used)} instances"
        )
    references = InstanceReferences([None] * len(used), "", "")
    if referenced:
        references = load_references(spec, folder, used, found.count)
    return InstanceSet(
        spec=spec,
        instances=tuple(used),
        references=tuple(references.costs),
        referee=references.referee,
        digest=set_digest(found.digest, len(used), references.digest),
    )


def set_digest(instances: str, used: int, references: str) -> str:
    """Return the digest of a set, from those of its instances and of its references."""
    facts = f"{instances} {used} {references}"
    return sha256(facts.encode()).hexdigest()[:16]


def expected_digest(spec: SetSpec, folder: Path) -> str:
    """Return the digest that a set with a recipe, `first` and a reference file must have.

    Nothing is drawn: the digest follows from the checksum that the suite states.
    """
    assert spec.first is not None, f"set '{spec.name}' has no first"
    digest = repr([None] * spec.first)
    if spec.reference:
        stored = read_references(reference_path(spec, folder))
        digest = sha256(stored.first(spec.first).cost.tobytes()).hexdigest()
    return set_digest(spec.sha256, spec.first, digest)


def draw_instances(spec: SetSpec) -> FoundInstances:
    """Draw the instances of a recipe. Raises unless their checksum is the suite's."""
    recipes = find_bench_problem(spec.problem).recipes
    if recipes is None:
        raise InputError(
            f"set '{spec.name}': there are no recipes for problem '{spec.problem}'; use files"
        )
    array = recipes.draw(spec)
    digest = sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:32]
    if not spec.sha256:
        raise InputError(
            f"set '{spec.name}' has no sha256, which shows that the instances are the same "
            f'everywhere; what is drawn here has sha256 = "{digest}"'
        )
    if spec.sha256 != digest:
        raise InputError(
            f"set '{spec.name}': what is drawn here has sha256 {digest}, "
            f"the suite says {spec.sha256}; "
            "this NumPy draws other numbers, or the recipe was changed"
        )
    instances = [
        recipes.make(row, f"{spec.name}-{number:05}")
        for number, row in enumerate(array[: spec.first], 1)
    ]
    return FoundInstances(instances, digest, len(array))


def read_instance_files(spec: SetSpec, folder: Path, folders: Mapping[str, str]) -> FoundInstances:
    """Read all files that a pattern names, in the order of their names.

    The digest is a checksum of their bytes.
    """
    pattern = folder / expand_folders(f"set '{spec.name}'", spec.files, folders)
    paths = [Path(found) for found in sorted(glob(str(pattern)))]
    if not paths:
        raise InputError(f"set '{spec.name}': no file is called {pattern}")
    instances: list[Any] = []
    for path in paths:
        instances.extend(read_many(path))
    refuse_unfit_instances(spec, instances)
    digests = [sha256(read_bytes(path)).digest() for path in paths]
    digest = sha256(b"".join(digests)).hexdigest()[:32]
    if spec.sha256 not in ("", digest):
        raise InputError(
            f"set '{spec.name}': these files have sha256 {digest}, the suite says {spec.sha256}"
        )
    return FoundInstances(instances[: spec.first], digest, len(instances))


def refuse_unfit_instances(spec: SetSpec, instances: Sequence[Any]) -> None:
    """Raise if two instances have one name, or if one is of another problem than the set."""
    names = [instance.name for instance in instances]
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(
                f"set '{spec.name}': two instances are called '{name}'; "
                "their results could not be distinguished"
            )
    for instance in instances:
        if instance.problem != spec.problem:
            raise InputError(
                f"set '{spec.name}' is of problem '{spec.problem}'; "
                f"{instance.name} is '{instance.problem}'"
            )


def expand_folders(what: str, pattern: str, folders: Mapping[str, str]) -> str:
    """Return the pattern with folders in place of $NAMES, as given or from the environment.

    `what` names the part of a suite that has the pattern.
    """

    def folder(match: re.Match[str]) -> str:
        name = match[1]
        value = folders.get(name) or os.environ.get(name)
        if not value:
            raise InputError(
                f"{what} is in the folder ${name}: say where with --folder {name}=DIR "
                f"or the environment variable {name}, or leave it out with --only"
            )
        return str(Path(value).resolve())

    return re.sub(r"\$(\w+)", folder, pattern)


def load_references(
    spec: SetSpec, folder: Path, used: Sequence[Any], drawn: int
) -> InstanceReferences:
    """Return the references of the used instances, the first of `drawn` ones.

    Without a reference file, they are the best known costs of the instances.
    """
    if not spec.reference:
        known = [instance.best_known for instance in used]
        referee = "best known" if any(known) else ""
        return InstanceReferences(known, referee, repr(known))
    path = reference_path(spec, folder)
    stored = read_references(path)
    if not len(used) <= len(stored.cost) <= drawn:
        wanted = f"{len(used)}" if len(used) == drawn else f"{len(used)} to {drawn}"
        raise InputError(
            f"{path}: holds {len(stored.cost)} costs, but set '{spec.name}' needs {wanted}"
        )
    stored = stored.first(len(used))
    costs = stored.cost
    is_known = np.isfinite(costs) & (costs > 0)
    missing = np.flatnonzero(~is_known)
    if len(missing):
        raise InputError(
            f"{path}: has no cost for {len(missing)} of the first {len(used)} instances "
            f"(the first is number {missing[0] + 1}); "
            "finish it with `rhumb bench reference` or lower `first`"
        )
    digest = sha256(costs.tobytes()).hexdigest()
    return InstanceReferences(costs.tolist(), stored.makers(), digest)


def reference_path(spec: SetSpec, folder: Path) -> Path:
    """Return the path of a set's reference file, without `..`."""
    path = folder / spec.reference
    return Path(os.path.normpath(path))
