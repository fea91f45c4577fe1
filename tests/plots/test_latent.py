"""Landscapes, read back from the axes."""

from dataclasses import replace

import numpy as np
import pytest

from rhumbline.plots.canvas import THEME
from rhumbline.plots.latent import Landscape, draw_landscapes

AXIS = np.linspace(-1.0, 1.0, 3)
COST = np.arange(9.0).reshape(3, 3)
MEANS = np.array([[0.0, 0.0], [0.5, 0.0], [0.5, -0.5]])


def landscape(name: str) -> Landscape:
    return Landscape(name, AXIS, COST, MEANS, np.array([1.0, 0.5, 0.0]))


def test_costs_lie_where_their_latents_are() -> None:
    """The lower left pixel is the cost at (-1, -1). Pixels are centred on their latents."""
    panel = draw_landscapes([landscape("a")]).axes[0]
    image = panel.images[0]
    np.testing.assert_array_equal(np.asarray(image.get_array()), COST)
    assert (image.origin, tuple(image.get_extent())) == ("lower", (-1.5, 1.5, -1.5, 1.5))


def test_the_path_is_as_wide_as_the_search() -> None:
    """The means are white crosses. The line between them becomes thinner as the deviation falls."""
    panel = draw_landscapes([landscape("a")]).axes[0]
    np.testing.assert_array_equal(np.asarray(panel.collections[0].get_offsets()), MEANS)
    path = [line for line in panel.lines if line.get_color() == "white"]
    assert [line.get_linewidth() for line in path] == pytest.approx([6.0, 3.3])


def test_the_path_has_a_dark_rim() -> None:
    """White could not be seen on yellow.

    Under each part of the path there is a wider dark line, drawn before anything white.
    """
    lines = (
        draw_landscapes([landscape("a")]).axes[0].lines[:-1]
    )  # the last is the outline of the box
    rims, path = lines[:2], lines[2:]
    for rim, line in zip(rims, path, strict=True):
        np.testing.assert_array_equal(rim.get_xydata(), line.get_xydata())
        assert rim.get_linewidth() > line.get_linewidth() + 1.0
        assert (rim.get_color(), line.get_color()) == (THEME.ink, "white")


def test_the_whole_path_is_in_view() -> None:
    """A search that leaves the grid to (2.5, -3) stays visible, on another background."""
    far = replace(landscape("a"), means=np.array([[0.0, 0.0], [0.5, 0.0], [2.5, -3.0]]))
    panel = draw_landscapes([far]).axes[0]
    (left, right), (bottom, top) = panel.get_xlim(), panel.get_ylim()
    assert bottom < -3.0
    assert right > 2.5
    assert right - left == pytest.approx(top - bottom)
    assert tuple(panel.images[0].get_extent()) == (-1.5, 1.5, -1.5, 1.5)
    assert draw_landscapes([landscape("a")]).axes[0].get_xlim() == (-1.5, 1.5)  # no room is wasted


def test_axes_and_colours_have_labels() -> None:
    """Both latents are named, and so is that low costs are better."""
    panel, bar = draw_landscapes([landscape("a")]).axes
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("latent 1", "latent 2")
    assert bar.get_ylabel() == "cost (lower is better)"


def test_eight_instances_have_eight_panels() -> None:
    """Four are in a row, each with its own scale. Panels without an instance are empty."""
    figure = draw_landscapes([landscape(str(k)) for k in range(5)])
    assert [p.get_title() for p in figure.axes if p.images] == ["0", "1", "2", "3", "4"]
    assert len([p for p in figure.axes if not p.axison]) == 3
