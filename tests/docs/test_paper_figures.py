"""The figures of the paper: the numbers that are drawn, by hand, and the notes below them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib")

from rhumbline.bench.figures import TraceColumn
from rhumbline.bench.figures.landscape import write_landscapes
from rhumbline.bench.results import Result, read_results
from rhumbline.plots.latent import Landscape
from rhumbline.problems.distributions.mutations import OPERATORS
from tools.docs import PARTS, find_part
from tools.figures import curves, data, landscapes, latent_maps, notes, radar, rows, shift
from tools.figures.mutations import draw_mutations, make_mutations
from tools.figures.rows import FigureRow
from tools.figures.style import PALETTES, colours_of
from tools.figures.time_breakdown import PhaseClock, TimedCMAES, mean_times, time_search
from tools.tables import Status

GOLDEN = Path(__file__).parents[1] / "bench" / "golden" / "results.jsonl"
A = replace(read_results(GOLDEN, print)[0], reference=10.0)
LIGHT = PALETTES["light"]


def figure_row(
    results: Sequence[Result],
    method: str,
    power: float | None = None,
    published: dict[str, float] | None = None,
) -> FigureRow:
    """Return a row of given results, whatever would be measured today."""
    row = SimpleNamespace(
        spec=SimpleNamespace(name="one", power=power, category="larger"),
        method=SimpleNamespace(name=method, paper=published or {}),
        suite=SimpleNamespace(name="demo"),
        is_current=lambda result: result.commit == "today",
        result_count=len(results),
    )
    return FigureRow(Status(row, len(results)), results)  # pyright: ignore[reportArgumentType]


# --- which results are drawn


def test_complete_results_of_today_are_drawn() -> None:
    """They count even if older ones were measured later; an incomplete row shows the newest."""
    current = [replace(A, commit="today", when="2026-01-01")]
    older = [replace(A, commit="former", when="2026-02-02", instance=name) for name in "ab"]
    complete = figure_row(current, "COMPASS").status
    assert rows.choose_results(complete, [*older, *current]) == current
    incomplete = replace(complete, reason="1 of 3 measured")
    assert rows.choose_results(incomplete, [*older, *current]) == older
    missing = [replace(A, cost=None, missing="no plan")]
    assert rows.choose_results(incomplete, missing) == []


def test_the_note_says_what_is_old() -> None:
    """Rows by reason, and until when they were measured."""
    row = figure_row([replace(A, when="2026-11-16T10:00:00+00:00")], "COMPASS")
    assert rows.describe_rows([row]).startswith("All rows")
    old = replace(row, status=replace(row.status, reason="older weights"))
    assert "- older weights: COMPASS (one)" in rows.describe_rows([old])
    assert rows.describe_rows([old]).startswith("The figure shows measurements until 2026-11-16.")
    empty = replace(old, status=replace(old.status, reason="not measured"), results=[])
    assert rows.describe_rows([empty]).startswith("Nothing in this figure has been measured yet.")


# --- mutated instances


def costs(method: str, by_instance: dict[str, float]) -> list[Result]:
    return [
        replace(A, method=method, power=0.5, instance=name, cost=cost)
        for name, cost in by_instance.items()
    ]


def test_differences_are_those_of_common_instances() -> None:
    """Ours costs 10 and 20, EAS 11 and 23: -4 of 30 are -13.3 %.

    The differences -1 and -3 have a deviation of sqrt(2), and the mean of COMPASS is 15. Instance 3
    has no result of COMPASS.
    """
    compass = figure_row(costs("COMPASS", {"1": 10.0, "2": 20.0}), "COMPASS", 0.5)
    eas = figure_row(costs("EAS", {"1": 11.0, "2": 23.0, "3": 99.0}), "EAS", 0.5)
    ((point,),) = shift.differences([eas, compass]).values()
    assert point.x == 0.5
    assert point.mean == pytest.approx(-100 * 4 / 30)
    assert point.half_interval == pytest.approx(1.96 * 100 / 15)
    assert shift.differences([eas]) == {}


def test_published_differences_follow_from_gaps() -> None:
    """Gaps of 2 % and of 0.5 %: costs of 1.02 and 1.005, so 1 - 1.02 / 1.005 = -1.4925 %."""
    compass = figure_row([], "COMPASS", 0.5, {"one": 0.5})
    eas = figure_row([], "EAS", 0.5, {"one": 2.0})
    extra = figure_row([], "default search", 0.5)
    ((point,),) = shift.published_differences([compass, eas, extra]).values()
    assert point.mean == pytest.approx(-1.4925, abs=1e-4)


def test_a_method_has_one_colour() -> None:
    """Wherever it stands, and no two methods of the standard suite share one."""
    names = dict.fromkeys(row.method for row in rows.rows_of("standard"))
    all_colours = colours_of(names, LIGHT)
    assert colours_of(["EAS", "COMPASS"], LIGHT).items() <= all_colours.items()
    assert all_colours["COMPASS"] == all_colours["COMPASS, job shop"] == LIGHT.second
    routing = [name for name in names if "job shop" not in name and name != "sampling"]
    assert len({all_colours[name] for name in routing}) == len(routing)


# --- searches over attempts


def test_curves_are_means_of_traces() -> None:
    """Gaps of 20 and 40 % at 10 attempts, of 10 and 30 % at 20; the latest step was worse."""
    traces = {
        "1": [[10, 1.0, 12.0, 12.0], [20, 2.0, 11.0, 13.0]],
        "2": [[10, 1.0, 14.0, 14.0], [20, 2.0, 13.0, 13.0]],
    }
    results = [replace(A, instance=name, trace=trace) for name, trace in traces.items()]
    greedy = [replace(result, trace=[], cost=15.0) for result in results]
    methods = {"EAS": figure_row(results, "EAS"), "POMO greedy": figure_row(greedy, "POMO greedy")}
    search, level = curves.curves_of(methods, TraceColumn.BEST)
    np.testing.assert_allclose(search.mean, [30.0, 20.0])
    np.testing.assert_allclose(level.mean, [50.0])
    (latest,) = curves.curves_of(methods, TraceColumn.LATEST)
    np.testing.assert_allclose(latest.mean, [30.0, 30.0])


def test_limits_of_panels_hold_all_intervals() -> None:
    """Means from 1 to 4: the margin is 4 to the power of 0.05, which is 1.0718.

    An interval from -1 to 3 is shown from half its mean.
    """
    level = curves.Curve("a", np.ones(1), np.array([4.0]), np.zeros(1))
    limits = curves.y_limits([level, replace(level, mean=np.array([1.0]))])
    assert limits == pytest.approx((1 / 1.0718, 4 * 1.0718), rel=1e-3)
    wide = replace(level, mean=np.array([1.0]), half_interval=np.array([2.0]))
    assert curves.y_limits([wide]) == pytest.approx((0.5 / 6**0.05, 3 * 6**0.05))
    assert curves.y_limits([replace(level, mean=np.array([-0.1]))])[0] < curves.FLOOR


def test_panels_have_the_recorded_gaps() -> None:
    """The end of a curve in the figure is the mean gap of its results."""
    figure = curves.draw_problem("tsp", LIGHT)
    first = rows.by_set(curves.standard_rows("tsp"))["tsp100"]
    names = curves.curves_of(first, TraceColumn.BEST)
    (line,) = [line for line in figure.axes[0].lines if line.get_label() == "COMPASS"]
    (curve,) = [curve for curve in names if curve.label == "COMPASS"]
    assert np.asarray(line.get_ydata())[-1] == max(curve.mean[-1], curves.FLOOR)
    assert len(figure.axes) == 6


def test_an_unmeasured_ablation_is_drawn_from_another_suite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same methods; once the ablation has lines, they are drawn."""
    measured = [figure_row([A], "uniform latents"), figure_row([A], "EAS-Emb")]
    empty = [figure_row([], "uniform latents")]
    by_suite = {"ablation": empty, "strategies": measured}
    monkeypatch.setattr(curves, "rows_of", by_suite.__getitem__)
    assert curves.ablation_rows() == measured[:1]
    by_suite["ablation"] = measured
    assert curves.ablation_rows() is measured


# --- radar


def test_the_radar_has_the_scores_of_the_rows() -> None:
    """COMPASS costs 1, EAS 2 and POMO 1.5 on each axis: scores of 1, 0 and 0.5."""
    price = {"COMPASS": 1.0, "EAS": 2.0, "POMO sampling": 1.5}
    kinds = ("in distribution", "larger", "few-shot")
    all_rows = [
        figure_row([replace(A, method=name, set=kind, category=kind, cost=cost)], name)
        for name, cost in price.items()
        for kind in kinds
    ]
    axes = radar.draw_rows(all_rows, LIGHT).axes[0]
    drawn = {line.get_label(): set(np.asarray(line.get_ydata())) for line in axes.lines}
    assert drawn == {"COMPASS": {1.0}, "EAS": {0.0}, "POMO sampling": {0.5}}
    texts = [text.get_text() for text in radar.draw_rows([], LIGHT).axes[0].texts]
    assert texts == ["not measured"]


# --- mutations


def test_moved_cities_are_those_that_the_operator_took() -> None:
    """All others stay where they are; the grid is square, and lines are horizontal or vertical."""
    mutations = {each.operator: each for each in make_mutations()}
    assert list(mutations) == list(OPERATORS)
    for mutation in mutations.values():
        assert 2 <= mutation.is_moved.sum() < len(mutation.before)
        assert ((mutation.after >= 0.0) & (mutation.after <= 1.0)).all()
    on_grid = mutations["grid"].after[mutations["grid"].is_moved]
    assert [len(np.unique(on_grid[:, side].round(9))) for side in (0, 1)] == [3, 3]
    on_axis = mutations["axis"].after[mutations["axis"].is_moved]
    assert min(len(np.unique(on_axis[:, side])) for side in (0, 1)) == 1
    titles = [axes.get_title(loc="left") for axes in draw_mutations(LIGHT).axes]
    assert titles[-1] == "grid: 9 of 100 moved"


# --- other data


def maps_of(names: Sequence[str]) -> list[Landscape]:
    axis = np.array([-1.0, 0.0, 1.0])
    path = np.zeros((4, 2))
    return [Landscape(name, axis, np.eye(3), path, np.ones(4)) for name in names]


def test_maps_of_another_set_are_to_be_measured(tmp_path: Path) -> None:
    """Eight of TSP150 are enough, and checkpoints need at least two maps."""
    path = tmp_path / "maps.npz"
    write_landscapes(path, maps_of([f"tsp150-{place}" for place in range(8)]))
    assert (data.maps_reason(path), data.evolution_reason(path)) == ("", "")
    write_landscapes(path, maps_of(["tsp100-1"]))
    assert data.maps_reason(path) == "maps of tsp100 instead of tsp150"
    assert data.evolution_reason(path) == "of one checkpoint only"
    assert len(landscapes.read_maps(path)) == 1
    assert landscapes.read_maps(tmp_path / "none.npz") == []


def test_times_of_other_weights_are_to_be_measured(tmp_path: Path) -> None:
    """So are those of a CPU."""
    path = tmp_path / "times.json"
    today = data.weights_digest(*data.TIMED_POLICY)
    for hardware, weights, reason in (
        ("NVIDIA H200", today, ""),
        ("NVIDIA H200", "00000000", "older weights"),
        ("a CPU", today, "measured on a CPU instead of a GPU"),
    ):
        path.write_text(json.dumps({"hardware": hardware, "weights": weights}))
        assert data.times_reason(path) == reason


def test_data_are_measured_and_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of several files runs once if its time fits, and its files are copied."""
    monkeypatch.setattr(data, "FOLDER", tmp_path / "kept")
    two = [
        data.FigureData(name, "maps", ("json.tool", "--help"), 60.0, lambda path: "")
        for name in ("a.npz", "b.npz")
    ]
    assert list(data.missing_commands(two)) == [("json.tool", "--help")]
    assert "figures: maps: not measured" in data.describe_data(two)
    ran: list[Sequence[str]] = []
    monkeypatch.setattr(data.subprocess, "run", lambda words, **more: ran.append(words))
    data.measure_data(tmp_path, 59.0, two)
    assert ran == []
    data.measure_data(tmp_path, 61.0, two)
    assert [words[-2:] for words in ran] == [["--out", str(tmp_path)]]
    files = [tmp_path / name for name in ("a.npz", "lines.jsonl")]
    for path in files:
        path.write_text(path.name)
    assert data.collect_data(files, two) == files[1:]
    assert (two[0].path.read_text(), two[0].reason) == ("a.npz", "")


def test_phases_add_up_to_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is a second later each time it is read: a phase lasts one second."""
    seconds = iter(range(100))
    clock = PhaseClock(torch.device("cpu"))
    monkeypatch.setattr(
        "tools.figures.time_breakdown.time.perf_counter", lambda: float(next(seconds))
    )
    assert clock.measure("decoding", lambda: "value") == "value"
    clock.measure("decoding", lambda: None)
    clock.measure("cmaes", lambda: None)
    assert clock.seconds == {"encoding": 0.0, "decoding": 2.0, "cmaes": 1.0, "rest": 0.0}
    times = [{"encoding": 1.0, "decoding": 2.0, "cmaes": 3.0, "rest": 1.23456}] * 2
    assert mean_times(times)["rest"] == 1.235


def test_the_timed_search_is_the_published_one() -> None:
    """All starts, and the same generations as CMA-ES; every phase takes some time."""
    assert TimedCMAES().starts == 1.0
    policy = latent_maps.load_policy(*data.TIMED_POLICY)
    times = time_search(policy, 1, 16, torch.device("cpu"))
    assert all(value > 0.0 for value in times.values())


def test_the_table_of_times_has_shares() -> None:
    """By hand: 200 ms of 4 instances are 50 ms each, half of all; the paper's 1 of 4 is 25 %."""
    row = {"instances": 4, "ms": {"encoding": 100, "decoding": 200, "cmaes": 60, "rest": 40}}
    assert notes.number_text(8053.1) == "8,053"
    table = notes.times_table([row], {"encoding": 3.0, "cmaes": 1.0})
    lines = table.splitlines()
    assert "4 instances at once, ms each" in lines[0]
    assert lines[3].endswith("| 50 (50.0%) | - |")
    assert lines[5].endswith("| 15 (15.0%) | 1 (25.0%) |")
    assert lines[-1] == "| all | 100 | 4 |"


def test_checkpoints_are_named_by_their_updates() -> None:
    """Files of other runs keep their names."""
    names = ("update-0000001", "update-0012000", "mine")
    titles = [latent_maps.checkpoint_title(Path(f"{name}.safetensors")) for name in names]
    assert titles == ["after 1 update", "after 12,000 updates", "mine"]


@pytest.mark.parametrize("name", [name for name in PARTS if name.startswith("figure-")])
def test_every_note_can_be_made(name: str) -> None:
    """Each figure says what is drawn, and the page asks for the note."""
    assert find_part(name)()
    page = Path(__file__).parents[2] / "docs" / "results" / "figures.md"
    assert f"<!-- generated: {name} -->" in page.read_text(encoding="utf-8")
