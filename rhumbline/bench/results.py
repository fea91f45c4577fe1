"""Results on disk: one JSON object per line, appended as soon as it is measured.

Lines are never rewritten.
"""

import json
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from rhumbline.errors import InputError, explain_parse_error, shorten, shorten_repr
from rhumbline.formats.safe_io import LIMITS, error_reason, read_any_bytes, too_large
from rhumbline.registry import did_you_mean

Warn = Callable[[str], None]
ResultKey = tuple[str, str, str, int]  # method, set, instance, seed
SetKey = tuple[str, str]  # suite, set
InstanceKey = tuple[str, str]  # set, instance
KeyT = TypeVar("KeyT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Origin:
    """What all lines of a file have in common. Lines of another origin are never mixed in."""

    suite: str
    suite_hash: str
    commit: str
    machine: str


@dataclass(frozen=True)
class Result:
    """One instance solved by one method with one seed.

    The host has checked the plan and computed its cost.
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
    # Number of nodes, or of operations
    size: int
    # None if no plan obeys all rules and limits; `missing` says why
    cost: float | None
    # The cost that the gap is measured against, and who found it
    reference: float | None
    referee: str
    attempts: int | None
    # Wall time of all instances that were solved together, and their number
    seconds: float
    together: int
    hardware: str
    # Strategy or program, with version and settings
    solver: str
    budget: str
    versions: Mapping[str, str]
    when: str
    # Per step: attempts, seconds, best cost so far, best cost of the step
    trace: Sequence[Sequence[float]] = ()
    # Published gap, a fraction
    paper: float | None = None
    # Power of the mutation of the set
    power: float | None = None
    category: str = ""
    family: str = ""
    # Why there is no cost
    missing: str = ""

    @property
    def key(self) -> ResultKey:
        """What the result is a measurement of."""
        return self.method, self.set, self.instance, self.seed

    @property
    def set_key(self) -> SetKey:
        """The set and its suite."""
        return self.suite, self.set

    @property
    def instance_key(self) -> InstanceKey:
        """The instance and its set."""
        return self.set, self.instance

    @property
    def gap(self) -> float | None:
        """The optimality gap: the distance to the reference as a fraction of it."""
        if not self.reference or self.cost is None:
            return None
        ratio = self.cost / self.reference
        return ratio - 1.0


@dataclass(frozen=True)
class FileLine:
    """A line of a file, for messages."""

    path: Path
    number: int

    def __str__(self) -> str:
        return f"{self.path}:{self.number}"

    def error(self, message: str) -> InputError:
        """Return an error about this line."""
        return InputError.at(self.path, self.number, message)


@dataclass(frozen=True)
class ResultFields:
    """The names of a result's fields, by what they are for."""

    known: tuple[str, ...] = tuple(each.name for each in fields(Result))
    # A line has at least these. The others came later.
    required: tuple[str, ...] = known[: known.index("trace")]
    # Where a result comes from
    origin: tuple[str, ...] = ("commit", "suite_hash", "versions")
    # What labels may say about results of one name
    label: tuple[str, ...] = ("hardware", "budget", "solver", *origin)
    # Results that differ in any of these are never averaged.
    group: tuple[str, ...] = (
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


FIELDS = ResultFields()


def group_key(result: Result) -> tuple[str, ...]:
    """Return what all results of one row of a table have in common."""
    texts = [field_text(result, name) for name in FIELDS.group]
    return tuple(texts)


def field_text(item: Any, name: str) -> str:
    """Return a field of a result or of a table row as text, versions in the order of names."""
    value = getattr(item, name)
    if isinstance(value, str):
        return value
    versions = sorted(value.items())
    texts = [f"{library} {version}" for library, version in versions]
    return ", ".join(texts)


def drop_missing(results: Sequence[Result]) -> list[Result]:
    """Return the results that have a cost. Only these are averaged."""
    return [result for result in results if result.cost is not None]


def costs_of(results: Sequence[Result]) -> list[float]:
    """Return the costs of the results that have one."""
    return [result.cost for result in results if result.cost is not None]


def group_results(
    results: Sequence[ResultT], key: Callable[[ResultT], KeyT]
) -> dict[KeyT, list[ResultT]]:
    """Return results, or rows of them, by a key, in order of first appearance."""
    groups: dict[KeyT, list[ResultT]] = {}
    for result in results:
        group = groups.setdefault(key(result), [])
        group.append(result)
    return groups


def group_by_instance(results: Sequence[Result]) -> dict[InstanceKey, list[Result]]:
    """Return the results of each instance of each set."""
    return group_results(results, lambda result: result.instance_key)


def keep_common_instances(groups: Mapping[str, Sequence[Result]]) -> dict[str, list[Result]]:
    """Restrict groups to the instances that all of them have, so that they can be compared.

    Returns an empty dictionary if they have no instance in common.
    """
    instances = [set(group_by_instance(results)) for results in groups.values()]
    if not instances:
        return {}
    common = set[InstanceKey].intersection(*instances)
    if not common:
        return {}
    restricted: dict[str, list[Result]] = {}
    for name, results in groups.items():
        kept = [result for result in results if result.instance_key in common]
        restricted[name] = kept
    return restricted


def read_results(path: str | Path, warn: Warn) -> list[Result]:
    """Read all lines of a file, which must be of one origin.

    An incomplete last line is dropped with a warning.
    """
    return read_result_files([path], warn)


def read_result_files(paths: Sequence[str | Path], warn: Warn) -> list[Result]:
    """Read the lines of several files, each of which must be of one origin.

    Identical lines count once. Contradicting lines are refused.
    """
    seen = SeenResults()
    for path in map(Path, paths):
        results, _ = scan_lines(path, warn)
        duplicates = 0
        for number, result in enumerate(results, 1):
            line = FileLine(path, number)
            refuse_other_origin(line, result, results[0])
            seen.refuse_other_instances(line, result)
            duplicates += not seen.add(line, result)
        if duplicates:
            verb = "is" if duplicates == 1 else "are"
            lines = f"{duplicates:,} of its {len(results):,} lines"
            warn(f"{path}: {lines} {verb} there twice; each is counted once")
    return [result for _, result in seen.results.values()]


@dataclass
class SeenResults:
    """The results that have been read so far, with the lines that they were read from."""

    # By everything that makes a measurement
    results: dict[tuple[Any, ...], tuple[FileLine, Result]] = field(default_factory=dict)
    # By suite and set
    set_hashes: dict[SetKey, tuple[FileLine, str]] = field(default_factory=dict)

    def add(self, line: FileLine, result: Result) -> bool:
        """Add a result and return True, or return False if an identical one is there.

        Raises if it contradicts an earlier measurement of the same.
        """
        key = (*group_key(result), result.instance, result.seed)
        if key not in self.results:
            self.results[key] = (line, result)
            return True
        first_line, first = self.results[key]
        if first == result:
            return False
        seed = shorten(result.seed)
        what = f"{shorten(result.method)} on {shorten(result.instance)}, seed {seed}"
        raise line.error(
            f"is another measurement of what {first_line} measured ({what}); "
            "only one of them can count: report them separately"
        )

    def refuse_other_instances(self, line: FileLine, result: Result) -> None:
        """Raise if an earlier set of the same name had other instances or references."""
        found = (line, result.set_hash)
        first_line, set_hash = self.set_hashes.setdefault(result.set_key, found)
        if set_hash != result.set_hash:
            raise line.error(
                f"set '{shorten(result.set)}' of suite '{shorten(result.suite)}' has other "
                f"instances or references here ({shorten(result.set_hash)}) than in {first_line} "
                f"({shorten(set_hash)}); "
                "they do not compare: report them separately"
            )


def scan_lines(path: Path, warn: Warn) -> tuple[list[Result], int]:
    """Return the results of a file and the number of bytes that hold complete lines."""
    rows = read_unpacked(path).split(b"\n")
    results = list[Result]()
    complete = 0
    for number, row in enumerate(rows, 1):
        is_last = number == len(rows)
        if not row and is_last:
            break
        try:
            results.append(parse_result(row))
        except ValueError as error:
            is_cut_off = isinstance(error, json.JSONDecodeError | UnicodeDecodeError)
            if not (is_last and is_cut_off):
                reason = explain_parse_error(error)
                message = f"is not a result line ({reason}); remove it or use a fresh file"
                raise InputError.at(path, number, message) from error
            warn(f"{path}:{number}: the last line was cut off in the middle; it is dropped")
            break
        complete += len(row) + (not is_last)
    return results, complete


def is_packed(path: Path) -> bool:
    """Return whether a file is an archive, which is only read."""
    return path.suffix in UNPACKERS


def read_unpacked(path: Path) -> bytes:
    """Return the content of a file, unpacked if it is an archive (`.gz` or `.xz`).

    Results that are kept for good are packed to a tenth of their size.
    """
    content = read_any_bytes(path)
    if not is_packed(path):
        return content
    try:
        return unpack(content, path)
    except (lzma.LZMAError, zlib.error) as error:
        message = f"cannot be unpacked ({error}); make it with: gzip -9 RESULTS.jsonl"
        raise InputError.at(path, None, message) from error


def unpack(content: bytes, path: Path) -> bytes:
    """Return what an archive of one or more streams holds. Sizes and memory are bounded."""
    unpacked = b""
    while content:
        unpacker = UNPACKERS[path.suffix]()
        room = LIMITS.max_unpacked_bytes - len(unpacked)
        unpacked += unpacker.decompress(content, max_length=room + 1)
        if len(unpacked) > LIMITS.max_unpacked_bytes:
            raise too_large(path, LIMITS.max_unpacked_bytes)
        if not unpacker.eof:
            raise zlib.error("its end is missing")
        content = unpacker.unused_data.lstrip(b"\0")  # streams may be padded
    return unpacked


def gzip_unpacker() -> Any:
    """Return what unpacks a stream of gzip."""
    return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)  # 16: the format of gzip


def xz_unpacker() -> Any:
    """Return what unpacks a stream of xz."""
    return lzma.LZMADecompressor(memlimit=LIMITS.max_unpacker_bytes)


# DuckDB and Polars read gzip; archives of earlier versions are xz.
UNPACKERS: Mapping[str, Callable[[], Any]] = {".gz": gzip_unpacker, ".xz": xz_unpacker}


def parse_result(row: bytes) -> Result:
    """Return the result in a line. Raises `ValueError` with the reason if there is none."""
    try:
        table = json.loads(row)
    except RecursionError as error:
        raise ValueError("its brackets are nested too deep") from error
    if not isinstance(table, dict):
        raise ValueError("not a JSON object")
    for name in FIELDS.required:
        if name not in table:
            raise ValueError(f"'{name}' is missing")
    for name in table:
        if name not in FIELDS.known:
            guess = did_you_mean(name, FIELDS.known)
            raise ValueError(f"'{shorten(name)}' is unknown{guess}")
    for name, value in table.items():
        is_valid, expected = FIELD_CHECKS.get(name, TEXT_CHECK)
        if not is_valid(value):
            raise ValueError(f"'{name}' is {shorten_repr(value)}; expected {expected}")
    return Result(**table)


def is_finite_number(value: Any) -> bool:
    """Return whether a value is a finite number.

    Booleans are not numbers here. Python's JSON reader accepts NaN and Infinity, this does not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # False for NaN; whole numbers may be larger


def is_integer(value: Any) -> bool:
    """Return whether a value is a whole number and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_text(value: Any) -> bool:
    """Return whether a value is a text."""
    return isinstance(value, str)


def is_trace(value: Any) -> bool:
    """Return whether a value is a list of steps with four numbers each."""
    if not isinstance(value, list):
        return False
    return all(map(is_trace_step, value))


def is_trace_step(value: Any) -> bool:
    """Return whether a value is a list of four numbers."""
    if not isinstance(value, list) or len(value) != 4:
        return False
    return all(map(is_finite_number, value))


def is_table_of_texts(value: Any) -> bool:
    """Return whether a value is a table whose values are texts."""
    if not isinstance(value, dict):
        return False
    return all(map(is_text, value.values()))


FieldCheck = tuple[Callable[[Any], bool], str]  # a test, and what it expects in words
TEXT_CHECK: FieldCheck = (is_text, "a text")
AMOUNT_CHECK: FieldCheck = (
    lambda x: x is None or (is_finite_number(x) and x >= 0),
    "a number of at least 0, or null",
)
NUMBER_CHECK: FieldCheck = (lambda x: x is None or is_finite_number(x), "a number, or null")
INTEGER_CHECK: FieldCheck = (is_integer, "a whole number")
# Fields that are not listed are texts.
FIELD_CHECKS: dict[str, FieldCheck] = {
    "seed": INTEGER_CHECK,
    "size": INTEGER_CHECK,
    "cost": AMOUNT_CHECK,
    "reference": AMOUNT_CHECK,
    "attempts": (lambda x: x is None or is_integer(x), "a whole number, or null"),
    "seconds": (lambda x: is_finite_number(x) and x >= 0, "a number of at least 0"),
    "together": (lambda x: is_integer(x) and x >= 1, "a whole number of at least 1"),
    "versions": (is_table_of_texts, "a table of texts"),
    "trace": (is_trace, "a list of steps with 4 numbers each"),
    "paper": NUMBER_CHECK,
    "power": NUMBER_CHECK,
}


def refuse_other_origin(line: FileLine, result: Result, origin: Origin | Result) -> None:
    """Raise unless the result of a line has this origin."""
    titles = {"suite_hash": "suite", "commit": "commit", "machine": "machine"}
    for name, title in titles.items():
        found = getattr(result, name)
        wanted = getattr(origin, name)
        if found != wanted:
            here = shorten(found)
            there = shorten(wanted)
            if name == "suite_hash":
                here += f" (suite {shorten(result.suite)})"
                there += f" (suite {shorten(origin.suite)})"
            difference = f"{here}, not {there}"
            raise line.error(
                f"is a result of another {title}: {difference}; "
                "results are not mixed, use another file"
            )


def refuse_packed(path: Path) -> None:
    """Raise if results are to be added to a packed file, which can only be read."""
    if is_packed(path):
        message = "is packed; results are added to plain files, such as RESULTS.jsonl"
        raise InputError.at(path, None, message)


def resume(
    path: Path, origin: Origin, digests: Mapping[str, str], warn: Warn
) -> dict[ResultKey, Result]:
    """Return the results that a file holds already, and cut off its incomplete end.

    Raises if a line has another origin, or if a set had other instances (`digests` by set name).
    """
    if not path.exists():
        return {}
    results, complete = scan_lines(path, warn)
    for number, result in enumerate(results, 1):
        line = FileLine(path, number)
        refuse_other_origin(line, result, origin)
        if digests.get(result.set, result.set_hash) != result.set_hash:
            raise line.error(
                f"set '{shorten(result.set)}' had other instances or references then; "
                "results are not mixed, use another file"
            )
    with path.open("r+b") as file:
        file.truncate(complete)
        file.seek(max(0, complete - 1))
        if complete and file.read(1) != b"\n":
            file.write(b"\n")
    return {result.key: result for result in results}


@contextmanager
def lock_results(path: Path) -> Generator[None, None, None]:
    """Keep other runs away from a file while the context lasts.

    The lock ends with the process, however that ends.
    """
    if path.exists() and not path.is_file():  # opening a pipe that nothing reads would block
        raise InputError.at(path, None, "cannot be written: it is not a regular file")
    try:
        file = path.open("ab")
    except OSError as error:
        raise InputError.at(path, None, f"cannot be written: {error_reason(error)}") from error
    with file:
        if not try_lock(file.fileno()):
            message = "another run is adding to this file; wait for it, or use another --out"
            raise InputError.at(path, None, message)
        yield


def try_lock(descriptor: int) -> bool:
    """Lock an open file and return whether that succeeded.

    Returns True on systems and file systems that have no locks.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def append_results(path: Path, results: Iterable[Result]) -> None:
    """Append lines to a file and return when they are on the disk."""
    lines = [json.dumps(asdict(result)) for result in results]
    text = "".join(f"{line}\n" for line in lines)
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError.at(path, None, f"cannot be written: {error_reason(error)}") from error
