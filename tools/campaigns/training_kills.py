"""Kill `rhumb train` at random moments, also while it saves, and start it again with `auto`.

    python -m tools.campaigns training_kills --seconds 300

Nothing may be lost: after every kill the newest state is readable and not older than before, and
the finished run has the state of one that was never interrupted, bit for bit.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from rhumbline.checkpoint import load_with_facts, read_tensor_file
from rhumbline.errors import CheckpointError
from rhumbline.training.resume import read_state
from rhumbline.training.run_folder import RUN_FILES, complete_updates, state_file
from tools.campaigns.record import CampaignResult, Effort

ROOT = Path(__file__).parents[2]
UPDATES = 200
# With a report after every update, most of the time goes into saving.
RECIPE = f"""problem = "tsp"
size = 8
batch = 8
updates = {UPDATES}
report = 0.0
[policy]
width = 32
heads = 2
layers = 1
hidden = 32
latent = 4
[objective]
latents = 4
starts = 4
[validation]
count = 4
latents = 2
"""


@dataclass(frozen=True)
class KillLimits:
    """When a process is killed, and how long it may take."""

    start_seconds: float = 4.0  # half of the kills come within this time of the start
    training_seconds: float = 2.0  # the others within this time of the first new state
    patience_seconds: float = 120.0


LIMITS = KillLimits()
EFFORT = Effort(min_seconds=45.0)


@dataclass
class Tally:
    """What became of the kills."""

    kills: int = 0
    before_first_state: int = 0
    parts_left: int = 0  # kills that left a temporary file, so in the middle of saving
    finished_runs: int = 0
    missing_metrics: int = 0
    faults: list[str] = field(default_factory=list[str])


def run(seconds: float, seed: int) -> CampaignResult:
    """Kill and start again until the time is up; the last run is finished in any case."""
    ends = time.monotonic() + seconds
    rng = random.Random(f"training {seed}")
    tally = Tally()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "tiny.toml").write_text(RECIPE, encoding="utf-8")
        whole = folder / "whole"
        start(folder, "whole").wait(LIMITS.patience_seconds)
        number = 0
        while time.monotonic() < ends or not tally.finished_runs:
            number += 1
            train_under_fire(folder, whole, f"run{number}", rng, tally, ends)
    figures = {
        "kills": tally.kills,
        "before the first state": tally.before_first_state,
        "in the middle of saving": tally.parts_left,
        "finished runs": tally.finished_runs,
        "lines of metrics lost": tally.missing_metrics,
    }
    faults = tuple(f"seed {seed}: {fault}" for fault in tally.faults)
    return CampaignResult("training_kills", tally.kills, faults, dict(figures))


def start(folder: Path, out: str) -> subprocess.Popen[bytes]:
    """Start the training in a process, with `--resume auto`."""
    words = ["train", "tiny.toml", "--device", "cpu", "--quiet", "--out", out, "--resume", "auto"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "rhumbline", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=(folder / f"{out}.err").open("ab"),
    )


def train_under_fire(
    folder: Path, whole: Path, name: str, rng: random.Random, tally: Tally, ends: float
) -> None:
    """Kill and resume one run until it is finished, and compare it with the uninterrupted one."""
    out = folder / name
    kills = tally.kills
    newest = 0
    while True:
        process = start(folder, name)
        is_last = time.monotonic() > ends
        if not is_last and wait_for_moment(process, out, newest, rng):
            process.send_signal(signal.SIGKILL)
            process.wait()
            tally.kills += 1
            newest = check_folder(out, newest, tally)
            continue
        code = process.wait(LIMITS.patience_seconds)
        if code:
            said = (folder / f"{name}.err").read_text(encoding="utf-8")[-300:]
            tally.faults.append(f"{name} ended with {code} after {tally.kills} kills: {said}")
        else:
            compare(whole, out, tally)
            tally.missing_metrics += missing_lines(out, tally.kills - kills, tally)
            tally.finished_runs += 1
        return


def wait_for_moment(
    process: subprocess.Popen[bytes], out: Path, newest: int, rng: random.Random
) -> bool:
    """Wait for a random moment; return False if the process has ended before it."""
    if rng.random() < 0.5:
        time.sleep(rng.uniform(0.0, LIMITS.start_seconds))
        return process.poll() is None
    while max(complete_updates(out), default=0) <= newest:
        if process.poll() is not None:
            return False
        time.sleep(0.01)
    time.sleep(rng.uniform(0.0, LIMITS.training_seconds))
    return process.poll() is None


def check_folder(out: Path, newest: int, tally: Tally) -> int:
    """Check what a kill left, and return the update of the newest state."""
    updates = complete_updates(out)
    tally.parts_left += any(out.glob(".*.part")) if out.exists() else 0
    tally.before_first_state += not updates
    if max(updates, default=0) < newest:
        tally.faults.append(f"{out.name}: state {newest} is gone after kill {tally.kills}")
        return newest
    try:
        if updates:
            read_state(out, updates[-1])
        for path in (out / "policy.safetensors", out / "best.safetensors"):
            if path.exists():
                load_with_facts(path)
    except CheckpointError as error:
        tally.faults.append(f"{out.name}: kill {tally.kills} left a damaged file: {error}")
    return max(updates, default=0)


def compare(whole: Path, out: Path, tally: Tally) -> None:
    """Compare the finished run with the uninterrupted one, bit for bit."""
    files = [Path(state_file(whole, UPDATES, part)) for part in RUN_FILES.state_parts]
    files += [whole / "policy.safetensors", whole / "best.safetensors"]
    for path in files:
        expected, _ = read_tensor_file(path)
        found, _ = read_tensor_file(out / path.name)
        is_same = expected.keys() == found.keys()
        if not is_same or not all(torch.equal(x, found[key]) for key, x in expected.items()):
            words = f"{path.name} differs from that of the uninterrupted run"
            tally.faults.append(f"{out.name}: {words} after {tally.kills} kills")


def missing_lines(out: Path, kills: int, tally: Tally) -> int:
    """Return the number of reports without a line of metrics: at most one for each kill."""
    lines = (out / RUN_FILES.metrics).read_text(encoding="utf-8").splitlines()
    updates = [json.loads(line)["update"] for line in lines]
    missing = UPDATES - len(updates)
    if updates != sorted(set(updates)) or missing > kills:
        tally.faults.append(f"{out.name}: the lines of metrics are {updates}")
    return missing
