"""What the first solve on a machine costs beyond the second: the time to compile the CPU kernel.

    python benchmarks/micro/startup.py [FILE] [--turns 9]

A turn solves a file (100 cities, one attempt) twice with a new folder for numba's cache: the folder
is empty for the first solve and full for the second. Each solve is a process of its own, by the
command (`rhumb solve` compiles the kernel while torch is imported) and by the library
(`rhumbline.solve` learns of the file only when torch is there). The difference is that of
neighbours; other jobs on the machine disturb all of them, so look at many turns.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
BY_LIBRARY = """
import sys, rhumbline
print(rhumbline.solve(sys.argv[1], attempts=1, device="cpu")[0].cost)
"""
WAYS = {
    "command": ["-m", "rhumbline", "solve", "--attempts", "1", "--device", "cpu", "--quiet"],
    "library": ["-c", BY_LIBRARY],
}


def solve_seconds(way: str, file: Path, cache: str) -> float:
    """Return the wall time of a process that solves the file."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "NUMBA_CACHE_DIR": cache,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    command = [sys.executable, *WAYS[way], str(file)]
    began = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def time_turn(way: str, file: Path) -> tuple[float, float]:
    """Return the seconds of the first solve and of the second."""
    with tempfile.TemporaryDirectory() as cache:
        first = solve_seconds(way, file, cache)
        return first, solve_seconds(way, file, cache)


def main() -> None:
    """Measure what the command line says."""
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("file", type=Path, nargs="?", default=ROOT / "examples" / "harbour100.tsp")
    parser.add_argument("--turns", type=int, default=9)
    given = parser.parse_args()
    print(f"{given.file.name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    solve_seconds("command", given.file, tempfile.gettempdir())  # what the disk has to fetch
    turns: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in range(given.turns):
        for way, found in turns.items():
            found.append(time_turn(way, given.file))
    for way, found in turns.items():
        extra = sorted(first - second for first, second in found)
        print(
            f"{way}: first solve {median(first for first, _ in found):.2f} s, "
            f"second {median(second for _, second in found):.2f} s, "
            f"difference {median(extra):.2f} s ({extra[0]:.2f} to {extra[-1]:.2f}), "
            f"medians of {given.turns}"
        )


if __name__ == "__main__":
    main()
