"""Many instances: how much faster several workers are, what a chunk costs, and a million instances.

    python benchmarks/many.py workers --instances 10000    # 2 workers against 1, one thread each
    python benchmarks/many.py chunks                       # what a chunk costs besides its search
    python benchmarks/many.py stream --instances 1000000   # seconds and memory of a stream

`workers` and `stream` run `rhumb solve --results`, as users do, and check that every instance has
one result. `workers` takes turns, so that the load of the machine meets both alike. Starting the
processes is part of its time, 5 s, so that there has to be work for minutes. `stream` solves tiny
instances with an untrained tiny policy, so that what is measured is everything around the search.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from rhumbline.checkpoint import TrainingFacts, save
from rhumbline.distributed.backends.processes import ProcessBackend, WorkerPlan
from rhumbline.distributed.chunk_work import solve_chunk
from rhumbline.distributed.chunks import cut_into_chunks
from rhumbline.distributed.schedule import solve_chunks
from rhumbline.files import stream_many
from rhumbline.formats.dataset import save_dataset
from rhumbline.pipeline import SolveRequest
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.search.driver import Budget

MAX_BYTES = 2 * 2**30
NEEDED_SPEEDUP = 1.8


@dataclass(frozen=True)
class Measured:
    """A run of the command."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int  # of the largest of its processes
    lines: int


def write_cities(path: Path, count: int, size: int) -> Path:
    """Write a dataset of random cities."""
    xy = np.random.default_rng(1).random((count, size, 2), dtype=np.float32)
    save_dataset(path, xy, {})
    return path


def run_command(data: Path, results: Path, *words: object) -> Measured:
    """Run `rhumb solve --results` in a process of its own."""
    results.unlink(missing_ok=True)
    command = [sys.executable, "-m", "rhumbline", "solve", data, "--results", results, *words]
    start = time.monotonic()
    process = subprocess.Popen(list(map(str, command)))
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    if status:
        raise SystemExit(f"the command ended with status {status}")
    places = sorted(json.loads(line)["place"] for line in results.open())
    if places != list(range(len(places))):
        raise SystemExit(f"{results}: a result is missing or there twice")
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return Measured(seconds, cpu_seconds, 1024 * usage.ru_maxrss, len(places))


def measure_workers(given: argparse.Namespace, folder: Path) -> bool:
    """Compare two workers of one thread with one worker of one thread."""
    data = write_cities(folder / "cities.safetensors", given.instances, given.size)
    words = ("--attempts", given.attempts, "--device", "cpu", "--threads", 1, "--quiet")
    ratios: list[float] = []
    for _ in range(given.repeats):
        times: list[float] = []
        for workers in (1, 2):
            measured = run_command(data, folder / "out.jsonl", *words, "--workers", workers)
            rate = measured.lines / measured.seconds
            spent = f"{measured.seconds:.1f} s, {measured.cpu_seconds:.1f} s of CPU"
            print(f"{workers} workers  {spent}  {rate:,.0f} instances/s", flush=True)
            times.append(measured.seconds)
        ratios.append(times[0] / times[1])
    best = max(ratios)
    print(f"2 workers are {best:.2f} times as fast as 1 (needed: {NEEDED_SPEEDUP})")
    return best >= NEEDED_SPEEDUP


def measure_chunks(given: argparse.Namespace, folder: Path) -> bool:
    """Print what a chunk costs besides its search: the way to a worker and back."""
    data = write_cities(folder / "cities.safetensors", 64 * 20, given.size)
    request = SolveRequest(budget=Budget(attempts=given.attempts), device="cpu")
    for length in (16, 64):
        backend = ProcessBackend(PickledSolve(request), WorkerPlan(1, 1))
        travel: list[float] = []
        for result, seconds in timed(
            solve_chunks(cut_into_chunks(stream_many(data), length), backend)
        ):
            travel.append(seconds - result.seconds)
        overhead = 1e3 * float(np.median(travel[2:]))  # without the start of the process
        print(f"chunk of {length}: {overhead:.2f} ms besides {1e3 * result.seconds:.1f} ms of work")
    return True


class PickledSolve:
    """`solve_chunk` with a request, for other processes."""

    def __init__(self, request: SolveRequest):
        self.request = request

    def __call__(self, chunk: object) -> object:
        return solve_chunk(chunk, self.request)  # pyright: ignore[reportArgumentType]


def timed(items: Iterator) -> Iterator[tuple]:
    """Yield each item with the seconds since the one before."""
    before = time.monotonic()
    for item in items:
        now = time.monotonic()
        yield item, now - before
        before = now


def measure_stream(given: argparse.Namespace, folder: Path) -> bool:
    """Stream tiny instances through the command; print its seconds and its memory."""
    data = write_cities(folder / "cities.safetensors", given.instances, 4)
    policy = folder / "tiny.safetensors"
    torch.manual_seed(0)
    save(policy, TSPPolicy(Architecture(16, 2, 1, 16, 4)), TrainingFacts("tsp", 20, 7))
    words = ("--policy", policy, "--search", "greedy", "--attempts", 1, "--chunk", 4096)
    more = ("--device", "cpu", "--threads", 1)
    measured = run_command(data, folder / "out.jsonl", *words, *more)
    rate = measured.lines / measured.seconds
    size = measured.peak_bytes / 2**30
    times = f"{measured.seconds:.0f} s, {measured.cpu_seconds:.0f} s of CPU"
    print(f"{measured.lines:,} instances  {times}  {rate:,.0f}/s  {size:.2f} GiB")
    return measured.lines == given.instances and measured.peak_bytes < MAX_BYTES


def main() -> None:
    """Run one of the measurements; exit with 1 if it falls short of what is needed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("workers", "chunks", "stream"))
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=20, help="cities of an instance")
    parser.add_argument("--attempts", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    measure = {"workers": measure_workers, "chunks": measure_chunks, "stream": measure_stream}
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(not measure[given.what](given, Path(folder)))


if __name__ == "__main__":
    main()
