"""Where and with what something was measured: commit, versions, processor, GPU."""

import platform
import subprocess
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from rhumbline import __version__

PACKAGE = Path(__file__).parents[1]


def commit() -> str:
    """The commit of the code that runs, with a mark of its sources if they differ, or if this is no checkout."""
    top, head = git("rev-parse", "--show-toplevel"), git("rev-parse", "--short=12", "HEAD")
    if top is None or head is None or Path(top) / PACKAGE.name != PACKAGE:
        return f"version {__version__}, sources {sources(PACKAGE)}"
    return f"{head}, changed sources {sources(PACKAGE)}" if git("status", "--porcelain", "--", str(PACKAGE)) else head


def sources(folder: Path) -> str:
    """A mark of all Python files of a folder."""
    mark = sha256()
    for path in sorted(folder.rglob("*.py")):
        mark.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return mark.hexdigest()[:8]


def git(*words: str) -> str | None:
    """What git says about the folder of the package, if it says anything."""
    try:
        done = subprocess.run(["git", *words], cwd=PACKAGE, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@cache
def versions() -> dict[str, str]:
    """Of what results depend on."""
    found = {"rhumbline": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "triton", "numba"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@cache
def processor() -> str:
    """The CPU in words."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def hardware(device: torch.device, threads: int) -> str:
    """What a method runs on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor()}, {threads} thread{'s' if threads > 1 else ''}"
