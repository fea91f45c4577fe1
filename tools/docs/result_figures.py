"""The figures of docs/results/figures.md, from the ledger of gaps: light and dark.

    python -m tools.docs.result_figures FOLDER

`make docs` draws them again each time it builds the site.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

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


@dataclass(frozen=True)
class Palette:
    """The colours of a figure on a light or a dark page."""

    paper: str
    ink: str
    grid: str
    accent: str  # our default
    second: str  # COMPASS with our weights
    third: str  # COMPASS in the paper


PALETTES = {
    "light": Palette("#ffffff", "#1b2a3a", "#dfe3e8", "#d1451b", "#1f6f8b", "#8d99a6"),
    "dark": Palette("#131416", "#d5dae0", "#33383f", "#ff8a66", "#6fc0dc", "#98a3af"),
}


def draw_overview(rows: Rows, palette: Palette) -> Figure:
    """Draw the table of the README: gaps of the published search and of our default, by set."""
    figure, (axes,) = new_figure((7.5, 3.8), 1, palette)
    for place, name in enumerate(OVERVIEW_SETS):
        paper = paper_gaps(name)[f"cmaes {BUDGET}"]
        style = {"color": palette.third, "linestyle": "", "label": "COMPASS, paper"}
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


def new_figure(
    size: tuple[float, float], count: int, palette: Palette
) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels in rows of three, in the colours of a palette."""
    figure = Figure(size, facecolor=palette.paper, layout="constrained")
    columns = min(count, 3)
    panels = list(figure.subplots(-(-count // columns), columns, squeeze=False).flat)
    for axes in panels:
        axes.set_facecolor(palette.paper)
        axes.tick_params(colors=palette.ink, labelsize=9)
        axes.yaxis.label.set_color(palette.ink)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(palette.ink)
    return figure, panels


def draw_gap(
    axes: Axes, place: float, row: GapRow, colour: str, label: str, *, is_vertical: bool = False
) -> None:
    """Draw a gap with its 95 % interval at a place of the other axis."""
    gap = max(row.gap, FLOOR)
    below = gap - max(row.gap - row.error, FLOOR)
    interval = [[max(below, 0.0)], [row.error]]
    style = {"color": colour, "marker": "o", "markersize": 5, "linestyle": "", "label": label}
    if is_vertical:
        axes.errorbar([place], [gap], yerr=interval, capsize=3, **style)
    else:
        axes.errorbar([gap], [place], xerr=interval, capsize=2, **style)


def add_legend(axes: Axes, palette: Palette) -> None:
    """Name each colour once."""
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    axes.legend(named.values(), named, frameon=False, fontsize=9, labelcolor=palette.ink)


FIGURES: Mapping[str, Callable[[Rows, Palette], Figure]] = {
    "overview": draw_overview,
    "strategies": draw_strategies,
}


def save_figures(folder: Path) -> list[Path]:
    """Draw every figure for light and for dark pages; return the files."""
    rows = newest_rows(read_ledger(LEDGER))
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for name, draw in FIGURES.items():
        for theme, palette in PALETTES.items():
            path = folder / f"{name}-{theme}.svg"
            draw(rows, palette).savefig(path)
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
