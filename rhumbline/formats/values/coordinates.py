"""Read positions and distance matrices as TSPLIB and VRPLIB files give them."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from rhumbline.formats.sections import Sections

# Rows and columns that the numbers of each matrix layout fill, in the order of the file.
MATRIX_LAYOUTS: dict[str, Callable[[int], tuple[np.ndarray, ...]]] = {
    "FULL_MATRIX": lambda size: tuple(np.indices((size, size)).reshape(2, -1)),
    "UPPER_ROW": lambda size: np.triu_indices(size, 1),
    "LOWER_ROW": lambda size: np.tril_indices(size, -1),
    "UPPER_DIAG_ROW": np.triu_indices,
    "LOWER_DIAG_ROW": np.tril_indices,
}


def read_coordinates(
    file: Sections, key: str, size: int
) -> tuple[tuple[int, ...], Float[np.ndarray, "N 2"]]:
    """Read node numbers and positions of a section, in the order of its rows."""
    start, rows = file.section(key)
    count = len(rows)
    if count != size:
        found = f"{key} has {count} rows, DIMENSION says {size}"
        raise file.error(start, f"{found}; correct one of them")
    seen: dict[int, int] = {}
    xy = np.empty((size, 2))
    for index, (line, words) in enumerate(rows):
        if len(words) != 3:
            found = f"read {len(words)} words"
            expected = "expected three: a node number, x and y"
            raise file.error(line, f"{found}, {expected}")
        number, x, y = words
        node = file.parse_integer(line, number, "a node number")
        file.note_once(seen, node, line)
        xy[index, 0] = file.parse_number(line, x)
        xy[index, 1] = file.parse_number(line, y)
    return tuple(seen), xy


def read_display_positions(
    file: Sections, size: int
) -> tuple[tuple[int, ...], Float[np.ndarray, "N 2"]] | None:
    """Read node numbers and positions for drawing an EXPLICIT instance, or None without any.

    They are sorted by node number, as the rows of the matrix are.
    """
    for key in ("DISPLAY_DATA_SECTION", "NODE_COORD_SECTION"):
        if key in file.rows:
            numbers, xy = read_coordinates(file, key, size)
            order = np.argsort(numbers)
            ascending = tuple(sorted(numbers))
            return ascending, xy[order]
    return None


def read_weight_matrix(file: Sections, size: int) -> Float[np.ndarray, "N N"]:
    """Read the symmetric distance matrix of an EXPLICIT file."""
    layout = file.choice("EDGE_WEIGHT_FORMAT", MATRIX_LAYOUTS)
    rows, columns = layout(size)
    start, lines = file.section("EDGE_WEIGHT_SECTION")
    numbers: list[float] = []
    for line, words in lines:
        numbers += [file.parse_number(line, word) for word in words]
    values = np.array(numbers, dtype=np.float64)
    if len(values) != len(rows):
        _, layout_name = file.headers["EDGE_WEIGHT_FORMAT"]
        found = f"EDGE_WEIGHT_SECTION has {len(values)} numbers"
        needed = f"{layout_name} of DIMENSION {size} needs {len(rows)}"
        raise file.error(start, f"{found}, {needed}")
    # Files write anything on the diagonal, such as 9999; no tour goes from a city to itself.
    values[rows == columns] = 0.0
    matrix = np.zeros((size, size))
    matrix[columns, rows] = values
    matrix[rows, columns] = values
    check_weights(file, values, matrix[columns, rows])
    return matrix


def check_weights(
    file: Sections, values: Float[np.ndarray, "E"], mirrored: Float[np.ndarray, "E"]
) -> None:
    """Raise at the first weight that is negative or differs from that of the way back."""
    wrong = np.flatnonzero((values < 0) | (values != mirrored))
    if not len(wrong):
        return
    lines = [line for line, words in file.rows["EDGE_WEIGHT_SECTION"] for _ in words]
    first = wrong[0]
    value = values[first]
    if value < 0:
        message = f"weight {value:g} is negative, expected distances of 0 or more"
    else:
        found = f"weight {value:g} is not symmetric, the way back has {mirrored[first]:g}"
        message = f"{found}; only symmetric problems are supported"
    raise file.error(lines[first], message)
