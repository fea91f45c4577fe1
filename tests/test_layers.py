"""Imports point down only, and third-party packages are imported in few places."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "rhumbline"

LAYERS = (
    ("errors", "philox", "record", "registry", "noise", "client"),
    ("problems", "formats", "toml_config"),
    ("policies", "kernels"),
    ("decoding", "local_search", "external"),
    ("domain",),
    ("domains",),
    ("checkpoint", "files", "improvers"),
    ("search", "training"),
    ("inputs", "pipeline", "api", "plots", "testing"),
    ("distributed",),
    ("bench", "serve"),
    ("cli", "__main__"),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# The only imports between neighbours of a layer.
FRIENDS = {
    ("noise", "philox"),
    ("registry", "errors"),
    ("client", "errors"),
    ("formats", "problems"),
    ("toml_config", "formats"),  # bounded reading
    ("__main__", "cli"),
    ("external", "local_search"),  # an external solver runs in a thread that can be interrupted
    ("api", "inputs"),
    ("api", "pipeline"),
    ("pipeline", "inputs"),
}
KERNEL_COMPILERS = ("triton", "numba", "llvmlite")
SOLVERS = ("elkai", "hygese", "pyvrp", "ortools")
ONLY_IN = {"rich": {"cli"}, "typer": {"cli"}, "matplotlib": {"plots"}}
ONLY_IN["ray"] = {"distributed"}
ONLY_IN |= {name: {"serve"} for name in ("starlette", "uvicorn", "anyio", "h11")}
ONLY_IN |= {name: {"kernels"} for name in KERNEL_COMPILERS}
# External solvers improve plans, and suites compare with them.
ONLY_IN |= {name: {"external", "bench"} for name in SOLVERS}
FREE = {"torch", "numpy", "safetensors", "jaxtyping"}  # allowed anywhere above the standard library
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE or p.stem != "__init__")


def part_of(path: Path) -> str:
    """Return the part of the package a module belongs to: its folder, or its own name at
    the top.
    """
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield every imported module, also inside functions, but not in blocks for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from imports(node)


def imports_of(path: Path) -> list[str]:
    return list(imports(ast.parse(path.read_text(encoding="utf-8"))))


def own_parts(path: Path) -> set[str]:
    """Return the parts of our package that a module imports, besides its own."""
    names = [n.split(".") for n in imports_of(path) if n.startswith("rhumbline.")]
    return {n[1] for n in names if n[1] in LEVEL} - {part_of(path)}


def third_party(path: Path) -> set[str]:
    roots = {n.split(".")[0] for n in imports_of(path)}
    return roots - set(sys.stdlib_module_names) - {"rhumbline"}


def test_every_part_has_a_layer() -> None:
    """A new module must be given its layer in the table above."""
    assert {part_of(p) for p in MODULES} - {"weights"} <= set(LEVEL)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    """A module imports only from layers below its own."""
    part = part_of(path)
    upward = {
        p for p in own_parts(path) if LEVEL[p] >= LEVEL.get(part, 9) and (part, p) not in FRIENDS
    }
    assert not upward


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_third_party_packages_stay_at_home(path: Path) -> None:
    """Each third-party package is imported only in the folders listed above."""
    strangers = {n for n in third_party(path) - FREE if part_of(path) not in ONLY_IN.get(n, ())}
    assert not strangers


def test_training_needs_only_numbers() -> None:
    """The training loop and its imports need only torch, numpy, safetensors and jaxtyping."""
    seen: set[Path] = set()
    due = [PACKAGE / "training" / "loop.py"]
    while due:
        path = due.pop()
        # Kernels are loaded lazily, and only where there is a GPU.
        if path in seen or "kernels" in path.parts:
            continue
        seen.add(path)
        assert third_party(path) <= FREE, path
        for name in imports_of(path):
            if name.startswith("rhumbline."):
                due += files_of(name)
    assert {"loop.py", "local_search.py", "encoder.py", "noise.py"} <= {p.name for p in seen}


def files_of(name: str) -> list[Path]:
    """Return the files that an import such as `rhumbline.formats.read` may load."""
    place = PACKAGE.parent / name.replace(".", "/")
    options = (
        place.with_suffix(".py"),
        place / "__init__.py",
        place.parent.with_suffix(".py"),
        place.parent / "__init__.py",
    )
    return [path for path in options if path.is_file()]


def loaded_after(statement: str) -> set[str]:
    """Return the top-level modules in a fresh interpreter after a statement."""
    code = f"{statement}; import sys; print(*{{n.split('.')[0] for n in sys.modules}})"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_import_rhumbline_is_quick() -> None:
    """`import rhumbline` loads neither torch nor numpy."""
    assert not loaded_after("import rhumbline") & {"torch", "numpy", "safetensors", "jaxtyping"}


def test_kernels_are_compiled_only_when_they_run() -> None:
    """Importing everything for a search loads neither Triton nor numba."""
    assert not loaded_after("import rhumbline.api, rhumbline.cli.solve_run") & set(KERNEL_COMPILERS)


def test_training_starts_without_command_line_packages() -> None:
    """A training process loads none of the packages of the command line and the plots."""
    loaded = loaded_after("import rhumbline.training.loop")
    assert "torch" in loaded
    assert not loaded & {"typer", "rich", "matplotlib", "numba"}
