"""Landscapes of two-dimensional latent spaces, with the way of a search through them."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from rhumbline.plots.canvas import INK, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THINNEST, WIDEST = 0.6, 6.0  # line widths of the path
LETTERS = 9.5  # of a title, to an inch
RIM = 1.6  # by how much the dark line under the path is wider
MARGIN = 0.04  # of the width of the view, between its edge and a path that leaves the grid
NOWHERE = "#d8d6d0"  # beyond the grid
BOX = ([-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1])  # where latents were trained


@dataclass(frozen=True)
class Landscape:
    """The cost of each latent of a grid for one instance, and successive means of a search with
    its deviations.
    """

    name: str
    axis: Float[np.ndarray, "G"]  # coordinates of the grid, both ways
    cost: Float[np.ndarray, "G G"]  # [y, x]
    means: Float[np.ndarray, "T 2"]
    deviation: Float[np.ndarray, "T"]  # of the search, in units of the space


def draw_landscapes(landscapes: Sequence[Landscape], title: str = "") -> "Figure":
    """A panel for each instance, up to four in a row, each with its own scale of costs."""
    columns = min(4, len(landscapes))
    rows = -(-len(landscapes) // columns)
    size = 3.2 if columns > 1 else 5.6
    figure = new_figure(size * columns + 0.9, size * rows + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, landscape in zip(panels, landscapes, strict=False):
        draw_landscape(axes, landscape)
    for axes in panels[len(landscapes) :]:
        axes.set_axis_off()
    if title:
        title = fill(title, int(figure.get_figwidth() * LETTERS))
        figure.suptitle(title, color=INK, fontsize=12, x=0.01, ha="left", parse_math=False)
    return figure


def draw_landscape(axes: "Axes", landscape: Landscape) -> None:
    """Costs as a heat map with its scale, the way of the search, and the box; grey is where
    nothing was computed.
    """
    low, high = grid_extent(landscape)
    image = axes.imshow(
        landscape.cost,
        origin="lower",
        extent=(low, high, low, high),
        cmap="viridis_r",
        interpolation="nearest",
    )
    draw_path(axes, landscape)
    axes.plot(*BOX, color=INK, linewidth=0.8, linestyle="--")
    style_landscape_axes(axes, landscape)
    figure = axes.get_figure()
    if figure is not None:
        bar = figure.colorbar(image, ax=axes, shrink=0.82, pad=0.02)
        bar.ax.tick_params(labelsize=7)
        bar.set_label("cost (lower is better)", fontsize=7, color=INK)


def grid_extent(landscape: Landscape) -> tuple[float, float]:
    """Where the pixels of the grid begin and end; each is centred on its latent."""
    half = 0.5 * (landscape.axis[1] - landscape.axis[0])
    return float(landscape.axis[0] - half), float(landscape.axis[-1] + half)


def draw_path(axes: "Axes", landscape: Landscape) -> None:
    """The means as white crosses, joined by a line as wide as the search is; white has a rim, to
    be seen on yellow.
    """
    widths = THINNEST + (WIDEST - THINNEST) * landscape.deviation / max(
        float(landscape.deviation.max()), 1e-12
    )
    pairs = np.stack(
        [landscape.means[:-1], landscape.means[1:]], axis=2
    )  # [steps, x and y, here and there]
    for colour, rim in ((INK, RIM), ("white", 0.0)):
        for (x, y), width in zip(pairs, widths[:-1].tolist(), strict=True):
            axes.plot(x, y, color=colour, linewidth=width + rim, solid_capstyle="round", zorder=2)
    axes.scatter(*landscape.means.T, marker="x", s=34, color=INK, linewidths=2.4, zorder=3)
    axes.scatter(*landscape.means.T, marker="x", s=26, color="white", linewidths=1.2, zorder=4)


def style_landscape_axes(axes: "Axes", landscape: Landscape) -> None:
    """Labels, and limits that hold the grid and the whole path."""
    across, up = view_limits(landscape)
    axes.set(
        xlim=across,
        ylim=up,
        xticks=integer_ticks(*across),
        yticks=integer_ticks(*up),
        facecolor=NOWHERE,
    )
    axes.tick_params(labelsize=8)
    axes.set_xlabel("latent 1", fontsize=8, color=INK, labelpad=1)
    axes.set_ylabel("latent 2", fontsize=8, color=INK, labelpad=1)
    axes.set_title(landscape.name, fontsize=9, color=INK, parse_math=False)


def view_limits(landscape: Landscape) -> list[tuple[float, float]]:
    """Limits of both axes, equally wide: those of the grid, or as far as the search went and a
    little more.
    """
    low, high = grid_extent(landscape)
    needed = [extend_limits(way, low, high) for way in landscape.means.T]
    widest = max(end - begin for begin, end in needed)
    spare = [0.5 * (widest - (end - begin)) for begin, end in needed]
    return [(begin - more, end + more) for (begin, end), more in zip(needed, spare, strict=True)]


def extend_limits(way: Float[np.ndarray, "T"], low: float, high: float) -> tuple[float, float]:
    """The limits of the grid, moved outwards on the sides where the search has left it."""
    margin = MARGIN * (high - low)
    least = float(way.min())
    most = float(way.max())
    return (least - margin if least < low else low), (most + margin if most > high else high)


def integer_ticks(low: float, high: float) -> list[float]:
    """Ticks: whole numbers, not too many, 0 among them if it is there."""
    step = max(1.0, np.ceil((high - low) / 8.0))
    return (step * np.arange(np.ceil(low / step), np.floor(high / step) + 1.0)).tolist()
