"""Pages whose Python blocks run while the site is built, with their output below each block.

A page says `<!-- executed -->` in a line of its own. Its blocks share one namespace. What a block
prints is shown. A figure, axes or a solution that is the value of its last line becomes a picture.
An error in a block ends the build. Readers download each page as a Jupyter notebook, too.
"""

import ast
import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARK = "<!-- executed -->"
BLOCK = re.compile(r"```python\n(.*?)```\n", re.DOTALL)


def execute_page(text: str, name: str, folder: Path) -> str:
    """Return a page with the output of its blocks; pictures are written to a folder."""
    namespace: dict[str, Any] = {"__name__": name}
    parts: list[str] = []
    end = 0
    for number, match in enumerate(BLOCK.finditer(text), 1):
        parts.append(text[end : match.end()])
        printed, value = run_block(match[1], namespace, f"{name}, block {number}")
        picture = folder / f"{Path(name).name}-{number}.png"
        parts += show_output(printed, value, picture)
        end = match.end()
    return "".join([*parts, text[end:]])


def offer_notebook(source: str, executed: str, path: Path) -> str:
    """Write the source of a page as a notebook, and return the page with a link to it."""
    notebook = json.dumps(make_notebook(source), indent=1, ensure_ascii=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook + "\n", encoding="utf-8")
    link = f"{{download}}`Download as a notebook </{path.parent.name}/{path.name}>`"
    return executed.replace(MARK, f"{link}, to run in the root of a clone.", 1)


def make_notebook(text: str) -> dict[str, Any]:
    """Return the notebook of a page: its blocks as cells of code, the text between as Markdown."""
    cells: list[dict[str, Any]] = []
    parts = BLOCK.split(text.replace(MARK, ""))  # text and code in turns
    for number, part in enumerate(parts):
        lines = part.strip().splitlines(keepends=True)
        if not lines:
            continue
        cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}, "source": lines}
        if number % 2:
            cell |= {"cell_type": "code", "execution_count": None, "outputs": []}
        else:
            cell |= {"cell_type": "markdown"}
        cells.append(cell)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def run_block(code: str, namespace: dict[str, Any], name: str) -> tuple[str, Any]:
    """Run a block; return what it prints, and the value of its last line if it is an expression."""
    tree = ast.parse(code, name)
    last = tree.body[-1]
    value = None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    return printed.getvalue(), value


def show_output(printed: str, value: Any, picture: Path) -> Iterator[str]:
    """Yield the Markdown for the output of a block."""
    if printed.strip():
        yield f"\n```text\n{printed.rstrip()}\n```\n"
    content = picture_of(value)
    if content is not None:
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_bytes(content)
        yield f"\n![The figure of the block above](/{picture.parent.name}/{picture.name})\n"
    elif value is not None:
        yield f"\n```text\n{value!r}\n```\n"


def picture_of(value: Any) -> bytes | None:
    """Return a value as a PNG if it is a figure, axes, or draws itself for notebooks."""
    if hasattr(value, "_repr_png_"):
        return value._repr_png_()
    figure = value if hasattr(value, "savefig") else getattr(value, "figure", None)
    if figure is None:
        return None
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()
