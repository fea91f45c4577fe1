"""Suites: TOML tables that say what is solved, by whom, with which seeds and budgets. Unknown
keys are errors.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

from rhumbline.errors import InputError
from rhumbline.improvers import SOLVER_NAMES
from rhumbline.search.driver import Budget
from rhumbline.toml_config import build_dataclass, did_you_mean, read_toml

KEYS = ("name", "seeds", "set", "method")


@dataclass(frozen=True)
class SetSpec:
    """Instances by recipe and checksum, or by files."""

    name: str
    problem: str
    recipe: str = ""  # "uniform", "mutated" or the name of a standard set
    sha256: str = (
        ""  # first 32 hex digits, over the bytes of everything the recipe draws; of files if wanted
    )
    size: int = 100  # uniform, mutated: cities or customers
    count: int = 0  # uniform, mutated: how many are drawn
    seed: int = 0  # uniform, mutated
    power: float | None = None  # mutated
    first: int | None = None  # how many are used; all if not given
    # a pattern such as $TSPLIB/*.tsp, relative to the suite; $NAME is a folder the user gives
    files: str = ""
    reference: str = (
        ""  # an .npz file with the costs that gaps are measured against, relative to the suite
    )
    category: str = ""  # an axis of the radar picture

    def __post_init__(self) -> None:
        refuse_bad_name("set", self.name)
        if bool(self.recipe) == bool(self.files):
            raise InputError(f"set '{self.name}': give either a recipe or files")
        if self.power is not None and self.recipe not in ("", "mutated"):
            raise InputError(
                f"set '{self.name}': power is of the recipe 'mutated', but the recipe is '{self.recipe}'; "
                "leave one of them out"
            )
        if self.first is not None and self.first < 1:
            raise InputError(f"set '{self.name}': first is {self.first}; expected at least 1")


@dataclass(frozen=True)
class Method:
    """How instances are solved: by a policy and a search strategy, or by a classical solver."""

    name: str
    solver: str = "policy"  # or a name in `baselines.BASELINES`
    strategy: str = "cmaes"  # policy: a name in `search.STRATEGIES`
    # policy: a shipped name or a path, {problem} in it is filled in; by problem if not given
    policy: str = ""
    settings: Mapping[str, Any] = field(
        default_factory=dict[str, Any]
    )  # of the strategy or the solver
    attempts: int | None = None  # policy: per instance
    seconds: float | None = None  # per instance; instances solved together share the sum
    augment: int = 1  # policy: symmetric copies that share the attempts
    polish: bool = False  # policy: take the best plans to a local optimum at the end
    then: str = ""  # policy: solver that continues for the second half of the seconds
    together: int = 0  # policy: instances solved at once; 0 is what memory allows, on a CPU 8
    sets: str = "*"  # patterns of set names, divided by spaces
    paper: Mapping[str, Any] = field(default_factory=dict[str, Any])  # published gaps in %, by set
    family: str = ""  # methods of one family are points of one curve over time

    def __post_init__(self) -> None:
        if self.solver == "policy" or self.seconds is not None or self.attempts is not None:
            self.budget(1)
        if self.together < 0 or self.augment < 1:
            raise InputError(
                f"method '{self.name}': expected together of at least 0 and augment of at least 1"
            )
        self.check_phases()
        for name, gap in self.paper.items():
            if isinstance(gap, bool) or not isinstance(gap, int | float) or not isfinite(gap):
                raise InputError(
                    f"method '{self.name}': paper.{name} is {gap!r}; expected a gap in %, such as 0.5"
                )

    def check_phases(self) -> None:
        """Refuse phases after a search where there is no search, and a solver without seconds."""
        phases = [name for name, wanted in (("polish", self.polish), ("then", self.then)) if wanted]
        if phases and self.solver != "policy":
            raise InputError(
                f"method '{self.name}': {phases[0]} follows a search, but the solver is "
                f"'{self.solver}'; leave one of them out"
            )
        if not self.then:
            return
        if self.then not in SOLVER_NAMES:
            known = ", ".join(SOLVER_NAMES)
            guess = did_you_mean(self.then, SOLVER_NAMES)
            raise InputError(f"method '{self.name}': then is '{self.then}'{guess}; known: {known}")
        if self.seconds is None:
            raise InputError(
                f"method '{self.name}': then takes the second half of the seconds, so give them"
            )

    def budget(self, instances: int) -> Budget:
        """What this many instances together may spend."""
        try:
            return Budget(self.attempts, None if self.seconds is None else self.seconds * instances)
        except InputError as error:
            raise InputError(f"method '{self.name}': {error}") from error

    def applies_to(self, name: str) -> bool:
        """Whether a set is meant for this method."""
        return any(fnmatch(name, pattern) for pattern in self.sets.split())

    @property
    def spent(self) -> str:
        """The budget in words; of a solver without one, its settings."""
        parts = (
            [f"{self.attempts:,} attempt{'s' if self.attempts > 1 else ''}"]
            if self.attempts
            else []
        )
        parts += [f"{self.seconds:g} s"] if self.seconds else []
        return (
            " or ".join(parts)
            or ", ".join(f"{n} {v}" for n, v in self.settings.items())
            or "until it ends"
        )


@dataclass(frozen=True)
class Suite:
    """A whole suite; `digest` changes with whatever could change results, not with comments."""

    name: str
    sets: tuple[SetSpec, ...]
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    digest: str
    folder: Path

    def select(self, only: Sequence[str]) -> tuple[tuple[SetSpec, ...], tuple[Method, ...]]:
        """Sets and methods that patterns name; those of a kind that no pattern names are all
        meant.
        """
        for pattern in only:
            if not any(fnmatch(x.name, pattern) for x in (*self.sets, *self.methods)):
                known = ", ".join(x.name for x in (*self.sets, *self.methods))
                raise InputError(
                    f"--only {pattern}: no such set or method in suite '{self.name}'; known: {known}"
                )
        sets = tuple(s for s in self.sets if any(fnmatch(s.name, p) for p in only))
        methods = tuple(m for m in self.methods if any(fnmatch(m.name, p) for p in only))
        return sets or self.sets, methods or self.methods


def read_suite(path: str | Path) -> Suite:
    """The suite in a file."""
    tables = read_toml(path, "suite", "; those of the project are in the folder suites")
    return parse_suite(tables, Path(path))


def parse_suite(tables: Mapping[str, Any], path: Path) -> Suite:
    """A suite from its tables, each key checked."""
    unknown = sorted(set(tables) - set(KEYS))
    if unknown:
        raise InputError(f"{path}: unknown key '{unknown[0]}'; known here: {', '.join(KEYS)}")
    suite = Suite(
        name=str(tables.get("name", path.stem)),
        sets=tuple(
            build_dataclass(SetSpec, t, f"{path}: [[set]] {i}")
            for i, t in enumerate(tables_of_kind(tables, "set", path), 1)
        ),
        methods=tuple(
            build_dataclass(Method, t, f"{path}: [[method]] {i}")
            for i, t in enumerate(tables_of_kind(tables, "method", path), 1)
        ),
        seeds=parse_seeds(tables.get("seeds", [0]), path),
        digest=sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()[:16],
        folder=path.parent,
    )
    refuse_bad_name(f"{path}: suite", suite.name)
    for method in suite.methods:
        refuse_unknown_sets(method, [s.name for s in suite.sets], path)
    return suite


def refuse_bad_name(kind: str, name: str) -> None:
    """Raise unless a name can be part of the names of files: figures and results are called
    after it.
    """
    if not name.strip(" .") or re.search(r'[/\\:*?"<>|\x00-\x1f]', name):
        raise InputError(
            f"{kind} '{name}': results and figures are files of that name; use letters, digits, - and _"
        )


def refuse_unknown_sets(method: Method, known: Sequence[str], path: Path) -> None:
    """Raise if a method names sets that the suite has not: its rows or published gaps would
    silently be missing.
    """
    for pattern in method.sets.split() or [""]:
        if not any(fnmatch(name, pattern) for name in known):
            wrong = f"sets has '{pattern}', which fits no set"
            raise InputError(f"{path}: method '{method.name}': {wrong}; known: {', '.join(known)}")
    for name in method.paper:
        if name not in known:
            wrong = f"paper names the set '{name}', which is not there{did_you_mean(name, known)}"
            raise InputError(f"{path}: method '{method.name}': {wrong}; known: {', '.join(known)}")


def tables_of_kind(tables: Mapping[str, Any], kind: str, path: Path) -> list[Mapping[str, Any]]:
    """The tables of a kind: some, each with a name of its own."""
    found = tables.get(kind)
    if not isinstance(found, list) or not found or not all(isinstance(t, Mapping) for t in found):
        raise InputError(f"{path}: expected at least one [[{kind}]]")
    required = ("name", "problem") if kind == "set" else ("name",)
    for place, table in enumerate(found, 1):
        missing = [key for key in required if key not in table]
        if missing:
            raise InputError(f"{path}: [[{kind}]] {place} has no {missing[0]}")
    names = [t["name"] for t in found]
    twice = [n for n in names if names.count(n) > 1]
    if twice:
        raise InputError(f"{path}: two [[{kind}]] are called '{twice[0]}'")
    return found


def parse_seeds(seeds: Any, path: Path) -> tuple[int, ...]:
    """Whole numbers, each once."""
    whole = isinstance(seeds, list) and all(
        isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in seeds
    )
    if not whole or not seeds or len(set(seeds)) < len(seeds):
        raise InputError(
            f"{path}: seeds is {seeds!r}; expected a list of different whole numbers such as [0, 1, 2]"
        )
    return tuple(seeds)
