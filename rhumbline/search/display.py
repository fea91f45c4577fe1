"""What a notebook shows of a solution: its facts as a table, and a picture of its plan."""

from base64 import b64encode
from collections.abc import Iterator
from html import escape
from io import BytesIO
from pkgutil import resolve_name
from typing import Any

from rhumbline.domains import DOMAINS
from rhumbline.errors import RhumbError
from rhumbline.problems import Plan

PICTURE_DPI = 80  # of pictures in a notebook; those in files have twice as many


def draw_plan(instance: Any, plan: Plan, axes: Any = None, title: str = "") -> Any:
    """Draw a plan in the way of its problem; return the axes of matplotlib.

    Raises `MissingExtra` without matplotlib, and `InputError` for problems without pictures.
    """
    domain = DOMAINS.find(instance.problem, "problem")
    draw = resolve_name(domain.require("draw", "drawing a plan"))
    return draw(instance, plan, axes=axes, title=title)


def picture_of(instance: Any, plan: Plan) -> bytes | None:
    """Return a plan as a PNG, or None where it cannot be drawn.

    A notebook calls this for each value that it shows, so that an error would hide the value.
    """
    try:
        axes = draw_plan(instance, plan)
    except RhumbError:
        return None
    content = BytesIO()
    axes.figure.savefig(content, format="png", dpi=PICTURE_DPI)
    return content.getvalue()


def table_of(facts: dict[str, str], picture: bytes | None) -> str:
    """Return facts as a table in HTML, with a picture below it if there is one."""
    return "".join(table_parts(facts, picture))


def table_parts(facts: dict[str, str], picture: bytes | None) -> Iterator[str]:
    """Yield the parts of the HTML. Names come from files, so all text is escaped."""
    yield "<table><tr>"
    for name in facts:
        yield f"<th>{escape(name)}</th>"
    yield "</tr><tr>"
    for fact in facts.values():
        yield f"<td>{escape(fact)}</td>"
    yield "</tr></table>"
    if picture is not None:
        encoded = b64encode(picture).decode()
        yield f'<img alt="the plan" src="data:image/png;base64,{encoded}">'
