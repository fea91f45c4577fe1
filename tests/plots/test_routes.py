"""Drawings of CVRP routes, read back from the axes."""

from colorsys import rgb_to_hls
from pathlib import Path

import numpy as np
import pytest

from rhumbline.plots import save_plan
from rhumbline.plots.routes import draw_routes, route_colours
from rhumbline.problems.cvrp import CVRPInstance, Routes

XY = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [-3.0, 0.0]])
INSTANCE = CVRPInstance("four", "EUC_2D", (0, 1, 1, 1), 2, xy=XY, best_known=16.0)
PLAN = Routes(((1, 2), (3,)))


def test_each_route_is_drawn_with_its_depot_edges() -> None:
    """A route is a line through its customers in order, and a fainter one from the last customer
    over the depot to the first.
    """
    lines = [np.asarray(line.get_xydata()).tolist() for line in draw_routes(INSTANCE, PLAN).lines]
    assert lines == [
        [[3, 4], [0, 0], [3, 0]],
        [[3, 0], [3, 4]],
        [[-3, 0], [0, 0], [-3, 0]],
        [[-3, 0]],
    ]


def test_routes_have_different_colours() -> None:
    """Both lines of a route share its colour. Routes in other directions have other colours."""
    legs, path, other, _ = (line.get_color() for line in draw_routes(INSTANCE, PLAN).lines)
    assert legs == path
    assert legs != other


@pytest.mark.parametrize("count", range(2, 41))
def test_neighbours_around_the_depot_have_distant_hues(count: int) -> None:
    """Their hues differ by at least a sixth of the circle, also between the last and the first.

    No hue comes twice.
    """
    angle = np.random.default_rng(count).permutation(count) * 2 * np.pi / count
    xy = np.stack([np.append(0.0, np.cos(angle)), np.append(0.0, np.sin(angle))], 1)
    hues = [
        rgb_to_hls(*rgb)[0]
        for rgb in route_colours(xy, Routes(tuple((c,) for c in range(1, count + 1))))
    ]
    around = np.array([hues[place] for place in np.argsort(np.mod(angle + np.pi, 2 * np.pi))])
    away = np.abs(around - np.roll(around, 1))
    assert np.minimum(away, 1 - away).min() > 1 / 6 - 1e-6
    assert len({round(hue, 6) % 1 for hue in hues}) == count


def test_the_caption_counts_vehicles() -> None:
    """It has name, cost (12 + 6), gap and number of vehicles."""
    assert (
        draw_routes(INSTANCE, PLAN).get_title(loc="left")
        == "four     cost 18     gap 12.50%     2 vehicles"
    )


def test_a_figure_is_written(tmp_path: Path) -> None:
    """The type of the plan decides how it is drawn. The file is a PNG."""
    save_plan(tmp_path / "r.png", INSTANCE, PLAN)
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
