"""LKH 3 by elkai (for research and non-profit use). It runs in a process of its own, which can be ended at any time.

The first runs begin with the given plans, a short one each, cheapest first; all others with the best tour so far
(`INITIAL_TOUR_FILE`). elkai's public functions know neither tours nor limits, so its inner one is called with LKH's
parameters. LKH's way to take several tours at once (`MERGE_TOUR_FILE`) is not used: it fixes the edges they share.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rhumbline.baselines import whole_distances
from rhumbline.errors import RhumbError
from rhumbline.problems.tsp import Tour, TSPInstance

LARGEST = 1_000_000  # LKH multiplies by 100 and counts in 32 bits; beyond about 1e7 it aborts


def improve(instance: TSPInstance, plans: Sequence[Tour], seconds: float, seed: int) -> Tour | None:
    """The best tour of as many LKH runs as fit, each starting from the best so far."""
    if instance.size < 4:
        return None
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, "distance.npy"), whole_distances(instance, LARGEST))
        Path(folder, "tours.json").write_text(json.dumps([p.order for p in plans]))
        ended = wait(["-m", "rhumbline.baselines.lkh_process", folder, str(seconds), str(seed)], seconds)
        found = Path(folder, "best.json")
        if found.exists():
            return Tour(tuple(json.loads(found.read_text())))
    if ended:
        raise RhumbError(f"LKH ended by itself with code {ended}")
    return None


def wait(words: list[str], seconds: float) -> int:
    """Run Python with these words for so long at most; its exit code, 0 if it had to be ended."""
    command = [sys.executable, *words]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return 0
        finally:
            process.kill()
