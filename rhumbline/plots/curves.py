"""Curves: searches over attempts, gaps over seconds, differences over the power of mutations."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from rhumbline.plots.canvas import THEME, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Palette = Mapping[str, str]  # colours by name


@dataclass(frozen=True)
class CurveStyle:
    """The look of all curves."""

    # Distinct also for red-green colour blindness. The first one is for our methods.
    colours: tuple[str, ...] = (
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
    # Of curves, and of levels, that have one colour
    dashes: tuple[Any, ...] = ("-", (0, (4, 1.5)), "-.", ":")
    level_dashes: tuple[Any, ...] = ("--", (0, (7, 2)), (0, (6, 2, 1, 2)), (0, (1, 2)))
    markers: tuple[str, ...] = ("o", "s", "^", "D")
    # Curves with more points have no markers. A line of two points would look like a measurement
    # of all between.
    max_marked_points: int = 8
    # A mean curve with more points gets an even logarithmic grid.
    max_points: int = 64
    # The lowest gap, in percent, of a logarithmic axis. Lower ones, such as 0, are drawn there.
    gap_floor_percent: float = 1e-3
    # Distance of the bars of two methods at one power, as a share of the panel's width
    bar_offset_share: float = 0.008
    # A gap axis is logarithmic from this ratio of the highest to the lowest value.
    log_axis_ratio: float = 20.0


STYLE = CurveStyle()


def is_ours(name: str) -> bool:
    """Return whether a method is ours, which others are compared with."""
    return name.startswith("COMPASS")


@dataclass(frozen=True)
class Curve:
    """A mean over instances with half its 95 % interval.

    A curve with one point is drawn as a level, unless the point is a measurement of its own.
    """

    label: str
    x: Float[np.ndarray, "P"]
    mean: Float[np.ndarray, "P"]
    half_interval: Float[np.ndarray, "P"]
    # Whether each point is a measurement of its own
    is_measured: bool = False
    # The name whose colour the curve has, by default the label
    name: str = ""

    @property
    def colour_name(self) -> str:
        """The name that decides the colour."""
        return self.name or self.label

    @property
    def is_level(self) -> bool:
        """Whether the curve has one point that is not a measurement in time."""
        return len(self.x) == 1 and not self.is_measured

    @property
    def low(self) -> Float[np.ndarray, "P"]:
        """The lower ends of the intervals."""
        return self.mean - self.half_interval

    @property
    def high(self) -> Float[np.ndarray, "P"]:
        """The upper ends of the intervals."""
        return self.mean + self.half_interval


@dataclass(frozen=True)
class LineStyle:
    """How a curve is drawn. The marker also distinguishes points without lines."""

    colour: str
    dash: Any
    width: float
    marker: str


def assign_colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each name. Our methods come first, then the order of the names."""
    ours = [name for name in names if is_ours(name)]
    ordered = dict.fromkeys(ours)
    ordered.update(dict.fromkeys(names))
    colours = itertools.cycle(STYLE.colours)
    return dict(zip(ordered, colours, strict=False))


def line_styles(curves: Sequence[Curve], palette: Palette | None) -> dict[str, LineStyle]:
    """Return the style of each label.

    The name of a curve decides its colour. Curves of one colour have different dashes.
    """
    if palette is None:
        names = [curve.colour_name for curve in curves]
        palette = assign_colours(names)
    styles: dict[str, LineStyle] = {}
    for curve in curves:
        if curve.label in styles:
            continue
        colour = palette.get(curve.colour_name, THEME.ink)
        used_colours = [style.colour for style in styles.values()]
        same_colour = used_colours.count(colour)
        styles[curve.label] = line_style(curve, colour, same_colour)
    return styles


def line_style(curve: Curve, colour: str, same_colour: int) -> LineStyle:
    """Return the style of a curve after a number of other curves of the same colour."""
    dashes = STYLE.dashes
    width = 1.5
    if curve.is_level:
        dashes = STYLE.level_dashes
        width = 1.2
    elif is_ours(curve.label):
        width = 2.2
    return LineStyle(
        colour=colour,
        dash=dashes[same_colour % len(dashes)],
        width=width,
        marker=STYLE.markers[same_colour % len(STYLE.markers)],
    )


def draw_search(
    best: Sequence[Curve],
    latest: Sequence[Curve],
    unit: str,
    title: str = "",
    palette: Palette | None = None,
) -> "Figure":
    """Draw two panels over attempts, with 95 % intervals.

    The left one has the best cost so far, as steps. The right one has the best of the latest step.
    """
    figure = new_figure(10.0, 4.4)
    curves = [*best, *latest]
    left, right = figure.subplots(1, 2, sharey=True)
    floor = log_axis_floor(curves)
    styles = line_styles(curves, palette)
    # Levels outside of the limits say so in the legend, so limits come before the curves.
    left.set(ylim=panel_limits(curves, floor))
    for curve in best:
        draw_curve(left, curve, styles[curve.label], floor=floor, stepped=True)
    style_curve_axes(left, "attempts", "best so far")
    set_log_scale(left, "x")
    for curve in latest:
        draw_curve(right, curve, styles[curve.label], floor=floor, stepped=False)
    style_curve_axes(right, "attempts", "best of the latest step")
    set_log_scale(right, "x")
    if floor is not None:
        set_log_scale(left, "y")
        left.set(ylim=panel_limits(curves, floor))
    left.set_ylabel(unit + floor_note(curves, floor))
    add_legend_and_title(figure, left, title)
    return figure


def draw_anytime(
    curves: Sequence[Curve],
    title: str = "",
    floor: float = STYLE.gap_floor_percent,
    palette: Palette | None = None,
) -> "Figure":
    """Draw mean gaps in percent over seconds per instance, on two logarithmic axes.

    Gaps below the floor are drawn at the floor.
    """
    figure = new_figure(7.6, 4.8)
    axes = figure.subplots()
    styles = line_styles(curves, palette)
    for curve in curves:
        draw_curve(axes, curve, styles[curve.label], floor=floor, stepped=True)
    style_curve_axes(axes, "seconds per instance (wall clock)", "")
    axes.set_ylabel("mean gap, %" + floor_note(curves, floor))
    set_log_scale(axes, "x")
    set_log_scale(axes, "y")
    add_legend_and_title(figure, axes, title)
    return figure


def draw_shift(
    curves: Sequence[Curve], base: str, title: str = "", palette: Palette | None = None
) -> "Figure":
    """Draw (base - method) / base of mean costs, in percent, over the power of the mutation.

    Values below 0 are worse than the base.
    """
    figure = new_figure(7.0, 4.4)
    axes = figure.subplots()
    styles = line_styles(curves, palette)
    middle = (len(curves) - 1) / 2
    for place, curve in enumerate(curves):
        offset = STYLE.bar_offset_share * (place - middle)
        draw_bars(axes, curve, styles[curve.label], offset)
    axes.axhline(0.0, color=THEME.ink, linewidth=0.8, linestyle=":")
    style_curve_axes(axes, "power of the mutation", "")
    axes.set_ylabel(f"cost relative to {base}, % (below 0: worse)")
    add_legend_and_title(figure, axes, title)
    return figure


def draw_bars(axes: "Axes", curve: Curve, style: LineStyle, offset: float) -> None:
    """Draw measurements joined by a line, each with a bar for its interval.

    The offset, a share of the panel's width, keeps the bars of two methods from hiding each other.
    """
    x = curve.x + offset * float(np.ptp(curve.x))
    axes.plot(
        x,
        curve.mean,
        label=curve.label,
        color=style.colour,
        linestyle=style.dash,
        linewidth=1.8,
        marker=style.marker,
        markersize=4,
    )
    axes.vlines(x, curve.low, curve.high, color=style.colour, linewidth=1.0)


def draw_curve(
    axes: "Axes", curve: Curve, style: LineStyle, *, floor: float | None, stepped: bool
) -> None:
    """Draw a curve or a level. The limits of the panel must be set before."""
    heights = curve.mean
    if floor is not None:
        heights = np.maximum(curve.mean, floor)
    if curve.is_level:
        draw_level(axes, curve, style, float(heights[0]))
        return
    has_markers = curve.is_measured or len(curve.x) <= STYLE.max_marked_points
    axes.plot(
        curve.x,
        heights,
        marker=style.marker if has_markers else "",
        markersize=4.5,
        drawstyle="steps-post" if stepped else "default",
        label=curve.label,
        color=style.colour,
        linewidth=style.width,
        linestyle=style.dash,
    )
    shade_interval(axes, curve, style, floor, stepped=stepped)
    if floor is not None:
        draw_floor_markers(axes, curve, style, floor, every=has_markers)


def draw_level(axes: "Axes", curve: Curve, style: LineStyle, height: float) -> None:
    """Draw a method without steps. The legend has its value, and says if it is out of sight."""
    low, high = axes.get_ylim()
    value = f"{curve.mean[0]:.3g}"
    if not low <= height <= high:
        value += ", beyond the panel"
    axes.axhline(
        height,
        color=style.colour,
        linewidth=style.width,
        linestyle=style.dash,
        label=f"{curve.label} ({value})",
    )


def shade_interval(
    axes: "Axes", curve: Curve, style: LineStyle, floor: float | None, *, stepped: bool
) -> None:
    """Draw the 95 % interval as an area that ends at the floor.

    The last point of a stepped curve gets a bar, because its area has no width.
    """
    low = curve.low
    high = curve.high
    if floor is not None:
        low = np.maximum(low, floor)
        high = np.maximum(high, floor)
    step: Any = "post" if stepped else None
    axes.fill_between(curve.x, low, high, step=step, color=style.colour, alpha=0.12, linewidth=0)
    if stepped:
        axes.vlines(curve.x[-1:], low[-1:], high[-1:], color=style.colour, linewidth=1.0, alpha=0.6)


def draw_floor_markers(
    axes: "Axes", curve: Curve, style: LineStyle, floor: float, *, every: bool
) -> None:
    """Draw an open marker at every mean below the floor, or only at the first one."""
    below = np.flatnonzero(curve.mean < floor)
    if not every:
        below = below[:1]
    if not len(below):
        return
    axes.scatter(
        curve.x[below],
        np.full(len(below), floor),
        s=26,
        facecolors=THEME.paper,
        edgecolors=style.colour,
        linewidths=1.2,
        zorder=3,
    )


def log_axis_floor(curves: Sequence[Curve]) -> float | None:
    """Return the floor of a logarithmic axis, or None if a linear axis shows more.

    That is so if the range is small or if means are well below 0.
    """
    floor = STYLE.gap_floor_percent
    means = np.concatenate([curve.mean for curve in curves])
    low = float(means.min())
    high = float(means.max())
    if low <= -floor:
        return None
    if high <= STYLE.log_axis_ratio * max(low, floor):
        return None
    return floor


def floor_note(curves: Sequence[Curve], floor: float | None) -> str:
    """Return what the label of an axis says if a value is below its floor."""
    if floor is None:
        return ""
    if not any(curve.mean.min() < floor for curve in curves):
        return ""
    return f" (open at {floor:g}: below it)"


def panel_limits(curves: Sequence[Curve], floor: float | None = None) -> tuple[float, float]:
    """Return the limits of the y axis.

    A logarithmic axis, which has a floor, shows everything. A linear one shows the curves with
    several points, and levels near them, because a distant level would flatten the curves.
    """
    if floor is not None:
        return log_panel_limits(curves, floor)
    levels = [curve for curve in curves if curve.is_level]
    others = [curve for curve in curves if not curve.is_level] or levels
    low = min(float(curve.low.min()) for curve in others)
    high = max(float(curve.high.max()) for curve in others)
    lowest_level = 2 * low - high
    highest_level = 2 * high - low
    for curve in levels:
        level = float(curve.mean[0])
        if lowest_level <= level <= highest_level:
            low = min(low, level)
            high = max(high, level)
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin


def log_panel_limits(curves: Sequence[Curve], floor: float) -> tuple[float, float]:
    """Return the limits of a logarithmic y axis, which shows all curves down to its floor."""
    means = [float(curve.mean.min()) for curve in curves]
    highs = [float(curve.high.max()) for curve in curves]
    lowest = max(floor, min(means))
    highest = max(highs)
    low = 0.8 * lowest
    high = 1.25 * highest
    return low, high


def set_log_scale(axes: "Axes", which: str) -> None:
    """Make the "x" or "y" axis logarithmic, with plain numbers at 1, 2 and 5.

    A long axis has numbers at 1 only.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    scale = {f"{which}scale": "log"}
    axes.set(**scale)
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    labelled = (1.0, 2.0, 5.0)
    if high >= 200.0 * low:
        labelled = (1.0,)
    locator = LogLocator(subs=labelled)
    formatter = FuncFormatter(lambda value, place: plain_number(value))
    axis.set_major_locator(locator)
    axis.set_major_formatter(formatter)
    axis.set_minor_formatter(NullFormatter())


def plain_number(value: float) -> str:
    """Return a number without a power of ten."""
    is_fraction = 1e-9 <= abs(value) < 1.0
    if is_fraction:
        text = f"{value:.9f}"
        digits = text.rstrip("0")
        return digits.rstrip(".")
    return f"{value:,.10g}"


def style_curve_axes(axes: "Axes", x_label: str, title: str) -> None:
    """Set labels and colours, a grid, and no frame above and on the right."""
    ink = THEME.ink
    axes.set_facecolor(THEME.paper)
    axes.set_xlabel(x_label, color=ink)
    axes.set_title(title, color=ink, fontsize=11, loc="left")
    axes.grid(True, which="major", color=ink, alpha=0.12, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def add_legend_and_title(figure: "Figure", axes: "Axes", title: str) -> None:
    """Add a title, and a legend below everything, so that it never hides a curve.

    The legend has as many columns as fit, and the figure grows by its height.
    """
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        column_inches = 0.6 + 0.075 * max(map(len, labels))
        columns = max(1, int(figure.get_figwidth() / column_inches))
        rows = -(-len(labels) // columns)
        figure.set_figheight(figure.get_figheight() + 0.2 * rows)
        figure.legend(
            handles, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize=9
        )
    if title:
        figure.suptitle(title, color=THEME.ink, fontsize=12, x=0.01, ha="left", parse_math=False)
