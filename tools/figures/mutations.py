"""The nine operators that mutate instances, each on the same uniform instance."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rhumbline.problems.distributions.mutations import OPERATORS, mutate
from tools.figures.style import Palette, add_common_legend, new_figure, title_panel

CITIES = 100
POWER = 0.5  # probability of each city, for the operators that do not move a whole region
SEED = 86  # of the instance; the random numbers of each operator also depend on its place


@dataclass(frozen=True)
class Mutation:
    """An instance before and after an operator."""

    operator: str
    before: Float[np.ndarray, "N 2"]
    after: Float[np.ndarray, "N 2"]

    @property
    def is_moved(self) -> Bool[np.ndarray, "N"]:
        """True for each city that the operator has moved."""
        return (self.before != self.after).any(axis=1)


def make_mutations() -> list[Mutation]:
    """Return the mutation of one instance by each operator."""
    before = np.random.default_rng(SEED).random((CITIES, 2))
    mutations: list[Mutation] = []
    for place, operator in enumerate(OPERATORS):
        rng = np.random.default_rng([SEED, place])
        mutations.append(Mutation(operator, before, mutate(before, operator, POWER, rng)))
    return mutations


def draw_mutations(palette: Palette) -> Figure:
    """Draw a panel for each operator."""
    mutations = make_mutations()
    figure, panels = new_figure((9.0, 9.4), len(mutations), palette)
    for axes, mutation in zip(panels, mutations, strict=True):
        draw_mutation(axes, mutation, palette)
    add_common_legend(figure, panels, palette)
    return figure


def draw_mutation(axes: Axes, mutation: Mutation, palette: Palette) -> None:
    """Draw moved cities in red, each with a line from its former position; the others in blue."""
    moved = mutation.is_moved
    for start, end in zip(mutation.before[moved], mutation.after[moved], strict=True):
        axes.plot(
            *zip(start, end, strict=True), color=palette.third, alpha=0.5, linewidth=0.5, zorder=1
        )
    x, y = mutation.before[moved].T
    axes.scatter(x, y, s=9, facecolors="none", edgecolors=palette.third, label="former position")
    x, y = mutation.after[~moved].T
    axes.scatter(x, y, s=11, color=palette.second, label="not moved")
    x, y = mutation.after[moved].T
    axes.scatter(x, y, s=14, color=palette.accent, label="moved", zorder=3)
    title_panel(axes, f"{mutation.operator}: {moved.sum()} of {CITIES} moved", palette)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xticks=[], yticks=[], aspect="equal")
    axes.spines[["top", "right"]].set_visible(True)
    for spine in axes.spines.values():
        spine.set_color(palette.grid)
