"""LKH 3 by elkai (for research and non-profit use). It runs in a process of its own, which can be
ended at any time.

The first runs begin with the given plans, a short one each, cheapest first; all others with the
best tour so far (`INITIAL_TOUR_FILE`). elkai's public functions know neither tours nor limits, so
its inner one is called with LKH's parameters. LKH's way to take several tours at once
(`MERGE_TOUR_FILE`) is not used: it fixes the edges they share.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import numpy as np

from rhumbline.errors import RhumbError
from rhumbline.external import integer_distances
from rhumbline.local_search.threads import run_interruptible
from rhumbline.problems.tsp import Tour, TSPInstance

LARGEST = 1_000_000  # LKH multiplies by 100 and counts in 32 bits; beyond about 1e7 it aborts
LOOK = 0.05  # seconds between two looks at what the process has written


def improve(
    instance: TSPInstance,
    plans: Sequence[Tour],
    seconds: float,
    seed: int,
    found: Callable[[Tour], None],
) -> None:
    """The tours of as many LKH runs as fit, each from the best so far; what a run that is cut
    off had is lost.
    """
    if instance.size < 4:
        return
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, "distance.npy"), integer_distances(instance, LARGEST))
        Path(folder, "tours.json").write_text(json.dumps([p.order for p in plans]))
        best = Path(folder, "best.json")
        stopped = Event()
        words = ["-m", "rhumbline.external.lkh_process", folder, str(seconds), str(seed)]

        def work(tell: Callable[[Tour], None]) -> int:
            return run_watched(words, seconds, stopped, TourFileReader(best, tell).look)

        ended = run_interruptible(work, stopped.set, found)
        if ended and not best.exists():
            raise RhumbError(f"LKH ended by itself with code {ended}")


def run_watched(words: list[str], seconds: float, stopped: Event, look: Callable[[], None]) -> int:
    """Run Python with these words for so long at most, looking now and then; its exit code, 0 if
    it had to be ended.
    """
    command = [sys.executable, *words]
    deadline = time.monotonic() + seconds
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            while process.poll() is None and time.monotonic() < deadline and not stopped.wait(LOOK):
                look()
            return process.poll() or 0
        finally:
            process.kill()
            look()


@dataclass
class TourFileReader:
    """Of a file that another process replaces by better and better tours."""

    file: Path
    tell: Callable[[Tour], None]
    text: str = ""

    def look(self) -> None:
        """Tell of the tour in the file, if it is a new one."""
        text = self.file.read_text() if self.file.exists() else ""
        if text != self.text:
            self.text = text
            self.tell(Tour(tuple(json.loads(text))))
