"""Joins the results of shards into one file, and reports what is missing."""

import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from rhumbline.distributed.results_file import ResultLine, read_result_lines
from rhumbline.errors import InputError, OutputFailed
from rhumbline.formats.safe_io import error_reason


@dataclass
class Merged:
    """Counts of what was joined, and what is missing."""

    lines: int = 0
    repeated: int = 0  # instances of which a second result was left out
    failed: int = 0  # instances whose line says why they have no plan
    missing: list[int] = field(default_factory=list[int])  # places of the input, from 0


@dataclass(frozen=True, order=True)
class LinePosition:
    """Where the line of a result is. Positions sort by the place of the instance in the input."""

    place: int
    source: int  # the number of the file
    first_byte: int
    length: int


def merge_results(sources: Sequence[Path], target: Path, count: int | None = None) -> Merged:
    """Write the results of all sources, in the order of the input, to a new file.

    The sources must have the same options. `count` is the number of instances of the input, so
    that missing ones at its end are noticed. Only positions of lines are held in memory.
    """
    if target.exists():
        raise InputError(f"{target}: exists already; choose another name")
    merged = Merged()
    positions = sorted(find_lines(sources, merged))
    merged.lines = len(positions)
    merged.missing = missing_places((position.place for position in positions), count)
    try:
        write_merged(sources, positions, target)
    except OSError as error:
        raise OutputFailed(f"{target}: cannot be written: {error_reason(error)}") from error
    return merged


def find_lines(sources: Sequence[Path], merged: Merged) -> Iterable[LinePosition]:
    """Yield the position of one result for each instance, and count the others."""
    options = ""
    seen: set[str] = set()
    for source, path in enumerate(sources):
        for line in read_result_lines(path):
            options = options or line.facts["options"]
            if line.facts["options"] != options:
                message = "has other options than the results before it; merge them separately"
                raise InputError.at(path, line.number, message)
            key = line.facts["instance"]
            if key in seen:
                merged.repeated += 1
                continue
            seen.add(key)
            merged.failed += "error" in line.facts
            yield LinePosition(place_of(path, line), source, line.first_byte, line.length)


def place_of(path: Path, line: ResultLine) -> int:
    """Return the place of a line's instance in the input."""
    place = line.facts.get("place")
    if not isinstance(place, int):
        raise InputError.at(path, line.number, "has no place; expected a whole number from 0")
    return place


def write_merged(sources: Sequence[Path], positions: Sequence[LinePosition], target: Path) -> None:
    """Copy lines to a new file, which gets its name only when it is complete."""
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    files: list[BinaryIO] = []
    try:
        with temporary.open("wb") as output:
            files += [path.open("rb") for path in sources]
            for position in positions:
                file = files[position.source]
                file.seek(position.first_byte)
                output.write(file.read(position.length))
            output.flush()
            os.fsync(output.fileno())
        os.replace(temporary, target)
    finally:
        for file in files:
            file.close()
        temporary.unlink(missing_ok=True)


def missing_places(found: Iterable[int], count: int | None) -> list[int]:
    """Return the places of the input that have no result."""
    places = set(found)
    if count is None:
        last_place = max(places, default=-1)
        count = last_place + 1
    return [place for place in range(count) if place not in places]
