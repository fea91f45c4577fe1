"""LKH 3 by elkai (for research and non-profit use), in a process that can be ended at any time.

The first runs begin with the given plans, a short one each, cheapest first. All other runs begin
with the best tour so far (`INITIAL_TOUR_FILE`). elkai's public functions accept neither tours nor
limits, so its internal one is called with LKH's parameters. LKH can take several tours at once
(`MERGE_TOUR_FILE`), but then it fixes the edges that they share, so this is not used.
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


def prepare() -> None:
    """Do nothing: there are no kernels to compile."""


def improve(
    instance: TSPInstance,
    plans: Sequence[Tour],
    seconds: float,
    seed: int,
    on_plan: Callable[[Tour], None],
) -> None:
    """Report the tours of as many LKH runs as fit, each from the best so far.

    A run that does not finish in time is lost.
    """
    if instance.size < 4:
        return
    with tempfile.TemporaryDirectory() as folder:
        # LKH multiplies distances by 100 and counts in 32 bits; beyond about 1e7 it aborts.
        distances = integer_distances(instance)
        np.save(Path(folder, "distance.npy"), distances)
        tours = json.dumps([plan.order for plan in plans])
        Path(folder, "tours.json").write_text(tours)
        best = Path(folder, "best.json")
        stopped = Event()
        words = ["-m", "rhumbline.external.lkh_process", folder, str(seconds), str(seed)]

        def work(report: Callable[[Tour], None]) -> int:
            reader = TourFileReader(best, report)
            return run_python(words, seconds, stopped, reader.read)

        code = run_interruptible(work, stopped.set, on_plan)
        if code and not best.exists():
            raise RhumbError(f"LKH ended by itself with code {code}")


def run_python(words: list[str], seconds: float, stopped: Event, read: Callable[[], None]) -> int:
    """Run Python with these words, for at most `seconds` or until `stopped` is set.

    Calls `read` at intervals and at the end. Returns the exit code, or 0 if the process was killed.
    """
    seconds_between_reads = 0.05
    deadline = time.monotonic() + seconds
    paths = [path for path in sys.path if path]
    with subprocess.Popen(
        [sys.executable, *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            while process.poll() is None and time.monotonic() < deadline:
                if stopped.wait(seconds_between_reads):
                    break
                read()
            return process.poll() or 0
        finally:
            process.kill()
            read()


@dataclass
class TourFileReader:
    """Reads a file that another process replaces by better and better tours."""

    file: Path
    report: Callable[[Tour], None]
    text: str = ""

    def read(self) -> None:
        """Report the tour in the file, if it is a new one."""
        if not self.file.exists():
            return
        text = self.file.read_text()
        if text != self.text:
            self.text = text
            order = json.loads(text)
            self.report(Tour(tuple(order)))
