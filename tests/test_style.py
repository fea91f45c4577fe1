"""Rules of style that a linter does not know: one thought a line, few parameters, one home a name.

Host code is all of the package but `kernels/`, where Triton and numba set the style.
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rhumbline"
MODULES = sorted(PACKAGE.rglob("*.py"))
HOST_MODULES = [path for path in MODULES if "kernels" not in path.relative_to(PACKAGE).parts]

MAX_NODES_PER_LINE = 8
SPARE_NODES = 6  # in a function, so that a body of one line may have 14
MAX_PARAMETERS = 6
MAX_MODULES = 12  # in a folder, besides its __init__.py

# Functions with more parameters: one for each option that a user has.
MANY_OPTIONS = {
    "rhumbline/api.py": {"prepare", "solve"},
    "rhumbline/cli/commands/bench.py": {"bench_command"},
    "rhumbline/cli/commands/sample.py": {"sample_command"},
    "rhumbline/cli/commands/solve.py": {"solve_command"},
    "rhumbline/cli/commands/serve.py": {"serve_command"},
    "rhumbline/decoding/completion.py": {"complete"},
    "rhumbline/decoding/rollouts.py": {"rollout", "rollout_by_member"},
    "rhumbline/decoding/scoring.py": {"log_prob", "score_by_member"},
    "rhumbline/distributed/run.py": {"solve_many"},
    "rhumbline/pipeline.py": {"make_tasks"},
    "rhumbline/search/task/make.py": {"make_task"},
    "rhumbline/training/loop.py": {"train"},
}

# Names that several modules of host code define, and why.
SHARED_NAMES = {
    "improve": "the interface of improvers, which are modules that `improvers` loads by name",
    "prepare": "the same interface, and the public `rhumbline.prepare`",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    """Return the path inside the repository, for messages and test ids."""
    return str(path.relative_to(ROOT))


@cache
def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def functions_of(tree: ast.AST) -> Iterator[Function]:
    """Yield every function and method, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def is_packed(node: ast.AST) -> bool:
    """Return whether `node` is an assignment such as `a, b = x, y`.

    Swaps are not: a name on both sides needs the values to be taken at once.
    """
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    if not isinstance(node.targets[0], ast.Tuple):
        return False
    targets = {ast.unparse(target) for target in node.targets[0].elts}
    values = {ast.unparse(part) for part in ast.walk(node.value) if isinstance(part, ast.expr)}
    return not targets & values


def lines_and_nodes(function: Function, rows: list[str]) -> tuple[int, int]:
    """Return the number of lines and of syntax nodes of a function's body.

    Its docstring, blank lines and lines of comment do not count.
    """
    body = function.body
    if ast.get_docstring(function):
        body = body[1:]
    if not body:
        return 0, 0
    text = [row.strip() for row in rows[body[0].lineno - 1 : body[-1].end_lineno]]
    lines = sum(bool(row) and not row.startswith("#") for row in text)
    nodes = 0
    for statement in body:
        nodes += sum(isinstance(node, ast.expr | ast.stmt) for node in ast.walk(statement))
    return lines, nodes


def is_dense(function: Function, rows: list[str]) -> bool:
    """Return whether a function holds too many syntax nodes a line."""
    lines, nodes = lines_and_nodes(function, rows)
    return nodes > MAX_NODES_PER_LINE * lines + SPARE_NODES


def count_parameters(function: Function) -> int:
    """Return the number of parameters besides `self` and `cls`."""
    arguments = function.args
    names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return sum(name.arg not in ("self", "cls") for name in names)


@pytest.mark.parametrize("path", HOST_MODULES, ids=name_of)
def test_assignments_are_not_packed(path: Path) -> None:
    """Two values that have nothing to do with each other are assigned on two lines."""
    packed = [node.lineno for node in ast.walk(parse(path)) if is_packed(node)]
    assert not packed


@pytest.mark.parametrize("path", HOST_MODULES, ids=name_of)
def test_lines_hold_one_thought(path: Path) -> None:
    """Functions have about 8 syntax nodes a line at most (the median of PyVRP and diffrax is 4)."""
    rows = path.read_text(encoding="utf-8").splitlines()
    dense: dict[str, str] = {}
    for function in functions_of(parse(path)):
        if is_dense(function, rows):
            lines, nodes = lines_and_nodes(function, rows)
            dense[f"{function.name}:{function.lineno}"] = f"{nodes / lines:.1f}"
    assert not dense


@pytest.mark.parametrize("path", HOST_MODULES, ids=name_of)
def test_options_travel_in_records(path: Path) -> None:
    """A function has at most 6 parameters, unless it has one for each option of a user."""
    exempt = MANY_OPTIONS.get(name_of(path), set())
    many = [f.name for f in functions_of(parse(path)) if count_parameters(f) > MAX_PARAMETERS]
    assert set(many) <= exempt


def test_every_public_name_has_one_home() -> None:
    """No two modules of host code define a function or a class of one name."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in HOST_MODULES:
        for node in parse(path).body:
            if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name_of(path))
    shared = {name: paths for name, paths in homes.items() if len(paths) > 1}
    unexpected = {name: paths for name, paths in shared.items() if name not in SHARED_NAMES}
    assert not unexpected


def test_folders_are_small() -> None:
    """No folder has more than 12 modules besides its `__init__.py`."""
    counts: dict[str, int] = defaultdict(int)
    for path in MODULES:
        if path.stem not in ("__init__", "__main__"):
            counts[name_of(path.parent)] += 1
    assert {folder: count for folder, count in counts.items() if count > MAX_MODULES} == {}


REFERENCE = re.compile(r"\b(?:spec|design)[ ]\d")  # to documents outside the repository
TEXTS = [
    path
    for folder in ("rhumbline", "tests", "benchmarks", "examples", "docs", "recipes", "suites")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".md", ".toml") and "_build" not in path.parts
]
TEXTS += [ROOT / "README.md", ROOT / "pyproject.toml"]


def test_names_are_defined() -> None:
    """A misspelt name fails only when its line runs.

    The checkers cannot look for it everywhere, because the shapes of jaxtyping are undefined names
    of one or two letters, too.
    """
    ruff = Path(sys.executable).with_name("ruff")
    command = [ruff, "check", "--select", "F821", "--output-format", "concise", ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "F821" in done.stdout, done.stderr  # those shapes
    assert not re.findall(r".*Undefined name `\w{3,}`", done.stdout)


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_references_are_inside_the_repository(path: Path) -> None:
    """Nothing cites documents that readers do not have; papers and pages of docs/ are cited."""
    rows = path.read_text(encoding="utf-8").splitlines()
    assert [row for row in rows if REFERENCE.search(row)] == []


@pytest.mark.parametrize(
    ("line", "packed"),
    [
        ("a, b = 1, 2", True),
        ("self.a, b = x, y", True),
        ("a, b = b, a", False),
        ("a, b = b, a % b", False),
        ("a, b = pair", False),
        ("a = 1, 2", False),
    ],
)
def test_packed_assignments_are_found(line: str, packed: bool) -> None:
    """Swaps and unpacked values are fine."""
    assert is_packed(ast.parse(line).body[0]) == packed


def test_dense_functions_are_found() -> None:
    """Nodes of docstrings and lines of comments do not count."""
    source = '''
def plain(x):
    """Docstring."""
    # comment
    y = x + 1
    return y

def dense(x):
    y = [a + b for a, b in zip(x, [c * 2 for c in x])]
    return sum(y) + max(y) + min(y) + len([z for z in y if z > 3])
'''
    plain, dense = functions_of(ast.parse(source))
    rows = source.splitlines()
    assert lines_and_nodes(plain, rows)[0] == 2
    assert not is_dense(plain, rows)
    assert is_dense(dense, rows)
