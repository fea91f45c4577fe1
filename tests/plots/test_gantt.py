"""Gantt charts, read back from the axes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from rhumbline.plots import save_plan
from rhumbline.plots.gantt import STYLE, draw_gantt, job_colours
from rhumbline.problems.jssp import JSSPInstance, Schedule, jssp_from_arrays
from rhumbline.problems.jssp.dispatch_rules import dispatch

TWO = JSSPInstance("two", ((3, 2), (4, 1)), ((0, 1), (1, 0)), 2, first_machine=1, best_known=5.0)
PLAN = Schedule(((0, 4), (0, 4)))


def rectangles(instance: JSSPInstance, plan: Schedule) -> list[Rectangle]:
    return [patch for patch in draw_gantt(instance, plan).patches if isinstance(patch, Rectangle)]


def test_each_operation_is_a_bar_in_its_machines_row() -> None:
    """The bars have the start, duration and row of all four operations, job after job."""
    found = [
        (r.get_x(), r.get_width(), r.get_y() + STYLE.bar_height / 2) for r in rectangles(TWO, PLAN)
    ]
    np.testing.assert_allclose(found, [(0, 3, 0), (4, 2, 1), (0, 4, 1), (4, 1, 0)])


def test_jobs_have_different_colours() -> None:
    """The bars of a job share a colour, and a hundred jobs have a hundred colours."""
    first, second, third, fourth = (r.get_facecolor() for r in rectangles(TWO, PLAN))
    assert first == second != third == fourth
    assert len(set(job_colours(100))) == 100


@pytest.mark.parametrize(
    ("first", "title"), [(0, "time     (machines 1 to 2 are 0 to 1 in the file)"), (1, "time")]
)
def test_jobs_and_machines_count_from_1(first: int, title: str) -> None:
    """The numbers of jobs are in the middle of the bars, those of machines on the axis.

    The axis names the file's own numbers if they differ. The first machine is on top.
    """
    axes = draw_gantt(replace(TWO, first_machine=first), PLAN)
    assert axes.get_xlabel() == title
    numbers = [(text.get_text(), *text.get_position()) for text in axes.texts]
    assert numbers == [("1", 1.5, 0), ("1", 5, 1), ("2", 2, 1), ("2", 4.5, 0)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2"]
    bottom, top = axes.get_ylim()
    assert top < 0 < 1 < bottom


def test_the_legend_has_the_colour_of_each_job() -> None:
    """Numbers that bars have no room for are read from it; a hundred colours are too many."""
    legend = draw_gantt(TWO, PLAN).get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["1", "2"]
    found = [patch.get_facecolor()[:3] for patch in legend.get_patches()]
    np.testing.assert_allclose(found, job_colours(2))
    hundred = JSSPInstance("hundred", ((1,),) * 100, tuple((job,) for job in range(100)), 100)
    plan = Schedule(((0,),) * 100)
    assert draw_gantt(hundred, plan).get_legend() is None


def test_the_makespan_is_marked_and_named() -> None:
    """There is a line at 6 with the makespan above it. Name, cost and gap are on the left."""
    axes = draw_gantt(TWO, PLAN)
    assert np.asarray(axes.lines[0].get_xdata()).tolist() == [6, 6]
    assert axes.get_title(loc="right") == "makespan 6"
    assert axes.get_title(loc="left") == "two     cost 6     gap 20.00%"
    assert draw_gantt(TWO, PLAN, title="mine").get_title(loc="left") == "mine"


def test_operations_without_duration_are_seen() -> None:
    """They are ticks of the colour of the job, without a number.

    A schedule of nothing else can be drawn.
    """
    shop = replace(TWO, durations=((3, 2), (0, 1)))
    empty = rectangles(shop, PLAN)[2]
    assert (empty.get_width(), empty.get_edgecolor()) == (0, empty.get_facecolor())
    assert empty.get_linewidth() > 1
    assert len(draw_gantt(shop, PLAN).texts) == 3
    nothing = JSSPInstance("nothing", ((0,),), ((0,),), 1)
    assert draw_gantt(nothing, Schedule(((0,),))).get_title(loc="right") == "makespan 0"


def test_long_times_are_written_out() -> None:
    """Thousands are separated, and there is no power of ten at the end of the axis."""
    axis = draw_gantt(JSSPInstance("long", ((2 * 10**9,),), ((0,),), 1), Schedule(((0,),))).xaxis
    assert axis.get_major_formatter().format_ticks([0.0, 1.5e9]) == ["0", "1,500,000,000"]
    assert axis.get_major_formatter().get_offset() == ""


def test_numbers_that_would_be_too_small_are_left_out() -> None:
    """One unit among a thousand has no room for a number, but is a tick of its job's colour."""
    shop, plan = JSSPInstance("long", ((1000, 1),), ((0, 0),), 1), Schedule(((0, 1000),))
    assert [text.get_text() for text in draw_gantt(shop, plan).texts] == ["1"]
    _, short = rectangles(shop, plan)
    assert (short.get_edgecolor(), short.get_linewidth() > 1) == (short.get_facecolor(), True)


def test_given_axes_are_used_and_returned() -> None:
    """A figure of the caller can hold several charts."""
    axes = Figure().add_subplot()
    assert draw_gantt(TWO, PLAN, axes) is axes


@pytest.mark.parametrize(("jobs", "machines"), [(1, 1), (12, 5)])
def test_any_size_is_drawn(tmp_path: Path, jobs: int, machines: int) -> None:
    """The type of the plan decides how it is drawn. The file is a PNG, drawn without warnings."""
    rng = np.random.default_rng(0)
    shop = jssp_from_arrays(
        rng.integers(1, 99, (jobs, machines)), rng.random((jobs, machines)).argsort(axis=1), "a$b$"
    )
    save_plan(tmp_path / "gantt.png", shop, dispatch(shop))
    assert (tmp_path / "gantt.png").read_bytes().startswith(b"\x89PNG")
