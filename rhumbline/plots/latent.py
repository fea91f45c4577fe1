"""Landscapes of two-dimensional latent spaces, with the way of a search through them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from rhumbline.plots.canvas import INK, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THINNEST, WIDEST = 0.6, 6.0  # line widths of the path
BOX = ([-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1])  # where latents were trained


@dataclass(frozen=True)
class Landscape:
    """The cost of each latent of a grid for one instance, and successive means of a search with its deviations."""

    name: str
    axis: Float[np.ndarray, "G"]  # coordinates of the grid, both ways
    cost: Float[np.ndarray, "G G"]  # [y, x]
    means: Float[np.ndarray, "T 2"]
    deviation: Float[np.ndarray, "T"]  # of the search, in units of the space


def draw_landscapes(landscapes: Sequence[Landscape], title: str = "") -> "Figure":
    """A panel for each instance, up to four in a row, each with its own scale of costs."""
    columns = min(4, len(landscapes))
    rows = -(-len(landscapes) // columns)
    size = 3.0 if columns > 1 else 5.6
    figure = new_figure(size * columns + 0.9, size * rows + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, landscape in zip(panels, landscapes, strict=False):
        draw_landscape(axes, landscape)
    for axes in panels[len(landscapes) :]:
        axes.set_axis_off()
    if title:
        figure.suptitle(title, color=INK, fontsize=12, x=0.01, ha="left", parse_math=False)
    return figure


def draw_landscape(axes: "Axes", landscape: Landscape) -> None:
    """Costs as a heat map; the means as white crosses, joined by a line as wide as the search is."""
    edge = 0.5 * (landscape.axis[1] - landscape.axis[0])
    low, high = float(landscape.axis[0] - edge), float(landscape.axis[-1] + edge)
    image = axes.imshow(
        landscape.cost, origin="lower", extent=(low, high, low, high), cmap="viridis_r", interpolation="nearest"
    )
    widths = THINNEST + (WIDEST - THINNEST) * landscape.deviation / max(float(landscape.deviation.max()), 1e-12)
    for here, there, width in zip(landscape.means[:-1], landscape.means[1:], widths[:-1], strict=True):
        axes.plot(*np.stack([here, there]).T, color="white", alpha=0.75, linewidth=float(width), solid_capstyle="round")
    axes.scatter(*landscape.means.T, marker="x", s=34, color=INK, linewidths=2.4, zorder=3)  # white needs a rim
    axes.scatter(*landscape.means.T, marker="x", s=26, color="white", linewidths=1.2, zorder=4)
    axes.plot(*BOX, color=INK, linewidth=0.8, linestyle="--")
    axes.set(xlim=(low, high), ylim=(low, high), xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    axes.set_title(landscape.name, fontsize=9, color=INK, parse_math=False)
    figure = axes.get_figure()
    if figure is not None:
        figure.colorbar(image, ax=axes, shrink=0.82, pad=0.02).ax.tick_params(labelsize=7)
