"""Programs outside the package import only what is there: most of them no other test runs."""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "tools", "research", "examples")
PROGRAMS = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_program_imports_is_there(path: Path) -> None:
    """Every name that it imports from the package, inside functions too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("rhumbline."):
            for alias in node.names:
                place = f"{node.module}.{alias.name}"
                module = import_module(str(node.module))
                assert hasattr(module, alias.name) or find_spec(place), place


def test_programs_are_found() -> None:
    """The folders are where this file looks for them."""
    assert {path.relative_to(ROOT).parts[0] for path in PROGRAMS} == set(FOLDERS)
