"""Signals at random moments of a solve: each has to be answered with a verified plan, soon.

    python -m tools.campaigns interruptions --seconds 300

Each run is a process of its own, on an example of a problem or on a larger random instance. Every
second run has an empty folder for compiled kernels, so that signals come during compilation too.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np

from tools.campaigns.record import CampaignResult, Effort

ROOT = Path(__file__).resolve().parents[2]
SMALL = [ROOT / "examples" / f for f in ("harbour100.tsp", "bakery80.vrp", "workshop12.jsp")]
MAX_SECONDS = 2.0  # from the signal to the end of the process
MAX_DELAY = 6.0  # from the end of reading to the signal; the squares of uniform numbers times this
PATIENCE = 120.0
EFFORT = Effort(min_seconds=14.0)

# Runs the command as `python -m rhumbline` does, and says when the file has been read.
COMMAND = """
import sys
from rhumbline import cli
from rhumbline.cli.signals import SignalGate
close = SignalGate.close
def announce(gate):
    close(gate)
    print("the file has been read", file=sys.stderr, flush=True)
SignalGate.close = announce
cli.main()
"""


@dataclass(frozen=True)
class Interruption:
    """One run: the file, the signal, its moment, and whether kernels have to be compiled."""

    file: Path
    number: signal.Signals
    delay: float
    is_cold: bool

    def __str__(self) -> str:
        kernels = "an empty kernel cache" if self.is_cold else "compiled kernels"
        return f"{self.file.name}, {self.number.name} after {self.delay:.3f} s, {kernels}"


@dataclass(frozen=True)
class Outcome:
    """What came of a run; a fault is a sentence, or empty."""

    seconds: float
    phase: str
    fault: str


def run(seconds: float, seed: int) -> CampaignResult:
    """Interrupt as many solves as fit into some seconds, one after the other."""
    end = time.monotonic() + seconds
    stored = set[str]()
    outcomes = list[Outcome]()
    faults = list[str]()
    with tempfile.TemporaryDirectory() as folder:
        for planned in plan_runs(Path(folder), seed):
            if time.monotonic() > end:
                break
            if not (planned.is_cold or planned.file.suffix in stored):
                store_kernels(planned.file)
                stored.add(planned.file.suffix)
            outcome = interrupt_run(planned, Path(folder))
            if outcome is None:  # it ended before the signal
                continue
            outcomes.append(outcome)
            if outcome.fault:
                faults.append(f"{planned}: {outcome.fault}")
    return CampaignResult("interruptions", len(outcomes), tuple(faults), figures_of(outcomes))


def store_kernels(file: Path) -> None:
    """Let a short solve compile what the problem needs, for the runs that find it compiled."""
    command = [sys.executable, "-m", "rhumbline", "solve", "--device", "cpu", "--quiet"]
    words = [*command, str(file), "--seconds", "0.5"]
    subprocess.run(words, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def figures_of(outcomes: list[Outcome]) -> dict[str, float | int | str]:
    """Return the slowest answers, and which phases had found the plans."""
    figures: dict[str, float | int | str] = {}
    if outcomes:
        waits = [outcome.seconds for outcome in outcomes]
        figures["median seconds from signal to end"] = round(float(np.median(waits)), 2)
        figures["longest seconds from signal to end"] = round(max(waits), 2)
    for phase in sorted({outcome.phase for outcome in outcomes}):
        figures[f"plans of {phase}"] = sum(outcome.phase == phase for outcome in outcomes)
    return figures


def plan_runs(folder: Path, seed: int) -> Iterator[Interruption]:
    """Yield runs without end: problems, sizes, signals and caches in turn, at random moments."""
    rng = random.Random(seed)
    large = [
        write_tour_file(folder, seed),
        write_route_file(folder, seed),
        write_shop(folder, seed),
    ]
    for number in count():
        files = large if number // 3 % 2 else SMALL
        delay = MAX_DELAY * rng.random() ** 2
        signals = (signal.SIGTERM, signal.SIGINT)
        is_cold = number // 6 % 2 == 1
        yield Interruption(files[number % 3], signals[number // 12 % 2], delay, is_cold)


def write_tour_file(folder: Path, seed: int) -> Path:
    """Write 600 cities."""
    rng = np.random.default_rng(seed)
    rows = [f"{k} {x} {y}" for k, (x, y) in enumerate(rng.integers(0, 9999, (600, 2)), 1)]
    head = ["NAME : cities600", "TYPE : TSP", "DIMENSION : 600", "EDGE_WEIGHT_TYPE : EUC_2D"]
    return write_lines(folder / "cities600.tsp", [*head, "NODE_COORD_SECTION", *rows, "EOF"])


def write_route_file(folder: Path, seed: int) -> Path:
    """Write 400 customers."""
    rng = np.random.default_rng(seed)
    nodes = range(1, 402)
    rows = [
        f"{k} {x} {y}" for k, (x, y) in zip(nodes, rng.integers(0, 9999, (401, 2)), strict=True)
    ]
    demands = [f"{k} {0 if k == 1 else rng.integers(1, 20)}" for k in nodes]
    head = ["NAME : customers400", "TYPE : CVRP", "DIMENSION : 401", "EDGE_WEIGHT_TYPE : EUC_2D"]
    lines = [*head, "CAPACITY : 100", "NODE_COORD_SECTION", *rows, "DEMAND_SECTION", *demands]
    return write_lines(folder / "customers400.vrp", [*lines, "DEPOT_SECTION", "1", "-1", "EOF"])


def write_shop(folder: Path, seed: int) -> Path:
    """Write 30 jobs on 15 machines."""
    rng = np.random.default_rng(seed)
    rows = [" ".join(f"{m} {rng.integers(1, 99)}" for m in rng.permutation(15)) for _ in range(30)]
    return write_lines(folder / "shop30x15.jsp", ["30 15", *rows])


def write_lines(path: Path, lines: list[str]) -> Path:
    """Write a text file and return its path."""
    path.write_text("\n".join(lines) + "\n")
    return path


def interrupt_run(planned: Interruption, folder: Path) -> Outcome | None:
    """Start a solve, send the signal, and judge what comes; None if it had ended before."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        if planned.is_cold:
            environment["NUMBA_CACHE_DIR"] = cache
        words = ["solve", str(planned.file), "--seconds", "20", "--json", "--device", "cpu"]
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=folder,
        )
        watchdog = Timer(PATIENCE, process.kill)
        watchdog.start()
        try:
            return judge(planned, process)
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()


def judge(planned: Interruption, process: "subprocess.Popen[str]") -> Outcome | None:
    """Send the signal at its moment and compare what follows with what is promised."""
    assert process.stderr is not None
    for line in process.stderr:
        if line == "the file has been read\n":
            break
    time.sleep(planned.delay)
    if process.poll() is not None:
        return None
    began = time.monotonic()
    process.send_signal(planned.number)
    stdout, stderr = process.communicate()
    seconds = time.monotonic() - began
    last = stderr.strip().splitlines()[-1:] or ["nothing"]
    if process.returncode != 130:
        return Outcome(seconds, "nothing", f"exit code {process.returncode}, stderr {last[0]!r}")
    lines = stdout.splitlines()
    if len(lines) != 1:
        return Outcome(seconds, "nothing", f"{len(lines)} results, stderr {last[0]!r}")
    found = json.loads(lines[0])
    phase = found.get("phase", "search")
    fault = check_plan(planned.file, found)
    if not fault and seconds > MAX_SECONDS:
        fault = f"it took {seconds:.2f} s to end"
    return Outcome(seconds, phase, fault)


def check_plan(file: Path, found: dict[str, Any]) -> str:
    """Return what is wrong with a plan in JSON; its instance is read and priced in this process."""
    from rhumbline.domains import DOMAINS
    from rhumbline.errors import RhumbError
    from rhumbline.files import read

    instance = read(file)
    parse = DOMAINS[instance.problem].files.parse_plan
    assert parse is not None
    try:
        plan = parse(found["plan"], instance)
        plan.check(instance)
    except RhumbError as error:
        return f"a wrong plan: {error}"
    cost = plan.cost(instance)
    return "" if cost == found["cost"] else f"its cost is {cost}, not {found['cost']}"
