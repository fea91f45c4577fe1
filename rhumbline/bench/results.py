"""Results on disk: one JSON object per line, appended as soon as it is measured. Nothing is ever
rewritten.
"""

import json
import lzma
import math
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rhumbline.errors import InputError
from rhumbline.formats.safe_io import error_reason

Warn = Callable[[str], None]
ResultKey = tuple[str, str, str, int]  # method, set, instance, seed
PACKED = ".xz"  # the ending of files that are only read


@dataclass(frozen=True)
class Origin:
    """What all lines of a file have in common; lines of another origin are never mixed in."""

    suite: str
    suite_hash: str
    commit: str
    machine: str


@dataclass(frozen=True)
class Result:
    """One instance solved by one method with one seed. The plan was checked and priced on the
    host.
    """

    suite: str
    suite_hash: str
    commit: str
    machine: str
    set: str
    set_hash: str
    method: str
    instance: str
    seed: int
    problem: str
    size: int  # nodes
    cost: (
        float | None
    )  # None if no plan was found that keeps all rules and limits; `missing` says why
    reference: float | None  # the cost that the gap is measured against ...
    referee: str  # ... and who made it
    attempts: int | None
    seconds: float  # wall time of all instances that were solved together
    together: int  # how many those were
    hardware: str
    solver: str  # strategy or program, with version and settings
    budget: str
    versions: Mapping[str, str]
    when: str
    trace: Sequence[
        Sequence[float]
    ] = ()  # attempts, seconds, best cost so far, best of the latest step
    paper: float | None = None  # published gap, a fraction
    power: float | None = None  # of the mutation of the set
    category: str = ""
    family: str = ""
    missing: str = ""  # why there is no cost

    @property
    def key(self) -> ResultKey:
        """What it is a measurement of."""
        return self.method, self.set, self.instance, self.seed

    @property
    def gap(self) -> float | None:
        """Distance to the reference as a fraction of it."""
        return None if not self.reference or self.cost is None else self.cost / self.reference - 1.0


@dataclass(frozen=True)
class FileLine:
    """A line of a file."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


# Results that differ in any of these are never averaged.
GROUP_FIELDS = (
    "suite",
    "suite_hash",
    "set",
    "set_hash",
    "method",
    "budget",
    "solver",
    "hardware",
    "commit",
    "versions",
)


def group_key(result: Result) -> tuple[str, ...]:
    """What a row of a table is of."""
    return tuple(field_text(result, name) for name in GROUP_FIELDS)


def field_text(item: Any, name: str) -> str:
    """A fact of a result or of a row as text; versions are listed by name."""
    value = getattr(item, name)
    return (
        value if isinstance(value, str) else ", ".join(f"{n} {v}" for n, v in sorted(value.items()))
    )


RESULT_FIELDS = tuple(f.name for f in fields(Result))
REQUIRED_FIELDS = RESULT_FIELDS[: RESULT_FIELDS.index("trace")]


def drop_missing(results: Sequence[Result]) -> list[Result]:
    """The results that have a cost; only these are averaged."""
    return [r for r in results if r.cost is not None]


def group_results(
    results: Sequence[Result], key: Callable[[Result], str]
) -> dict[str, list[Result]]:
    """Results by a key, in order of first appearance."""
    groups: dict[str, list[Result]] = {}
    for r in results:
        groups.setdefault(key(r), []).append(r)
    return groups


def group_by_instance(results: Sequence[Result]) -> dict[tuple[str, str], list[Result]]:
    """Results of each instance of each set."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for r in results:
        groups.setdefault((r.set, r.instance), []).append(r)
    return groups


def keep_common_instances(groups: Mapping[str, Sequence[Result]]) -> dict[str, list[Result]]:
    """Groups with the instances that all of them have, so that they can be compared; nothing if
    there is none.
    """
    common = (
        set[tuple[str, str]].intersection(
            *(set(group_by_instance(some)) for some in groups.values())
        )
        if groups
        else set()
    )
    if not common:
        return {}
    return {
        name: [r for r in some if (r.set, r.instance) in common] for name, some in groups.items()
    }


def costs_of(results: Sequence[Result]) -> list[float]:
    """The costs that there are."""
    return [r.cost for r in results if r.cost is not None]


def read_results(path: str | Path, warn: Warn) -> list[Result]:
    """All lines of a file of one origin; a half-written last line is dropped with a warning."""
    return read_result_files([path], warn)


def read_result_files(paths: Sequence[str | Path], warn: Warn) -> list[Result]:
    """The lines of files, each of one origin: what is there twice counts once, what contradicts
    is refused.
    """
    known: dict[tuple[Any, ...], tuple[FileLine, Result]] = {}
    sets: dict[tuple[str, str], tuple[FileLine, str]] = {}
    for path in map(Path, paths):
        results = scan_lines(path, warn)[0]
        again = 0
        for number, result in enumerate(results, 1):
            place = FileLine(path, number)
            refuse_other_origin(path, number, result, results[0])
            refuse_other_instances(place, result, sets)
            again += is_duplicate(place, result, known)
        if again:
            verb = "is" if again == 1 else "are"
            warn(
                f"{path}: {again:,} of its {len(results):,} lines {verb} there twice; each is counted once"
            )
    return [result for _, result in known.values()]


def is_duplicate(
    place: FileLine, result: Result, known: dict[tuple[Any, ...], tuple[FileLine, Result]]
) -> bool:
    """Whether a line was there before, letter by letter; another measurement of the same is
    refused.
    """
    key = (*group_key(result), result.instance, result.seed)
    if key not in known:
        known[key] = (place, result)
        return False
    first, before = known[key]
    if before == result:
        return True
    raise InputError.at(
        place.path,
        place.line,
        f"is another measurement of what {first} measured ({result.method} on {result.instance}, seed {result.seed}); "
        "nobody can tell which one counts: report them apart",
    )


def refuse_other_instances(
    place: FileLine, result: Result, sets: dict[tuple[str, str], tuple[FileLine, str]]
) -> None:
    """Raise if a set of the same name had other instances or references before: such numbers do
    not compare.
    """
    before = sets.setdefault((result.suite, result.set), (place, result.set_hash))
    if before[1] != result.set_hash:
        raise InputError.at(
            place.path,
            place.line,
            f"set '{result.set}' of suite '{result.suite}' has other instances or references here ({result.set_hash}) "
            f"than in {before[0]} ({before[1]}); they do not compare: report them apart",
        )


def scan_lines(path: Path, warn: Warn) -> tuple[list[Result], int]:
    """The results of a file, and how many of its bytes hold whole lines."""
    rows = read_unpacked(path).split(b"\n")
    results = list[Result]()
    good = 0
    for number, row in enumerate(rows, 1):
        last = number == len(rows)
        if not row and last:
            break
        try:
            results.append(parse_result(row))
        except ValueError as error:
            if not (last and isinstance(error, json.JSONDecodeError | UnicodeDecodeError)):
                raise InputError.at(
                    path, number, f"is not a result line ({error}); remove it or use a fresh file"
                ) from error
            warn(f"{path}:{number}: the last line was cut off in the middle; it is dropped")
            break
        good += len(row) + (not last)
    return results, good


def read_unpacked(path: Path) -> bytes:
    """What is in a file; results that are kept for good are packed (`.xz`), to a twentieth of
    their size.
    """
    try:
        content = path.read_bytes()
        return lzma.decompress(content) if path.suffix == PACKED else content
    except OSError as error:
        raise InputError.at(path, None, f"cannot be read: {error_reason(error)}") from error
    except lzma.LZMAError as error:
        raise InputError.at(
            path, None, f"cannot be unpacked ({error}); make it with: xz -9 RESULTS.jsonl"
        ) from error


def parse_result(row: bytes) -> Result:
    """The result in a line; `ValueError` says what is wrong."""
    table = json.loads(row)
    if not isinstance(table, dict):
        raise ValueError("not a JSON object")
    wrong = [n for n in REQUIRED_FIELDS if n not in table] + [
        n for n in table if n not in RESULT_FIELDS
    ]
    if wrong:
        raise ValueError(f"'{wrong[0]}' is {'unknown' if wrong[0] in table else 'missing'}")
    for name, value in table.items():
        fits, expected = FIELD_CHECKS.get(name, TEXT_CHECK)
        if not fits(value):
            raise ValueError(f"'{name}' is {value!r:.60}; expected {expected}")
    return Result(**table)


def is_number(value: Any) -> bool:
    """A finite number; booleans are none, and JSON as Python reads it has NaN and Infinity."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_integer(value: Any) -> bool:
    """A whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_trace(value: Any) -> bool:
    """Steps of a search, four numbers each."""
    return isinstance(value, list) and all(
        isinstance(step, list) and len(step) == 4 and all(map(is_number, step)) for step in value
    )


def is_table_of_texts(value: Any) -> bool:
    """Texts by name."""
    return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())


FieldCheck = tuple[Callable[[Any], bool], str]
TEXT_CHECK: FieldCheck = (lambda x: isinstance(x, str), "a text")
AMOUNT_CHECK: FieldCheck = (
    lambda x: x is None or (is_number(x) and x >= 0),
    "a number of at least 0, or null",
)
NUMBER_CHECK: FieldCheck = (lambda x: x is None or is_number(x), "a number, or null")
INTEGER_CHECK: FieldCheck = (is_integer, "a whole number")
# By name; whatever is not here is a text.
FIELD_CHECKS: dict[str, FieldCheck] = {
    "seed": INTEGER_CHECK,
    "size": INTEGER_CHECK,
    "cost": AMOUNT_CHECK,
    "reference": AMOUNT_CHECK,
    "attempts": (lambda x: x is None or is_integer(x), "a whole number, or null"),
    "seconds": (lambda x: is_number(x) and x >= 0, "a number of at least 0"),
    "together": (lambda x: is_integer(x) and x >= 1, "a whole number of at least 1"),
    "versions": (is_table_of_texts, "a table of texts"),
    "trace": (is_trace, "a list of steps with 4 numbers each"),
    "paper": NUMBER_CHECK,
    "power": NUMBER_CHECK,
}


def refuse_other_origin(path: Path, number: int, result: Result, origin: Origin | Result) -> None:
    """Raise unless a line is of an origin."""
    words = {
        "suite_hash": "another suite",
        "commit": "another commit",
        "machine": "another machine",
    }
    for name, other in words.items():
        found = getattr(result, name)
        wanted = getattr(origin, name)
        if found != wanted:
            both = f"{found} (suite {result.suite}), not {wanted} (suite {origin.suite})"
            found_is = both if name == "suite_hash" else f"{found}, not {wanted}"
            raise InputError.at(
                path,
                number,
                f"is a result of {other}: {found_is}; results are not mixed, use another file",
            )


def refuse_packed(path: Path) -> None:
    """Raise if results are to be added to a file that is only read."""
    if path.suffix == PACKED:
        raise InputError.at(
            path, None, "is packed; results are added to plain files, such as RESULTS.jsonl"
        )


def resume(
    path: Path, origin: Origin, digests: Mapping[str, str], warn: Warn
) -> dict[ResultKey, Result]:
    """What a file holds already, its half-written end cut off; refused if it is of another
    origin.
    """
    if not path.exists():
        return {}
    results, good = scan_lines(path, warn)
    for number, result in enumerate(results, 1):
        refuse_other_origin(path, number, result, origin)
        if digests.get(result.set, result.set_hash) != result.set_hash:
            message = f"set '{result.set}' had other instances or references then; results are not mixed, use another file"
            raise InputError.at(path, number, message)
    with path.open("r+b") as file:
        file.truncate(good)
        file.seek(max(0, good - 1))
        if good and file.read(1) != b"\n":
            file.write(b"\n")
    return {result.key: result for result in results}


@contextmanager
def lock_results(path: Path) -> Generator[None, None, None]:
    """Keep other runs away from a file while the context lasts; the lock ends with the process,
    however that ends.
    """
    try:
        file = path.open("ab")
    except OSError as error:
        raise InputError.at(path, None, f"cannot be written: {error_reason(error)}") from error
    with file:
        if not try_lock(file.fileno()):
            raise InputError.at(
                path, None, "another run is adding to this file; wait for it, or use another --out"
            )
        yield


def try_lock(number: int) -> bool:
    """Lock an open file if no other run has; systems and file systems without locks let
    everybody through.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def append_results(path: Path, results: Iterable[Result]) -> None:
    """Add lines and make sure that they are on the disk."""
    text = "".join(json.dumps(asdict(r)) + "\n" for r in results)
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError.at(path, None, f"cannot be written: {error_reason(error)}") from error


def origin_fields(origin: Origin) -> dict[str, Any]:
    """The origin as fields of a result."""
    return asdict(origin)
