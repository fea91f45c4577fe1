"""Suites: TOML files that say what is solved, by which methods, with which seeds and budgets.

Unknown keys are errors, because a misspelt key would silently change what is measured.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from rhumbline.bench.results import is_finite_number
from rhumbline.errors import InputError, shorten, shorten_repr
from rhumbline.improvers import SOLVER_NAMES
from rhumbline.registry import suggest_known
from rhumbline.search.driver import Budget
from rhumbline.toml_config import build_dataclass, read_toml

TableT = TypeVar("TableT")


@dataclass(frozen=True)
class SetSpec:
    """A set of instances as the suite describes it: by recipe and checksum, or by files."""

    name: str
    problem: str
    # "uniform", "mutated" or the name of a standard set
    recipe: str = ""
    # The first 32 hex digits, over the bytes of everything that the recipe draws. Optional for
    # files.
    sha256: str = ""
    # Number of cities or customers (uniform, mutated)
    size: int = 100
    # Number of instances that are drawn (uniform, mutated)
    count: int = 0
    # Seed of the recipe (uniform, mutated)
    seed: int = 0
    # Power of the mutation (mutated)
    power: float | None = None
    # Number of instances that are used, all by default
    first: int | None = None
    # A pattern such as $TSPLIB/*.tsp, relative to the suite. The user says where $NAME is.
    files: str = ""
    # An .npz file with the costs that gaps are measured against, relative to the suite
    reference: str = ""
    # The axis of the radar figure that the set belongs to
    category: str = ""

    def __post_init__(self) -> None:
        refuse_bad_name("set", self.name)
        if bool(self.recipe) == bool(self.files):
            raise InputError(f"set '{shorten(self.name)}': give either a recipe or files")
        if self.power is not None and self.recipe not in ("", "mutated"):
            raise InputError(
                f"set '{shorten(self.name)}': power is of the recipe 'mutated', "
                f"but the recipe is '{shorten(self.recipe)}'; leave one of them out"
            )
        if self.first is not None and self.first < 1:
            raise InputError(
                f"set '{shorten(self.name)}': first is {shorten(self.first)}; expected at least 1"
            )


@dataclass(frozen=True)
class Method:
    """How instances are solved: by a policy and a search strategy, or by a classical solver."""

    name: str
    # "policy", or a name in `baselines.BASELINES`
    solver: str = "policy"
    # A name in `search.STRATEGIES` (policy)
    strategy: str = "cmaes"
    # A shipped name or a path, in which {problem} is filled in (policy). The default depends on
    # the problem.
    policy: str = ""
    # Settings of the strategy or of the solver
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # Attempts per instance (policy)
    attempts: int | None = None
    # Seconds per instance. Instances that are solved together share the sum.
    seconds: float | None = None
    # Number of symmetric copies, which share the attempts (policy)
    augment: int = 1
    # Whether the best plans are taken to a local optimum at the end (policy)
    polish: bool = False
    # A solver that continues for the second half of the seconds, such as "auto" (policy)
    then: str = ""
    # Plans to start from (policy): a pattern of solution files or of results in JSON, relative to
    # the suite, as for `rhumb solve --warm-start`. $NAME is a folder that the user gives.
    warm_start: str = ""
    # Number of instances that are solved at once (policy). 0 means as many as memory allows, or
    # 8 on a CPU.
    together: int = 0
    # Patterns of set names, separated by spaces
    sets: str = "*"
    # Published gaps in percent, by set
    paper: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # The methods of a family are the points of one curve over time.
    family: str = ""

    def __post_init__(self) -> None:
        has_budget = self.seconds is not None or self.attempts is not None
        if self.solver == "policy" or has_budget:
            self.budget(1)
        if self.together < 0 or self.augment < 1:
            raise self.error("expected together of at least 0 and augment of at least 1")
        self.check_phases()
        for name, gap in self.paper.items():
            if not is_finite_number(gap):
                raise self.error(
                    f"paper.{shorten(name)} is {shorten_repr(gap)}; "
                    "expected a gap in %, such as 0.5"
                )

    def error(self, message: str) -> InputError:
        """Return an error that names this method."""
        return InputError(f"method '{shorten(self.name)}': {message}")

    def check_phases(self) -> None:
        """Refuse phases around a search where there is none, and a solver without seconds."""
        phases = self.polish or self.then or self.warm_start
        if self.solver != "policy" and phases:
            raise self.error(
                "polish, then and warm_start belong to a search, but the "
                f"solver is '{shorten(self.solver)}'; leave them out"
            )
        if not self.then:
            return
        if self.then not in SOLVER_NAMES:
            known = suggest_known(self.then, SOLVER_NAMES)
            raise self.error(f"then is '{shorten(self.then)}'{known}")
        if self.seconds is None:
            advice = "then takes the second half of the seconds, so give them"
            raise self.error(advice)

    def budget(self, instances: int) -> Budget:
        """Return what this number of instances may spend together."""
        seconds = None if self.seconds is None else self.seconds * instances
        try:
            return Budget(self.attempts, seconds)
        except InputError as error:
            raise self.error(str(error)) from error

    def applies_to(self, set_name: str) -> bool:
        """Return whether the method is meant for a set."""
        patterns = self.sets.split()
        return matches_any(set_name, patterns)

    @property
    def budget_text(self) -> str:
        """The budget in words, or the settings of a solver that has no budget."""
        limits: list[str] = []
        if self.attempts:
            noun = "attempts" if self.attempts > 1 else "attempt"
            limits.append(f"{self.attempts:,} {noun}")
        if self.seconds:
            limits.append(f"{self.seconds:g} s")
        if limits:
            return " or ".join(limits)
        settings = [f"{name} {value}" for name, value in self.settings.items()]
        return ", ".join(settings) or "until it ends"


@dataclass(frozen=True)
class Suite:
    """A suite. `digest` changes with whatever could change results, but not with comments."""

    name: str
    sets: tuple[SetSpec, ...]
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    digest: str
    folder: Path

    def select(self, only: Sequence[str]) -> tuple[tuple[SetSpec, ...], tuple[Method, ...]]:
        """Return the sets and methods that the patterns name.

        If no pattern names a set, all sets are meant. The same holds for methods.
        """
        names = [spec.name for spec in self.sets]
        names += [method.name for method in self.methods]
        for pattern in only:
            if not any(fnmatch(name, pattern) for name in names):
                hint = suggest_known(pattern, names)
                raise InputError(
                    f"--only {shorten(pattern)}: no such set or method in suite "
                    f"'{shorten(self.name)}'{hint}"
                )
        sets = tuple(spec for spec in self.sets if matches_any(spec.name, only))
        methods = tuple(method for method in self.methods if matches_any(method.name, only))
        return sets or self.sets, methods or self.methods


def matches_any(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a name matches one of the patterns."""
    return any(fnmatch(name, pattern) for pattern in patterns)


def read_suite(path: str | Path) -> Suite:
    """Read a suite from a file."""
    tables = read_toml(path, "suite", "; those of the project are in the folder suites")
    return parse_suite(tables, Path(path))


def parse_suite(tables: Mapping[str, Any], path: Path) -> Suite:
    """Build a suite from its tables and check every key."""
    known = ("name", "seeds", "set", "method")
    unknown = sorted(set(tables) - set(known))
    if unknown:
        key = unknown[0]
        raise InputError(f"{path}: unknown key '{shorten(key)}'{suggest_known(key, known)}")
    suite = Suite(
        name=str(tables.get("name", path.stem)),
        sets=parse_tables(SetSpec, tables, "set", path),
        methods=parse_tables(Method, tables, "method", path),
        seeds=parse_seeds(tables.get("seeds", [0]), path),
        digest=sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()[:16],
        folder=path.parent,
    )
    refuse_bad_name(f"{path}: suite", suite.name)
    for method in suite.methods:
        refuse_unknown_sets(method, [spec.name for spec in suite.sets], path)
    return suite


def parse_tables(
    kind: type[TableT], tables: Mapping[str, Any], key: str, path: Path
) -> tuple[TableT, ...]:
    """Build a record from each table of a key, such as `[[set]]`."""
    entries = tables_of_kind(tables, key, path)
    records = [
        build_dataclass(kind, entry, f"{path}: [[{key}]] {number}")
        for number, entry in enumerate(entries, 1)
    ]
    return tuple(records)


def refuse_bad_name(kind: str, name: str) -> None:
    """Raise unless a name can be part of a file name, because results and figures carry it."""
    if not name.strip(" .") or re.search(r'[/\\:*?"<>|\x00-\x1f]', name):
        raise InputError(
            f"{kind} '{shorten(name)}': results and figures are files of that name; "
            "use letters, digits, - and _"
        )


def refuse_unknown_sets(method: Method, known: Sequence[str], path: Path) -> None:
    """Raise if a method names a set that is not in the suite.

    Otherwise its rows or its published gaps would be missing without a word.
    """
    where = f"{path}: method '{shorten(method.name)}'"
    patterns = method.sets.split() or [""]
    for pattern in patterns:
        if not fits_any(pattern, known):
            found = f"sets has '{shorten(pattern)}', which fits no set"
            listed = suggest_known(pattern, known)
            raise InputError(f"{where}: {found}{listed}")
    for name in method.paper:
        if name not in known:
            found = f"paper names the set '{shorten(name)}', which is not there"
            listed = suggest_known(name, known)
            raise InputError(f"{where}: {found}{listed}")


def fits_any(pattern: str, names: Sequence[str]) -> bool:
    """Return whether a pattern, which must not be very long, fits one of some names."""
    max_characters = 200  # `fnmatch` takes quadratic time
    if len(pattern) > max_characters:
        return False
    return any(fnmatch(name, pattern) for name in names)


def tables_of_kind(tables: Mapping[str, Any], kind: str, path: Path) -> list[Mapping[str, Any]]:
    """Return the tables of a kind. There is at least one, and their names differ."""
    found = tables.get(kind)
    if not is_list_of_tables(found):
        raise InputError(f"{path}: expected at least one [[{kind}]]")
    required = ("name", "problem") if kind == "set" else ("name",)
    for number, table in enumerate(found, 1):
        for key in required:
            if key not in table:
                raise InputError(f"{path}: [[{kind}]] {number} has no {key}")
    names = [table["name"] for table in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: two [[{kind}]] are called '{shorten(name)}'")
    return found


def is_list_of_tables(value: Any) -> TypeGuard[list[Mapping[str, Any]]]:
    """Return whether a value is a list of at least one table."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(table, Mapping) for table in value)


def parse_seeds(seeds: Any, path: Path) -> tuple[int, ...]:
    """Return the seeds if they are different whole numbers."""
    is_valid = isinstance(seeds, list) and all(map(is_seed, seeds))
    has_repeats = is_valid and len(set(seeds)) < len(seeds)
    if not is_valid or not seeds or has_repeats:
        raise InputError(
            f"{path}: seeds is {shorten_repr(seeds)}; "
            "expected a list of different whole numbers such as [0, 1, 2]"
        )
    return tuple(seeds)


def is_seed(value: Any) -> bool:
    """Return whether a value is a whole number of at least 0."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return value >= 0
