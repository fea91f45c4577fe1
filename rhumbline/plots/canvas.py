"""What all figures share: colours, positions, captions, axes, and writing to a file."""

import io
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from rhumbline.errors import InputError, MissingExtra
from rhumbline.formats.safe_io import write_bytes
from rhumbline.problems import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Colour = tuple[float, float, float]  # red, green, blue, from 0 to 1


@dataclass(frozen=True)
class Theme:
    """The look of all figures."""

    # Text, nodes and axes
    ink: str = "#1b2a3a"
    # The path of a tour
    route: str = "#1f6f8b"
    # The start of a tour, the depot, the makespan
    accent: str = "#e4572e"
    # The background
    paper: str = "#fbfaf7"
    # Of the line of a route, from 0 (black) to 1 (white)
    max_luminance: float = 0.55
    longer_side_inches: float = 7.0
    title_inches: float = 0.4
    dots_per_inch: int = 160


THEME = Theme()


@runtime_checkable
class InstanceWithMetric(Protocol):
    """An instance of nodes that have positions or a matrix of distances."""

    metric: str
    xy: np.ndarray | None


def require_matplotlib() -> None:
    """Raise unless figures can be drawn."""
    if find_spec("matplotlib") is None:
        raise MissingExtra("pictures need matplotlib; get it with: pip install 'rhumbline[plots]'")


def positions(instance: Any) -> Float[np.ndarray, "N 2"]:
    """Return where nodes are drawn: as the file says, with north up on maps.

    The nodes of a matrix without positions are drawn where they were embedded.
    """
    has_matrix = instance.metric == "EXPLICIT"
    xy = instance.xy if has_matrix else None
    if xy is None:
        xy = instance.planar_xy
    return np.asarray(xy, dtype=np.float64)


def has_reconstructed_positions(instance: Any) -> bool:
    """Return whether nodes are drawn where their distances suggest, for want of coordinates."""
    if not isinstance(instance, InstanceWithMetric):
        return False
    return instance.metric == "EXPLICIT" and instance.xy is None


def mark_reconstructed_positions(axes: "Axes", instance: Any) -> None:
    """Say below the picture if its positions are not those of the file."""
    if not has_reconstructed_positions(instance):
        return
    axes.text(
        0.0,
        -0.01,
        "positions reconstructed from distances",
        transform=axes.transAxes,
        color=THEME.ink,
        fontsize=9,
        va="top",
    )


def plan_caption(instance: Any, plan: Plan) -> str:
    """Return the name of the instance, the cost of the plan, and its gap if that is known."""
    cost = plan.cost(instance)
    cost_text = f"{cost:,.0f}" if instance.has_integer_costs else f"{cost:,.4f}"
    text = f"{instance.name}     cost {cost_text}"
    best_known = instance.best_known
    if best_known:
        gap = (cost - best_known) / abs(best_known)
        text += f"     gap {gap:.2%}"
    return text


def style_plan_axes(axes: "Axes", title: str) -> None:
    """Set equal scales, no frame and a quiet title, in which dollar signs are just text."""
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.03)
    axes.set_axis_off()
    axes.set_title(title, color=THEME.ink, fontsize=12, loc="left", pad=12, parse_math=False)


def new_axes(width: float, height: float) -> "Axes":
    """Return axes of a new figure with about the proportions of its content.

    The shorter side has at least half the length of the longer one.
    """
    longest = max(width, height) or 1.0
    inches = THEME.longer_side_inches
    return padded_axes(
        inches * max(0.5, width / longest),
        inches * max(0.5, height / longest),
    )


def padded_axes(width: float, height: float) -> "Axes":
    """Return axes of a new figure, in inches, with room for a title above."""
    figure = new_figure(width, height + THEME.title_inches)
    figure.get_layout_engine().set(w_pad=0.25, h_pad=0.2)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
    return figure.add_subplot()


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of a size in inches, which no window system knows."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = (width, height)
    figure = Figure(size, THEME.dots_per_inch, facecolor=THEME.paper, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def line_width(nodes: int) -> float:
    """Return the width of lines: small instances have bolder ones."""
    return float(np.clip(14.0 / np.sqrt(nodes), 0.6, 1.4))


def save_figure(path: str | Path, drawn: "Axes | Figure") -> None:
    """Write a figure in one step. The suffix of the file says the format, by default png."""
    from matplotlib.figure import Figure

    suffix = Path(path).suffix.lstrip(".")
    kind = suffix.lower() or "png"
    figure: Any = drawn if isinstance(drawn, Figure) else drawn.figure
    if kind not in figure.canvas.get_supported_filetypes():
        raise InputError.at(path, None, f"pictures cannot end in '{kind}'; use png, svg or pdf")
    content = io.BytesIO()
    figure.savefig(content, format=kind)
    write_bytes(Path(path), content.getvalue())
