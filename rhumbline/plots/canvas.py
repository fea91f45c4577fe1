"""What all pictures share: positions, captions, axes, and writing them in one step."""

import io
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from rhumbline.errors import InputError, MissingExtra
from rhumbline.formats.safe_io import write_bytes
from rhumbline.problems import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, ROUTE, START, PAPER = "#1b2a3a", "#1f6f8b", "#e4572e", "#fbfaf7"
SIDE, HEAD, RESOLUTION = 7.0, 0.4, 160  # inches of the longer side and of the title; dots per inch


def require_matplotlib() -> None:
    """Raise unless pictures can be drawn."""
    if find_spec("matplotlib") is None:
        raise MissingExtra("pictures need matplotlib; get it with: pip install 'rhumbline[plots]'")


def positions(instance: Any) -> Float[np.ndarray, "N 2"]:
    """Where nodes are drawn: as the file says, maps with north up; matrices without positions as
    they embed.
    """
    drawn = instance.xy if instance.metric == "EXPLICIT" else None
    return np.asarray(instance.planar_xy if drawn is None else drawn, dtype=np.float64)


def plan_caption(instance: Any, plan: Plan) -> str:
    """Name, cost and gap."""
    cost = plan.cost(instance)
    text = (
        f"{instance.name}     cost {cost:,.0f}"
        if instance.has_integer_costs
        else f"{instance.name}     cost {cost:,.4f}"
    )
    known = instance.best_known
    return f"{text}     gap {(cost - known) / known:.2%}" if known else text


def style_plan_axes(axes: "Axes", title: str) -> None:
    """Equal scales, no frame, a quiet title. Dollar signs in names are not mathematics."""
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.03)
    axes.set_axis_off()
    axes.set_title(title, color=INK, fontsize=12, loc="left", pad=12, parse_math=False)


def new_axes(width: float, height: float) -> "Axes":
    """Axes of a new figure about as wide and high as its content, known to no window system."""
    longest = max(width, height) or 1.0
    shape = [SIDE * max(0.5, side / longest) for side in (width, height)]  # never a mere strip
    figure = new_figure(shape[0], shape[1] + HEAD)
    figure.get_layout_engine().set(w_pad=0.25, h_pad=0.2)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
    return figure.add_subplot()


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of so many inches, known to no window system."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure((width, height), RESOLUTION, facecolor=PAPER, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(path: str | Path, drawn: "Axes | Figure") -> None:
    """Write a picture in one step; the ending of the name says the format, png if there is none."""
    kind = Path(path).suffix.lstrip(".").lower() or "png"
    figure: Any = getattr(drawn, "figure", drawn)
    if kind not in figure.canvas.get_supported_filetypes():
        raise InputError.at(path, None, f"pictures cannot end in '{kind}'; use png, svg or pdf")
    content = io.BytesIO()
    figure.savefig(content, format=kind)
    write_bytes(Path(path), content.getvalue())
