"""What the figures of the results page share: colours of light and dark pages, panels, files."""

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

FONT_SIZE = 9


@dataclass(frozen=True)
class Palette:
    """The colours of a figure on a light or a dark page."""

    paper: str
    ink: str
    grid: str
    accent: str  # our default
    second: str  # COMPASS with our weights
    third: str  # COMPASS in the paper, and our search with the published settings
    others: tuple[str, ...]  # the other methods

    @property
    def series(self) -> tuple[str, ...]:
        """The colours of all methods."""
        return (self.accent, self.second, self.third, *self.others)


PALETTES = {
    "light": Palette(
        "#ffffff",
        "#1b2a3a",
        "#dfe3e8",
        "#d1451b",
        "#1f6f8b",
        "#8d99a6",
        ("#8a6fb0", "#6b9a3a", "#c78b12", "#c06c9a", "#2f9c95", "#5b4636"),
    ),
    "dark": Palette(
        "#131416",
        "#d5dae0",
        "#33383f",
        "#ff8a66",
        "#6fc0dc",
        "#98a3af",
        ("#b79ee0", "#9fcf6a", "#f0bd4f", "#e79ac4", "#6fd8d0", "#b79b86"),
    ),
}

# Patterns of methods, and the index of their colour in `Palette.series`, the same in all figures.
# Other methods take the remaining colours in order.
METHOD_COLOURS = {
    "default search(, job shop)?|CMA-ES, three components": 0,
    "COMPASS(, job shop)?|CMA-ES, one component": 1,
    "published settings(, job shop)?": 2,
    "(POMO )?sampling|fixed latents": 3,
    "EAS|uniform latents": 4,
    "POMO greedy": 5,
    "CMA-ES that learns": 6,
    "COMPASS, mixed training": 7,
    "default search, mixed training": 8,
}


def colours_of(names: Iterable[str], palette: Palette) -> dict[str, str]:
    """Return a colour for each method."""
    colours: dict[str, str] = {}
    unknown: list[str] = []
    for name in dict.fromkeys(names):
        place = colour_place(name)
        if place is None:
            unknown.append(name)
        else:
            colours[name] = palette.series[place]
    spare = [colour for colour in palette.series if colour not in colours.values()]
    for name, colour in zip(unknown, cycle(spare or palette.series), strict=False):
        colours[name] = colour
    return colours


def colour_place(name: str) -> int | None:
    """Return the index of the colour that a method has in all figures, or None."""
    for pattern, place in METHOD_COLOURS.items():
        if re.fullmatch(pattern, name):
            return place
    return None


def new_figure(
    size: tuple[float, float], count: int, palette: Palette
) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels in rows of three, in the colours of a palette."""
    figure = Figure(size, facecolor=palette.paper, layout="constrained")
    columns = min(count, 3)
    panels = list(figure.subplots(-(-count // columns), columns, squeeze=False).flat)
    for axes in panels:
        style_panel(axes, palette)
    return figure, panels


def style_panel(axes: Axes, palette: Palette) -> None:
    """Set the colours of a panel, and remove its frame above and on the right."""
    recolour_panel(axes, palette)
    axes.tick_params(labelsize=FONT_SIZE)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def recolour_panel(axes: Axes, palette: Palette) -> None:
    """Set the colours of a panel's background, frame, ticks and texts."""
    axes.set_facecolor(palette.paper)
    axes.tick_params(which="both", colors=palette.ink)
    for spine in axes.spines.values():
        spine.set_color(palette.ink)
    for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
        text.set_color(palette.ink)
        text.set_fontsize(FONT_SIZE)


def recolour(figure: Figure, palette: Palette) -> Figure:
    """Return a figure of `rhumbline.plots`, which has one theme, in the colours of a palette."""
    figure.set_facecolor(palette.paper)
    for axes in figure.axes:
        recolour_panel(axes, palette)
    for text in figure.findobj(Text):
        text.set_color(palette.ink)  # pyright: ignore[reportAttributeAccessIssue]
    return figure


def title_panel(axes: Axes, title: str, palette: Palette) -> None:
    """Write the title of a panel above its left end."""
    axes.set_title(title, color=palette.ink, fontsize=10, loc="left")


def write_missing(axes: Axes, palette: Palette) -> None:
    """Say in an empty panel that it has no data."""
    axes.text(
        0.5,
        0.5,
        "not measured",
        transform=axes.transAxes,
        ha="center",
        va="center",
        color=palette.third,
    )
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def add_common_legend(figure: Figure, panels: Sequence[Axes], palette: Palette) -> None:
    """Name each line of the panels once, below all of them."""
    named: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        for label, handle in zip(labels, handles, strict=True):
            named.setdefault(label, handle)
    if not named:
        return
    ordered = sorted(named, key=lambda label: label.endswith(", paper"))
    longest = max(map(len, ordered))
    columns = max(1, int(figure.get_figwidth() / (0.6 + 0.07 * longest)))
    figure.legend(
        [named[label] for label in ordered],
        ordered,
        loc="outside lower center",
        ncols=min(columns, len(ordered)),
        frameon=False,
        fontsize=FONT_SIZE,
        labelcolor=palette.ink,
    )


def write_svg(path: Path, figure: Figure) -> None:
    """Write a figure. Equal figures give files with equal bytes."""
    content = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "rhumbline"}):
        figure.savefig(content, format="svg", metadata={"Date": None})
    path.write_bytes(content.getvalue())
