"""Links of pages to files outside `docs/`, which a site does not have.

On a code host such links work as they are. On the site they lead to the repository, if
`pyproject.toml` names its address under `project.urls`; otherwise the path is shown as text.
"""

import os
import re
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)\s]+)\)")
# Files of the root that are pages of the site, too.
ROOT_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CITATION.cff": "citing.md",
}


@cache
def repository_url() -> str | None:
    """Return the address of the repository, if the package's metadata have one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository")


def rewrite_links(text: str, folder: Path, page_folder: Path) -> str:
    """Return a text whose links work on the site.

    Links are relative to `folder`; the text becomes part of a page in `page_folder`.
    """

    def rewrite(match: re.Match[str]) -> str:
        label, target = match.groups()
        if "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        path, mark, anchor = target.partition("#")
        return site_link(label, folder / path, f"{mark}{anchor}", page_folder)

    return LINK.sub(rewrite, text)


def site_link(label: str, path: Path, anchor: str, page_folder: Path) -> str:
    """Return the link to a file for a page in some folder."""
    path = Path(os.path.normpath(path))
    if path.parent == ROOT and path.name in ROOT_PAGES:
        path = DOCS / ROOT_PAGES[path.name]
    if path.is_relative_to(DOCS):
        return f"[{label}]({os.path.relpath(path, page_folder)}{anchor})"
    assert path.exists(), f"[{label}]: there is no {path}"
    inside = path.relative_to(ROOT)
    url = repository_url()
    if url:
        return f"[{label}]({url}/blob/main/{inside}{anchor})"
    if label.strip("`") in (str(inside), path.name):
        return f"`{inside}`"
    return f"{label} (`{inside}`)"


def root_page(name: str) -> str:
    """Return a Markdown file of the root, without its title, for a page in `docs/`."""
    text = (ROOT / name).read_text(encoding="utf-8")
    _, _, body = text.partition("\n")
    return rewrite_links(body, ROOT, DOCS)


def contributing() -> str:
    """Return CONTRIBUTING.md."""
    return root_page("CONTRIBUTING.md")


def changelog() -> str:
    """Return CHANGELOG.md."""
    return root_page("CHANGELOG.md")


def overview() -> str:
    """Return the table of gaps in the README, which tools/gap_tables.py makes."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, rest = readme.partition("<!-- suite: gaps -->")
    table, _, _ = rest.partition("<!-- end: gaps -->")
    return table.strip()
