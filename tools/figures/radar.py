"""The radar of six axes: the mean score of each method on the sets of a category.

The method with the highest mean cost on a set scores 0, the one with the lowest scores 1. The radar
has the methods with results in every category; each set compares them on their common instances.
"""

from matplotlib.figure import Figure

from rhumbline.bench.figures.radar import radar_figure
from rhumbline.bench.results import Result
from tools.figures.rows import FigureRow, rows_of
from tools.figures.style import Palette, colours_of, new_figure, recolour, write_missing

SUITES = ("standard", "few-shot", "mutated-tsp", "mutated-cvrp")


def draw_radar(palette: Palette) -> Figure:
    """Draw the radar of `rhumb report` for the recorded rows."""
    return draw_rows(radar_rows(), palette)


def radar_rows() -> list[FigureRow]:
    """Return the rows of all sets that have a category."""
    rows = [row for suite in SUITES for row in rows_of(suite)]
    return [row for row in rows if row.status.row.spec.category]


def draw_rows(rows: list[FigureRow], palette: Palette) -> Figure:
    """Draw the radar of some rows, or a panel that says that nothing is measured."""
    results: list[Result] = [result for row in rows for result in row.results]
    names = [row.method.split(",")[0] for row in rows]
    figure = radar_figure(results, colours_of(names, palette))
    if figure is None:
        figure, (axes,) = new_figure((7.4, 3.0), 1, palette)
        write_missing(axes, palette)
        return figure
    recolour(figure, palette)
    figure.suptitle("")
    for axes in figure.axes:
        axes.grid(color=palette.third, alpha=0.5, linewidth=0.7)
    return figure
