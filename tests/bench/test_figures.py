"""Result lines become figures where they have what a figure shows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rhumbline.bench import figures
from rhumbline.bench.results import Result, read_results

A = read_results(Path(__file__).parent / "golden" / "results.jsonl", print)[0]


def traced(instance: str, steps: list[list[float]], **more: object) -> Result:
    return replace(A, instance=instance, reference=10.0, trace=steps, **more)  # type: ignore[arg-type]


def test_curves_keep_the_last_value_until_the_next_step() -> None:
    """Two searches with other steps: means at 10, 20 and 30 attempts, worked by hand; gaps in % of 10.

    Two values 2 d apart have half an interval of 1.96 d.
    """
    one = traced("1", [[10, 1.0, 12.0, 12.0], [30, 3.0, 11.0, 11.5]])
    two = traced("2", [[10, 1.0, 14.0, 14.0], [20, 2.0, 13.0, 13.0]])
    curve = figures.curve([one, two], figures.ATTEMPTS, figures.BEST)
    assert curve.x.tolist() == [10, 20, 30]
    np.testing.assert_allclose(curve.mean, [30.0, 25.0, 20.0])
    np.testing.assert_allclose(curve.spread, [19.6, 9.8, 19.6])
    again = figures.curve([one, two, replace(one, seed=9), replace(two, seed=9)], figures.ATTEMPTS, figures.BEST)
    np.testing.assert_allclose(again.spread, curve.spread)  # seeds are no sample


def test_a_curve_starts_when_all_have_begun() -> None:
    """Nothing is said about times at which some instance had no plan yet."""
    one, two = traced("1", [[5, 1.0, 12.0, 12.0], [30, 3.0, 11.0, 11.0]]), traced("2", [[10, 1.0, 14.0, 14.0]])
    assert figures.curve([one, two], figures.ATTEMPTS, figures.BEST).x.tolist() == [10, 30]


def test_seconds_are_shared_by_instances_solved_together() -> None:
    """Four instances in 8 seconds took 2 each."""
    some = [traced(str(k), [[16, 8.0, 12.0, 12.0]], together=4, family="ours") for k in range(4)]
    curve = figures.curve(some, figures.SECONDS, figures.BEST)
    assert (curve.label, curve.x.tolist()) == ("ours", [2.0])


def test_families_have_a_point_for_each_budget() -> None:
    """In order of time: mean seconds and mean gap of each method."""
    ten = [replace(A, method="10 s", seconds=10.0, together=1, cost=10.1, reference=10.0, trace=())]
    one = [replace(A, method="1 s", seconds=1.0, together=1, cost=10.5, reference=10.0, trace=())]
    curve = figures.budget_curve("X", [*ten, *one])
    assert (curve.label, curve.marked, curve.x.tolist()) == ("X", True, [1.0, 10.0])
    np.testing.assert_allclose(curve.mean, [5.0, 1.0])


def test_the_shift_is_relative_to_ours() -> None:
    """A method 1 % dearer than ours at power 0 and 2 % at 0.5 is drawn at -1 and -2."""
    costs = {("COMPASS", 0.0): 10.0, ("COMPASS", 0.5): 20.0, ("EAS", 0.0): 10.1, ("EAS", 0.5): 20.4}
    some = [replace(A, method=m, power=p, cost=c) for (m, p), c in costs.items()]
    axes = figures.shift_figure(some).axes[0]
    np.testing.assert_allclose(axes.lines[1].get_ydata(), [-1.0, -2.0])
    assert figures.shift_figure(some[:2]) is None


def test_scores_go_from_the_worst_to_the_best() -> None:
    """Costs of 10, 11 and 12 are scores of 1, 0.5 and 0."""
    some = [replace(A, method=m, cost=c) for m, c in (("a", 10.0), ("b", 11.0), ("c", 12.0))]
    assert figures.normalised(some) == {"a": 1.0, "b": pytest.approx(0.5), "c": 0.0}
    assert figures.normalised(some[:1]) == {"a": 1.0}


def radar_lines() -> list[Result]:
    kinds = [(c, m) for c in ("in", "larger", "shift") for m in ("COMPASS", "EAS")]
    return [replace(A, set=c, category=c, method=m, cost=1.0 if m == "COMPASS" else 2.0) for c, m in kinds]


def test_a_radar_needs_three_categories_and_two_methods() -> None:
    """Classical solvers, which count no attempts, are left out."""
    lines = radar_lines()
    axes = figures.radar_figure([*lines, replace(lines[0], method="LKH", attempts=None)]).axes[0]
    assert [line.get_label() for line in axes.lines] == ["COMPASS", "EAS"]
    assert figures.radar_figure(lines[:4]) is None
    assert figures.radar_figure([r for r in lines if r.method == "EAS"]) is None


def test_only_what_can_be_drawn_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines without traces, others to compare with, powers or categories give no picture; each gives its own."""
    monkeypatch.setattr(figures, "save", lambda path, figure: path.write_text(type(figure).__name__))
    assert list(figures.draw_all([replace(A, trace=())], tmp_path)) == []
    steps = [[16, 1.0, 12.0, 12.0], [32, 2.0, 11.0, 11.0]]
    lines = [traced("1", steps, family="ours", method="COMPASS"), replace(A, reference=9.0, family="theirs", trace=())]
    assert figures.anytime_figure(lines[:1]) is None
    lines += [
        replace(A, set=f"m{p}", method=m, power=p, reference=None) for p in (0.0, 0.5) for m in ("COMPASS", "EAS")
    ]
    lines += [replace(r, reference=None) for r in radar_lines()]
    drawn = list(figures.draw_all(lines, tmp_path))
    assert [p.name for p in drawn] == ["search-demo-one.png", "seconds-demo-one.png", "mutations-tsp.png", "radar.png"]
    assert {p.read_text() for p in drawn} == {"Figure"}
