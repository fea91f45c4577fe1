"""The figures of docs/results/figures.md, light and dark.

    python -m tools.docs.result_figures FOLDER

`make docs` draws them again each time it builds the site.
"""

import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tools.figures.curves import draw_ablation, draw_problem
from tools.figures.landscapes import draw_eight, draw_evolution, draw_first
from tools.figures.mutations import draw_mutations
from tools.figures.radar import draw_radar
from tools.figures.shift import draw_shift
from tools.figures.style import PALETTES, Palette, new_figure, write_svg
from tools.gap_tables import (
    COMPARED,
    DEFAULTS,
    LEDGER,
    OVERVIEW_SETS,
    STRATEGIES,
    TEST_SETS,
    GapRow,
    newest_rows,
    paper_gaps,
    read_ledger,
    set_title,
)

BUDGET = 1600  # attempts, as in the tables
FLOOR = 2e-4  # % of gap; lower ends of intervals are drawn there: one axis is logarithmic

Rows = Mapping[tuple[str, str], GapRow]


def draw_overview(rows: Rows, palette: Palette) -> Figure:
    """Draw the table of the README: gaps of the published search and of our default, by set."""
    figure, (axes,) = new_figure((7.5, 3.8), 1, palette)
    for place, name in enumerate(OVERVIEW_SETS):
        paper = paper_gaps(name)[f"cmaes {BUDGET}"]
        style: dict[str, Any] = {"color": palette.third, "linestyle": "", "label": "COMPASS, paper"}
        axes.plot(place - 0.2, paper, marker="D", markersize=6, **style)
        compass = rows[name, f"cmaes {BUDGET}"]
        draw_gap(axes, place, compass, palette.second, "COMPASS, ours", is_vertical=True)
        default = rows[name, f"{DEFAULTS[TEST_SETS[name][0]]} {BUDGET}"]
        draw_gap(axes, place + 0.2, default, palette.accent, "our default", is_vertical=True)
    axes.set_xticks(range(len(OVERVIEW_SETS)), [set_title(name) for name in OVERVIEW_SETS])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda gap, _: f"{gap:g}"))
    axes.set_ylabel("gap in %, 1,600 attempts")
    axes.grid(axis="y", color=palette.grid, linewidth=0.8)
    add_legend(axes, palette)
    return figure


def draw_strategies(rows: Rows, palette: Palette) -> Figure:
    """Draw every strategy on every set that all were measured on, at equal attempts."""
    figure, panels = new_figure((9.0, 6.4), len(COMPARED), palette)
    for axes, name in zip(panels, COMPARED, strict=True):
        default = DEFAULTS[TEST_SETS[name][0]]
        known = [each for each in STRATEGIES if (name, f"{each} {BUDGET}") in rows]
        known.sort(key=lambda each: -rows[name, f"{each} {BUDGET}"].gap)
        for place, strategy in enumerate(known):
            colour = palette.accent if strategy == default else palette.second
            draw_gap(axes, place, rows[name, f"{strategy} {BUDGET}"], colour, "")
        axes.set_yticks(range(len(known)), known, fontsize=8)
        axes.set_xlim(left=0)
        axes.set_title(set_title(name), color=palette.ink, fontsize=10, loc="left")
        axes.grid(axis="x", color=palette.grid, linewidth=0.8)
    figure.supxlabel("gap in %, 1,600 attempts", color=palette.ink, fontsize=9)
    return figure


def draw_gap(
    axes: Axes, place: float, row: GapRow, colour: str, label: str, *, is_vertical: bool = False
) -> None:
    """Draw a gap with its 95 % interval at a place of the other axis."""
    gap = max(row.gap, FLOOR)
    below = gap - max(row.gap - row.error, FLOOR)
    interval = [[max(below, 0.0)], [row.error]]
    style: dict[str, Any] = {
        "color": colour,
        "marker": "o",
        "markersize": 5,
        "linestyle": "",
        "label": label,
    }
    if is_vertical:
        axes.errorbar([place], [gap], yerr=interval, capsize=3, **style)
    else:
        axes.errorbar([gap], [place], xerr=interval, capsize=2, **style)


def add_legend(axes: Axes, palette: Palette) -> None:
    """Name each colour once."""
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    axes.legend(named.values(), named, frameon=False, fontsize=9, labelcolor=palette.ink)


@cache
def ledger_rows() -> Rows:
    """Return the newest row of each set and method of the ledger."""
    return newest_rows(read_ledger(LEDGER))


FIGURES: Mapping[str, Callable[[Palette], Figure]] = {
    "overview": lambda palette: draw_overview(ledger_rows(), palette),
    "strategies": lambda palette: draw_strategies(ledger_rows(), palette),
    "radar": draw_radar,
    "shift": draw_shift,
    "curves-tsp": partial(draw_problem, "tsp"),
    "curves-cvrp": partial(draw_problem, "cvrp"),
    "curves-jssp": partial(draw_problem, "jssp"),
    "ablation": draw_ablation,
    "landscape-1": draw_first,
    "landscape-8": draw_eight,
    "evolution": draw_evolution,
    "mutations": draw_mutations,
}


def save_figures(folder: Path) -> list[Path]:
    """Draw every figure for light and for dark pages; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for name, draw in FIGURES.items():
        for theme, palette in PALETTES.items():
            path = folder / f"{name}-{theme}.svg"
            write_svg(path, draw(palette))
            paths.append(path)
    return paths


def main() -> None:
    """Draw the figures into the folder of the command line."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.docs.result_figures FOLDER")
    for path in save_figures(Path(sys.argv[1])):
        print(path)


if __name__ == "__main__":
    main()
