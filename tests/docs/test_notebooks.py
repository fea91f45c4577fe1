"""Pages that run while the site is built."""

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from tools.docs.notebooks import MARK, execute_page, make_notebook, offer_notebook

PAGE = """# Title

```python
x = 2
print("two:", x)
```

Text.

```python
x + 1
```

```python
from matplotlib.figure import Figure

Figure(figsize=(1, 1))
```

End.
"""


def test_blocks_share_a_namespace_and_show_their_output(tmp_path: Path) -> None:
    """What a block prints and the value of its last line stand below it; a figure is a picture."""
    text = execute_page(PAGE, "guide/example", tmp_path / "pictures")
    assert "```\n\n```text\ntwo: 2\n```\n\nText.\n" in text
    assert "x + 1\n```\n\n```text\n3\n```\n" in text
    assert "(/pictures/example-3.png)\n\nEnd.\n" in text
    assert (tmp_path / "pictures" / "example-3.png").read_bytes().startswith(b"\x89PNG")


def test_axes_and_solutions_are_pictures(tmp_path: Path) -> None:
    """What a notebook would draw, the page draws; the value is not printed as well."""
    code = "from matplotlib.figure import Figure\n\nFigure(figsize=(1, 1)).subplots()\n"
    drawn = "class Drawn:\n    def _repr_png_(self):\n        return b'png'\n\nDrawn()\n"
    for block in (code, drawn):
        text = execute_page(f"```python\n{block}```\n", "page", tmp_path / "pictures")
        assert text.endswith("(/pictures/page-1.png)\n")
    assert (tmp_path / "pictures" / "page-1.png").read_bytes() == b"png"


def test_an_error_ends_the_build(tmp_path: Path) -> None:
    """A page whose code no longer works is not shown."""
    with pytest.raises(ZeroDivisionError):
        execute_page("```python\n1 / 0\n```\n", "page", tmp_path)


MARKED_PAGE = f"""# Title

{MARK}

Some text.

```python
x = 6
```

More text.

```python
x * 7
```
"""


def test_a_notebook_has_the_blocks_of_the_page() -> None:
    """Text and code alternate in the order of the page; running the code cells in turn works."""
    cells = make_notebook(MARKED_PAGE)["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "markdown", "code"]
    sources = ["".join(cell["source"]) for cell in cells]
    assert sources == ["# Title\n\n\n\nSome text.", "x = 6", "More text.", "x * 7"]
    names: dict[str, int] = {}
    exec(sources[1], names)
    assert eval(sources[3], names) == 42
    assert len({cell["id"] for cell in cells}) == len(cells)


def test_a_page_links_to_its_notebook(tmp_path: Path) -> None:
    """The link stands where the mark was, and the file is JSON of the notebook format."""
    path = tmp_path / "_executed/page.ipynb"
    page = offer_notebook(MARKED_PAGE, MARKED_PAGE, path)
    assert MARK not in page
    assert "{download}`Download as a notebook </_executed/page.ipynb>`" in page
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook == make_notebook(MARKED_PAGE)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
