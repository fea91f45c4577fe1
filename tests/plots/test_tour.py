"""Drawings of TSP tours: what is drawn where, and what is written."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError, MissingExtra, note_once
from rhumbline.plots import canvas, find_draw, save_plan
from rhumbline.plots import tour as plots
from rhumbline.problems.tsp import Tour, TSPInstance

XY = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]])
TRIANGLE = TSPInstance("tri", "EUC_2D", XY, best_known=10.0)
TOUR = Tour((1, 0, 2))
MATRIX = np.array([[0.0, 5.0, 3.0], [5.0, 0.0, 4.0], [3.0, 4.0, 0.0]])


def line(instance: TSPInstance) -> np.ndarray:
    return np.asarray(plots.draw_tour(instance, TOUR).lines[0].get_xydata())


def test_the_tour_is_closed_and_its_start_is_marked() -> None:
    """The line visits the cities in order and returns. The last marker is the start."""
    axes = plots.draw_tour(TRIANGLE, TOUR)
    np.testing.assert_array_equal(np.asarray(axes.lines[0].get_xydata()), XY[[1, 0, 2, 1]])
    np.testing.assert_array_equal(np.asarray(axes.collections[-1].get_offsets()), XY[[1]])
    assert axes.get_aspect() == 1.0


def test_the_title_has_name_cost_and_gap() -> None:
    """A triangle of 3, 4 and 5 has a tour of 12, a fifth more than 10.

    Another title replaces this one.
    """
    assert plots.draw_tour(TRIANGLE, TOUR).get_title(loc="left") == "tri     cost 12     gap 20.00%"
    exact = TSPInstance("a$b$", "EXACT_2D", XY)
    assert plots.draw_tour(exact, TOUR).get_title(loc="left") == "a$b$     cost 12.0000"
    assert plots.draw_tour(TRIANGLE, TOUR, title="mine").get_title(loc="left") == "mine"


def test_given_axes_are_used_and_returned() -> None:
    """A figure of the caller can hold several tours."""
    axes = Figure().add_subplot()
    assert plots.draw_tour(TRIANGLE, TOUR, axes) is axes


def test_matrices_are_drawn_by_positions_or_embedding() -> None:
    """Positions for display are used as they are.

    Without them the matrix is embedded, which keeps these distances.
    """
    np.testing.assert_array_equal(
        line(TSPInstance("m", "EXPLICIT", XY + 7, MATRIX)), XY[[1, 0, 2, 1]] + 7
    )
    path = line(TSPInstance("m", "EXPLICIT", matrix=MATRIX))
    np.testing.assert_allclose(np.linalg.norm(np.diff(path, axis=0), axis=1), [5.0, 3.0, 4.0])


@pytest.mark.parametrize(
    ("instance", "reconstructed"),
    [
        (TSPInstance("m", "EXPLICIT", matrix=MATRIX), True),
        (TSPInstance("m", "EXPLICIT", XY, MATRIX), False),
        (TRIANGLE, False),
    ],
)
def test_reconstructed_positions_are_said_to_be_so(
    instance: TSPInstance,
    reconstructed: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The picture and a note on stderr say that the file has no positions."""
    note_once.cache_clear()
    axes = plots.draw_tour(instance, TOUR)
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["positions reconstructed from distances"] * reconstructed
    save_plan(tmp_path / "a.png", instance, TOUR)
    save_plan(tmp_path / "b.png", instance, TOUR)
    assert capsys.readouterr().err.count("reconstructed from the distances") == reconstructed


def test_maps_have_north_up() -> None:
    """TSPLIB's geographical files give the latitude first. It is the height of a drawing."""
    path = line(TSPInstance("g", "GEO", np.array([[10.0, 50.0], [20.0, 50.0], [10.0, 60.0]])))
    assert path[0, 1] > path[1, 1] == path[2, 1]
    assert path[2, 0] > path[1, 0] == pytest.approx(path[0, 0])


@pytest.mark.parametrize("size", [1, 2, 300])
def test_any_size_is_drawn(tmp_path: Path, size: int) -> None:
    """One city, two cities and many on one line can be drawn without warnings."""
    instance = TSPInstance("line", "EUC_2D", np.stack([np.arange(size), np.zeros(size)], 1))
    save_plan(tmp_path / "t.png", instance, Tour(tuple(range(size))))
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


def test_writing_is_atomic(tmp_path: Path) -> None:
    """A figure replaces the old one and leaves no other file. The suffix decides the format."""
    (tmp_path / "t.svg").write_text("old")
    save_plan(tmp_path / "t.svg", TRIANGLE, TOUR)
    assert "<svg" in (tmp_path / "t.svg").read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["t.svg"]


def test_a_path_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    """The message names the path."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/t\.png: cannot be written"):
        save_plan(tmp_path / "file" / "t.png", TRIANGLE, TOUR)


def test_an_unknown_format_is_an_input_error(tmp_path: Path) -> None:
    """The message names the suffix and others that can be used."""
    with pytest.raises(InputError, match=r"t\.xyz: pictures cannot end in 'xyz'; use png"):
        save_plan(tmp_path / "t.xyz", TRIANGLE, TOUR)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the command that installs it."""
    monkeypatch.setattr(canvas, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'rhumbline\[plots\]'"):
        plots.draw_tour(TRIANGLE, TOUR)


def test_a_problem_without_drawings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the problem, be it known or not."""
    monkeypatch.setitem(DOMAINS.loaded, "tsp", replace(DOMAINS["tsp"], draw=None))
    with pytest.raises(InputError, match="drawing a plan is not supported for tsp"):
        find_draw("tsp")
    with pytest.raises(InputError, match="problem 'knapsack' is not known"):
        find_draw("knapsack")
