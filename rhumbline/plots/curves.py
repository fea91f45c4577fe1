"""Curves: searches over attempts, gaps over seconds, and differences over the power of
mutations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from rhumbline.plots.canvas import INK, PAPER, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart also by those who do not see red and green alike; ours comes first.
COLOURS = (
    "#e4572e",
    "#1f6f8b",
    "#8a6fb0",
    "#6b9a3a",
    "#d19a1f",
    "#444b54",
    "#c06c9a",
    "#3aa6a0",
    "#9c5b2f",
    "#8d99a6",
)
OURS = "COMPASS"  # how the methods that others are compared with begin
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), "-.", ":")  # of curves that have one colour
LEVEL_DASHES: tuple[Any, ...] = ("--", (0, (7, 2)), (0, (6, 2, 1, 2)), (0, (1, 2)))
SIGNS = ("o", "s", "^", "D")

# points of a curve, at most, that are marked: a line of two looks like a measurement of all between
FEW = 8
# of logarithmic axes of gaps in %: what is below is drawn at it, because 0 has no place there
FLOOR = 1e-3
ASIDE = 0.008  # of the width of a panel: how far apart the bars of two methods at one power are
WIDE = 20.0  # times the least value: from here on a logarithmic axis shows more

Palette = Mapping[str, str]  # colours by name


@dataclass(frozen=True)
class Curve:
    """A mean over instances with half its 95 % interval; a curve of one point is drawn as a
    level.
    """

    label: str
    x: Float[np.ndarray, "P"]
    mean: Float[np.ndarray, "P"]
    spread: Float[np.ndarray, "P"]
    marked: bool = False  # the points are measurements of their own
    name: str = ""  # whose colour it has; the label's if not given


@dataclass(frozen=True)
class LineStyle:
    """How a curve is drawn."""

    colour: str
    dash: Any
    width: float
    sign: str  # marks a measurement: points without lines are told apart too


def assign_colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name, the same wherever the names are the same; ours have the first."""
    ours = [x for x in names if x.startswith(OURS)]
    ordered = list(dict.fromkeys([*ours, *names]))
    return {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(ordered)}


def line_styles(curves: Sequence[Curve], palette: Palette | None) -> dict[str, LineStyle]:
    """How each label is drawn: in the colour of its name, and dashed otherwise than those before
    it in that colour.
    """
    chosen = assign_colours([c.name or c.label for c in curves]) if palette is None else palette
    found: dict[str, LineStyle] = {}
    for curve in curves:
        if curve.label not in found:
            colour = chosen.get(curve.name or curve.label, INK)
            dashes = LEVEL_DASHES if is_level(curve) else DASHES
            again = sum(look.colour == colour for look in found.values())
            width = 1.2 if is_level(curve) else 2.2 if curve.label.startswith(OURS) else 1.5
            found[curve.label] = LineStyle(
                colour, dashes[again % len(dashes)], width, SIGNS[again % len(SIGNS)]
            )
    return found


def draw_search(
    best: Sequence[Curve],
    latest: Sequence[Curve],
    unit: str,
    title: str = "",
    palette: Palette | None = None,
) -> "Figure":
    """Two panels over attempts: the best so far as steps, and the best of the latest step, with
    95 % intervals.
    """
    figure = new_figure(10.0, 4.4)
    every = [*best, *latest]
    left, right = figure.subplots(1, 2, sharey=True)
    floor = log_axis_floor(every)
    look = line_styles(every, palette)
    left.set(ylim=panel_limits(every, floor))
    for axes, some, name in (
        (left, best, "best so far"),
        (right, latest, "best of the latest step"),
    ):
        for curve in some:
            draw_curve(axes, curve, look[curve.label], floor=floor, stepped=some is best)
        style_curve_axes(axes, "attempts", name)
        set_log_scale(axes, "x")
    if floor is not None:
        set_log_scale(left, "y")
        left.set(ylim=panel_limits(every, floor))
    left.set_ylabel(unit + floor_note(every, floor))
    add_legend_and_title(figure, left, title)
    return figure


def draw_anytime(
    curves: Sequence[Curve], title: str = "", floor: float = FLOOR, palette: Palette | None = None
) -> "Figure":
    """Mean gap in % over seconds per instance, both logarithmic; gaps below the floor are drawn
    at it.
    """
    figure = new_figure(7.6, 4.8)
    axes = figure.subplots()
    look = line_styles(curves, palette)
    for curve in curves:
        draw_curve(axes, curve, look[curve.label], floor=floor, stepped=True)
    style_curve_axes(axes, "seconds per instance (wall clock)", "")
    axes.set_ylabel("mean gap, %" + floor_note(curves, floor))
    set_log_scale(axes, "x")
    set_log_scale(axes, "y")
    add_legend_and_title(figure, axes, title)
    return figure


def draw_shift(
    curves: Sequence[Curve], base: str, title: str = "", palette: Palette | None = None
) -> "Figure":
    """(base - method) / base of the mean costs in % over the power of the mutation: below 0 is
    worse than the base.
    """
    figure = new_figure(7.0, 4.4)
    axes = figure.subplots()
    look = line_styles(curves, palette)
    for place, curve in enumerate(curves):
        draw_bars(axes, curve, look[curve.label], ASIDE * (place - (len(curves) - 1) / 2))
    axes.axhline(0.0, color=INK, linewidth=0.8, linestyle=":")
    style_curve_axes(axes, "power of the mutation", "")
    axes.set_ylabel(f"cost relative to {base}, % (below 0: worse)")
    add_legend_and_title(figure, axes, title)
    return figure


def draw_bars(axes: "Axes", curve: Curve, look: LineStyle, aside: float) -> None:
    """Measurements joined by a line, each with a bar for its interval, a little aside so that no
    bar hides another.
    """
    x = curve.x + aside * float(np.ptp(curve.x))
    style: dict[str, Any] = {
        "color": look.colour,
        "linestyle": look.dash,
        "linewidth": 1.8,
        "marker": look.sign,
        "markersize": 4,
    }
    axes.plot(x, curve.mean, label=curve.label, **style)
    axes.vlines(
        x, curve.mean - curve.spread, curve.mean + curve.spread, color=look.colour, linewidth=1.0
    )


def draw_curve(
    axes: "Axes", curve: Curve, look: LineStyle, *, floor: float | None, stepped: bool
) -> None:
    """One curve, or a level where there is but one point; the panel's height is settled before."""
    raised = curve.mean if floor is None else np.maximum(curve.mean, floor)
    if is_level(curve):
        draw_level(axes, curve, look, float(raised[0]))
        return
    marker = look.sign if curve.marked or len(curve.x) <= FEW else ""
    steps: Any = "steps-post" if stepped else "default"
    style: dict[str, Any] = {"color": look.colour, "linewidth": look.width, "linestyle": look.dash}
    axes.plot(
        curve.x, raised, marker=marker, markersize=4.5, drawstyle=steps, label=curve.label, **style
    )
    shade_interval(axes, curve, look, floor, stepped=stepped)
    if floor is not None:
        draw_floor_markers(axes, curve, look, floor, every=bool(marker))


def draw_level(axes: "Axes", curve: Curve, look: LineStyle, height: float) -> None:
    """A method without a course, with its value in the legend and a word if it is out of sight."""
    low, high = axes.get_ylim()
    beyond = "" if low <= height <= high else ", beyond the panel"
    label = f"{curve.label} ({curve.mean[0]:.3g}{beyond})"
    axes.axhline(height, color=look.colour, linewidth=look.width, linestyle=look.dash, label=label)


def shade_interval(
    axes: "Axes", curve: Curve, look: LineStyle, floor: float | None, *, stepped: bool
) -> None:
    """The 95 % interval as an area, and as a bar at the last point, where steps have none; it
    ends at the floor.
    """
    low = curve.mean - curve.spread
    high = curve.mean + curve.spread
    if floor is not None:
        low = np.maximum(low, floor)
        high = np.maximum(high, floor)
    step: Any = "post" if stepped else None
    axes.fill_between(curve.x, low, high, step=step, color=look.colour, alpha=0.12, linewidth=0)
    if stepped:
        axes.vlines(curve.x[-1:], low[-1:], high[-1:], color=look.colour, linewidth=1.0, alpha=0.6)


def draw_floor_markers(
    axes: "Axes", curve: Curve, look: LineStyle, floor: float, *, every: bool
) -> None:
    """Open markers where a mean is below the floor: at every such point, or at the first of an
    unmarked curve.
    """
    below = np.flatnonzero(curve.mean < floor)[: None if every else 1]
    if len(below):
        at = np.full(len(below), floor)
        axes.scatter(
            curve.x[below],
            at,
            s=26,
            facecolors=PAPER,
            edgecolors=look.colour,
            linewidths=1.2,
            zorder=3,
        )


def is_level(curve: Curve) -> bool:
    """Whether a curve has but one point that is not a measurement in time."""
    return len(curve.x) == 1 and not curve.marked


def log_axis_floor(curves: Sequence[Curve]) -> float | None:
    """The floor of a logarithmic axis, or None where a linear one shows more: little range, or
    means well below 0.
    """
    means = np.concatenate([c.mean for c in curves])
    low = float(means.min())
    high = float(means.max())
    return None if low <= -FLOOR or high <= WIDE * max(low, FLOOR) else FLOOR


def floor_note(curves: Sequence[Curve], floor: float | None) -> str:
    """What to say of an axis with a floor if something is below it."""
    below = floor is not None and any(curve.mean.min() < floor for curve in curves)
    return f" (open at {floor:g}: below it)" if below else ""


def panel_limits(curves: Sequence[Curve], floor: float | None = None) -> tuple[float, float]:
    """Where the curves with a course are, and levels near them, with some margin; a level far off
    would flatten all.

    A logarithmic axis has room for all levels.
    """
    if floor is not None:
        low = max(floor, min(float(c.mean.min()) for c in curves))
        return 0.8 * low, 1.25 * max(float((c.mean + c.spread).max()) for c in curves)
    courses = [c for c in curves if not is_level(c)] or list(curves)
    low = min(float((c.mean - c.spread).min()) for c in courses)
    high = max(float((c.mean + c.spread).max()) for c in courses)
    levels = [float(c.mean[0]) for c in curves if is_level(c)]
    near = [level for level in levels if 2 * low - high <= level <= 2 * high - low]
    low = min([low, *near])
    high = max([high, *near])
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin


def set_log_scale(axes: "Axes", which: str) -> None:
    """A logarithmic axis with plain numbers at 1, 2 and 5, or where it is long, at 1 only."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 200.0 * low else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, place: plain_number(value)))
    axis.set_minor_formatter(NullFormatter())


def plain_number(value: float) -> str:
    """A number of an axis without a power of ten."""
    return f"{value:.9f}".rstrip("0").rstrip(".") if 1e-9 <= abs(value) < 1.0 else f"{value:,.10g}"


def style_curve_axes(axes: "Axes", below: str, title: str) -> None:
    """Quiet axes with a grid."""
    axes.set_facecolor(PAPER)
    axes.set_xlabel(below, color=INK)
    axes.set_title(title, color=INK, fontsize=11, loc="left")
    axes.grid(True, which="major", color=INK, alpha=0.12, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def add_legend_and_title(figure: "Figure", axes: "Axes", title: str) -> None:
    """A legend below everything, so that it never hides a curve, in as many columns as fit and
    with room of its own.
    """
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        inches = 0.6 + 0.075 * max(map(len, labels))
        fit = max(1, int(figure.get_figwidth() / inches))
        figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(labels) // fit))
        figure.legend(
            handles, labels, loc="outside lower left", ncols=fit, frameon=False, fontsize=9
        )
    if title:
        figure.suptitle(title, color=INK, fontsize=12, x=0.01, ha="left", parse_math=False)
