"""TSPLIB text files: read and write instances and tours (G. Reinelt, TSPLIB 95, section 1)."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rhumbline.errors import InputError, escape_controls, shorten
from rhumbline.formats.best_known import read_best_known
from rhumbline.formats.safe_io import write_text
from rhumbline.formats.sections import SizeLimits, read_sections, text_lines
from rhumbline.formats.values.coordinates import (
    read_coordinates,
    read_display_positions,
    read_weight_matrix,
)
from rhumbline.problems.metrics import Metric
from rhumbline.problems.tsp import Tour, TSPInstance
from rhumbline.problems.tsp.instance import MAX_CITIES

TSPLIB_METRICS: dict[str, Metric] = {
    "EUC_2D": "EUC_2D",
    "CEIL_2D": "CEIL_2D",
    "ATT": "ATT",
    "GEO": "GEO",
    "EXPLICIT": "EXPLICIT",
}


def read_tsp(path: Path) -> TSPInstance:
    """Read a TSPLIB instance, with its best known cost if an `optima.json` beside it has one."""
    sections = ("NODE_COORD_SECTION", "EDGE_WEIGHT_SECTION", "DISPLAY_DATA_SECTION")
    sizes = SizeLimits(1, MAX_CITIES, "cities")
    file = read_sections(path, sections, sizes)
    file.check_type("TSP", "rhumb reads symmetric TSP files here")
    size = file.dimension(sizes)
    metric = file.choice("EDGE_WEIGHT_TYPE", TSPLIB_METRICS)
    name = file.name()
    known = read_best_known(path.parent, name)
    if metric == "EXPLICIT":
        _, display_xy = read_display_positions(file, size) or (None, None)
        matrix = read_weight_matrix(file, size)
        return TSPInstance(name, metric, display_xy, matrix, best_known=known)
    numbers, xy = read_coordinates(file, "NODE_COORD_SECTION", size)
    if numbers == tuple(range(1, size + 1)):
        numbers = ()  # the default
    return TSPInstance(name, metric, xy, numbers=numbers, best_known=known)


def read_tour(path: Path, instance: TSPInstance) -> Tour:
    """Read a TSPLIB tour file, which must visit each city of the instance once."""
    file = read_sections(path, ("TOUR_SECTION",))
    file.check_type("TOUR", "name a tour file")
    numbered = enumerate(instance.node_numbers)
    city_of = {number: index for index, number in numbered}
    entries = file.words_to_end("TOUR_SECTION", "the tour, expected a single tour")
    seen: dict[int, int] = {}
    for line, word in entries:
        number = file.parse_integer(line, word, "a node number or -1")
        if number not in city_of:
            found = f"node {number} is not in {shorten(instance.name)}"
            raise file.violation(line, f"{found}; is this the tour of another instance?")
        if number in seen:
            found = f"node {number} is given twice, first on line {seen[number]}"
            raise file.violation(line, f"{found}; expected each node once")
        seen[number] = line
    if len(seen) != instance.size:
        start, _ = file.section("TOUR_SECTION")
        found = f"TOUR_SECTION has {len(seen)} nodes"
        expected = f"{shorten(instance.name)} has {instance.size} cities"
        raise file.violation(start, f"{found}, {expected}")
    return Tour(tuple(city_of[number] for number in seen))


def write_tour(path: Path, tour: Tour, instance: TSPInstance, comment: str) -> None:
    """Check a tour and write it in the instance's own node numbers."""
    tour.check(instance)
    header = header_lines(instance, "TOUR", comment)
    lines = [*header, "TOUR_SECTION", *tour_rows(tour, instance)]
    write_text(path, "\n".join(lines))


def tour_rows(tour: Tour, instance: TSPInstance) -> Iterator[str]:
    """Yield one node per line, then both end marks."""
    yield from map(str, tour.to_file_numbers(instance))
    yield from ("-1", "EOF", "")


def write_tsp(path: Path, instance: TSPInstance, comment: str = "") -> None:
    """Write an instance, with a matrix in full.

    TSPLIB has no name for the unrounded metric of arrays, which is therefore refused.
    """
    if instance.metric not in TSPLIB_METRICS:
        found = f"TSPLIB has no word for the metric {instance.metric}"
        message = f"{found}; write a dataset (.safetensors) instead"
        raise InputError.at(path, None, message)
    header = header_lines(instance, "TSP", comment)
    metric = f"EDGE_WEIGHT_TYPE : {instance.metric}"
    lines = [*header, metric, *instance_rows(instance), "EOF", ""]
    write_text(path, "\n".join(lines))


def instance_rows(instance: TSPInstance) -> Iterator[str]:
    """Yield the lines of the sections of an instance file."""
    if instance.matrix is not None:
        yield from ("EDGE_WEIGHT_FORMAT : FULL_MATRIX", "EDGE_WEIGHT_SECTION")
        yield from map(format_numbers, instance.matrix)
    if instance.xy is not None:
        yield "NODE_COORD_SECTION" if instance.matrix is None else "DISPLAY_DATA_SECTION"
        for number, position in zip(instance.node_numbers, instance.xy, strict=True):
            yield f"{number} {format_numbers(position)}"


def header_lines(instance: TSPInstance, kind: str, comment: str) -> Iterator[str]:
    """Yield the header lines of an instance or a tour; values lose their line breaks."""
    values = {
        "NAME": instance.name,
        "COMMENT": comment,
        "TYPE": kind,
        "DIMENSION": str(instance.size),
    }
    for key, value in values.items():
        one_line = tidy_header(value)
        yield f"{key} : {one_line}".rstrip()


def tidy_header(value: str) -> str:
    """Return the value of a header on one line, with single spaces and visible controls.

    A name that was written and read again is the same for this function.
    """
    one_line = " ".join(value.split())
    return escape_controls(one_line)


def format_numbers(values: np.ndarray) -> str:
    """Return numbers that read back equal; whole ones have no decimal point."""
    words: list[str] = []
    for value in values:
        whole = int(value)
        is_whole = value == whole
        word = str(whole) if is_whole else repr(float(value))
        words.append(word)
    return " ".join(words)


def read_named_tour(path: Path, instance: TSPInstance) -> Tour:
    """Read a tour that does not say that it belongs to another instance."""
    check_tour_name(path, instance.name)
    return read_tour(path, instance)


def check_tour_name(path: Path, name: str) -> None:
    """Raise if a tour names another instance: any tour of the same size would be feasible.

    Tours are named kroA100, kroA100.tour or kroA100.opt.tour. An instance made from an array has no
    name to compare.
    """
    wanted = comparable_name(name)
    if not wanted or name.startswith("array"):
        return
    for number, line in text_lines(path):
        key, _, value = line.partition(":")
        title = key.strip().upper()
        if title != "NAME":
            continue
        found = comparable_name(value)
        if found not in ("", wanted):
            stem = tidy_header(value).split(".")[0]
            shown = shorten(stem)
            advice = "if it fits all the same, take out this line"
            message = f"is a tour of {shown}, not of {shorten(name)}; {advice}"
            raise InputError.at(path, number, message)


def comparable_name(name: str) -> str:
    """Return what the names of an instance and of its tours have in common."""
    first = name.split(".", maxsplit=1)[0]
    tidy = tidy_header(first)
    return tidy.lower()
