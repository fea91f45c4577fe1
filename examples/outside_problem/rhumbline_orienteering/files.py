"""Files: instances (.op), trips (.trip), datasets, and pictures.

An .op file has the limit in its first line, then "x y prize" for each node, the depot first. A
.trip file has a customer in each line, counted from 1 in the order of the .op file.
"""

from pathlib import Path
from typing import Any

import numpy as np
from rhumbline.errors import Infeasible, InputError
from rhumbline.formats.dataset import write_arrays
from rhumbline.formats.safe_io import read_bytes, write_text
from safetensors.numpy import load

from rhumbline_orienteering.instance import OPInstance, Trip
from rhumbline_orienteering.rules import OPBatch

TENSORS = frozenset({"xy", "prize", "limit"})


def rows_of(path: Path) -> list[tuple[int, list[float]]]:
    """Return the numbers of each line that has any, with its number in the file."""
    rows = []
    for number, line in enumerate(read_bytes(path).decode(errors="replace").splitlines(), 1):
        words = line.partition("#")[0].split()
        try:
            values = [float(word) for word in words]
        except ValueError as error:
            raise InputError.at(path, number, f"'{line.strip()}': expected numbers") from error
        if values:
            rows.append((number, values))
    return rows


def read_op(path: Path) -> OPInstance:
    (first, limit), *nodes = rows_of(path)
    if len(limit) != 1 or not 0 < limit[0] < np.inf or not nodes:
        raise InputError.at(path, first, "expected the limit of a trip, a positive number")
    for number, values in nodes:
        is_whole = len(values) == 3 and np.isfinite(values).all() and values[2] == int(values[2])
        if not is_whole or values[2] < 0:
            raise InputError.at(path, number, "expected x, y and a whole prize of 0 or more")
    table = np.array([values for _, values in nodes])
    prizes = tuple(int(prize) for prize in table[:, 2])
    return OPInstance(path.stem, table[:, :2], (0, *prizes[1:]), limit[0])


def write_trip(path: Path, trip: Trip, instance: OPInstance, comment: str) -> None:
    lines = [f"# {instance.name}: {comment}", *map(str, trip.customers)]
    write_text(path, "\n".join(lines) + "\n")


def read_trip(path: Path, instance: OPInstance) -> Trip:
    trip = Trip(tuple(int(values[0]) for _, values in rows_of(path)))
    try:
        trip.check(instance)
    except Infeasible as error:
        raise InputError.at(path, None, f"is no plan for {error}") from error
    return trip


def parse_trip(numbers: Any, instance: OPInstance) -> Trip:
    return Trip(tuple(map(int, numbers)))


def save_dataset(path: Path, batch: OPBatch, about: dict[str, str]) -> None:
    prize = (batch.prize * batch.scale[:, None]).round().int()
    arrays = {"xy": batch.xy.numpy(), "prize": prize.numpy(), "limit": batch.limit.numpy()}
    write_arrays(path, arrays, about)


def load_dataset(path: Path) -> list[OPInstance]:
    arrays = load(read_bytes(path))
    rows = zip(arrays["xy"].astype(float), arrays["prize"].tolist(), arrays["limit"], strict=True)
    return [
        OPInstance(f"{path.stem}-{number:04}", xy, tuple(prizes), float(limit))
        for number, (xy, prizes, limit) in enumerate(rows, 1)
    ]


def draw_trip(instance: OPInstance, trip: Trip, axes: Any = None, title: str = "") -> Any:
    from rhumbline.plots.canvas import THEME, new_axes, plan_caption, style_plan_axes

    axes = axes or new_axes(*np.ptp(instance.xy, axis=0).tolist())
    walk = instance.xy[[0, *trip.customers, 0]]
    axes.plot(*walk.T, color=THEME.route, zorder=1)
    sizes = [4.0 + prize for prize in instance.prizes]
    axes.scatter(*instance.xy.T, s=sizes, color=THEME.ink, linewidths=0, zorder=2)
    axes.scatter(*instance.xy[:1].T, s=70, color=THEME.accent, zorder=3)
    style_plan_axes(axes, title or plan_caption(instance, trip))
    return axes
