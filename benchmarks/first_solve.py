"""What the first solve on a machine costs beyond the second: the time to compile the CPU kernel.

    python benchmarks/first_solve.py [FILE] [--turns 9]

A turn solves a file (100 cities, one attempt) twice with a new folder for numba's cache: it is
empty for the first solve and full for the second. Each solve is a process of its own, by the
command (`rhumb solve`, which has the kernel compiled while torch is imported) and by the library
(`rhumbline.solve`, which learns of the file only when torch is there). The difference is that of
neighbours; what else runs on the machine disturbs all: look at many turns.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
BY_LIBRARY = (
    "import sys, rhumbline; print(rhumbline.solve(sys.argv[1], attempts=1, device='cpu')[0].cost)"
)
WAYS = {
    "command": ["-m", "rhumbline", "solve", "--attempts", "1", "--device", "cpu", "--quiet"],
    "library": ["-c", BY_LIBRARY],
}


def seconds(way: str, file: Path, cache: str) -> float:
    """Wall time of a process that solves the file."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"NUMBA_CACHE_DIR": cache, "PYTHONPATH": paths}
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, *WAYS[way], str(file)],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


def turn(way: str, file: Path) -> tuple[float, float]:
    """The first solve and the second one."""
    with tempfile.TemporaryDirectory() as cache:
        return seconds(way, file, cache), seconds(way, file, cache)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path, nargs="?", default=ROOT / "examples" / "harbour100.tsp")
    parser.add_argument("--turns", type=int, default=9)
    args = parser.parse_args()
    print(f"{args.file.name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    seconds(
        "command", args.file, tempfile.gettempdir()
    )  # whatever the disk has to fetch, it fetches now
    pairs = {way: list[tuple[float, float]]() for way in WAYS}
    for _ in range(args.turns):
        for way, found in pairs.items():
            found.append(turn(way, args.file))
    for way, found in pairs.items():
        extra = sorted(first - second for first, second in found)
        first, second = (median(times) for times in zip(*found, strict=True))
        print(
            f"{way}: first solve {first:.2f} s, second {second:.2f} s, difference {median(extra):.2f} s "
            f"({extra[0]:.2f} to {extra[-1]:.2f}), medians of {args.turns}"
        )
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
