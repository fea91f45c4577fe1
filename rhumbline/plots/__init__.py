"""Figures.

Functions take records and perhaps axes, and return axes or a figure. They read no files and open
no windows.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rhumbline.plots.canvas import require_matplotlib as require_matplotlib
from rhumbline.plots.canvas import save_figure
from rhumbline.plots.gantt import draw_gantt
from rhumbline.plots.routes import draw_routes
from rhumbline.plots.tour import draw_tour
from rhumbline.problems.cvrp import Routes
from rhumbline.problems.jssp import Schedule
from rhumbline.problems.tsp import Tour

DRAW_PLAN: dict[type[Any], Callable[..., Any]] = {
    Tour: draw_tour,
    Routes: draw_routes,
    Schedule: draw_gantt,
}


def save_plan(path: str | Path, instance: Any, plan: Any, title: str = "") -> None:
    """Draw a plan in the way of its problem and write the figure."""
    draw = DRAW_PLAN[type(plan)]
    axes = draw(instance, plan, title=title)
    save_figure(path, axes)
