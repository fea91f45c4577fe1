"""The difference to COMPASS over the power of mutations, for TSP and CVRP.

The difference is (COMPASS - method) / COMPASS of mean costs: values below 0 are worse than COMPASS.
For each power, methods are compared on the instances that all of them have.
"""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rhumbline.bench.figures import Point, shift_curve
from rhumbline.bench.results import Result, keep_common_instances
from tools.figures.rows import FigureRow, by_set, rows_of
from tools.figures.style import (
    Palette,
    add_common_legend,
    colours_of,
    new_figure,
    title_panel,
    write_missing,
)

SUITES = {"TSP100": "mutated-tsp", "CVRP100": "mutated-cvrp"}
BASE = "COMPASS"
BAR_OFFSET = 0.012  # between methods along the axis of powers, so that no interval hides another

Points = dict[str, list[Point]]  # by method, in the order of powers


def draw_shift(palette: Palette) -> Figure:
    """Draw a panel for each problem: points with intervals, and published differences dashed."""
    figure, panels = new_figure((9.0, 4.4), len(SUITES), palette)
    all_rows = {title: rows_of(suite) for title, suite in SUITES.items()}
    names = [row.method for rows in all_rows.values() for row in rows if row.method != BASE]
    colours = colours_of(names, palette)
    for axes, (title, rows) in zip(panels, all_rows.items(), strict=True):
        title_panel(axes, title, palette)
        measured = differences(rows)
        if not measured:
            write_missing(axes, palette)
            continue
        draw_measured(axes, measured, colours)
        draw_published(axes, published_differences(rows), colours)
        axes.axhline(0.0, color=palette.ink, linewidth=1.0)
        axes.grid(color=palette.grid, linewidth=0.8)
        axes.set_xlabel("power of the mutation")
    panels[0].set_ylabel("cost relative to COMPASS in % (below 0: worse)")
    add_common_legend(figure, panels, palette)
    return figure


def differences(rows: Sequence[FigureRow]) -> Points:
    """Return the differences of each method to COMPASS in percent of the cost of COMPASS."""
    points: Points = {}
    for methods in by_set(rows).values():
        results: dict[str, Sequence[Result]] = {}
        for name, row in methods.items():
            results[name] = row.results
        common = keep_common_instances(results)
        power = next(iter(methods.values())).power
        if BASE not in common or power is None:
            continue
        for name, group in common.items():
            if name != BASE:
                curve = shift_curve(name, group, common[BASE], [power])
                point = Point(power, float(curve.mean[0]), float(curve.half_interval[0]))
                points.setdefault(name, []).append(point)
    return points


def published_differences(rows: Sequence[FigureRow]) -> Points:
    """Return the published differences of each method, from its gap and the gap of COMPASS."""
    base = {row.power: row.published for row in rows if row.method == BASE}
    points: Points = {}
    for row in rows:
        base_gap = base.get(row.power)
        if row.method == BASE or row.power is None:
            continue
        if row.published is None or base_gap is None:
            continue
        ratio = (1.0 + row.published / 100.0) / (1.0 + base_gap / 100.0)
        points.setdefault(row.method, []).append(Point(row.power, 100.0 * (1.0 - ratio), 0.0))
    return points


def draw_measured(axes: Axes, measured: Points, colours: Mapping[str, str]) -> None:
    """Draw points with their 95 % intervals, joined by lines."""
    middle = (len(measured) - 1) / 2
    for place, (name, points) in enumerate(measured.items()):
        offset = BAR_OFFSET * (place - middle)
        axes.errorbar(
            [point.x + offset for point in points],
            [point.mean for point in points],
            yerr=[point.half_interval for point in points],
            color=colours[name],
            marker="o",
            markersize=4,
            linewidth=1.6,
            elinewidth=1.0,
            label=name,
        )


def draw_published(axes: Axes, published: Points, colours: Mapping[str, str]) -> None:
    """Draw the published differences as dashed lines."""
    for name, points in published.items():
        axes.plot(
            [point.x for point in points],
            [point.mean for point in points],
            color=colours[name],
            linestyle="--",
            linewidth=1.2,
            label=f"{name}, paper",
        )
