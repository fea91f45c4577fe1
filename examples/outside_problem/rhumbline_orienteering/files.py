"""Files: instances (.op), datasets, plans in JSON, and pictures.

An .op file has the limit in its first line, then "x y prize" for each node, the depot first.
"""

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load

from rhumbline.errors import InputError
from rhumbline.formats.dataset import write_arrays
from rhumbline.formats.safe_io import read_bytes
from rhumbline_orienteering.rules import OPBatch, OPInstance, Trip

TENSORS = frozenset({"xy", "prize", "limit"})


def read_op(path: Path) -> OPInstance:
    rows: list[np.ndarray] = []
    for number, line in enumerate(read_bytes(path).decode(errors="replace").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            row = np.array(words, dtype=float)
        except ValueError as error:
            raise InputError.at(path, number, f"'{line}': expected numbers") from error
        if not rows and (len(row) != 1 or not 0 < row[0] < np.inf):
            raise InputError.at(path, number, "expected the limit of a trip, a positive number")
        if rows and (len(row) != 3 or not np.isfinite(row).all() or row[2] not in range(10**6)):
            raise InputError.at(path, number, "expected x, y and a whole prize of 0 or more")
        rows.append(row)
    if len(rows) < 2:
        raise InputError.at(path, None, "expected the limit of a trip, then x, y and a prize")
    table = np.stack(rows[1:])
    prizes = tuple(int(prize) for prize in table[1:, 2])
    return OPInstance(path.stem, table[:, :2], (0, *prizes), float(rows[0][0]))


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
    axes.scatter(*instance.xy.T, s=instance.prizes, color=THEME.ink, linewidths=0, zorder=2)
    axes.scatter(*instance.xy[:1].T, s=70, color=THEME.accent, zorder=3)
    style_plan_axes(axes, title or plan_caption(instance, trip))
    return axes
