"""Pictures of landscapes, read back from the axes."""

import numpy as np
import pytest

from rhumbline.plots.latent import Landscape, draw_landscapes

AXIS = np.linspace(-1.0, 1.0, 3)
COST = np.arange(9.0).reshape(3, 3)
MEANS = np.array([[0.0, 0.0], [0.5, 0.0], [0.5, -0.5]])


def landscape(name: str) -> Landscape:
    return Landscape(name, AXIS, COST, MEANS, np.array([1.0, 0.5, 0.0]))


def test_costs_lie_where_their_latents_are() -> None:
    """The lower left pixel is the cost at (-1, -1), and pixels are centred on their latents."""
    panel = draw_landscapes([landscape("a")]).axes[0]
    image = panel.images[0]
    np.testing.assert_array_equal(np.asarray(image.get_array()), COST)
    assert (image.origin, tuple(image.get_extent())) == ("lower", (-1.5, 1.5, -1.5, 1.5))


def test_the_path_is_as_wide_as_the_search() -> None:
    """White crosses at the means; the line between them gets thinner as the deviation falls."""
    panel = draw_landscapes([landscape("a")]).axes[0]
    np.testing.assert_array_equal(np.asarray(panel.collections[0].get_offsets()), MEANS)
    path = panel.lines[:-1]  # the last is the outline of the box
    assert [line.get_linewidth() for line in path] == pytest.approx([6.0, 3.3])
    assert {line.get_color() for line in path} == {"white"}


def test_eight_instances_have_eight_panels() -> None:
    """Four in a row, each with its own scale; panels that nobody needs are empty."""
    figure = draw_landscapes([landscape(str(k)) for k in range(5)])
    assert [p.get_title() for p in figure.axes if p.images] == ["0", "1", "2", "3", "4"]
    assert len([p for p in figure.axes if not p.axison]) == 3
