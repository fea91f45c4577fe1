"""Curves: searches over attempts, gaps over seconds, and differences over the power of mutations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from rhumbline.plots.canvas import INK, PAPER, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart also by those who do not see red and green alike; ours comes first.
COLOURS = ("#e4572e", "#1f6f8b", "#8a6fb0", "#6b9a3a", "#d19a1f", "#444b54", "#c06c9a", "#3aa6a0", "#9c5b2f", "#8d99a6")

FEW = 8  # points of a curve, at most, that are marked: a line of two looks like a measurement of all between


@dataclass(frozen=True)
class Curve:
    """A mean over instances with half its 95 % interval; a curve of one point is drawn as a level."""

    label: str
    x: Float[np.ndarray, "P"]
    mean: Float[np.ndarray, "P"]
    spread: Float[np.ndarray, "P"]
    marked: bool = False  # the points are measurements of their own


def colours(labels: Sequence[str]) -> dict[str, str]:
    """A colour for each label, the same in all panels of a figure; ours have the first."""
    ours = [x for x in labels if x.startswith("COMPASS")]
    ordered = list(dict.fromkeys([*ours, *labels]))
    return {label: COLOURS[place % len(COLOURS)] for place, label in enumerate(ordered)}


def draw_search(best: Sequence[Curve], latest: Sequence[Curve], unit: str, title: str = "") -> "Figure":
    """Two panels over attempts: the best so far, and the best of the latest step, with 95 % intervals."""
    figure = new_figure(10.0, 4.4)
    left, right = figure.subplots(1, 2, sharey=True)
    left.set_ylim(*span([*best, *latest]))
    chosen = colours([c.label for c in (*best, *latest)])
    for axes, some, name in ((left, best, "best so far"), (right, latest, "best of the latest step")):
        for curve in some:
            draw_curve(axes, curve, chosen[curve.label], shaded=True)
        dress_curves(axes, "attempts", name)
        logarithmic(axes, "x")
    left.set_ylabel(unit)
    finish(figure, left, title)
    return figure


def draw_anytime(curves: Sequence[Curve], title: str = "", floor: float = 1e-3) -> "Figure":
    """Mean gap in % over seconds per instance, both logarithmic; gaps below the floor are drawn at it."""
    figure = new_figure(7.6, 4.8)
    axes, chosen = figure.subplots(), colours([c.label for c in curves])
    for curve in curves:
        visible = Curve(curve.label, curve.x, np.maximum(curve.mean, floor), curve.spread, curve.marked)
        draw_curve(axes, visible, chosen[curve.label], shaded=False)
    dress_curves(axes, "seconds per instance (wall clock)", "")
    raised = any(curve.mean.min() < floor for curve in curves)
    axes.set_ylabel(f"mean gap, % (drawn at {floor:g} if below)" if raised else "mean gap, %")
    logarithmic(axes, "x")
    logarithmic(axes, "y")
    finish(figure, axes, title)
    return figure


def draw_shift(
    power: Float[np.ndarray, "P"], difference: Mapping[str, Float[np.ndarray, "P"]], base: str, title: str = ""
) -> "Figure":
    """(base - method) / base of the mean costs in % over the power of the mutation: below 0 is worse than the base."""
    figure = new_figure(7.0, 4.4)
    axes, chosen = figure.subplots(), colours(list(difference))
    for label, values in difference.items():
        axes.plot(power, values, marker="o", markersize=4, linewidth=1.8, color=chosen[label], label=label)
    axes.axhline(0.0, color=INK, linewidth=0.8, linestyle=":")
    dress_curves(axes, "power of the mutation", "")
    axes.set_ylabel(f"cost relative to {base}, % (below 0: worse)")
    finish(figure, axes, title)
    return figure


def draw_curve(axes: "Axes", curve: Curve, colour: str, *, shaded: bool) -> None:
    """One curve, or a level where there is but one point; the panel's height is settled before."""
    width = 2.2 if curve.label.startswith("COMPASS") else 1.5
    if is_level(curve):
        low, high = axes.get_ylim()
        beyond = "" if low <= curve.mean[0] <= high else ", beyond the panel"
        label = f"{curve.label} ({curve.mean[0]:.3g}{beyond})"
        axes.axhline(curve.mean[0], color=colour, linewidth=1.2, linestyle="--", label=label)
        return
    marker = "o" if curve.marked or len(curve.x) <= FEW else ""
    axes.plot(curve.x, curve.mean, color=colour, linewidth=width, marker=marker, markersize=4.5, label=curve.label)
    if shaded:
        low, high = curve.mean - curve.spread, curve.mean + curve.spread
        axes.fill_between(curve.x, low, high, color=colour, alpha=0.12, linewidth=0)


def is_level(curve: Curve) -> bool:
    """Whether a curve has but one point that is not a measurement in time."""
    return len(curve.x) == 1 and not curve.marked


def span(curves: Sequence[Curve]) -> tuple[float, float]:
    """Where the curves with a course are, and levels near them, with some margin; a level far off would flatten all."""
    courses = [c for c in curves if not is_level(c)] or list(curves)
    low = min(float((c.mean - c.spread).min()) for c in courses)
    high = max(float((c.mean + c.spread).max()) for c in courses)
    levels = [float(c.mean[0]) for c in curves if is_level(c)]
    near = [level for level in levels if 2 * low - high <= level <= 2 * high - low]
    low, high = min([low, *near]), max([high, *near])
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin


def logarithmic(axes: "Axes", which: str) -> None:
    """A logarithmic axis with plain numbers at 1, 2 and 5, or where it is long, at 1 only."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 200.0 * low else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def dress_curves(axes: "Axes", below: str, title: str) -> None:
    """Quiet axes with a grid."""
    axes.set_facecolor(PAPER)
    axes.set_xlabel(below, color=INK)
    axes.set_title(title, color=INK, fontsize=11, loc="left")
    axes.grid(True, which="major", color=INK, alpha=0.12, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def finish(figure: "Figure", axes: "Axes", title: str) -> None:
    """A legend below everything, so that it never hides a curve, in as many columns as fit and with room of its own."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        inches = 0.6 + 0.075 * max(map(len, labels))
        fit = max(1, int(figure.get_figwidth() / inches))
        figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(labels) // fit))
        figure.legend(handles, labels, loc="outside lower left", ncols=fit, frameon=False, fontsize=9)
    if title:
        figure.suptitle(title, color=INK, fontsize=12, x=0.01, ha="left", parse_math=False)
