"""A radar of categories: how methods compare on each, from the worst (0) to the best (1)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rhumbline.plots.canvas import INK, PAPER, new_figure
from rhumbline.plots.curves import DASHES, Palette, add_legend_and_title, assign_colours

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.projections.polar import PolarAxes


def draw_radar(
    categories: Sequence[str],
    scores: Mapping[str, Sequence[float]],
    title: str = "",
    palette: Palette | None = None,
) -> "Figure":
    """A closed line for each method over all categories."""
    figure = new_figure(7.4, 5.4)
    axes: PolarAxes = figure.add_subplot(projection="polar")  # pyright: ignore[reportAssignmentType]
    angles = np.linspace(0.0, 2.0 * np.pi, len(categories), endpoint=False)
    chosen = assign_colours(list(scores)) if palette is None else palette
    before: list[str] = []
    for label, values in scores.items():
        round_ = [*values, values[0]]
        colour = chosen.get(label, INK)
        dash = DASHES[before.count(colour) % len(DASHES)]
        axes.plot(
            [*angles, angles[0]],
            round_,
            color=colour,
            linestyle=dash,
            linewidth=1.8,
            label=label,
            marker="o",
        )
        before.append(colour)
        axes.fill([*angles, angles[0]], round_, color=colour, alpha=0.08, linewidth=0)
    style_radar_axes(axes, angles.tolist(), categories)
    add_legend_and_title(figure, axes, title)
    return figure


def style_radar_axes(axes: "PolarAxes", angles: Sequence[float], categories: Sequence[str]) -> None:
    """The first category on top, the others clockwise; a score of 0 is a small circle, so that
    it can be seen.
    """
    axes.set(
        theta_offset=np.pi / 2,
        theta_direction=-1,
        ylim=(-0.12, 1.05),
        yticks=[0.0, 0.25, 0.5, 0.75, 1.0],
        facecolor=PAPER,
    )
    axes.set_yticklabels(["0", "", "0.5", "", "1"], fontsize=7, color=INK)
    axes.set_xticks(angles, list(categories), color=INK)
    for text, side in zip(
        axes.get_xticklabels(), np.sin(angles), strict=True
    ):  # labels grow away from the circle
        text.set_horizontalalignment("left" if side > 0.1 else "right" if side < -0.1 else "center")
    axes.tick_params(axis="x", pad=6)
    axes.spines["polar"].set_visible(False)
    axes.grid(color=INK, alpha=0.15)
