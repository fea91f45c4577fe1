"""Hostile checkpoints: each is loaded, or refused by a `CheckpointError` that names the file.

    python -m tools.campaigns checkpoints --seconds 60
    python -m tools.campaigns.checkpoints SEED NUMBER       what becomes of the file of a fault

Files are read in forked workers with limited memory. A worker that dies or hangs is a fault of the
file it was at.
"""

import json
import os
import random
import resource
import select
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import torch

from rhumbline.checkpoint import load_with_facts
from rhumbline.cli.commands.info import checkpoint_facts, checkpoint_lines
from rhumbline.errors import CheckpointError
from rhumbline.training.config import Objective, TrainConfig, Validation
from rhumbline.training.loop import train
from rhumbline.training.resume import read_state, restore_trainer
from rhumbline.training.run_folder import RUN_FILES, state_file
from rhumbline.training.trainer import Trainer
from tools.campaigns.record import CampaignResult, Effort

SAMPLES = Path(__file__).parents[2] / "tests" / "data" / "checkpoints"
CPU = torch.device("cpu")


@dataclass(frozen=True)
class CheckpointLimits:
    """What a load may take, and how the work is cut."""

    seconds_per_file: float = 10.0
    extra_memory: int = 1 << 30  # bytes of address space beyond those of a fresh worker
    batch: int = 250
    message_characters: int = 1000
    max_faults: int = 30


LIMITS = CheckpointLimits()
EFFORT = Effort(min_seconds=4.0)
CONFIG = TrainConfig(
    size=7,
    batch=4,
    updates=1,
    policy={"width": 16, "heads": 2, "layers": 1, "hidden": 16, "latent": 4},
    objective=Objective(latents=4, starts=3),
    validation=Validation(count=2, latents=2),
)

# --- samples


@dataclass(frozen=True)
class Sample:
    """A sound file in its parts: the table of tensors, with our header, and their bytes."""

    name: str
    table: dict[str, Any]
    header: dict[str, Any]
    data: bytes


@cache
def samples() -> tuple[Sample, ...]:
    """Return the checkpoints of all architectures, and a state of a run: weights and moments."""
    torch.set_num_threads(1)  # forked workers have no other threads
    found = [parse(path) for path in sorted(SAMPLES.glob("*.safetensors"))]
    with tempfile.TemporaryDirectory() as folder:
        list(train(CONFIG, device=CPU, out=Path(folder)))
        found += [parse(state_file(Path(folder), 1, part)) for part in RUN_FILES.state_parts]
    return tuple(found)


def parse(path: Path) -> Sample:
    """Take a file to its parts."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    table = json.loads(content[8 : 8 + length])
    metadata = table.pop("__metadata__")
    return Sample(path.name, table, json.loads(metadata["rhumbline"]), content[8 + length :])


def join(table: dict[str, Any], header: str, data: bytes) -> bytes:
    """Put a file together from its parts."""
    text = json.dumps({"__metadata__": {"rhumbline": header}, **table}).encode()
    return struct.pack("<Q", len(text)) + text + data


# --- damage

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, "", "x", "\0", "\ud800", "x" * 5000, [], {}, [1], {"a": 1}, [[[]]], "3x4"),
    *(0, -1, 1, 2, 3, 7, 16, 64, 1000, 10**6, 10**9, 2**31, 2**63, 10**30, 10**400, -(10**9)),
    *(0.0, -0.5, 1e-320, 1e300, float("nan"), float("inf"), float("-inf"), 0.3333, 4.5),
)
ODD_TEXTS = (
    *("", "null", "[]", "{}", "1", '"x"', "[" * 100_000, '{"a":' * 100_000, "9" * 5000, "\0"),
    *('{"about": {}}', '{"about": {}, "architecture": {}}', "[" * 900 + "]" * 900),
)
TYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL", "F8_E4M3", "C64")


def odd_value(rng: random.Random) -> Any:
    """Return an odd value, as a copy that may be changed."""
    return deepcopy(rng.choice(ODD_VALUES))


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the places of all values in nested tables."""
    found = [path] if path else []
    if isinstance(tree, dict):
        for key, value in tree.items():
            found += places(value, (*path, key))
    return found


def change_header(sample: Sample, rng: random.Random) -> bytes:
    """Change up to three values of our header."""
    header = json.loads(json.dumps(sample.header))
    for _ in range(rng.randint(1, 3)):
        if not header:  # a change before has removed all of it
            break
        *outer, last = rng.choice(places(header))
        table = header
        for key in outer:
            table = table[key] if isinstance(table, dict) and key in table else {}
        if not isinstance(table, dict):
            continue
        kind = rng.random()
        if kind < 0.15:
            table.pop(last, None)
        elif kind < 0.25:
            table[rng.choice(["x", "growth", "members", "y" * 5000])] = odd_value(rng)
        else:
            table[last] = odd_value(rng)
    if rng.random() < 0.1:
        return join(sample.table, rng.choice(ODD_TEXTS), sample.data)
    return join(sample.table, json.dumps(header), sample.data)


def change_table(sample: Sample, rng: random.Random) -> bytes:
    """Change names, shapes, types and places of tensors."""
    table = json.loads(json.dumps(sample.table))
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(list(table))
        entry = table[name]
        kind = rng.randrange(6)
        if kind == 0:
            del table[name]
            table["lost"] = entry
        elif kind == 1:
            entry["dtype"] = rng.choice(TYPES)
        elif kind == 2:
            entry["shape"] = rng.choice([[0], [1], [9], [3, 3], [10**9, 0], [0, 10**18]])
        elif kind == 3:
            ends = [rng.choice([0, 1, 4, 2**40, 2**63, -1]) for _ in range(2)]
            entry["data_offsets"] = sorted(ends)
        elif kind == 4:
            table[f"empty{rng.randrange(9)}"] = {
                "dtype": "F32",
                "shape": [0],
                "data_offsets": [0, 0],
            }
        else:
            entry[rng.choice(["shape", "dtype", "data_offsets"])] = odd_value(rng)
    return join(table, json.dumps(sample.header), sample.data)


def change_numbers(sample: Sample, rng: random.Random) -> bytes:
    """Overwrite a few numbers among the weights by NaN, infinities or random bits."""
    data = bytearray(sample.data)
    for _ in range(rng.randint(1, 4)):
        place = 4 * rng.randrange(len(data) // 4)
        odd = rng.choice([float("nan"), float("inf"), float("-inf"), 3e38, 1e-45])
        bits = struct.pack("<f", odd) if rng.random() < 0.7 else rng.randbytes(4)
        data[place : place + 4] = bits
    return join(sample.table, json.dumps(sample.header), bytes(data))


def change_bytes(sample: Sample, rng: random.Random) -> bytes:
    """Flip bytes anywhere or at the beginning, cut the file, or make it longer."""
    content = bytearray(join(sample.table, json.dumps(sample.header), sample.data))
    kind = rng.randrange(4)
    if kind == 0:
        return bytes(content[: rng.randrange(len(content))])
    if kind == 1:
        return bytes(content) + rng.randbytes(rng.randint(1, 99))
    reach = 2000 if kind == 2 else len(content)
    for _ in range(rng.randint(1, 8)):
        content[rng.randrange(min(reach, len(content)))] = rng.randrange(256)
    return bytes(content)


DAMAGE: tuple[Callable[[Sample, random.Random], bytes], ...] = (
    change_header,
    change_header,
    change_table,
    change_numbers,
    change_bytes,
)

# --- workers


def run(seconds: float, seed: int) -> CampaignResult:
    """Load hostile files until the time is up."""
    samples()
    ends = time.monotonic() + seconds
    counts = {"loaded": 0, "refused": 0}
    faults: list[str] = []
    number = 0
    while time.monotonic() < ends and len(faults) < LIMITS.max_faults:
        stop = number + LIMITS.batch
        while number < stop:
            number = run_worker(seed, range(number, stop), counts, faults)
    tried = sum(counts.values()) + len(faults)
    return CampaignResult("checkpoints", tried, tuple(faults), dict(counts))


def run_worker(seed: int, numbers: range, counts: dict[str, int], faults: list[str]) -> int:
    """Let a forked worker load files; return the number of the first that it did not reach."""
    reading, writing = os.pipe()
    worker = os.fork()
    if not worker:
        os.close(reading)
        work(seed, numbers, writing)
    os.close(writing)
    at = numbers.start
    with os.fdopen(reading, encoding="utf-8") as reports:
        while True:
            ready, _, _ = select.select([reports], [], [], LIMITS.seconds_per_file)
            line = reports.readline() if ready else ""
            if not line:
                break
            outcome = json.loads(line)
            at += 1
            if outcome in counts:
                counts[outcome] += 1
            else:
                faults.append(f"seed {seed} number {at - 1}: {outcome}")
    if at < numbers.stop:
        os.kill(worker, signal.SIGKILL)
    _, status = os.waitpid(worker, 0)
    if at == numbers.stop:
        return at
    faults.append(f"seed {seed} number {at}: the worker died or hung ({status})")
    return at + 1


def work(seed: int, numbers: range, writing: int) -> NoReturn:
    """Load the files of a batch in a worker, and report one line for each."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, sys.stderr.fileno())
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + LIMITS.extra_memory
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            outcome = json.dumps(judge(seed, number, Path(folder))) + "\n"
            os.write(writing, outcome.encode())
    os._exit(0)


@cache
def resumed_trainer() -> Trainer:
    """Return the trainer that states are put into; each state replaces all of the one before."""
    return Trainer(CONFIG, CPU)


def judge(seed: int, number: int, folder: Path) -> str:
    """Load one hostile file: "loaded", "refused", or what went wrong."""
    rng = random.Random(f"{seed} {number}")
    sample = rng.choice(samples())
    content = rng.choice(DAMAGE)(sample, rng)
    path = folder / sample.name
    path.write_bytes(content)
    try:
        read_file(sample, path, rng)
    except CheckpointError as error:
        words = str(error)
        if str(folder) not in words:
            return f"the message names no file: {words[:300]}"
        if len(words.replace(str(folder), "")) > LIMITS.message_characters or "\n" in words:
            return f"a message of {len(words)} characters: {words[:300]}"
        return "refused"
    except BaseException as error:
        return f"{sample.name}: {type(error).__name__}: {str(error)[:300]}"
    return "loaded"


def read_file(sample: Sample, path: Path, rng: random.Random) -> None:
    """Load a policy and describe it, or put a trainer into a state."""
    if sample.name.startswith("resume"):
        for other in samples():
            if other.name.startswith("resume") and other.name != sample.name:
                header = json.dumps(other.header)
                if rng.random() < 0.8:  # so that the damage lies behind the comparison of headers
                    header = json.dumps(header_of(path, sample.header))
                (path.parent / other.name).write_bytes(join(other.table, header, other.data))
        restore_trainer(resumed_trainer(), read_state(path.parent, 1))
        return
    policy, _ = load_with_facts(path)
    assert all(bool(torch.isfinite(x).all()) for x in policy.state_dict().values())
    facts = checkpoint_facts(path)
    assert all(len(line) < 400 for line in checkpoint_lines(facts))
    json.dumps(facts, allow_nan=False)


def header_of(path: Path, default: dict[str, Any]) -> Any:
    """Return the header of a damaged file as far as it can be read."""
    try:
        content = path.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        return json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["rhumbline"])
    except (ValueError, KeyError, TypeError, RecursionError, struct.error):
        return default


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(judge(int(sys.argv[1]), int(sys.argv[2]), Path(place)))
