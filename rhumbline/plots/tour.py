"""Drawings of TSP tours."""

from typing import TYPE_CHECKING

import numpy as np

from rhumbline.plots.canvas import (
    THEME,
    line_width,
    mark_reconstructed_positions,
    new_axes,
    plan_caption,
    positions,
    style_plan_axes,
)
from rhumbline.problems.tsp import Tour, TSPInstance

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_tour(
    instance: TSPInstance, tour: Tour, axes: "Axes | None" = None, title: str = ""
) -> "Axes":
    """Draw a closed tour, mark its start, and return the axes.

    The default title has name, cost and gap.
    """
    closed_order = [*tour.order, tour.order[0]]
    path = positions(instance)[closed_order]
    if axes is None:
        width, height = np.ptp(path, axis=0).tolist()
        axes = new_axes(width, height)
    width = line_width(len(path))
    axes.fill(*path.T, color=THEME.route, alpha=0.07, linewidth=0, zorder=0)
    axes.plot(*path.T, color=THEME.route, linewidth=width, solid_joinstyle="round", zorder=1)
    axes.scatter(*path[:-1].T, s=7.0 * width**2, color=THEME.ink, linewidths=0, zorder=2)
    axes.scatter(
        *path[:1].T,
        s=70,
        facecolors=THEME.paper,
        edgecolors=THEME.accent,
        linewidths=2.0,
        zorder=3,
        label="start",
    )
    style_plan_axes(axes, title or plan_caption(instance, tour))
    mark_reconstructed_positions(axes, instance)
    return axes
