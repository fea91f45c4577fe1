"""Pictures of vehicle routes."""

from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from rhumbline.plots.canvas import (
    INK,
    PAPER,
    START,
    new_axes,
    plan_caption,
    positions,
    style_plan_axes,
)
from rhumbline.problems.cvrp import CVRPInstance, Routes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BRIGHTEST = 0.55  # luminance of a line, from 0 (black) to 1


def draw_routes(
    instance: CVRPInstance, plan: Routes, axes: "Axes | None" = None, title: str = ""
) -> "Axes":
    """The axes with each vehicle's route in a colour of its own; legs to and from the depot are
    faint.
    """
    xy = positions(instance)
    axes = axes if axes is not None else new_axes(*np.ptp(xy, axis=0).tolist())
    thin = float(np.clip(14.0 / np.sqrt(len(xy)), 0.6, 1.4))
    for route, colour in zip(plan.routes, route_colours(xy, plan), strict=True):
        path = xy[list(route)]
        legs = np.stack([path[-1], xy[0], path[0]])
        axes.plot(*legs.T, color=colour, linewidth=0.6 * thin, alpha=0.35, zorder=0)
        axes.plot(*path.T, color=colour, linewidth=thin, solid_joinstyle="round", zorder=1)
        axes.scatter(*path.T, s=7.0 * thin**2, color=INK, linewidths=0, zorder=2)
    axes.scatter(
        *xy[:1].T,
        s=70,
        marker="s",
        facecolors=PAPER,
        edgecolors=START,
        linewidths=2.0,
        zorder=3,
        label="depot",
    )
    style_plan_axes(
        axes, title or f"{plan_caption(instance, plan)}     {len(plan.routes)} vehicles"
    )
    return axes


def route_colours(xy: np.ndarray, plan: Routes) -> list[tuple[float, float, float]]:
    """A colour for each route; routes that are next to each other around the depot have hues far
    apart.
    """
    middles = np.asarray([xy[list(route)].mean(axis=0) - xy[0] for route in plan.routes]).reshape(
        -1, 2
    )
    rank = np.arctan2(middles[:, 1], middles[:, 0]).argsort().argsort().tolist()
    count = len(rank)
    step = hue_stride(len(rank))
    return [readable_colour(r * step % count / count, 0.36 if r % 2 else 0.5) for r in rank]


def readable_colour(hue: float, lightness: float) -> tuple[float, float, float]:
    """A hue, darkened where it would be too bright to see on paper, as yellow is."""
    from colorsys import hls_to_rgb

    red, green, blue = hls_to_rgb(hue, lightness, 0.65)
    dim = min(1.0, BRIGHTEST / (0.2126 * red + 0.7152 * green + 0.0722 * blue))
    return red * dim, green * dim, blue * dim


def hue_stride(count: int) -> int:
    """How many of so many hues to go on from a route to the next: far, and not back to a hue too
    soon.
    """

    def apart(step: int) -> int:
        return min(d * min(d * step % count, -d * step % count) for d in range(1, min(4, count)))

    return max((s for s in range(1, count) if gcd(s, count) == 1), key=apart, default=1)
