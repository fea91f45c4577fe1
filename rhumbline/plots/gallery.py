"""A picture of every mutation on one instance."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from rhumbline.plots.canvas import INK, PAPER, START, new_figure
from rhumbline.problems.distributions.mutations import OPERATORS, mutate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_mutations(points: Float[np.ndarray, "N 2"], power: float, seed: int = 0) -> "Figure":
    """The instance itself and after each operator; points that moved are marked, faint where
    they came from.
    """
    figure = new_figure(10.0, 4.4)
    panels = figure.subplots(2, 5, sharex=True, sharey=True).flatten()
    draw_points(panels[0], points, points, "uniform")
    for axes, operator in zip(panels[1:], OPERATORS, strict=True):
        draw_points(
            axes, points, mutate(points, operator, power, np.random.default_rng(seed)), operator
        )
    return figure


def draw_points(
    axes: "Axes", before: Float[np.ndarray, "N 2"], after: Float[np.ndarray, "N 2"], title: str
) -> None:
    """One panel."""
    moved = (before != after).any(axis=1)
    axes.scatter(
        *before[moved].T, s=7, facecolors="none", edgecolors=INK, linewidths=0.4, alpha=0.45
    )
    axes.scatter(*after[~moved].T, s=7, color=INK, linewidths=0)
    axes.scatter(*after[moved].T, s=14, marker="x", color=START, linewidths=1.0)
    axes.set_title(title, fontsize=10, color=INK)
    axes.set(
        xlim=(-0.03, 1.03),
        ylim=(-0.03, 1.03),
        aspect="equal",
        xticks=[],
        yticks=[],
        facecolor=PAPER,
    )
