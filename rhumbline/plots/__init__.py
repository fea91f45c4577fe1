"""Figures.

Functions take records and perhaps axes, and return axes or a figure. They read no files and open
no windows.
"""

from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from rhumbline.domains import DOMAINS
from rhumbline.errors import note_once
from rhumbline.plots.canvas import has_reconstructed_positions, save_figure
from rhumbline.plots.canvas import require_matplotlib as require_matplotlib


def save_plan(path: str | Path, instance: Any, plan: Any, title: str = "") -> None:
    """Draw a plan in the way of its problem and write the figure.

    A note on stderr says once if positions had to be reconstructed.
    """
    draw = find_draw(instance.problem)
    axes = draw(instance, plan, title=title)
    save_figure(path, axes)
    if has_reconstructed_positions(instance):
        what = "files with a matrix and no coordinates"
        note_once(f"pictures of {what} show positions reconstructed from the distances")


def find_draw(problem: str) -> Callable[..., Any]:
    """Return the function that draws plans of a problem. Raises if there is none."""
    domain = DOMAINS.find(problem, "problem")
    draw = domain.require("draw", "drawing a plan")
    return resolve_name(draw)
