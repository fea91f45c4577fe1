"""Gantt charts of schedules: a row for each machine, a colour for each job."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rhumbline.plots.canvas import HEAD, INK, PAPER, START, new_figure, plan_caption
from rhumbline.problems.jssp import JSSPInstance, Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Colour = tuple[float, float, float]
BAR = 0.84  # height of a bar; rows are one apart
NARROW, WIDE = 9.0, 14.0  # inches of the time axis
POINTS = 72  # to the inch
THIN = 1.5  # points; a bar that is thinner, or takes no time, is a tick of its colour
LARGEST_TEXT, SMALLEST_TEXT = 8.5, 4.0  # points; what would be smaller is left out
DIGIT = 0.62  # width of a digit in sizes of its font


class Bar(NamedTuple):
    """An operation in the chart."""

    row: int
    start: int
    duration: int
    job: int


def draw_gantt(
    instance: JSSPInstance, plan: Schedule, axes: "Axes | None" = None, title: str = ""
) -> "Axes":
    """The axes with a bar for each operation and a line at the makespan; very short operations
    are ticks.
    """
    end = plan.cost(instance)
    width = chart_width(instance)
    shades = job_colours(instance.job_count)
    axes = (
        axes
        if axes is not None
        else new_gantt_axes(width, 1.1 + row_height(instance) * instance.machine_count)
    )
    row, start, duration, job = zip(*operation_bars(instance, plan), strict=True)
    scale = width * POINTS / max(end, 1)
    thin = [d * scale < THIN for d in duration]
    axes.barh(
        row,
        duration,
        left=start,
        height=BAR,
        color=[shades[j] for j in job],
        edgecolor=[shades[j] if t else PAPER for t, j in zip(thin, job, strict=True)],
        linewidth=[1.4 if t else 0.5 for t in thin],
    )
    write_numbers(axes, instance, plan, scale, shades)
    axes.axvline(end, color=START, linewidth=1.4, zorder=3)
    style_gantt_axes(axes, instance, end, title or plan_caption(instance, plan))
    return axes


def new_gantt_axes(width: float, height: float) -> "Axes":
    """Axes of a new figure of so many inches, with room for the titles above."""
    figure = new_figure(width, height + HEAD)
    figure.get_layout_engine().set(w_pad=0.25, h_pad=0.2)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
    return figure.add_subplot()


def operation_bars(instance: JSSPInstance, plan: Schedule) -> Iterator[Bar]:
    """All operations, job after job."""
    for job, step, machine, duration in instance.operations:
        yield Bar(machine, plan.starts[job][step], duration, job)


def chart_width(instance: JSSPInstance) -> float:
    """Inches for the time axis: more for shops whose machines have many jobs."""
    return min(WIDE, max(NARROW, 0.35 * instance.size / instance.machine_count + 4.0))


def row_height(instance: JSSPInstance) -> float:
    """Inches for a machine: fewer where there are many."""
    return 0.42 if instance.machine_count <= 10 else 0.34


def job_colours(count: int) -> list[Colour]:
    """A colour for each job: hues once round the circle, and neighbours differ in lightness."""
    from colorsys import hls_to_rgb

    return [
        hls_to_rgb(job / count, (0.42, 0.68, 0.55)[job % 3], (0.55, 0.6, 0.5)[job % 3])
        for job in range(count)
    ]


def write_numbers(
    axes: "Axes", instance: JSSPInstance, plan: Schedule, scale: float, shades: list[Colour]
) -> None:
    """The job's number in each bar that has room for it; `scale` is points per unit of time."""
    for row, start, duration, job in operation_bars(instance, plan):
        text = str(job + 1)
        size = min(LARGEST_TEXT, 0.85 * duration * scale / (DIGIT * len(text)))
        if size >= SMALLEST_TEXT:
            shown = PAPER if luminance(shades[job]) < 0.5 else INK
            middle = start + duration / 2
            number = axes.text(
                middle, row, text, fontsize=size, color=shown, ha="center", va="center_baseline"
            )
            number.set_in_layout(False)  # thousands of them would take seconds to lay out


def luminance(colour: Colour) -> float:
    """How bright a colour looks, from 0 to 1 (weights of ITU-R BT.601)."""
    return 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]


def style_gantt_axes(axes: "Axes", instance: JSSPInstance, end: int, title: str) -> None:
    """Machines by their numbers in the file, the first on top; time from 0; the makespan said at
    its line.
    """
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    rows = range(instance.machine_count)
    axes.set_yticks(rows, [str(instance.first_machine + row) for row in rows])
    axes.set_ylim(instance.machine_count - 0.4, -0.6)
    axes.set_xlim(0, max(end, 1) * 1.01)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.xaxis.set_major_formatter(
        StrMethodFormatter("{x:,.0f}")
    )  # no powers of ten at the end of the axis
    axes.set_xlabel("time", color=INK)
    axes.set_ylabel("machine", color=INK)
    axes.tick_params(colors=INK, length=0, labelsize=8)
    axes.grid(axis="x", color=INK, alpha=0.12, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_facecolor(PAPER)
    axes.spines[:].set_visible(False)
    axes.set_title(title, color=INK, fontsize=12, loc="left", pad=12, parse_math=False)
    axes.set_title(f"makespan {end:,}", color=START, fontsize=10, loc="right", pad=12)
