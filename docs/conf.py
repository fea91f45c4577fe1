"""Sphinx builds the site by this file: `make docs`. Parts of pages come from tools/docs."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rhumbline import __version__  # noqa: E402 (from this clone, not from an installed package)

project = "rhumbline"
author = "the developers of rhumbline"
copyright = "the developers of rhumbline, Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "tools.docs.site"]
# Options of commands keep their two hyphens.
smartquotes = False
exclude_patterns = ["_build", "_executed"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
highlight_language = "none"

# Docstrings are Markdown in the small: single backticks mean code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
# Types of torch, numpy and jaxtyping have their own documentation; the build uses no network.
nitpick_ignore_regex = [("py:.*", ".*")]

html_theme = "furo"
html_title = f"rhumbline {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(ROOT / "docs" / "_static" / "scorer.js")
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5fa8", "color-brand-content": "#1f5fa8"},
    "dark_css_variables": {"color-brand-primary": "#7fb4ef", "color-brand-content": "#7fb4ef"},
}
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
