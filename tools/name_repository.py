"""Write the address of the repository into the metadata and the README of a release.

    python tools/name_repository.py https://HOST/OWNER/NAME v0.2.0

A package index shows the README without the files beside it, so links and pictures need whole
addresses. The repository itself states none: a fork or a move would make it wrong. The workflow
`publish` runs this in its own checkout, before it builds.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?P<picture>!?)\[(?P<label>[^\]\n]*)\]\((?P<target>[^)\s]+)\)")


def name_links(text: str, address: str, version: str) -> str:
    """Return a text whose relative links and pictures lead to a version in the repository."""

    def rewrite(link: re.Match[str]) -> str:
        target = link["target"]
        if "://" in target or target.startswith(("#", "mailto:")):
            return link[0]
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['label']}]({address}/{kind}/{version}/{target})"

    return LINK.sub(rewrite, text)


def project_urls(address: str, version: str) -> str:
    """Return the table of addresses for `pyproject.toml`."""
    pages = {
        "Repository": address,
        "Documentation": f"{address}/blob/{version}/docs/index.md",
        "Changelog": f"{address}/blob/{version}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }
    lines = [f'{title} = "{page}"' for title, page in pages.items()]
    return "\n".join(["[project.urls]", *lines, ""])


def name_repository(root: Path, address: str, version: str) -> None:
    """Change the README and the metadata in a checkout."""
    readme = root / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(name_links(text, address, version), encoding="utf-8")
    for metadata in (root / "pyproject.toml", root / "packages/research-weights/pyproject.toml"):
        content = metadata.read_text(encoding="utf-8")
        if "urls" in tomllib.loads(content)["project"]:
            raise SystemExit(f"{metadata}: states addresses already")
        metadata.write_text(f"{content}\n{project_urls(address, version)}", encoding="utf-8")


def main() -> None:
    """Change this checkout."""
    if len(sys.argv) != 3 or not sys.argv[1].startswith("https://"):
        raise SystemExit(__doc__)
    _, address, version = sys.argv
    name_repository(ROOT, address.rstrip("/"), version)


if __name__ == "__main__":
    main()
