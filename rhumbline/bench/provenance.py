"""Where and with what something was measured: commit, versions, processor, GPU."""

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
from rhumbline.bench.results import Result, field_text

PACKAGE = Path(__file__).parents[1]


def current_commit() -> str:
    """The commit of the code that runs, with a mark of its sources if they differ, or if this is
    no checkout.
    """
    top = run_git("rev-parse", "--show-toplevel")
    head = run_git("rev-parse", "--short=12", "HEAD")
    if top is None or head is None or Path(top) / PACKAGE.name != PACKAGE:
        return f"version {__version__}, sources {source_digest(PACKAGE)}"
    return (
        f"{head}, changed sources {source_digest(PACKAGE)}"
        if run_git("status", "--porcelain", "--", str(PACKAGE))
        else head
    )


def source_digest(folder: Path) -> str:
    """A mark of all Python files of a folder."""
    mark = sha256()
    for path in sorted(folder.rglob("*.py")):
        mark.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return mark.hexdigest()[:8]


def run_git(*words: str) -> str | None:
    """What git says about the folder of the package, if it says anything."""
    try:
        done = subprocess.run(
            ["git", *words], cwd=PACKAGE, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@cache
def library_versions() -> dict[str, str]:
    """Of what results depend on."""
    found = {"rhumbline": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "triton", "numba"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@cache
def processor_name() -> str:
    """The CPU in words."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def hardware_name(device: torch.device, threads: int) -> str:
    """What a method runs on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor_name()}, {threads} thread{'s' if threads > 1 else ''}"


ORIGIN_FIELDS = ("commit", "suite_hash", "versions")
LABEL_FIELDS = ("hardware", "budget", "solver", *ORIGIN_FIELDS)
FIELD_PREFIX = {
    "commit": "commit ",
    "suite_hash": "suite ",
}  # before a value that does not explain itself

LabelKey = tuple[str, ...]  # a name, and a value of each fact


def label_key(item: Any, name: str, facts: Sequence[str]) -> LabelKey:
    """A name with the facts of a result or a row."""
    return (name, *(field_text(item, f) for f in facts))


def describe_differences(sources: Iterable[LabelKey], facts: Sequence[str]) -> dict[LabelKey, str]:
    """What tells each source from others of its name, in words; nothing for the only one of a
    name.
    """
    by_name: dict[str, list[LabelKey]] = {}
    for source in dict.fromkeys(sources):
        by_name.setdefault(source[0], []).append(source)
    return {
        source: difference_text(source, some, facts) for some in by_name.values() for source in some
    }


def difference_text(source: LabelKey, some: Sequence[LabelKey], facts: Sequence[str]) -> str:
    """The facts in which a source differs from some of the others; of its versions only those
    that differ.
    """
    said: list[str] = []
    for place, name in enumerate(facts, 1):
        values = {other[place] for other in some}
        if len(values) > 1:
            said.append(
                items_not_shared(source[place], values)
                if name == "versions"
                else FIELD_PREFIX.get(name, "") + source[place]
            )
    return "; ".join(said)


def items_not_shared(value: str, values: Iterable[str]) -> str:
    """The items of a list that not all lists have."""
    common = set.intersection(*(set(v.split(", ")) for v in values))
    return ", ".join(item for item in value.split(", ") if item not in common)


def method_name(result: Result) -> str:
    """The usual name of a result."""
    return result.method


def group_by_label(
    results: Sequence[Result],
    called: Callable[[Result], str] = method_name,
    facts: Sequence[str] = LABEL_FIELDS,
) -> dict[str, list[Result]]:
    """Results by name, those of one name kept apart by what differs, which the name then says."""
    sources = [label_key(r, called(r), facts) for r in results]
    words = describe_differences(sources, facts)
    groups: dict[str, list[Result]] = {}
    for result, source in zip(results, sources, strict=True):
        label = f"{source[0]} ({words[source]})" if words[source] else source[0]
        groups.setdefault(label, []).append(result)
    return groups
