"""Curves and radars, read back from the axes."""

from dataclasses import replace

import numpy as np
import pytest

from rhumbline.plots.curves import Curve, colours, draw_anytime, draw_search, draw_shift, span
from rhumbline.plots.radar import draw_radar

X = np.array([16.0, 32.0, 64.0])
OURS = Curve("COMPASS", X, np.array([3.0, 2.0, 1.0]), np.array([0.5, 0.5, 0.5]))
OTHER = Curve("sampling", X, np.array([4.0, 3.5, 3.0]), np.array([1.0, 1.0, 1.0]))
LEVEL = Curve("greedy", np.ones(1), np.array([40.0]), np.array([2.0]))


def test_searches_are_drawn_over_attempts() -> None:
    """Both panels have the curves on a logarithmic axis; a level is dashed and has its value in the legend."""
    left, right = draw_search([OURS, OTHER, LEVEL], [OURS, OTHER], "gap, %").axes
    np.testing.assert_array_equal(np.asarray(left.lines[0].get_xydata()), np.stack([X, OURS.mean], axis=1))
    assert (left.get_xscale(), right.get_xscale(), len(left.lines), len(right.lines)) == ("log", "log", 3, 2)
    assert left.lines[2].get_linestyle() == "--"
    assert left.lines[2].get_label() == "greedy (40, beyond the panel)"


def test_a_level_far_off_does_not_flatten_the_curves() -> None:
    """The panels show 0.5 to 5, where the curves are, with a margin; the level at 40 is beyond."""
    low, high = span([OURS, OTHER, LEVEL])
    assert (low, high) == (pytest.approx(0.5 - 0.27), pytest.approx(5.0 + 0.27))


def test_a_level_near_by_is_shown() -> None:
    """At 8 it is less than the height of the curves above them: the panel ends a margin above it."""
    low, high = span([OURS, OTHER, replace(LEVEL, mean=np.array([8.0]))])
    assert (low, high) == (pytest.approx(0.5 - 0.45), pytest.approx(8.0 + 0.45))


def test_gaps_of_nothing_can_be_drawn() -> None:
    """A solver that reaches the reference has a gap of 0, which no logarithmic axis has: it is drawn at the floor."""
    solver = Curve("LKH", np.array([0.1, 1.0]), np.array([0.01, 0.0]), np.zeros(2), marked=True)
    axes = draw_anytime([OURS, solver]).axes[0]
    assert axes.lines[1].get_ydata().tolist() == [0.01, 0.001]
    assert axes.get_ylabel() == "mean gap, % (drawn at 0.001 if below)"
    assert draw_anytime([OURS]).axes[0].get_ylabel() == "mean gap, %"


def test_only_few_points_are_marked() -> None:
    """Measurements always are, and points of a curve that are few enough to be told apart."""
    x, solver = np.arange(1.0, 20.0), Curve("LKH", X, OURS.mean, OURS.spread, marked=True)
    axes = draw_anytime([OURS, Curve("sampling", x, x, np.zeros(19)), solver]).axes[0]
    assert [line.get_marker() for line in axes.lines] == ["o", "", "o"]


def test_colours_are_of_methods_and_ours_is_the_first() -> None:
    """The same method has the same colour in both panels, whatever its place."""
    chosen = colours(["sampling", "COMPASS", "sampling", "EAS"])
    assert chosen == {"COMPASS": "#e4572e", "sampling": "#1f6f8b", "EAS": "#8a6fb0"}


def test_differences_are_drawn_over_powers() -> None:
    """A line for each method."""
    power = np.array([0.0, 0.5])
    axes = draw_shift(power, {"COMPASS": np.zeros(2), "EAS": np.array([-0.1, -0.2])}, "COMPASS").axes[0]
    assert axes.lines[1].get_ydata().tolist() == [-0.1, -0.2]
    assert axes.get_ylabel() == "cost relative to COMPASS, % (below 0: worse)"


def test_a_radar_is_closed() -> None:
    """Each method's line ends where it began, and the categories stand around it in order."""
    axes = draw_radar(["a", "b", "c"], {"COMPASS": [1.0, 0.5, 0.25]}).axes[0]
    assert axes.lines[0].get_ydata().tolist() == [1.0, 0.5, 0.25, 1.0]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["a", "b", "c"]
