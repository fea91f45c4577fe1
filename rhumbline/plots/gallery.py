"""A gallery of all mutations of one instance."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from rhumbline.plots.canvas import THEME, new_figure
from rhumbline.problems.distributions.mutations import OPERATORS, mutate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_mutations(points: Float[np.ndarray, "N 2"], power: float, seed: int = 0) -> "Figure":
    """Draw an instance, and what it is after each mutation."""
    figure = new_figure(10.0, 4.4)
    panels = figure.subplots(2, 5, sharex=True, sharey=True)
    first, *others = panels.flatten()
    draw_points(first, points, points, "uniform")
    for axes, operator in zip(others, OPERATORS, strict=True):
        rng = np.random.default_rng(seed)
        mutated = mutate(points, operator, power, rng)
        draw_points(axes, points, mutated, operator)
    return figure


def draw_points(
    axes: "Axes", before: Float[np.ndarray, "N 2"], after: Float[np.ndarray, "N 2"], title: str
) -> None:
    """Draw one panel. Points that moved are crosses, and faint circles where they came from."""
    ink = THEME.ink
    moved = (before != after).any(axis=1)
    axes.scatter(
        *before[moved].T, s=7, facecolors="none", edgecolors=ink, linewidths=0.4, alpha=0.45
    )
    axes.scatter(*after[~moved].T, s=7, color=ink, linewidths=0)
    axes.scatter(*after[moved].T, s=14, marker="x", color=THEME.accent, linewidths=1.0)
    axes.set_title(title, fontsize=10, color=ink)
    axes.set(
        xlim=(-0.03, 1.03),
        ylim=(-0.03, 1.03),
        aspect="equal",
        xticks=[],
        yticks=[],
        facecolor=THEME.paper,
    )
