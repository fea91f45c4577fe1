"""TSPLIB text files: instances and tours, in and out (G. Reinelt, TSPLIB 95, section 1)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float

from rhumbline.errors import InputError
from rhumbline.formats.atomic import write_text
from rhumbline.formats.optima import best_known
from rhumbline.formats.sections import Sections, take_apart
from rhumbline.problems.metrics import Metric
from rhumbline.problems.tsp import TSP, Tour, TSPInstance

METRICS: dict[str, Metric] = {
    "EUC_2D": "EUC_2D",
    "CEIL_2D": "CEIL_2D",
    "ATT": "ATT",
    "GEO": "GEO",
    "EXPLICIT": "EXPLICIT",
}
# Rows and columns that the numbers of each matrix layout fill, in the order of the file.
LAYOUTS: dict[str, Callable[[int], tuple[np.ndarray, ...]]] = {
    "FULL_MATRIX": lambda size: tuple(np.indices((size, size)).reshape(2, -1)),
    "UPPER_ROW": lambda size: np.triu_indices(size, 1),
    "LOWER_ROW": lambda size: np.tril_indices(size, -1),
    "UPPER_DIAG_ROW": np.triu_indices,
    "LOWER_DIAG_ROW": np.tril_indices,
}
SECTIONS = ("NODE_COORD_SECTION", "EDGE_WEIGHT_SECTION", "DISPLAY_DATA_SECTION")


def read_tsp(path: Path) -> TSPInstance:
    """The instance of a TSPLIB file, with its best known cost if an `optima.json` in the same folder has it."""
    file = take_apart(path, SECTIONS)
    check_type(file, "TSP")
    size = dimension(file)
    metric = file.choice("EDGE_WEIGHT_TYPE", METRICS)
    name = instance_name(file)
    known = best_known(path.parent, name)
    if metric == "EXPLICIT":
        return TSPInstance(name, metric, picture(file, size), weights(file, size), best_known=known)
    numbers, xy = coordinates(file, "NODE_COORD_SECTION", size)
    usual = numbers == tuple(range(1, size + 1))
    return TSPInstance(name, metric, xy, numbers=() if usual else numbers, best_known=known)


def check_type(file: Sections, expected: str) -> None:
    """Raise unless the file says this type, or none."""
    line, value = file.headers.get("TYPE", (None, ""))
    word = value.split(maxsplit=1)[0].upper() if value else expected
    if word != expected:
        advice = "rhumb reads symmetric TSP files here" if expected == "TSP" else "name a tour file"
        raise file.error(line, f"TYPE is {word[:40]!r}, expected {expected}; {advice}")


def dimension(file: Sections) -> int:
    """The number of cities, within what the package solves."""
    if "DIMENSION" not in file.headers:
        raise file.error(None, "DIMENSION is missing, expected 'DIMENSION : ' and the number of cities")
    line, word = file.headers["DIMENSION"]
    size = file.whole(line, word, "the number of cities after DIMENSION")
    if not 1 <= size <= TSP.largest:
        raise file.error(line, f"DIMENSION is {size}, expected 1 to {TSP.largest} cities, the limit of this package")
    return size


def instance_name(file: Sections) -> str:
    """The file's NAME, or the name of the file; ulysses22 calls itself 'ulysses22.tsp'."""
    _, name = file.headers.get("NAME", (None, ""))
    return name.removesuffix(".tsp") or file.path.stem


def coordinates(file: Sections, key: str, size: int) -> tuple[tuple[int, ...], Float[np.ndarray, "N 2"]]:
    """Node numbers and positions of a section, in the order of its rows."""
    start, rows = file.section(key)
    if len(rows) != size:
        raise file.error(start, f"{key} has {len(rows)} rows, DIMENSION says {size}; correct one of them")
    seen: dict[int, int] = {}
    xy = np.empty((size, 2))
    for place, (line, words) in enumerate(rows):
        if len(words) != 3:
            raise file.error(line, f"read {len(words)} words, expected three: a node number, x and y")
        file.once(seen, file.whole(line, words[0], "a node number"), line)
        xy[place] = [file.number(line, word) for word in words[1:]]
    return tuple(seen), xy


def picture(file: Sections, size: int) -> Float[np.ndarray, "N 2"] | None:
    """Positions for drawing an instance given by a matrix, in the order of node numbers as its rows are."""
    for key in ("DISPLAY_DATA_SECTION", "NODE_COORD_SECTION"):
        if key in file.rows:
            numbers, xy = coordinates(file, key, size)
            return xy[np.argsort(numbers)]
    return None


def weights(file: Sections, size: int) -> Float[np.ndarray, "N N"]:
    """The matrix of an EXPLICIT file."""
    rows, columns = file.choice("EDGE_WEIGHT_FORMAT", LAYOUTS)(size)
    start, lines = file.section("EDGE_WEIGHT_SECTION")
    values = np.array([file.number(line, word) for line, words in lines for word in words], dtype=np.float64)
    if len(values) != len(rows):
        layout = f"{file.headers['EDGE_WEIGHT_FORMAT'][1]} of DIMENSION {size}"
        raise file.error(start, f"EDGE_WEIGHT_SECTION has {len(values)} numbers, {layout} needs {len(rows)}")
    values[rows == columns] = 0.0  # files put anything there, such as 9999; no tour goes from a city to itself
    matrix = np.zeros((size, size))
    matrix[columns, rows] = values
    matrix[rows, columns] = values
    check_weights(file, values, matrix[columns, rows])
    return matrix


def check_weights(file: Sections, values: Float[np.ndarray, "E"], mirrored: Float[np.ndarray, "E"]) -> None:
    """Raise at the first weight that is negative or differs from that of the way back."""
    wrong = np.flatnonzero((values < 0) | (values != mirrored))
    if not len(wrong):
        return
    lines = [line for line, words in file.rows["EDGE_WEIGHT_SECTION"] for _ in words]
    value, back = values[wrong[0]], mirrored[wrong[0]]
    if value < 0:
        raise file.error(lines[wrong[0]], f"weight {value:g} is negative, expected distances of 0 or more")
    message = f"weight {value:g} is not symmetric, the way back has {back:g}; only symmetric problems are supported"
    raise file.error(lines[wrong[0]], message)


def read_tour(path: Path, instance: TSPInstance) -> Tour:
    """The tour of a TSPLIB tour file, which must visit each city of the instance once."""
    file = take_apart(path, ("TOUR_SECTION",))
    check_type(file, "TOUR")
    city = {number: index for index, number in enumerate(instance.node_numbers)}
    seen: dict[int, int] = {}
    for line, word in tour_words(file):
        number = file.whole(line, word, "a node number or -1")
        if number not in city:
            raise file.error(line, f"node {number} is not in {instance.name}; is this the tour of another instance?")
        file.once(seen, number, line)
    if len(seen) != instance.size:
        start, _ = file.section("TOUR_SECTION")
        raise file.error(start, f"TOUR_SECTION has {len(seen)} nodes, {instance.name} has {instance.size} cities")
    return Tour(tuple(city[number] for number in seen))


def tour_words(file: Sections) -> list[tuple[int, str]]:
    """Line and word of each entry up to the -1 that ends a tour; only further -1 may follow."""
    _, rows = file.section("TOUR_SECTION")
    entries = [(line, word) for line, words in rows for word in words]
    end = next((place for place, (_, word) in enumerate(entries) if word == "-1"), len(entries))
    for line, word in entries[end:]:
        if word != "-1":
            raise file.error(line, f"read {word[:40]!r} behind the -1 that ends the tour, expected a single tour")
    return entries[:end]


def write_tour(path: Path, tour: Tour, instance: TSPInstance, comment: str) -> None:
    """Check a tour and write it in the instance's own node numbers."""
    tour.check(instance)
    write_text(path, "\n".join([*header(instance, "TOUR", comment), "TOUR_SECTION", *tour_rows(tour, instance)]))


def tour_rows(tour: Tour, instance: TSPInstance) -> Iterator[str]:
    """One node per line and the two ends."""
    yield from map(str, tour.numbered(instance))
    yield from ("-1", "EOF", "")


def write_tsp(path: Path, instance: TSPInstance, comment: str = "") -> None:
    """Write an instance, matrices in full. The unrounded metric of arrays has no name in TSPLIB and is refused."""
    if instance.metric not in METRICS:
        message = f"TSPLIB has no word for the metric {instance.metric}; write a dataset (.safetensors) instead"
        raise InputError.at(path, None, message)
    lines = [*header(instance, "TSP", comment), f"EDGE_WEIGHT_TYPE : {instance.metric}", *instance_rows(instance)]
    write_text(path, "\n".join([*lines, "EOF", ""]))


def instance_rows(instance: TSPInstance) -> Iterator[str]:
    """The sections of an instance file."""
    if instance.matrix is not None:
        yield from ("EDGE_WEIGHT_FORMAT : FULL_MATRIX", "EDGE_WEIGHT_SECTION")
        yield from map(plain, instance.matrix)
    if instance.xy is not None:
        yield "NODE_COORD_SECTION" if instance.matrix is None else "DISPLAY_DATA_SECTION"
        yield from (f"{n} {plain(row)}" for n, row in zip(instance.node_numbers, instance.xy, strict=True))


def header(instance: TSPInstance, kind: str, comment: str) -> Iterator[str]:
    """The lines that instances and tours share; names and comments lose their line breaks."""
    values = {"NAME": instance.name, "COMMENT": comment, "TYPE": kind, "DIMENSION": str(instance.size)}
    return (f"{key} : {' '.join(value.split())}".rstrip() for key, value in values.items())


def plain(values: np.ndarray) -> str:
    """Numbers that read back equal, whole ones without a point."""
    return " ".join(str(int(v)) if v == int(v) else repr(float(v)) for v in values)
