"""Figures of results: each is drawn if the results have what it shows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rhumbline.bench import figures
from rhumbline.bench.figures import TraceColumn, radar
from rhumbline.bench.results import Result, read_results

A = read_results(Path(__file__).parent / "golden" / "results.jsonl", print)[0]


def with_trace(instance: str, steps: list[list[float]], **more: Any) -> Result:
    return replace(A, **{"instance": instance, "reference": 10.0, "trace": steps, **more})


def test_curves_keep_the_last_value_until_the_next_step() -> None:
    """Two searches have steps at different attempts.

    Their means at 10, 20 and 30 attempts are gaps in percent of 10, computed by hand. Two values
    with a distance of 2 d have half an interval of 1.96 d.
    """
    one = with_trace("1", [[10, 1.0, 12.0, 12.0], [30, 3.0, 11.0, 11.5]])
    two = with_trace("2", [[10, 1.0, 14.0, 14.0], [20, 2.0, 13.0, 13.0]])
    curve = figures.mean_curve("A", [one, two], TraceColumn.ATTEMPTS, TraceColumn.BEST)
    assert curve.x.tolist() == [10, 20, 30]
    np.testing.assert_allclose(curve.mean, [30.0, 25.0, 20.0])
    np.testing.assert_allclose(curve.half_interval, [19.6, 9.8, 19.6])
    again = figures.mean_curve(
        "A",
        [one, two, replace(one, seed=9), replace(two, seed=9)],
        TraceColumn.ATTEMPTS,
        TraceColumn.BEST,
    )
    np.testing.assert_allclose(again.half_interval, curve.half_interval)  # seeds are no sample


def test_a_curve_starts_when_all_have_begun() -> None:
    """A curve has no point at a time at which some instance had no plan yet."""
    one, two = (
        with_trace("1", [[5, 1.0, 12.0, 12.0], [30, 3.0, 11.0, 11.0]]),
        with_trace("2", [[10, 1.0, 14.0, 14.0]]),
    )
    assert figures.mean_curve(
        "A", [one, two], TraceColumn.ATTEMPTS, TraceColumn.BEST
    ).x.tolist() == [
        10,
        30,
    ]


def test_seconds_are_shared_by_instances_solved_together() -> None:
    """Four instances that take 8 seconds together take 2 each."""
    some = [
        with_trace(str(k), [[16, 8.0, 12.0, 12.0]], together=4, family="ours") for k in range(4)
    ]
    curve = figures.mean_curve("x", some, TraceColumn.SECONDS, TraceColumn.BEST)
    assert (curve.name, curve.x.tolist()) == ("ours", [2.0])


def test_families_have_a_point_for_each_budget() -> None:
    """The points are in order of time: mean seconds and mean gap of each method."""
    ten = [replace(A, method="10 s", seconds=10.0, together=1, cost=10.1, reference=10.0, trace=())]
    one = [replace(A, method="1 s", seconds=1.0, together=1, cost=10.5, reference=10.0, trace=())]
    curve = figures.budget_curve("X", [*ten, *one])
    assert (curve.label, curve.is_measured, curve.x.tolist()) == ("X", True, [1.0, 10.0])
    np.testing.assert_allclose(curve.mean, [5.0, 1.0])


def test_the_shift_is_relative_to_ours() -> None:
    """A method that costs 1 % more than ours at power 0 and 2 % at 0.5 is drawn at -1 and -2.

    One instance has no interval.
    """
    costs = {("COMPASS", 0.0): 10.0, ("COMPASS", 0.5): 20.0, ("EAS", 0.0): 10.1, ("EAS", 0.5): 20.4}
    some = [replace(A, method=m, power=p, cost=c, set=f"p{p}") for (m, p), c in costs.items()]
    figure = figures.shift_figure(some)
    np.testing.assert_allclose(figure.axes[0].lines[1].get_ydata(), [-1.0, -2.0])
    assert figure.get_suptitle() == "tsp, mutated: 1 instance at each power"
    assert figures.shift_figure(some[:2]) is None


def test_the_bars_of_a_shift_are_those_of_pairs() -> None:
    """Ours costs 10 and 20, the other 11 and 23: -13.3 % of 15.

    The differences 1 and 3 have a deviation of sqrt(2). An instance without a result of ours counts
    in neither number.
    """
    costs = {
        ("COMPASS", "1"): 10.0,
        ("COMPASS", "2"): 20.0,
        ("EAS", "1"): 11.0,
        ("EAS", "2"): 23.0,
        ("EAS", "3"): 99.0,
    }
    some = [
        replace(A, method=m, instance=i, power=p, cost=c, set=f"p{p}")
        for (m, i), c in costs.items()
        for p in (0.0, 0.5)
    ]
    figure = figures.shift_figure(some)
    axes = figure.axes[0]
    np.testing.assert_allclose(axes.lines[1].get_ydata(), [-100 * 2 / 15] * 2)
    (low, high) = axes.collections[1].get_segments()[0][:, 1]
    assert high - low == pytest.approx(2 * 1.96 * 100 / 15)  # sqrt(2) / sqrt(2 pairs)
    assert figure.get_suptitle() == "tsp, mutated: 2 instances at each power, with 95 % intervals"


def test_scores_go_from_the_worst_to_the_best() -> None:
    """Costs of 10, 11 and 12 have scores of 1, 0.5 and 0."""
    some = {m: [replace(A, method=m, cost=c)] for m, c in (("a", 10.0), ("b", 11.0), ("c", 12.0))}
    assert radar.normalised_scores(some) == {"a": 1.0, "b": pytest.approx(0.5), "c": 0.0}
    assert radar.normalised_scores({"a": some["a"]}) == {"a": 1.0}


def radar_lines() -> list[Result]:
    kinds = [(c, m) for c in ("zoo", "large shift", "in distribution") for m in ("COMPASS", "EAS")]
    return [
        replace(A, set=c, category=c, method=m, cost=1.0 if m == "COMPASS" else 2.0)
        for c, m in kinds
    ]


def lines_of(results: list[Result]) -> dict[str, list[float]]:
    """Return the lines of a radar as they are drawn."""
    return {
        line.get_label(): list(line.get_ydata())[:-1]
        for line in figures.radar_figure(results).axes[0].lines
    }


def test_a_radar_needs_three_categories_and_two_methods() -> None:
    """Classical solvers, which count no attempts, are left out."""
    lines = radar_lines()
    assert list(lines_of([*lines, replace(lines[0], method="LKH", attempts=None)])) == [
        "COMPASS",
        "EAS",
    ]
    assert figures.radar_figure(lines[:4]) is None
    assert figures.radar_figure([r for r in lines if r.method == "EAS"]) is None


def test_axes_of_a_radar_have_an_order_and_sizes() -> None:
    """Known categories come first, whatever the order of the results.

    Axes count sets and instances.
    """
    more = [
        replace(r, set="two", instance=i) for r in radar_lines()[-2:] for i in ("one-1", "one-2")
    ]
    figure = figures.radar_figure([*radar_lines(), *more])
    titles = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert titles == [
        "in distribution\n2 sets, 3 instances",
        "large shift\n1 set x 1",
        "zoo\n1 set x 1",
    ]
    assert "0 is the worst of these methods on a set, 1 the best" in figure.get_suptitle()


def test_a_radar_scores_only_what_it_draws() -> None:
    """Scores do not depend on a method that lacks a category, nor on instances or sets that not all
    methods have.
    """
    lines = radar_lines()
    plain = lines_of(lines)
    assert plain == {"COMPASS": [1.0] * 3, "EAS": [0.0] * 3}
    absent = replace(lines[0], method="rare", cost=9.0)
    alone = replace(lines[0], instance="one-2", cost=50.0)
    elsewhere = replace(lines[0], set="other", cost=50.0)
    assert lines_of([*lines, absent, alone, elsewhere]) == plain


def test_methods_on_other_sets_do_not_empty_a_radar() -> None:
    """A method in each category, but never on a set with the others, is dropped.

    The others stay.
    """
    lines = radar_lines()
    others = [replace(r, method="sampling", set=f"{r.set}-jssp") for r in lines[::2]]
    assert list(lines_of([*lines, *others])) == ["COMPASS", "EAS"]


def test_a_method_of_another_problem_is_the_same_in_a_radar() -> None:
    """ "COMPASS, job shop" is COMPASS in a radar, unless both are on one set."""
    lines = radar_lines()
    renamed = [
        replace(r, method="COMPASS, job shop") if r.set == "zoo" and r.cost == 1.0 else r
        for r in lines
    ]
    assert lines_of(renamed) == lines_of(lines)
    both = [*lines, *(replace(r, method="COMPASS, learning", cost=3.0) for r in lines[::2])]
    assert list(lines_of(both)) == ["COMPASS", "EAS", "COMPASS, learning"]


def test_two_origins_of_a_method_have_two_lines_in_a_radar() -> None:
    """They have one colour. Their dashes and labels differ."""
    lines = radar_lines()
    both = [*lines, *(replace(r, commit="decaf", cost=1.5) for r in lines[::2])]
    axes = figures.radar_figure(both, {"COMPASS": "#111111", "EAS": "#222222"}).axes[0]
    found = {line.get_label(): (line.get_color(), str(line.get_linestyle())) for line in axes.lines}
    assert list(found) == ["COMPASS (commit c0ffee123456)", "EAS", "COMPASS (commit decaf)"]
    one, eas, two = found.values()
    assert (one[0], eas[0], two[0]) == ("#111111", "#222222", "#111111")
    assert one[1] != two[1]


STEPS = [[16, 1.0, 12.0, 12.0], [32, 2.0, 11.0, 11.0]]


def test_curves_of_other_origins_are_not_merged() -> None:
    """A method on two machines has two curves in one colour, named after the machines.

    They are never averaged.
    """
    other = [[16, 1.0, 18.0, 18.0], [32, 2.0, 17.0, 17.0]]
    some = [with_trace("1", STEPS), with_trace("1", other, hardware="abacus")]
    left = figures.search_figure(some).axes[0]
    assert [line.get_label() for line in left.lines] == ["A (a CPU, 2 threads)", "A (abacus)"]
    assert [line.get_ydata().tolist() for line in left.lines] == [
        pytest.approx([20.0, 10.0]),
        pytest.approx([80.0, 70.0]),
    ]
    assert len({line.get_color() for line in left.lines}) == 1
    assert len({str(line.get_linestyle()) for line in left.lines}) == 2
    commits = figures.search_figure(
        [some[0], replace(some[1], hardware=A.hardware, commit="decaf")]
    ).axes[0]
    assert [line.get_label() for line in commits.lines] == [
        "A (commit c0ffee123456)",
        "A (commit decaf)",
    ]


def test_times_name_their_hardware() -> None:
    """One machine is named in the title, several in the labels."""
    some = [with_trace("1", STEPS, method="COMPASS"), with_trace("1", STEPS, method="EAS")]
    figure = figures.anytime_figure(some)
    assert figure.get_suptitle() == "one: 1 instance\non a CPU, 2 threads"
    assert [line.get_label() for line in figure.axes[0].lines] == ["COMPASS", "EAS"]
    figure = figures.anytime_figure([some[0], replace(some[1], hardware="abacus")])
    assert figure.get_suptitle() == "one: 1 instance"
    assert [line.get_label() for line in figure.axes[0].lines] == [
        "COMPASS, a CPU, 2 threads",
        "EAS, abacus",
    ]


def test_budgets_of_one_family_are_not_averaged() -> None:
    """Searches of 1 and 3 seconds are two points of their family, though both have traces."""
    short = with_trace("1", STEPS, method="1 s", family="ours", cost=12.0, seconds=1.0, together=1)
    long = with_trace("1", STEPS, method="3 s", family="ours", cost=11.0, seconds=3.0, together=1)
    axes = figures.anytime_figure([short, long, with_trace("1", STEPS, method="EAS")]).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[1.0, 20.0], [3.0, 10.0]])


@pytest.mark.parametrize("draw", [figures.search_figure, figures.anytime_figure])
def test_methods_are_compared_on_the_instances_of_all(draw: Callable[..., Any]) -> None:
    """An instance that one method lacks is in no curve.

    The title has the number of those left; without any, there is no figure.
    """
    some = [
        with_trace(i, STEPS, method=m, reference=r)
        for m in ("COMPASS", "EAS")
        for i, r in (("1", 10.0), ("2", 5.0))
    ]
    whole, part = draw(some), draw(some[:3])
    assert whole.get_suptitle().startswith("one: mean over 2 instances, with 95 % intervals")
    assert part.get_suptitle().startswith("one: 1 instance")
    assert "interval" not in part.get_suptitle()
    for line in part.axes[0].lines:
        np.testing.assert_allclose(line.get_ydata(), [20.0, 10.0])
    assert draw([some[0], some[3]]) is None


def test_a_method_has_one_colour_in_all_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds if another method comes before it."""
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "save_figure", lambda path, figure: drawn.append(figure))
    first = [with_trace("1", STEPS, method=m, set="a") for m in ("EAS", "sampling")]
    second = [with_trace("1", STEPS, method=m, set="b") for m in ("sampling", "COMPASS", "EAS")]
    list(figures.draw_all([*first, *second], tmp_path))
    assert len(drawn) == 4
    for name in ("EAS", "sampling"):
        lines = [
            line for figure in drawn for line in figure.axes[0].lines if line.get_label() == name
        ]
        assert len({line.get_color() for line in lines}) == 1


def test_methods_of_many_figures_share_no_colour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there are more methods than colours, only those that are on one set share a colour with
    another.
    """
    seen: list[Any] = []
    monkeypatch.setattr(figures, "search_figure", lambda some, palette: seen.append(palette))
    rare = [with_trace("1", STEPS, method=f"rare {i}", set="a") for i in range(12)]
    common = [with_trace("1", STEPS, method=f"common {i}", set=s) for i in range(9) for s in "bc"]
    list(figures.draw_all([*rare, *common], tmp_path))
    assert len({seen[0][f"common {i}"] for i in range(9)}) == 9


def test_names_of_figures_stay_in_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No name in a result line can send a figure to another folder."""
    monkeypatch.setattr(figures, "save_figure", lambda path, figure: None)
    (path, *_) = figures.draw_all([with_trace("1", STEPS, suite="..", set="/etc/x")], tmp_path)
    assert path == tmp_path / "search-..-_etc_x.png"


def test_only_what_can_be_drawn_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results give only the figures that they have traces, rivals, powers or categories for."""
    monkeypatch.setattr(
        figures, "save_figure", lambda path, figure: path.write_text(type(figure).__name__)
    )
    assert list(figures.draw_all([replace(A, trace=())], tmp_path)) == []
    lines = [
        with_trace("one-1", STEPS, family="ours", method="COMPASS"),
        replace(A, reference=9.0, family="theirs", trace=()),
    ]
    assert figures.anytime_figure(lines[:1]) is None
    lines += [
        replace(A, set=f"m{p}", method=m, power=p, reference=None)
        for p in (0.0, 0.5)
        for m in ("COMPASS", "EAS")
    ]
    lines += [replace(r, reference=None) for r in radar_lines()]
    drawn = list(figures.draw_all(lines, tmp_path))
    assert [p.name for p in drawn] == [
        "search-demo-one.png",
        "seconds-demo-one.png",
        "mutations-tsp.png",
        "radar.png",
    ]
    assert {p.read_text() for p in drawn} == {"Figure"}
