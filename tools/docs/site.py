"""The Sphinx extension of `docs/conf.py`: generated parts, executed pages and links."""

from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

from tools.docs import expand
from tools.docs.links import DOCS, rewrite_links
from tools.docs.notebooks import MARK, execute_page, offer_notebook
from tools.docs.result_figures import save_figures

PICTURES = "_executed"  # below docs/, and ignored by git


def read_page(app: Any, name: str, source: list[str]) -> None:
    """Complete the source of a page before it is parsed."""
    folder = (DOCS / name).parent
    text = rewrite_links(source[0], folder, folder)
    text = expand(text)
    if MARK in text.splitlines():
        folder = Path(app.srcdir) / PICTURES
        executed = execute_page(text, name, folder)
        text = offer_notebook(text, executed, folder / f"{Path(name).name}.ipynb")
    source[0] = text


def draw_figures(app: Any) -> None:
    """Draw the figures of results before pages refer to them."""
    save_figures(Path(app.srcdir) / PICTURES)


def setup(app: Any) -> dict[str, Any]:
    """Register the extension."""
    app.add_lexer("csv", TextLexer)  # Pygments has none
    app.connect("builder-inited", draw_figures)
    app.connect("source-read", read_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
