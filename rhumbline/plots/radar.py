"""A radar of categories: how methods compare on each, from the worst (0) to the best (1)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from rhumbline.plots.canvas import THEME, new_figure
from rhumbline.plots.curves import STYLE, Palette, add_legend_and_title, assign_colours

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.projections.polar import PolarAxes


def draw_radar(
    categories: Sequence[str],
    scores: Mapping[str, Sequence[float]],
    title: str = "",
    palette: Palette | None = None,
) -> "Figure":
    """Draw a closed line for each method over all categories."""
    figure = new_figure(7.4, 5.4)
    axes: PolarAxes = figure.add_subplot(projection="polar")  # pyright: ignore[reportAssignmentType]
    angles = np.linspace(0.0, 2.0 * np.pi, len(categories), endpoint=False).tolist()
    if palette is None:
        palette = assign_colours(list(scores))
    used_colours: list[str] = []
    for label, values in scores.items():
        colour = palette.get(label, THEME.ink)
        dash = STYLE.dashes[used_colours.count(colour) % len(STYLE.dashes)]
        used_colours.append(colour)
        closed_angles = [*angles, angles[0]]
        closed_values = [*values, values[0]]
        axes.plot(
            closed_angles,
            closed_values,
            color=colour,
            linestyle=dash,
            linewidth=1.8,
            label=label,
            marker="o",
        )
        axes.fill(closed_angles, closed_values, color=colour, alpha=0.08, linewidth=0)
    style_radar_axes(axes, angles, categories)
    add_legend_and_title(figure, axes, title)
    return figure


def style_radar_axes(axes: "PolarAxes", angles: Sequence[float], categories: Sequence[str]) -> None:
    """Put the first category on top and the others clockwise.

    A score of 0 is a small circle instead of a point, so that it can be seen.
    """
    axes.set(
        theta_offset=np.pi / 2,
        theta_direction=-1,
        ylim=(-0.12, 1.05),
        yticks=[0.0, 0.25, 0.5, 0.75, 1.0],
        facecolor=THEME.paper,
    )
    axes.set_yticklabels(["0", "", "0.5", "", "1"], fontsize=7, color=THEME.ink)
    axes.set_xticks(angles, list(categories), color=THEME.ink)
    labels = axes.get_xticklabels()
    for text, side in zip(labels, np.sin(angles), strict=True):
        text.set_horizontalalignment(label_alignment(side))
    axes.tick_params(axis="x", pad=6)
    axes.spines["polar"].set_visible(False)
    axes.grid(color=THEME.ink, alpha=0.15)


def label_alignment(side: float) -> Literal["left", "center", "right"]:
    """Return how a label is aligned so that it grows away from the circle.

    `side` is 1 at the right of the circle and -1 at its left.
    """
    if side > 0.1:
        return "left"
    if side < -0.1:
        return "right"
    return "center"
