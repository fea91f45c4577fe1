"""Joins the results of shards into one file, and says what is missing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rhumbline.distributed.results_file import ResultsFile, read_results
from rhumbline.errors import InputError


@dataclass
class Merged:
    """What was joined."""

    lines: int = 0
    repeated: int = 0  # instances of which a second result was left out
    failed: int = 0  # instances whose line says why they have no plan
    missing: list[int] = field(default_factory=list[int])  # places of the input, from 0


def merge_results(sources: Sequence[Path], target: Path, count: int | None = None) -> Merged:
    """Write the results of all sources, in the order of the input, to a new file.

    The sources must be of the same options. `count` is the number of instances of the input, so
    that missing ones at its end are seen as well.
    """
    if target.exists():
        raise InputError(f"{target}: exists already; choose another name")
    options = ""
    rows: dict[str, dict[str, Any]] = {}
    merged = Merged()
    for source in sources:
        for number, facts in read_results(source):
            options = options or facts["options"]
            if facts["options"] != options:
                message = "is of other options than the results before it; merge them apart"
                raise InputError.at(source, number, message)
            if facts["instance"] in rows:
                merged.repeated += 1
            else:
                rows[facts["instance"]] = facts
    ordered = sorted(rows.values(), key=lambda facts: facts.get("place", 0))
    merged.lines = len(ordered)
    merged.failed = sum("error" in facts for facts in ordered)
    merged.missing = missing_places((facts.get("place") for facts in ordered), count)
    results = ResultsFile.open(target, options)
    results.write((facts["instance"], facts) for facts in ordered)
    results.close()
    return merged


def missing_places(found: Iterable[Any], count: int | None) -> list[int]:
    """Return the places of the input that have no result."""
    places = {place for place in found if isinstance(place, int)}
    last = count if count is not None else max(places, default=-1) + 1
    return [place for place in range(last) if place not in places]
