"""The figures of results: what the ledger says is what is drawn."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from tools.docs.result_figures import (
    FIGURES,
    FLOOR,
    PALETTES,
    draw_overview,
    draw_strategies,
    save_figures,
)
from tools.gap_tables import COMPARED, LEDGER, OVERVIEW_SETS, newest_rows, read_ledger

ROWS = newest_rows(read_ledger(LEDGER))


def test_the_overview_has_the_gaps_of_the_table() -> None:
    """Three points a set: our default, COMPASS with our weights, and the paper's."""
    (axes,) = draw_overview(ROWS, PALETTES["light"]).axes
    drawn = {
        (round(float(x), 1), float(y))
        for line in axes.lines
        for x, y in np.asarray(line.get_xydata())
    }
    for place, name in enumerate(OVERVIEW_SETS):
        assert (float(place), max(ROWS[name, "cmaes 1600"].gap, FLOOR)) in drawn
    legend = axes.get_legend()
    assert legend is not None
    texts = {text.get_text() for text in legend.get_texts()}
    assert texts == {"our default", "COMPASS, ours", "COMPASS, paper"}


def test_strategies_are_sorted_by_gap() -> None:
    """A panel a set; the lowest gap is at the top, and has its name."""
    figure = draw_strategies(ROWS, PALETTES["dark"])
    assert len(figure.axes) == len(COMPARED)
    for axes, name in zip(figure.axes, COMPARED, strict=True):
        names = [label.get_text() for label in axes.get_yticklabels()]
        gaps = [ROWS[name, f"{each} 1600"].gap for each in names]
        assert gaps == sorted(gaps, reverse=True)


def test_each_figure_is_light_and_dark(tmp_path: Path) -> None:
    """The page of results refers to exactly these files, and they are the same bytes each time."""
    paths = save_figures(tmp_path)
    before = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in save_figures(tmp_path)] == before
    names = {path.name for path in paths}
    assert names == {f"{name}-{theme}.svg" for name in FIGURES for theme in PALETTES}
    page = Path(__file__).parents[2] / "docs" / "results" / "figures.md"
    text = page.read_text(encoding="utf-8")
    assert all(f"/_executed/{name}" in text for name in names)
