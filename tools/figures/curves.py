"""Searches over attempts: the best plan so far, and the best one of the latest step.

The curves are means over the instances that all methods of a set have; they come from the traces of
result lines. Each problem has a figure with three sizes; one more has the ablation of the search.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from rhumbline.bench.figures import TraceColumn, has_steps, level_curve, mean_curve
from rhumbline.bench.results import Result, keep_common_instances
from rhumbline.plots.curves import Curve, set_log_scale
from tools.figures.rows import FigureRow, by_set, rows_of
from tools.figures.style import (
    Palette,
    add_common_legend,
    colours_of,
    new_figure,
    title_panel,
    write_missing,
)
from tools.gap_tables import set_title

FLOOR = 1e-3  # % of gap; lower gaps are drawn at this value, because axes are logarithmic
PANELS = {TraceColumn.BEST: "best so far", TraceColumn.LATEST: "best of the latest step"}
# The sets of each problem: of the size of training, medium and large
SETS = {
    "tsp": ("tsp100", "tsp150", "tsp200"),
    "cvrp": ("vrp100", "vrp150", "vrp200"),
    "jssp": ("jssp10x10", "jssp15x15", "jssp20x15"),
}
ABLATION_SUITE = "ablation"
SUBSTITUTE_SUITE = "strategies"  # has the same searches; drawn until the ablation is measured


def draw_problem(problem: str, palette: Palette) -> Figure:
    """Draw three sets of a problem: a column for each, the best so far above the latest."""
    rows = standard_rows(problem)
    colours = colours_of((row.method for row in rows), palette)
    figure, panels = new_figure((9.0, 6.0), 6, palette)
    columns = len(SETS[problem])
    measured = by_set(rows)
    for place, axes in enumerate(panels):
        name = SETS[problem][place % columns]
        column = list(PANELS)[place // columns]
        title_panel(axes, f"{set_title(name)}, {PANELS[column]}", palette)
        draw_search_panel(axes, curves_of(measured.get(name, {}), column), colours, palette)
    for axes in panels[::columns]:
        axes.set_ylabel("gap in %")
    for axes in panels[columns:]:
        axes.set_xlabel("attempts")
    add_common_legend(figure, panels, palette)
    return figure


def draw_ablation(palette: Palette) -> Figure:
    """Draw the best so far and the latest of fixed, uniform and searched latents on TSP150."""
    rows = ablation_rows()
    colours = colours_of((row.method for row in rows), palette)
    figure, panels = new_figure((9.0, 4.0), 2, palette)
    methods = by_set(rows).get("tsp150", {})
    for axes, (column, title) in zip(panels, PANELS.items(), strict=True):
        title_panel(axes, f"TSP150, {title}", palette)
        draw_search_panel(axes, curves_of(methods, column), colours, palette)
        axes.set_xlabel("attempts")
    panels[0].set_ylabel("gap in %")
    add_common_legend(figure, panels, palette)
    return figure


def standard_rows(problem: str) -> list[FigureRow]:
    """Return the rows of the standard suite that the figure of a problem draws."""
    return [row for row in rows_of("standard") if row.set in SETS[problem]]


def ablation_rows() -> list[FigureRow]:
    """Return the rows of the ablation; until it is measured, those of the substitute suite."""
    wanted = rows_of(ABLATION_SUITE)
    if any(row.results for row in wanted):
        return wanted
    names = {row.method for row in wanted}
    return [row for row in rows_of(SUBSTITUTE_SUITE) if row.method in names]


def curves_of(methods: Mapping[str, FigureRow], column: TraceColumn) -> list[Curve]:
    """Return a curve for each method of a set.

    A method without steps is a horizontal line, which only the panels of the best so far have.
    """
    results: dict[str, Sequence[Result]] = {}
    for name, row in methods.items():
        results[name] = row.results
    curves: list[Curve] = []
    for name, group in keep_common_instances(results).items():
        if all(result.trace for result in group) and has_steps(group):
            curves.append(mean_curve(name, group, TraceColumn.ATTEMPTS, column))
        elif column is TraceColumn.BEST:
            curves.append(level_curve(name, group))
    return curves


def y_limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """Return limits of a logarithmic axis, with a margin above and below.

    Intervals are shown down to half the mean, because some reach zero.
    """
    lowest = min(float(np.maximum(curve.low, 0.5 * curve.mean).min()) for curve in curves)
    lowest = max(FLOOR, lowest)
    highest = max(float(curve.high.max()) for curve in curves)
    highest = max(highest, 1.2 * lowest)
    margin = (highest / lowest) ** 0.05
    return lowest / margin, highest * margin


def draw_search_panel(
    axes: Axes, curves: Sequence[Curve], colours: Mapping[str, str], palette: Palette
) -> None:
    """Draw curves with their 95 % intervals as areas, on two logarithmic axes."""
    if not curves:
        write_missing(axes, palette)
        return
    raise_to_floor = partial(np.maximum, FLOOR)
    for curve in curves:
        style: dict[str, Any] = {
            "color": colours[curve.label],
            "linewidth": 1.6,
            "label": curve.label,
        }
        if curve.is_level:
            axes.axhline(float(raise_to_floor(curve.mean)[0]), linestyle="--", **style)
            continue
        axes.plot(curve.x, raise_to_floor(curve.mean), **style)
        colour = colours[curve.label]
        low = raise_to_floor(curve.low)
        high = raise_to_floor(curve.high)
        axes.fill_between(curve.x, low, high, color=colour, alpha=0.12, lw=0)
    axes.set_ylim(*y_limits(curves))
    set_log_scale(axes, "y")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda attempts, _: f"{attempts:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=8)
    axes.grid(color=palette.grid, linewidth=0.8)
