"""TSPLIB text files: instances and tours, in and out (G. Reinelt, TSPLIB 95, section 1)."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rhumbline.errors import InputError
from rhumbline.formats.best_known import read_best_known
from rhumbline.formats.coordinates import (
    read_coordinates,
    read_display_positions,
    read_weight_matrix,
)
from rhumbline.formats.safe_io import write_text
from rhumbline.formats.sections import read_sections
from rhumbline.problems.metrics import Metric
from rhumbline.problems.tsp import TSP, Tour, TSPInstance

TSPLIB_METRICS: dict[str, Metric] = {
    "EUC_2D": "EUC_2D",
    "CEIL_2D": "CEIL_2D",
    "ATT": "ATT",
    "GEO": "GEO",
    "EXPLICIT": "EXPLICIT",
}
TSPLIB_SECTIONS = ("NODE_COORD_SECTION", "EDGE_WEIGHT_SECTION", "DISPLAY_DATA_SECTION")


def read_tsp(path: Path) -> TSPInstance:
    """The instance of a TSPLIB file, with its best known cost if an `optima.json` in the same
    folder has it.
    """
    file = read_sections(path, TSPLIB_SECTIONS)
    file.check_type("TSP", "rhumb reads symmetric TSP files here")
    size = file.dimension(1, TSP.max_size, "cities")
    metric = file.choice("EDGE_WEIGHT_TYPE", TSPLIB_METRICS)
    name = file.name()
    known = read_best_known(path.parent, name)
    if metric == "EXPLICIT":
        _, drawn = read_display_positions(file, size) or (None, None)
        return TSPInstance(name, metric, drawn, read_weight_matrix(file, size), best_known=known)
    numbers, xy = read_coordinates(file, "NODE_COORD_SECTION", size)
    usual = numbers == tuple(range(1, size + 1))
    return TSPInstance(name, metric, xy, numbers=() if usual else numbers, best_known=known)


def read_tour(path: Path, instance: TSPInstance) -> Tour:
    """The tour of a TSPLIB tour file, which must visit each city of the instance once."""
    file = read_sections(path, ("TOUR_SECTION",))
    file.check_type("TOUR", "name a tour file")
    city = {number: index for index, number in enumerate(instance.node_numbers)}
    seen: dict[int, int] = {}
    for line, word in file.words_to_end("TOUR_SECTION", "the tour, expected a single tour"):
        number = file.whole(line, word, "a node number or -1")
        if number not in city:
            raise file.error(
                line,
                f"node {number} is not in {instance.name}; is this the tour of another instance?",
            )
        file.once(seen, number, line)
    if len(seen) != instance.size:
        start, _ = file.section("TOUR_SECTION")
        raise file.error(
            start, f"TOUR_SECTION has {len(seen)} nodes, {instance.name} has {instance.size} cities"
        )
    return Tour(tuple(city[number] for number in seen))


def write_tour(path: Path, tour: Tour, instance: TSPInstance, comment: str) -> None:
    """Check a tour and write it in the instance's own node numbers."""
    tour.check(instance)
    write_text(
        path,
        "\n".join(
            [*header_lines(instance, "TOUR", comment), "TOUR_SECTION", *tour_rows(tour, instance)]
        ),
    )


def tour_rows(tour: Tour, instance: TSPInstance) -> Iterator[str]:
    """One node per line and the two ends."""
    yield from map(str, tour.to_file_numbers(instance))
    yield from ("-1", "EOF", "")


def write_tsp(path: Path, instance: TSPInstance, comment: str = "") -> None:
    """Write an instance, matrices in full. The unrounded metric of arrays has no name in TSPLIB
    and is refused.
    """
    if instance.metric not in TSPLIB_METRICS:
        message = f"TSPLIB has no word for the metric {instance.metric}; write a dataset (.safetensors) instead"
        raise InputError.at(path, None, message)
    lines = [
        *header_lines(instance, "TSP", comment),
        f"EDGE_WEIGHT_TYPE : {instance.metric}",
        *instance_rows(instance),
    ]
    write_text(path, "\n".join([*lines, "EOF", ""]))


def instance_rows(instance: TSPInstance) -> Iterator[str]:
    """The sections of an instance file."""
    if instance.matrix is not None:
        yield from ("EDGE_WEIGHT_FORMAT : FULL_MATRIX", "EDGE_WEIGHT_SECTION")
        yield from map(format_numbers, instance.matrix)
    if instance.xy is not None:
        yield "NODE_COORD_SECTION" if instance.matrix is None else "DISPLAY_DATA_SECTION"
        yield from (
            f"{n} {format_numbers(row)}"
            for n, row in zip(instance.node_numbers, instance.xy, strict=True)
        )


def header_lines(instance: TSPInstance, kind: str, comment: str) -> Iterator[str]:
    """The lines that instances and tours share; names and comments lose their line breaks."""
    values = {
        "NAME": instance.name,
        "COMMENT": comment,
        "TYPE": kind,
        "DIMENSION": str(instance.size),
    }
    return (f"{key} : {' '.join(value.split())}".rstrip() for key, value in values.items())


def format_numbers(values: np.ndarray) -> str:
    """Numbers that read back equal, whole ones without a point."""
    return " ".join(str(int(v)) if v == int(v) else repr(float(v)) for v in values)
