"""Every global name is defined.

Linters cannot check that here: shapes in annotations look like undefined names.
"""

import builtins
import dis
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted([*(ROOT / "rhumbline").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")])
KNOWN = {*dir(builtins), "__file__", "__name__", "__doc__", "__annotations__"}


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all that are nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def undefined(source: str, name: str) -> set[str]:
    """Return the global names that functions read and the module never binds."""
    module = compile(source, name, "exec")
    steps = [
        (step.opname, step.argval) for code in codes(module) for step in dis.get_instructions(code)
    ]
    bound = {what for kind, what in steps if kind in ("STORE_NAME", "STORE_GLOBAL")}
    return {what for kind, what in steps if kind == "LOAD_GLOBAL"} - bound - KNOWN


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_global_name_is_bound(path: Path) -> None:
    """Each name that a function reads from its module is imported, defined or built in."""
    assert undefined(path.read_text(encoding="utf-8"), str(path)) == set()


def test_missing_names_are_found() -> None:
    """A forgotten import is found, also in methods and nested functions; annotations, arguments and
    globals are not.
    """
    source = """
import os
COUNT = 3
def shown(x: "B K Z") -> None:
    def inner(): return Missing(os.sep, COUNT, x)
class Thing:
    def method(self): raise Forgotten(len(self))
"""
    assert undefined(source, "source") == {"Missing", "Forgotten"}
