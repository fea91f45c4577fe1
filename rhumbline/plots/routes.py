"""Drawings of CVRP routes."""

from math import gcd
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from rhumbline.plots.canvas import (
    THEME,
    Colour,
    line_width,
    mark_reconstructed_positions,
    new_axes,
    plan_caption,
    positions,
    style_plan_axes,
)
from rhumbline.problems.cvrp import CVRPInstance, Routes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_routes(
    instance: CVRPInstance, plan: Routes, axes: "Axes | None" = None, title: str = ""
) -> "Axes":
    """Draw each route in a colour of its own and return the axes.

    The edges to and from the depot are faint.
    """
    xy = positions(instance)
    if axes is None:
        width, height = np.ptp(xy, axis=0).tolist()
        axes = new_axes(width, height)
    width = line_width(len(xy))
    for route, colour in zip(plan.routes, route_colours(xy, plan), strict=True):
        draw_route(axes, xy[list(route)], xy[0], colour, width)
    axes.scatter(
        *xy[:1].T,
        s=70,
        marker="s",
        facecolors=THEME.paper,
        edgecolors=THEME.accent,
        linewidths=2.0,
        zorder=3,
        label="depot",
    )
    caption = f"{plan_caption(instance, plan)}     {len(plan.routes)} vehicles"
    style_plan_axes(axes, title or caption)
    mark_reconstructed_positions(axes, instance)
    return axes


def draw_route(
    axes: "Axes",
    path: Float[np.ndarray, "C 2"],
    depot: Float[np.ndarray, "2"],
    colour: Colour,
    width: float,
) -> None:
    """Draw the path of a route through its customers, and its edges to the depot."""
    depot_edges = np.stack([path[-1], depot, path[0]])
    axes.plot(
        *depot_edges.T,
        color=colour,
        linewidth=0.6 * width,
        alpha=0.35,
        zorder=0,
    )
    axes.plot(
        *path.T,
        color=colour,
        linewidth=width,
        solid_joinstyle="round",
        zorder=1,
    )
    axes.scatter(
        *path.T,
        s=7.0 * width**2,
        color=THEME.ink,
        linewidths=0,
        zorder=2,
    )


def route_colours(xy: np.ndarray, plan: Routes) -> list[Colour]:
    """Return a colour for each route. Neighbours around the depot have very different hues."""
    depot = xy[0]
    offsets = [xy[list(route)].mean(axis=0) - depot for route in plan.routes]
    x, y = np.asarray(offsets).reshape(-1, 2).T
    angles = np.arctan2(y, x)
    ranks = angles.argsort().argsort().tolist()
    count = len(ranks)
    stride = hue_stride(count)
    colours: list[Colour] = []
    for rank in ranks:
        hue = rank * stride % count / count
        lightness = 0.36 if rank % 2 else 0.5
        colours.append(readable_colour(hue, lightness))
    return colours


def readable_colour(hue: float, lightness: float) -> Colour:
    """Return the colour of a hue, darkened if it would be too bright on paper, as yellow is."""
    from colorsys import hls_to_rgb

    red, green, blue = hls_to_rgb(hue, lightness, 0.65)
    luminance = 0.2126 * red + 0.7152 * green
    luminance += 0.0722 * blue
    factor = min(1.0, THEME.max_luminance / luminance)
    return red * factor, green * factor, blue * factor


def hue_stride(count: int) -> int:
    """Return how many of `count` hues to advance from a route to the next.

    The best stride goes far and does not come back to a similar hue within three routes.
    """
    best = 1
    best_separation = 0
    for stride in range(1, count):
        if gcd(stride, count) > 1:
            continue
        separation = hue_separation(stride, count)
        if separation > best_separation:
            best = stride
            best_separation = separation
    return best


def hue_separation(stride: int, count: int) -> int:
    """Return how far the hues of the next routes are, weighted by how many routes lie between."""
    separations: list[int] = []
    for step in range(1, min(4, count)):
        forward = step * stride % count
        backward = -step * stride % count
        separations.append(step * min(forward, backward))
    return min(separations)
