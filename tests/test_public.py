"""What `import rhumbline` offers."""

import ast
from pathlib import Path

import pytest

import rhumbline


def test_every_public_name_loads() -> None:
    """Each name in `__all__` loads and is the object of its home module."""
    for name in rhumbline.__all__:
        value = getattr(rhumbline, name)
        assert value.__module__.startswith("rhumbline.")
        assert value.__name__ == name


def test_type_checkers_see_the_same_names() -> None:
    """The block for type checkers lists exactly the names that are loaded lazily."""
    tree = ast.parse(Path(rhumbline.__file__).read_text(encoding="utf-8"))
    block = next(n for n in tree.body if isinstance(n, ast.If))
    seen = {
        (f"{n.module}", a.name)
        for n in block.body
        if isinstance(n, ast.ImportFrom)
        for a in n.names
    }
    assert seen == {(module, name) for module, names in rhumbline._HOMES.items() for name in names}


def test_unknown_name_is_an_attribute_error() -> None:
    """An unknown name is refused as by any module."""
    with pytest.raises(AttributeError, match="no attribute 'sovle'"):
        _ = rhumbline.sovle


def test_dir_is_the_public_interface() -> None:
    """Completion shows the public names and nothing else."""
    assert dir(rhumbline) == sorted(rhumbline.__all__)
    assert "solve" in dir(rhumbline)
    assert "_HOME" not in dir(rhumbline)


def test_every_strategy_is_public() -> None:
    """The class of each strategy is public, for users who set its fields in Python."""
    from rhumbline.search.strategies import STRATEGIES

    assert {STRATEGIES[name].__name__ for name in STRATEGIES.table} <= set(rhumbline.__all__)
