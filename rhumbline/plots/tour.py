"""Pictures of tours."""

from typing import TYPE_CHECKING

import numpy as np

from rhumbline.plots.canvas import (
    INK,
    PAPER,
    ROUTE,
    START,
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
    """The axes with a closed tour; its start is marked. Without a title: name, cost and gap."""
    path = positions(instance)[[*tour.order, tour.order[0]]]
    axes = axes if axes is not None else new_axes(*np.ptp(path, axis=0).tolist())
    thin = float(np.clip(14.0 / np.sqrt(len(path)), 0.6, 1.4))  # small instances bear bolder lines
    axes.fill(*path.T, color=ROUTE, alpha=0.07, linewidth=0, zorder=0)
    axes.plot(*path.T, color=ROUTE, linewidth=thin, solid_joinstyle="round", zorder=1)
    axes.scatter(*path[:-1].T, s=7.0 * thin**2, color=INK, linewidths=0, zorder=2)
    axes.scatter(
        *path[:1].T,
        s=70,
        facecolors=PAPER,
        edgecolors=START,
        linewidths=2.0,
        zorder=3,
        label="start",
    )
    style_plan_axes(axes, title or plan_caption(instance, tour))
    return axes
