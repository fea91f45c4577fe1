"""Curves and radars, read back from the axes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rhumbline.plots.curves import (
    Curve,
    assign_colours,
    draw_anytime,
    draw_search,
    draw_shift,
    line_styles,
    panel_limits,
    plain_number,
)
from rhumbline.plots.radar import draw_radar

X = np.array([16.0, 32.0, 64.0])
OURS = Curve("COMPASS", X, np.array([3.0, 2.0, 1.0]), np.array([0.5, 0.5, 0.5]))
OTHER = Curve("sampling", X, np.array([4.0, 3.5, 3.0]), np.array([1.0, 1.0, 1.0]))
LEVEL = Curve("greedy", np.ones(1), np.array([40.0]), np.array([2.0]))


def test_searches_are_drawn_over_attempts() -> None:
    """Both panels have the curves on a logarithmic axis.

    A level is dashed and has its value in the legend.
    """
    far = replace(LEVEL, mean=np.array([19.0]))
    left, right = draw_search([OURS, OTHER, far], [OURS, OTHER], "gap, %").axes
    np.testing.assert_array_equal(
        np.asarray(left.lines[0].get_xydata()), np.stack([X, OURS.mean], axis=1)
    )
    assert (left.get_xscale(), right.get_xscale(), len(left.lines), len(right.lines)) == (
        "log",
        "log",
        3,
        2,
    )
    assert left.lines[2].get_linestyle() == "--"
    assert left.lines[2].get_label() == "greedy (19, beyond the panel)"
    assert (
        draw_search([OURS, LEVEL], [], "gap, %").axes[0].lines[1].get_label() == "greedy (40)"
    )  # logarithmic


def test_a_distant_level_does_not_flatten_the_curves() -> None:
    """The panels show 0.5 to 5, where the curves are, with a margin. The level at 40 is outside."""
    low, high = panel_limits([OURS, OTHER, LEVEL])
    assert (low, high) == (pytest.approx(0.5 - 0.27), pytest.approx(5.0 + 0.27))


def test_a_near_level_is_shown() -> None:
    """A level at 8 is above the curves by less than their height, so the panel ends a margin above
    it.
    """
    low, high = panel_limits([OURS, OTHER, replace(LEVEL, mean=np.array([8.0]))])
    assert (low, high) == (pytest.approx(0.5 - 0.45), pytest.approx(8.0 + 0.45))


def test_gaps_of_zero_can_be_drawn() -> None:
    """A solver that reaches the reference has a gap of 0, which no logarithmic axis has.

    It is drawn at the floor.
    """
    solver = Curve(
        "LKH", np.array([0.1, 1.0]), np.array([0.01, 0.0]), np.zeros(2), is_measured=True
    )
    axes = draw_anytime([OURS, solver]).axes[0]
    assert axes.lines[1].get_ydata().tolist() == [0.01, 0.001]
    assert axes.get_ylabel() == "mean gap, % (open at 0.001: below it)"
    assert axes.collections[-1].get_offsets().tolist() == [[1.0, 0.001]]
    assert draw_anytime([OURS]).axes[0].get_ylabel() == "mean gap, %"


def test_no_value_is_shown_before_it_was_reached() -> None:
    """The best cost so far is drawn as steps that go down at a point, and so is its interval."""
    left, right = draw_search([OURS, OTHER], [OURS, OTHER], "gap, %").axes
    styles = [
        line.get_drawstyle()
        for line in (*left.lines, *right.lines, *draw_anytime([OURS]).axes[0].lines)
    ]
    assert styles == ["steps-post"] * 2 + ["default"] * 2 + ["steps-post"]
    (path,) = draw_anytime([OURS]).axes[0].collections[0].get_paths()
    heights = {y for x, y in path.vertices.tolist() if 16.0 < x < 32.0}
    assert heights == set()  # no corner between two steps
    assert [32.0, 3.5] in path.vertices.tolist()  # the upper edge of 3 ± 0.5 lasts until 32


def test_a_wide_range_of_gaps_is_logarithmic() -> None:
    """The axis is logarithmic from a ratio of 20 on.

    A gap of 0 has an open marker at the floor. Means well below 0 need a linear axis.
    """

    def figure(*last: float) -> Any:
        return draw_search(
            [replace(OURS, mean=np.array([3.0, 2.0, x])) for x in last], [], "gap, %"
        ).axes[0]

    assert (figure(1.0).get_yscale(), figure(0.1).get_yscale(), figure(-1.0).get_yscale()) == (
        "linear",
        "log",
        "linear",
    )
    assert figure(0.1).get_ylabel() == "gap, %"
    zero = figure(0.0)
    assert (zero.get_yscale(), zero.get_ylabel()) == ("log", "gap, % (open at 0.001: below it)")
    assert zero.lines[0].get_ydata().tolist() == [3.0, 2.0, 0.001]
    assert zero.collections[-1].get_offsets().tolist() == [[64.0, 0.001]]
    assert zero.get_ylim()[0] < 0.001


def test_intervals_are_shaded_over_seconds() -> None:
    """The area is that of the interval, cut off at the floor. A single measurement has a bar."""
    axes = draw_anytime([replace(OURS, half_interval=np.full(3, 1.5))]).axes[0]
    (path,) = axes.collections[0].get_paths()
    heights = path.vertices[:, 1]
    assert (heights.min(), heights.max()) == (0.001, 4.5)
    one = Curve("LKH", np.array([1.0]), np.array([2.0]), np.array([0.5]), is_measured=True)
    (bar,) = draw_anytime([one]).axes[0].collections[1].get_segments()
    assert bar.tolist() == [[1.0, 1.5], [1.0, 2.5]]
    (bar,) = axes.collections[1].get_segments()
    assert bar.tolist() == [
        [64.0, 0.001],
        [64.0, 2.5],
    ]  # the last of a course has an area of no width


def test_curves_of_one_colour_have_different_dashes() -> None:
    """One method on two machines has one colour."""
    look = line_styles(
        [replace(OURS, label="a", name="x"), replace(OURS, label="b", name="x")], {"x": "#123456"}
    )
    assert {one.colour for one in look.values()} == {"#123456"}
    assert look["a"].dash != look["b"].dash


def test_numbers_of_an_axis_are_plain() -> None:
    """They have no powers of ten."""
    assert [plain_number(x) for x in (1e-5, 0.0002, 0.5, 1.0, 20.0, 1000.0)] == [
        "0.00001",
        "0.0002",
        "0.5",
        "1",
        "20",
        "1,000",
    ]


def test_curves_with_few_points_are_marked() -> None:
    """Measurements always have markers. Curves have them if they have few points."""
    x, solver = (
        np.arange(1.0, 20.0),
        Curve("LKH", X, OURS.mean, OURS.half_interval, is_measured=True),
    )
    axes = draw_anytime([OURS, Curve("sampling", x, x, np.zeros(19)), solver]).axes[0]
    assert [line.get_marker() for line in axes.lines] == ["o", "", "o"]


def test_our_method_has_the_first_colour() -> None:
    """A method has the same colour in both panels, whatever its place."""
    chosen = assign_colours(["sampling", "COMPASS", "sampling", "EAS"])
    assert chosen == {"COMPASS": "#e4572e", "sampling": "#1f6f8b", "EAS": "#8a6fb0"}


def test_differences_are_drawn_over_powers() -> None:
    """Each method has a line, and a bar for the interval of each point."""
    power = np.array([0.0, 0.5])
    eas = Curve("EAS", power, np.array([-0.1, -0.2]), np.array([0.05, 0.1]), is_measured=True)
    axes = draw_shift([Curve("COMPASS", power, np.zeros(2), np.zeros(2)), eas], "COMPASS").axes[0]
    np.testing.assert_allclose(
        [bar[:, 1] for bar in axes.collections[1].get_segments()], [[-0.15, -0.05], [-0.3, -0.1]]
    )
    assert axes.lines[1].get_ydata().tolist() == [-0.1, -0.2]
    assert axes.get_ylabel() == "cost relative to COMPASS, % (below 0: worse)"


def test_a_radar_is_closed() -> None:
    """Each method's line ends where it began. The categories are in order."""
    axes = draw_radar(["a", "b", "c"], {"COMPASS": [1.0, 0.5, 0.25]}).axes[0]
    assert axes.lines[0].get_ydata().tolist() == [1.0, 0.5, 0.25, 1.0]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["a", "b", "c"]
