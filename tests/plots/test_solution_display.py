"""What a notebook shows of a solution."""

import re
from base64 import b64decode
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from rhumbline.errors import MissingExtra
from rhumbline.plots import canvas
from rhumbline.problems.tsp import Tour, TSPInstance
from rhumbline.search.solution import Solution

XY = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]])
TRIANGLE = TSPInstance("tri", "EUC_2D", XY, best_known=10.0)
SOLUTION = Solution(TRIANGLE, Tour((1, 0, 2)), 12, attempts=1600, seconds=0.25)
PNG = b"\x89PNG"


def cells(html: str) -> dict[str, str]:
    names = re.findall("<th>(.*?)</th>", html)
    return dict(zip(names, re.findall("<td>(.*?)</td>", html), strict=True))


def test_plot_draws_the_plan() -> None:
    """The axes hold the closed tour, with the title of `--plot` or another one."""
    axes = SOLUTION.plot()
    np.testing.assert_array_equal(np.asarray(axes.lines[0].get_xydata()), XY[[1, 0, 2, 1]])
    assert axes.get_title(loc="left") == "tri     cost 12     gap 20.00%"
    assert SOLUTION.plot(title="mine").get_title(loc="left") == "mine"


def test_plot_takes_axes() -> None:
    """Several solutions can share a figure."""
    left, right = Figure().subplots(1, 2)
    assert SOLUTION.plot(left) is left
    assert left.lines
    assert not right.lines


def test_a_notebook_shows_facts_and_picture() -> None:
    """The table has what `repr` says; the picture in it is the PNG."""
    html = SOLUTION._repr_html_()
    assert cells(html) == {
        "instance": "tri",
        "cost": "12",
        "gap": "20.00%",
        "attempts": "1,600",
        "seconds": "0.2",
        "found by": "search",
    }
    encoded = re.search(r'src="data:image/png;base64,(.*?)"', html)
    assert encoded
    assert b64decode(encoded[1]) == SOLUTION._repr_png_()
    assert b64decode(encoded[1]).startswith(PNG)


def test_names_of_files_are_no_markup() -> None:
    """A name that comes from a file cannot add to the page."""
    named = replace(TRIANGLE, name="<script>x</script>", best_known=None)
    html = replace(SOLUTION, instance=named)._repr_html_()
    assert "<script>" not in html
    assert cells(html)["gap"] == ""


def test_without_matplotlib_the_facts_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook shows the table alone; `plot` says what to install."""
    monkeypatch.setattr(canvas, "find_spec", lambda name: None)
    assert SOLUTION._repr_png_() is None
    assert "<img" not in SOLUTION._repr_html_()
    assert cells(SOLUTION._repr_html_())["cost"] == "12"
    with pytest.raises(MissingExtra, match=r"rhumbline\[plots\]"):
        SOLUTION.plot()
