"""The process in which LKH runs: python -m rhumbline.external.lkh_process FOLDER SECONDS SEED.
Imports no torch.
"""

import json
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

SHARE = 0.3  # of the time that is left for one run, so that a few are finished before the end
IDLE = 25  # runs without a better tour after which there is none to be expected


def run(folder: str, seconds: float, seed: int) -> None:
    """Write better and better tours to `best.json` until time is up; the body of the process."""
    began = time.monotonic()
    deadline = time.monotonic() + seconds
    distance = np.load(Path(folder, "distance.npy"))
    tours = json.loads(Path(folder, "tours.json").read_text())
    best = tours[0]
    runs = 0
    latest = 0
    while (left := deadline - time.monotonic()) > 0 and runs - latest < IDLE:
        given = runs < len(tours)
        first = write_lkh_tour(Path(folder, "first.tour"), tours[runs] if given else best)
        speed = min(
            1.0, time.process_time() / (time.monotonic() - began)
        )  # LKH counts processor time
        found = run_lkh(
            distance,
            parameters(first, max(0.1, SHARE * speed * left), (seed + runs) % 2**31, given),
        )
        runs += 1
        if integer_length(distance, found) < integer_length(distance, best):
            best = found
            latest = runs
            Path(folder, "new.json").write_text(json.dumps(best))
            Path(folder, "new.json").replace(
                Path(folder, "best.json")
            )  # whole or not at all, whenever we are ended


def write_lkh_tour(path: Path, tour: Sequence[int]) -> Path:
    """A tour as a file that LKH can read."""
    cities = (str(city + 1) for city in tour)
    path.write_text(
        "\n".join(
            ["TYPE : TOUR", f"DIMENSION : {len(tour)}", "TOUR_SECTION", *cities, "-1", "EOF", ""]
        )
    )
    return path


def parameters(first: Path, seconds: float, seed: int, short: bool) -> str:
    """LKH's parameter file, for a single trial or as many as it likes; its limit leaves the
    preparation out.
    """
    rows = ["PROBLEM_FILE = :stdin:", "RUNS = 1", f"SEED = {seed}", f"TIME_LIMIT = {seconds:.2f}"]
    return "\n".join(
        [*rows, f"INITIAL_TOUR_FILE = {first}", *(["MAX_TRIALS = 1"] if short else []), ""]
    )


def run_lkh(distance: np.ndarray, text: str) -> list[int]:
    """One run of LKH."""
    library: Any = import_module("elkai._elkai")
    rows = "\n".join(" ".join(map(str, row)) for row in distance.tolist())
    head = f"TYPE : TSP\nDIMENSION : {len(distance)}\nEDGE_WEIGHT_TYPE : EXPLICIT\nEDGE_WEIGHT_FORMAT : FULL_MATRIX\n"
    return [
        city - 1 for city in library.solve_problem(text, f"{head}EDGE_WEIGHT_SECTION\n{rows}\n")
    ]


def integer_length(distance: np.ndarray, tour: Sequence[int]) -> int:
    """In LKH's whole units."""
    return int(distance[np.asarray(tour), np.roll(tour, -1)].sum())


if __name__ == "__main__":
    run(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
