"""Where results come from, and the labels that say so: commit, versions, hardware.

Tables, figures and legends use the same labels for results that differ in more than their method.
"""

import platform
import subprocess
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from rhumbline import __version__
from rhumbline.bench.results import FIELDS, Result, field_text

PACKAGE = Path(__file__).parents[1]


def current_commit() -> str:
    """Return the commit of the running code.

    A digest of the sources is added if they were changed. It stands alone if the package does not
    lie in its own checkout.
    """
    root = run_git("rev-parse", "--show-toplevel")
    commit = run_git("rev-parse", "--short=12", "HEAD")
    is_checkout = root is not None and Path(root) / PACKAGE.name == PACKAGE
    if not is_checkout or commit is None:
        digest = source_digest(PACKAGE)
        return f"version {__version__}, sources {digest}"
    if run_git("status", "--porcelain", "--", str(PACKAGE)):
        digest = source_digest(PACKAGE)
        return f"{commit}, changed sources {digest}"
    return commit


def source_digest(folder: Path) -> str:
    """Return a digest of the names and texts of all Python files in a folder."""
    digest = sha256()
    files = sorted(folder.rglob("*.py"))
    for path in files:
        name = f"{path.relative_to(folder)}\0"
        digest.update(name.encode())
        content = path.read_bytes()
        digest.update(content)
    return digest.hexdigest()[:8]


def run_git(*words: str) -> str | None:
    """Run a git command in the folder of the package and return its output, None on failure.

    A status must not refresh the index: killed meanwhile, as a full disk does it, git leaves a
    lock that stops all later commands of the user.
    """
    command = ["git", "--no-optional-locks", *words]
    try:
        done = subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@cache
def library_versions() -> dict[str, str]:
    """Return the versions of rhumbline, of Python and of the libraries that results depend on."""
    versions = {"rhumbline": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "triton", "numba"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


@cache
def processor_name() -> str:
    """Return the name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def hardware_name(device: torch.device, threads: int) -> str:
    """Return the name of a GPU, or of the CPU with the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    unit = "thread" if threads == 1 else "threads"
    processor = processor_name()
    return f"{processor}, {threads} {unit}"


LabelKey = tuple[str, ...]  # a name, then a value of each field


def label_key(item: Any, name: str, fields: Sequence[str]) -> LabelKey:
    """Return a name with these fields of a result or of a table row."""
    values = [field_text(item, field) for field in fields]
    return (name, *values)


def describe_differences(keys: Iterable[LabelKey], fields: Sequence[str]) -> dict[LabelKey, str]:
    """Return in words how each key differs from the others of its name.

    The text of a key that is the only one of its name is empty.
    """
    by_name: dict[str, list[LabelKey]] = {}
    distinct_keys = dict.fromkeys(keys)
    for key in distinct_keys:
        same_name = by_name.setdefault(key[0], [])
        same_name.append(key)
    texts: dict[LabelKey, str] = {}
    for group in by_name.values():
        for key in group:
            texts[key] = difference_text(key, group, fields)
    return texts


def difference_text(key: LabelKey, group: Sequence[LabelKey], fields: Sequence[str]) -> str:
    """Return the fields in which a key differs from some of its group.

    Of the versions only those are named that not all have in common.
    """
    prefixes = {"commit": "commit ", "suite_hash": "suite "}  # Other values explain themselves.
    texts: list[str] = []
    for place, field in enumerate(fields, 1):
        values = {other[place] for other in group}
        if len(values) == 1:
            continue
        if field == "versions":
            texts.append(items_not_shared(key[place], values))
        else:
            prefix = prefixes.get(field, "")
            texts.append(prefix + key[place])
    return "; ".join(texts)


def items_not_shared(value: str, values: Iterable[str]) -> str:
    """Return the items of a comma-separated list that not all lists contain."""
    items = value.split(", ")
    shared = set(items)
    for other in values:
        shared &= set(other.split(", "))
    different = [item for item in items if item not in shared]
    return ", ".join(different)


def method_name(result: Result) -> str:
    """Return the name of a result's method."""
    return result.method


def group_by_label(
    results: Sequence[Result],
    name_of: Callable[[Result], str] = method_name,
    fields: Sequence[str] = FIELDS.label,
) -> dict[str, list[Result]]:
    """Group results by name. Where results of one name differ in a field, the labels say how."""
    keys = [label_key(result, name_of(result), fields) for result in results]
    differences = describe_differences(keys, fields)
    groups: dict[str, list[Result]] = {}
    for result, key in zip(results, keys, strict=True):
        label = key[0]
        difference = differences[key]
        if difference:
            label += f" ({difference})"
        groups.setdefault(label, []).append(result)
    return groups
