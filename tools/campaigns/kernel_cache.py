"""Several processes at once on an empty kernel cache: each solves, and finds the same plan."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tools.campaigns.record import CampaignResult, Effort

ROOT = Path(__file__).parents[2]
PROCESSES = 8
EFFORT = Effort(min_seconds=60.0)
MAX_SECONDS = 300.0  # for all processes of a round; compiling takes half a minute of one core
FILES = ("harbour100.tsp", "bakery80.vrp", "workshop12.jsp")


def run(seconds: float, seed: int) -> CampaignResult:
    """Start rounds of eight processes until the time is up, at least one round."""
    ends = time.monotonic() + seconds
    tried = 0
    faults: list[str] = []
    longest = 0.0
    while True:
        file = FILES[tried // PROCESSES % len(FILES)]
        start = time.monotonic()
        faults += run_round(ROOT / "examples" / file, seed)
        longest = max(longest, time.monotonic() - start)
        tried += PROCESSES
        if time.monotonic() >= ends:
            figures: dict[str, float | int | str] = {"longest round, seconds": round(longest, 1)}
            return CampaignResult("kernel_cache", tried, tuple(faults[:20]), figures)


def run_round(file: Path, seed: int) -> list[str]:
    """Solve one file in eight processes that share a cache folder; return what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "OMP_NUM_THREADS": "1"}
        running = [start_process(file, seed, environment) for _ in range(PROCESSES)]
        faults = []
        costs = set()
        deadline = time.monotonic() + MAX_SECONDS
        for process in running:
            try:
                out, errors = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                faults.append(f"{file.name}: a process did not end in {MAX_SECONDS:.0f} s")
                continue
            if process.returncode or "Traceback" in errors:
                faults.append(f"{file.name}: exit {process.returncode}: {errors[-300:]}")
                continue
            costs.add(json.loads(out)["cost"])
    if len(costs) > 1:
        faults.append(f"{file.name}: equal seeds gave costs {sorted(costs)}")
    return faults


def start_process(file: Path, seed: int, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start one solve with a budget in attempts."""
    words = ["solve", str(file), "--attempts", "64", "--seed", str(seed % 1000), "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "rhumbline", *words, "--device", "cpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    )
