"""Memory of a real server under mixed jobs for a long time: whether it is flat.

    python benchmarks/service_soak.py --minutes 30 --out out/soak

A few clients send tours, routes and job shops of many sizes, alone and with the record of their
latents. They follow events, stop jobs, fetch plans and pictures, decode latents and send nonsense.
The resident memory of the server and of its workers is written to memory.csv every ten seconds and
drawn. Memory counts as flat if the line through the second half of the run rises by less than 5 %.
"""

import argparse
import csv
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from rhumbline.client import Client, ServiceError  # noqa: E402
from tools.service_process import ServiceProcess, running_service  # noqa: E402

INTERVAL = 10.0  # seconds between two readings
MAX_RISE = 0.05  # of flat memory in the second half, as a share
SHARE_OF_REFUSED = 0.1  # jobs that cannot be read


def random_instance(rng: random.Random) -> dict[str, Any]:
    """Return a tour, routes or a job shop of some size."""
    kind = rng.randrange(3)
    if kind == 2:
        machines = rng.randrange(3, 9)
        rows = [rng.sample(range(machines), machines) for _ in range(rng.randrange(3, 11))]
        durations = [[rng.randrange(1, 100) for _ in row] for row in rows]
        return {"durations": durations, "machines": rows}
    size = rng.choice((10, 20, 50, 100, 200))
    points = [[rng.randrange(1000), rng.randrange(1000)] for _ in range(size)]
    if kind == 0:
        return {"coordinates": points}
    demands = [rng.randrange(1, 10) for _ in points]
    return {"depot": [500, 500], "customers": points, "demands": demands, "capacity": 40}


def run_client(url: str, ends: float, seed: int, counts: Counter[str]) -> None:
    """Send jobs until the time is up, and use all that the service offers."""
    rng = random.Random(seed)
    client = Client(url)
    while time.monotonic() < ends:
        try:
            counts[use_service(client, rng)] += 1
        except ServiceError as error:
            counts[f"refused with {error.status}"] += 1
        time.sleep(rng.random())


def use_service(client: Client, rng: random.Random) -> str:
    """Send one job, look at it in some way, and return what became of it."""
    fields = random_instance(rng)
    if rng.random() < SHARE_OF_REFUSED:
        fields["capacity"] = "much"
    with_latents = rng.random() < 0.4
    seconds = rng.choice((0.5, 1, 2))
    search = rng.choice(("cmaes", None))
    job_id = client.submit(fields, seconds=seconds, latents=with_latents, search=search)
    path = f"/v1/jobs/{job_id}"
    if rng.random() < 0.2:
        time.sleep(rng.random())
        return client.stop(job_id)["state"]
    if rng.random() < 0.3:
        client.fetch("GET", f"{path}/events", None, {})
    job = client.wait(job_id)
    if rng.random() < 0.3:
        client.plan(job_id)
        client.fetch("GET", f"{path}/picture?format={rng.choice(('svg', 'png'))}", None, {})
    if with_latents:
        points = client.ask("GET", f"{path}/latents")["points"]
        if points:
            client.ask("POST", f"{path}/decode", {"number": rng.choice(points)[3]})
    client.jobs()
    return job["state"]


def watch(service: ServiceProcess, ends: float, path: Path) -> list[list[float]]:
    """Write the memory of all processes of a server every few seconds."""
    start = time.monotonic()
    rows: list[list[float]] = []
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["seconds", "server, MB", "workers, MB"])
        while time.monotonic() < ends:
            time.sleep(INTERVAL)
            server, *workers = service.memory_of_processes()
            row = [time.monotonic() - start, server, sum(workers)]
            rows.append([round(value, 1) for value in row])
            writer.writerow(rows[-1])
            file.flush()
    return rows


def rise_in_second_half(seconds: np.ndarray, memory: np.ndarray) -> float:
    """Return by which share the line through the second half of some readings rises."""
    half = len(seconds) // 2
    slope, start = np.polyfit(seconds[half:], memory[half:], 1)
    length = seconds[-1] - seconds[half]
    return float(slope * length / (start + slope * seconds[half]))


def draw(rows: np.ndarray, path: Path) -> None:
    """Draw the memory over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    for column, label in ((1, "server"), (2, "workers together")):
        axes.plot(rows[:, 0] / 60, rows[:, column], label=label)
    axes.set_xlabel("minutes")
    axes.set_ylabel("resident memory, MB")
    axes.set_ylim(0)
    axes.legend()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("out/soak"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, running_service(Path(folder)) as service:
        ends = time.monotonic() + 60 * options.minutes
        threads = [
            threading.Thread(target=run_client, args=(service.url, ends, seed, counts))
            for seed in range(options.clients)
        ]
        for thread in threads:
            thread.start()
        found = watch(service, ends, options.out / "memory.csv")
        for thread in threads:
            thread.join()
        print(f"jobs: {dict(counts)}")
        metrics = Client(service.url).fetch("GET", "/metrics", None, {}).decode()
        print(*[line for line in metrics.splitlines() if line.startswith("rhumb_workers_replaced")])
        print(f"database: {(Path(folder) / 'jobs.sqlite3').stat().st_size / 1e6:.1f} MB")
    rows = np.asarray(found)
    for column, label in ((1, "server"), (2, "workers")):
        rise = rise_in_second_half(rows[:, 0], rows[:, column])
        verdict = "flat" if rise < MAX_RISE else "NOT FLAT"
        end = rows[-1, column]
        print(f"{label}: {end:.0f} MB at the end, {rise:+.1%} in the second half: {verdict}")
    with suppress(ImportError):
        draw(rows, options.out / "memory.svg")


if __name__ == "__main__":
    main()
