"""The tabu search for schedules alone, from one dispatching rule: moves per second, and gaps.

    python benchmarks/tabu.py instances/jsplib --seconds 10
    python benchmarks/tabu.py instances/jsplib/ta11.txt instances/jsplib/swv03.txt --seconds 5

Seconds are processor time of one thread, so other processes on the machine do not matter much. A
search ends early at the best known makespan.
"""

import time
from argparse import ArgumentParser
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from rhumbline.files import read
from rhumbline.files.discovery import find_instance_files
from rhumbline.local_search import schedule_tabu, threads
from rhumbline.problems.jssp.dispatch_rules import dispatch

MOVES_AT_ONCE = 1_000


def microseconds_per_move(instance: Any, moves: int) -> float:
    """Return the mean processor time of moves after a dispatching rule."""
    shop = schedule_tabu.ShopTables(instance)
    start = np.concatenate(dispatch(instance).starts).astype(np.int64)
    walk = schedule_tabu.TabuWalk(shop, start, threads.generator_state(1))
    began = time.process_time()
    while walk.moves_made < moves and walk.run_moves(MOVES_AT_ONCE):
        pass
    return 1e6 * (time.process_time() - began) / max(1, walk.moves_made)


def find_gap(instance: Any, seconds: float, seed: int) -> tuple[float, float]:
    """Return the gap to the best known makespan, and the processor time when it was reached."""
    best_known = instance.best_known
    found = list[float]()
    stopped = Event()

    def note(schedule: Any) -> None:
        found.append(time.process_time())
        if schedule.cost(instance) <= best_known:
            stopped.set()

    search = schedule_tabu.TabuSearch(instance, seed, stopped, note)
    search.clock = time.process_time
    began = time.process_time()
    search.run([dispatch(instance)], seconds)
    return search.shortest / best_known - 1.0, found[-1] - began


def main() -> None:
    """Measure what the command line says."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("paths", type=Path, nargs="+", help="folders, or files with known bounds")
    parser.add_argument("--seconds", type=float, default=10.0, help="processor time of each file")
    parser.add_argument("--moves", type=int, default=30_000, help="moves whose time is measured")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    schedule_tabu.prepare()
    gaps = list[float]()
    for path in given.paths:
        for file in find_instance_files(path) if path.is_dir() else [path]:
            instance = read(file)
            rate = microseconds_per_move(instance, given.moves)
            gap, seconds = find_gap(instance, given.seconds, given.seed)
            gaps.append(gap)
            print(f"{file.stem:12} {rate:6.2f} us/move {gap:8.3%} at {seconds:.1f} s", flush=True)
    print(f"{len(gaps)} files: mean {np.mean(gaps):.3%}, median {np.median(gaps):.3%}")


if __name__ == "__main__":
    main()
