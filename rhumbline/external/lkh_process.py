"""The process of LKH: python -m rhumbline.external.lkh_process FOLDER SECONDS SEED.

It imports no torch, so it starts quickly.
"""

import json
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


def run_until_deadline(folder: str, seconds: float, seed: int) -> None:
    """Write better and better tours to `best.json` until time is up: the body of the process."""
    # Of the remaining time, so that a few runs finish before the end.
    time_share_per_run = 0.3
    max_idle_runs = 25  # after so long without a better tour, none is to be expected
    began = time.monotonic()
    deadline = time.monotonic() + seconds
    distance = np.load(Path(folder, "distance.npy"))
    tours = json.loads(Path(folder, "tours.json").read_text())
    best = tours[0]
    runs = 0
    last_success = 0
    while (left := deadline - time.monotonic()) > 0 and runs - last_success < max_idle_runs:
        is_given = runs < len(tours)
        initial = tours[runs] if is_given else best
        first = write_lkh_tour(Path(folder, "first.tour"), initial)
        # LKH counts processor time.
        speed = min(1.0, time.process_time() / (time.monotonic() - began))
        limit = max(0.1, time_share_per_run * speed * left)
        text = parameters(first, limit, (seed + runs) % 2**31, is_given)
        found = run_lkh(distance, text)
        runs += 1
        is_shorter = integer_length(distance, found) < integer_length(distance, best)
        if is_shorter:
            best = found
            last_success = runs
            replace_file(Path(folder, "best.json"), json.dumps(best))


def replace_file(path: Path, text: str) -> None:
    """Replace a file at once, so that a reader never sees a part of it."""
    new = path.with_name("new.json")
    new.write_text(text)
    new.replace(path)


def write_lkh_tour(path: Path, tour: Sequence[int]) -> Path:
    """Write a tour as a file that LKH can read; return the path."""
    rows = [
        "TYPE : TOUR",
        f"DIMENSION : {len(tour)}",
        "TOUR_SECTION",
    ]
    rows += [str(city + 1) for city in tour]
    rows += ["-1", "EOF", ""]
    path.write_text("\n".join(rows))
    return path


def parameters(first: Path, seconds: float, seed: int, short: bool) -> str:
    """Return LKH's parameter file, for a single trial if `short`, else for as many as it likes.

    The time limit does not include LKH's preparation.
    """
    rows = [
        "PROBLEM_FILE = :stdin:",
        "RUNS = 1",
        f"SEED = {seed}",
        f"TIME_LIMIT = {seconds:.2f}",
        f"INITIAL_TOUR_FILE = {first}",
    ]
    if short:
        rows.append("MAX_TRIALS = 1")
    return "\n".join([*rows, ""])


def run_lkh(distance: np.ndarray, text: str) -> list[int]:
    """Run LKH once with the parameters `text`; return the tour."""
    library: Any = import_module("elkai._elkai")
    rows = [" ".join(map(str, row)) for row in distance.tolist()]
    head = [
        "TYPE : TSP",
        f"DIMENSION : {len(distance)}",
        "EDGE_WEIGHT_TYPE : EXPLICIT",
        "EDGE_WEIGHT_FORMAT : FULL_MATRIX",
        "EDGE_WEIGHT_SECTION",
    ]
    problem = "\n".join([*head, *rows, ""])
    return [city - 1 for city in library.solve_problem(text, problem)]


def integer_length(distance: np.ndarray, tour: Sequence[int]) -> int:
    """Return the length of a tour in LKH's integer units."""
    cities = np.asarray(tour)
    following = np.roll(cities, -1)
    legs = distance[cities, following]
    return int(legs.sum())


if __name__ == "__main__":
    run_until_deadline(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
