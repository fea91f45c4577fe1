"""Gantt charts of schedules: a row for each machine, a colour for each job.

Jobs and machines are numbered from 1, as in schedule files. The axis says so if the instance's
file counts machines from 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rhumbline.plots.canvas import THEME, Colour, padded_axes, plan_caption
from rhumbline.problems.jssp import JSSPInstance, Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class GanttStyle:
    """Sizes in a Gantt chart."""

    points_per_inch: int = 72
    # Height of a bar. The distance of two rows is 1.
    bar_height: float = 0.84
    min_width_inches: float = 9.0
    max_width_inches: float = 14.0
    # Thinner bars, also those of operations that take no time, are ticks of their colour.
    min_bar_points: float = 1.5
    max_text_points: float = 8.5
    # Smaller numbers cannot be read and are left out; the legend has the colours of the jobs.
    min_text_points: float = 6.0
    # Width of a digit as a share of its font size
    digit_width: float = 0.62
    # With more jobs, the colours of a legend could not be distinguished.
    max_legend_jobs: int = 40
    legend_columns: int = 20
    legend_inches: float = 0.5  # below the axes, past the title of the time axis


STYLE = GanttStyle()


class Bar(NamedTuple):
    """An operation in the chart."""

    row: int
    start: int
    duration: int
    job: int


def draw_gantt(
    instance: JSSPInstance, plan: Schedule, axes: "Axes | None" = None, title: str = ""
) -> "Axes":
    """Draw a bar for each operation and a line at the makespan, and return the axes.

    Very short operations are ticks.
    """
    end = plan.cost(instance)
    width = chart_width(instance)
    if axes is None:
        height = 1.1 + row_height(instance) * instance.machine_count
        axes = padded_axes(width, height)
    points_per_unit = width * STYLE.points_per_inch / max(end, 1)
    bars = list(operation_bars(instance, plan))
    colours = job_colours(instance.job_count)
    draw_operations(axes, bars, colours, points_per_unit)
    write_numbers(axes, bars, colours, points_per_unit)
    axes.axvline(end, color=THEME.accent, linewidth=1.4, zorder=3)
    style_gantt_axes(axes, instance, end, title or plan_caption(instance, plan))
    if instance.job_count <= STYLE.max_legend_jobs:
        add_job_legend(axes, colours)
    return axes


def operation_bars(instance: JSSPInstance, plan: Schedule) -> Iterator[Bar]:
    """Yield the bars of all operations, job after job."""
    for job, step, machine, duration in instance.operations:
        start = plan.starts[job][step]
        yield Bar(machine, start, duration, job)


def chart_width(instance: JSSPInstance) -> float:
    """Return the inches of the time axis: more if machines have many operations."""
    operations_per_machine = 0.35 * instance.size / instance.machine_count
    wanted = operations_per_machine + 4.0
    width = max(STYLE.min_width_inches, wanted)
    return min(STYLE.max_width_inches, width)


def row_height(instance: JSSPInstance) -> float:
    """Return the inches of a machine: fewer if there are many."""
    has_few_rows = instance.machine_count <= 10
    return 0.42 if has_few_rows else 0.34


def job_colours(count: int) -> list[Colour]:
    """Return a colour for each job. Hues go once round, and neighbours differ in lightness."""
    from colorsys import hls_to_rgb

    lightness = (0.42, 0.68, 0.55)
    saturation = (0.55, 0.6, 0.5)
    return [
        hls_to_rgb(job / count, lightness[job % 3], saturation[job % 3]) for job in range(count)
    ]


def draw_operations(
    axes: "Axes", bars: list[Bar], colours: list[Colour], points_per_unit: float
) -> None:
    """Draw the bars. A bar that is too thin to be seen gets an edge of its colour."""
    fills: list[Colour] = []
    edges: list[Colour | str] = []
    widths: list[float] = []
    for bar in bars:
        colour = colours[bar.job]
        is_tick = bar.duration * points_per_unit < STYLE.min_bar_points
        fills.append(colour)
        edges.append(colour if is_tick else THEME.paper)
        widths.append(1.4 if is_tick else 0.5)
    axes.barh(
        [bar.row for bar in bars],
        [bar.duration for bar in bars],
        left=[bar.start for bar in bars],
        height=STYLE.bar_height,
        color=fills,
        edgecolor=edges,
        linewidth=widths,
    )


def write_numbers(
    axes: "Axes", bars: list[Bar], colours: list[Colour], points_per_unit: float
) -> None:
    """Write the number of the job in each bar that has room for it."""
    for bar in bars:
        text = str(bar.job + 1)
        room = 0.85 * bar.duration * points_per_unit
        size = min(STYLE.max_text_points, room / (STYLE.digit_width * len(text)))
        if size < STYLE.min_text_points:
            continue
        is_dark = luminance(colours[bar.job]) < 0.5
        middle = bar.start + bar.duration / 2
        number = axes.text(
            middle,
            bar.row,
            text,
            fontsize=size,
            color=THEME.paper if is_dark else THEME.ink,
            ha="center",
            va="center_baseline",
        )
        number.set_in_layout(False)  # Thousands of numbers would take seconds to lay out.


def luminance(colour: Colour) -> float:
    """Return how bright a colour looks, from 0 to 1, with the weights of ITU-R BT.601."""
    red, green, blue = colour
    value = 0.299 * red
    value += 0.587 * green
    value += 0.114 * blue
    return value


def style_gantt_axes(axes: "Axes", instance: JSSPInstance, end: int, title: str) -> None:
    """Label the axes.

    Machine 1 is on top. Time starts at 0. The makespan stands above its line.
    """
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    ink = THEME.ink
    rows = range(instance.machine_count)
    axes.set_yticks(rows, [str(row + 1) for row in rows])
    axes.set_ylim(instance.machine_count - 0.4, -0.6)
    axes.set_xlim(0, max(end, 1) * 1.01)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    # Without powers of ten at the end of the axis
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel(time_title(instance), color=ink)
    axes.set_ylabel("machine", color=ink)
    axes.tick_params(colors=ink, length=0, labelsize=STYLE.max_text_points)
    axes.grid(axis="x", color=ink, alpha=0.12, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_facecolor(THEME.paper)
    axes.spines[:].set_visible(False)
    axes.set_title(title, color=ink, fontsize=12, loc="left", pad=12, parse_math=False)
    axes.set_title(f"makespan {end:,}", color=THEME.accent, fontsize=10, loc="right", pad=12)


def time_title(instance: JSSPInstance) -> str:
    """Return the title of the time axis, which names the file's machine numbers if they differ."""
    if instance.first_machine == 1:
        return "time"
    last = instance.machine_count
    return f"time     (machines 1 to {last} are 0 to {last - 1} in the file)"


def add_job_legend(axes: "Axes", colours: list[Colour]) -> None:
    """Show the colour and the number of each job below the time axis.

    Bars that are too thin for a number are read from it.
    """
    from matplotlib.patches import Patch
    from matplotlib.transforms import ScaledTranslation

    assert axes.figure is not None
    below = ScaledTranslation(0, -STYLE.legend_inches, axes.figure.dpi_scale_trans)
    jobs = [Patch(color=colour, label=str(job)) for job, colour in enumerate(colours, 1)]
    axes.legend(
        handles=jobs,
        title="job",
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        bbox_transform=axes.transAxes + below,
        ncols=min(len(jobs), STYLE.legend_columns),
        fontsize=STYLE.max_text_points,
        title_fontsize=STYLE.max_text_points,
        borderaxespad=0.0,
        labelcolor=THEME.ink,
        handlelength=1.0,
        columnspacing=1.0,
        frameon=False,
    )
