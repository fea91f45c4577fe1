"""Landscapes of two-dimensional latent spaces, with the path of a search through them."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from rhumbline.plots.canvas import THEME, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class LandscapeStyle:
    """Sizes and colours of landscapes."""

    # Line widths of the path, in points
    min_path_width: float = 0.6
    max_path_width: float = 6.0
    # How much wider the dark line under the path is, in points
    rim_width: float = 1.6
    title_letters_per_inch: float = 9.5
    # Distance of a path beyond the grid from the edge, as a share of the grid's width
    margin_share: float = 0.04
    # Colour beyond the grid
    outside: str = "#d8d6d0"
    # The outline of the box that latents were trained in, as x and y
    trained_box: tuple[tuple[int, ...], ...] = ((-1, 1, 1, -1, -1), (-1, -1, 1, 1, -1))


STYLE = LandscapeStyle()


@dataclass(frozen=True)
class Landscape:
    """The cost of each latent of a grid for one instance, and the path of a search."""

    name: str
    # Coordinates of the grid along both axes
    axis: Float[np.ndarray, "G"]
    # [y, x]
    cost: Float[np.ndarray, "G G"]
    # Successive means of the search, and its deviations in units of the space
    means: Float[np.ndarray, "T 2"]
    deviation: Float[np.ndarray, "T"]


def draw_landscapes(landscapes: Sequence[Landscape], title: str = "") -> "Figure":
    """Draw a panel for each instance, up to four in a row, each with its own scale of costs."""
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
        letters = int(figure.get_figwidth() * STYLE.title_letters_per_inch)
        title = fill(title, letters)
        figure.suptitle(title, color=THEME.ink, fontsize=12, x=0.01, ha="left", parse_math=False)
    return figure


def draw_landscape(axes: "Axes", landscape: Landscape) -> None:
    """Draw costs as a heat map with a scale, the path of the search, and the box of training."""
    low, high = grid_extent(landscape)
    image = axes.imshow(
        landscape.cost,
        origin="lower",
        extent=(low, high, low, high),
        cmap="viridis_r",
        interpolation="nearest",
    )
    draw_path(axes, landscape)
    axes.plot(*STYLE.trained_box, color=THEME.ink, linewidth=0.8, linestyle="--")
    style_landscape_axes(axes, landscape)
    figure = axes.get_figure()
    if figure is not None:
        bar = figure.colorbar(image, ax=axes, shrink=0.82, pad=0.02)
        bar.ax.tick_params(labelsize=7)
        bar.set_label("cost (lower is better)", fontsize=7, color=THEME.ink)


def grid_extent(landscape: Landscape) -> tuple[float, float]:
    """Return where the pixels of the grid begin and end. Each is centred on its latent."""
    first, second = landscape.axis[:2]
    half = 0.5 * (second - first)
    low = first - half
    high = landscape.axis[-1] + half
    return float(low), float(high)


def draw_path(axes: "Axes", landscape: Landscape) -> None:
    """Draw the means as white crosses, joined by a line whose width is the deviation.

    White has a dark rim, because it could not be seen on yellow.
    """
    means = landscape.means
    widths = path_widths(landscape.deviation)
    steps = np.stack([means[:-1], means[1:]], axis=2)  # [T - 1, x y, from to]
    for colour, rim in ((THEME.ink, STYLE.rim_width), ("white", 0.0)):
        for (x, y), width in zip(steps, widths, strict=True):
            axes.plot(
                x,
                y,
                color=colour,
                linewidth=width + rim,
                solid_capstyle="round",
                zorder=2,
            )
    x, y = means.T
    axes.scatter(x, y, marker="x", s=34, color=THEME.ink, linewidths=2.4, zorder=3)
    axes.scatter(x, y, marker="x", s=26, color="white", linewidths=1.2, zorder=4)


def path_widths(deviation: Float[np.ndarray, "T"]) -> list[float]:
    """Return the line width of each step of a search."""
    largest = float(deviation.max())
    largest = max(largest, 1e-12)
    span = STYLE.max_path_width - STYLE.min_path_width
    widths = STYLE.min_path_width + span * deviation / largest
    return widths[:-1].tolist()


def style_landscape_axes(axes: "Axes", landscape: Landscape) -> None:
    """Set labels, and limits that hold the grid and the whole path."""
    x_limits, y_limits = view_limits(landscape)
    axes.set(
        xlim=x_limits,
        ylim=y_limits,
        xticks=integer_ticks(*x_limits),
        yticks=integer_ticks(*y_limits),
        facecolor=STYLE.outside,
    )
    axes.tick_params(labelsize=8)
    axes.set_xlabel("latent 1", fontsize=8, color=THEME.ink, labelpad=1)
    axes.set_ylabel("latent 2", fontsize=8, color=THEME.ink, labelpad=1)
    axes.set_title(landscape.name, fontsize=9, color=THEME.ink, parse_math=False)


def view_limits(landscape: Landscape) -> list[tuple[float, float]]:
    """Return the limits of both axes, equally wide, with the grid and the whole path."""
    low, high = grid_extent(landscape)
    needed = [extend_limits(path, low, high) for path in landscape.means.T]
    widest = max(end - begin for begin, end in needed)
    limits: list[tuple[float, float]] = []
    for begin, end in needed:
        width = end - begin
        spare = 0.5 * (widest - width)
        limits.append((begin - spare, end + spare))
    return limits


def extend_limits(path: Float[np.ndarray, "T"], low: float, high: float) -> tuple[float, float]:
    """Move the limits of the grid outwards on the sides where the path leaves it."""
    margin = STYLE.margin_share * (high - low)
    lowest = float(path.min())
    highest = float(path.max())
    if lowest < low:
        low = lowest - margin
    if highest > high:
        high = highest + margin
    return low, high


def integer_ticks(low: float, high: float) -> list[float]:
    """Return ticks at whole numbers, at most nine, with 0 among them if it is in sight."""
    width = high - low
    step = max(1.0, np.ceil(width / 8.0))
    first = np.ceil(low / step)
    last = np.floor(high / step)
    ticks = step * np.arange(first, last + 1.0)
    return ticks.tolist()
