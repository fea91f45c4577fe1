"""What the reference_*.py scripts share: a pool of processes, a stop after --minutes, files that can be gone on from.

A file holds one row per instance, NaN where it was not solved yet (cost, and for the job shop the proven bound), and
two sentences: `made_by` names solver, version and limits, `made_on` the day and the machine.
"""

import argparse
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from multiprocessing import Pool, TimeoutError
from pathlib import Path
from typing import Any

import numpy as np

SAVE_EVERY = 20.0  # seconds

Row = dict[str, float]


def arguments(first: int) -> argparse.ArgumentParser:
    """The options that all scripts have."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", help="the standard set")
    parser.add_argument("--first", type=int, default=first, help="this many instances of the set")
    parser.add_argument("--workers", type=int, default=2, help="processes, one instance at a time each")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop then and keep what is done")
    parser.add_argument("--resume", type=Path, default=None, help="a file of this script to go on from, if it is there")
    parser.add_argument("--out", type=Path, default=None, help="the file to write; without it only the mean is printed")
    machine = f"{os.cpu_count()} cores, {platform.machine()} {platform.system()}"
    parser.add_argument("--machine", default=machine, help="the machine in words")
    return parser


def compute(args: argparse.Namespace, instances: Sequence[Any], solve: Callable[[Any], Row], made_by: str) -> None:
    """Solve what the resumed file lacks, save now and then, and print the means."""
    rows = resumed(args.resume, made_by)
    todo = [(place, instance) for place, instance in enumerate(instances) if place not in rows]
    seconds: list[float] = []
    made_on = f"{datetime.now(UTC):%Y-%m-%d}, {args.machine}, {args.workers} processes"
    saved = time.monotonic()
    for place, row, spent in solved(solve, todo, args.workers, 60 * args.minutes):
        rows[place] = row
        seconds.append(spent)
        if time.monotonic() - saved > SAVE_EVERY:
            save(args.out, rows, made_by, made_on)
            saved = time.monotonic()
    if seconds:
        save(args.out, rows, made_by, made_on)
    report(args.name, rows, len(instances), seconds)


def solved(
    solve: Callable[[Any], Row], todo: list[tuple[int, Any]], workers: int, limit: float
) -> Iterator[tuple[int, Row, float]]:
    """Place, row and seconds of CPU of each instance as it is done, until all are or `limit` seconds have passed."""
    end = time.monotonic() + limit
    with Pool(workers) as pool:  # processes: the solvers hold the interpreter lock and C globals
        results = pool.imap_unordered(partial(timed, solve), todo)
        for _ in todo:
            try:
                yield results.next(timeout=min(end - time.monotonic(), 1e6))
            except TimeoutError:
                return


def timed(solve: Callable[[Any], Row], work: tuple[int, Any]) -> tuple[int, Row, float]:
    began = time.process_time()
    row = solve(work[1])
    return work[0], row, time.process_time() - began


def resumed(file: Path | None, made_by: str) -> dict[int, Row]:
    """The rows of an earlier file; an error if its solver or limits were others."""
    if file is None or not file.exists():
        return {}
    with np.load(file) as stored:
        if str(stored["made_by"]) != made_by:
            raise SystemExit(f"{file} was made by {stored['made_by']}; this run would be {made_by}")
        columns = {name: stored[name] for name in stored.files if not name.startswith("made_")}
    done = np.flatnonzero(~np.isnan(columns["cost"]))
    return {int(place): {name: float(column[place]) for name, column in columns.items()} for place in done}


def save(file: Path | None, rows: dict[int, Row], made_by: str, made_on: str) -> None:
    """Write all rows; a reader never sees half a file."""
    if file is None:
        return
    columns = {name: np.full(max(rows) + 1, np.nan) for name in next(iter(rows.values()))}
    for place, row in rows.items():
        for name, value in row.items():
            columns[name][place] = value
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part.npz")
    np.savez_compressed(part, **columns, made_by=made_by, made_on=made_on)
    part.replace(file)


def report(name: str, rows: dict[int, Row], wanted: int, seconds: list[float]) -> None:
    """One line: how many, their means, and the CPU seconds of this run's instances."""
    means = {key: np.mean([row[key] for row in rows.values()]) for key in next(iter(rows.values()), {})}
    words = [f"mean {key} {value:.6f}" for key, value in means.items()]
    spent = f"{np.mean(seconds):.3f} core seconds per instance" if seconds else "none solved now"
    print(", ".join([f"{name}: {len(rows)} of {wanted}", *words, spent]), flush=True)
