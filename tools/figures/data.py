"""Files that figures are drawn from, besides result lines: where they are and how to measure them.

`python -m tools.tables` measures these files after the rows, and `--check` lists them.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rhumbline.bench.figures.landscape import read_landscapes
from rhumbline.bench.methods import weights_digest
from rhumbline.bench.report import duration_text
from tools.gap_tables import ROOT

FOLDER = ROOT / "research" / "figures"
MAPPED_SET = "tsp150"
MAPPED_INSTANCES = 8
TIMED_POLICY = ("tsp100", "tsp")  # a policy and its problem


@dataclass(frozen=True)
class FigureData:
    """A file that figures are drawn from."""

    name: str
    title: str
    # Words after `python -m`, to which `--out FOLDER` is appended
    command: tuple[str, ...]
    seconds: float  # on an H200
    find_reason: Callable[[Path], str]  # why an existing file is not enough, or ""

    @property
    def path(self) -> Path:
        """The committed file."""
        return FOLDER / self.name

    @property
    def reason(self) -> str:
        """Why the file must be measured; "" if it need not be."""
        return self.find_reason(self.path) if self.path.exists() else "not measured"


def maps_reason(path: Path) -> str:
    """Return why the maps of instances are not enough for the paper's figure, or ""."""
    names = [landscape.name for landscape in read_landscapes(path)]
    fitting = [name for name in names if name.startswith(MAPPED_SET)]
    if len(fitting) >= MAPPED_INSTANCES:
        return ""
    return f"maps of {names[0].split('-')[0]} instead of {MAPPED_SET}"


def evolution_reason(path: Path) -> str:
    """Return why the maps of checkpoints are not enough, or ""."""
    return "" if len(read_landscapes(path)) > 1 else "of one checkpoint only"


def times_reason(path: Path) -> str:
    """Return why the times are not those of the shipped weights on a GPU, or ""."""
    times = json.loads(path.read_text(encoding="utf-8"))
    if "NVIDIA" not in times["hardware"]:
        return f"measured on {times['hardware']} instead of a GPU"
    return "" if times["weights"] == weights_digest(*TIMED_POLICY) else "older weights"


TIMES = FigureData(
    "time-breakdown.json",
    "time of the phases of a search on TSP100",
    ("tools.figures.time_breakdown",),
    60.0,
    times_reason,
)
MAPS_COMMAND = ("tools.figures.latent_maps", "--minutes", "4")  # writes both files below
INSTANCES = FigureData(
    "landscapes.npz",
    "maps of a latent space of two dimensions, on TSP150",
    MAPS_COMMAND,
    360.0,
    maps_reason,
)
EVOLUTION = FigureData(
    "evolution.npz",
    "maps of successive checkpoints of one run",
    MAPS_COMMAND,
    360.0,
    evolution_reason,
)
FIGURE_DATA = (TIMES, INSTANCES, EVOLUTION)


def describe_data(data: Sequence[FigureData]) -> str:
    """Return a line for each file that must be measured, with its command."""
    lines: list[str] = []
    for each in data:
        if each.reason:
            words = f"figures: {each.title}: {each.reason}, {duration_text(each.seconds)}"
            lines.append(f"{words}: python -m {' '.join(each.command)} --out FOLDER")
    return "\n".join(lines)


def missing_commands(data: Sequence[FigureData]) -> dict[tuple[str, ...], float]:
    """Return the commands that write the missing files, each once, with their seconds."""
    return {each.command: each.seconds for each in data if each.reason}


def measure_data(out: Path, seconds: float, data: Sequence[FigureData]) -> None:
    """Run the commands that fit into some seconds. A command that fails does not stop others."""
    deadline = time.monotonic() + seconds
    for command, needed in missing_commands(data).items():
        left = deadline - time.monotonic()
        if needed > left:
            continue
        words = [sys.executable, "-m", *command, "--out", str(out)]
        print(" ".join(words[1:]), flush=True)
        try:
            subprocess.run(words, cwd=ROOT, check=True, timeout=left)
        except subprocess.SubprocessError as error:
            print(f"failed: {error}", flush=True)


def collect_data(files: Sequence[Path], data: Sequence[FigureData]) -> list[Path]:
    """Copy files of `data` into the repository; return the other files."""
    known = {each.name: each for each in data}
    others: list[Path] = []
    for path in files:
        if path.name not in known:
            others.append(path)
        elif path.resolve() != known[path.name].path.resolve():
            known[path.name].path.parent.mkdir(parents=True, exist_ok=True)
            known[path.name].path.write_bytes(path.read_bytes())
    return others
