"""Load on a real server: throughput and waiting, with requests solved together and one by one.

    python benchmarks/service_load.py --jobs 1000 --clients 64 --seconds 1

Clients send jobs of a few sizes, each with a second of search, and wait for the answers. The same
load runs against a server that solves jobs together and one that does not; the ratio of their
throughputs is what batching is worth. With --kill the first server is killed twice on the way.
"""

import argparse
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from rhumbline.client import Client, ServiceError  # noqa: E402
from tools.service_process import ServiceProcess, running_service  # noqa: E402

SIZES = (20, 30, 50, 75, 100)
WARM_UP_JOBS = 4  # with different seeds, so that they are solved one by one by all workers


@dataclass
class Load:
    """What clients have to send, and what came of it."""

    jobs: int
    seconds: float
    sizes: tuple[int, ...]
    lock: threading.Lock = field(default_factory=threading.Lock)
    sent: int = 0
    found: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def next_number(self) -> int | None:
        """Return the number of the next job, or None after the last."""
        with self.lock:
            if self.sent == self.jobs:
                return None
            self.sent += 1
            return self.sent - 1


def run_client(load: Load, url: str) -> None:
    """Send jobs one after the other and wait for each."""
    client = Client(url)
    while (number := load.next_number()) is not None:
        rng = random.Random(number)
        size = rng.choice(load.sizes)
        points = [[rng.randrange(1000), rng.randrange(1000)] for _ in range(size)]
        try:
            job_id = client.submit(
                {"coordinates": points},
                idempotency_key=f"job {number}",
                seconds=load.seconds,
            )
            job = client.wait(job_id)
        except ServiceError as error:
            load.errors.append(str(error))
            continue
        with load.lock:
            load.found.append(job)


def warm_up(service: ServiceProcess) -> None:
    """Wait until the workers have started and have loaded their policy."""
    client = Client(service.url)
    square = {"coordinates": [[0, 0], [0, 1], [1, 1], [1, 0]]}
    ids = [client.submit(square, seconds=1, seed=seed) for seed in range(WARM_UP_JOBS)]
    for job_id in ids:
        client.wait(job_id)


def measure(load: Load, clients: int, service: ServiceProcess, kills: int) -> dict[str, Any]:
    """Run the load against a server; kill the server some times on the way."""
    warm_up(service)
    start = time.monotonic()
    threads = [
        threading.Thread(target=run_client, args=(load, service.url)) for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    for kill in range(1, kills + 1):
        while len(load.found) < kill * load.jobs // (kills + 1):
            time.sleep(0.05)
        service.kill()
        service.start()
    for thread in threads:
        thread.join()
    elapsed = time.monotonic() - start
    overheads = [seconds_between(job, "started", "ended") - load.seconds for job in load.found]
    return {
        "states": dict(Counter(job["state"] for job in load.found)),
        "errors": len(load.errors),
        "jobs per second": round(len(load.found) / elapsed, 2),
        "median overhead, s": round(statistics.median(overheads), 3),
        "median wait, s": round(statistics.median(job["waited"] for job in load.found), 2),
        "mean batch": round(statistics.mean(job["batch"] for job in load.found), 1),
        "memory, MB": round(sum(service.memory_of_processes())),
    }


def seconds_between(job: dict[str, Any], first: str, last: str) -> float:
    """Return the seconds between two times of a job."""
    times = [datetime.fromisoformat(job[name]) for name in (first, last)]
    return (times[1] - times[0]).total_seconds()


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--alone", type=int, default=None, help="jobs of the run without batches")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--kill", type=int, default=0, help="times to kill the server on the way")
    options = parser.parse_args()
    rates = {}
    alone = options.alone or max(1, options.jobs // 10)
    for name, jobs, kills, words in (
        ("together", options.jobs, options.kill, ()),
        ("one by one", alone, 0, ("--batch", "1")),
    ):
        load = Load(jobs, options.seconds, SIZES)
        with tempfile.TemporaryDirectory() as folder, running_service(Path(folder), *words) as one:
            figures = measure(load, options.clients, one, kills)
        rates[name] = figures["jobs per second"]
        print(f"{name}: {jobs} jobs from {options.clients} clients")
        for label, value in figures.items():
            print(f"    {label}: {value}")
    print(f"together / one by one: {rates['together'] / rates['one by one']:.1f}")


if __name__ == "__main__":
    main()
