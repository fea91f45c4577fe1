"""Campaign: do solves end when their seconds are over, also while other processes keep the cores?

    python -m tools.campaigns.time_limits [--files DIR] [--seconds 0.5 1 3 10] [--busy N]
        [--search NAME ...] [--then NAME] [--only TEXT]

Each problem has one worker process, which has done its imports and warm-up calls before the first
measurement. A fault is a call that takes more than its seconds and the allowance, or that returns
no verified plan.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rhumbline.kernels.threads import running_threads
from tools.campaigns.record import CampaignResult, Effort

ALLOWED_SHARE = 0.05
ALLOWED_SECONDS = 0.3
BUSY_PER_CORE = 2
ASKED = (0.5, 1.0, 3.0, 10.0)
EFFORT = Effort(min_seconds=45.0)

# Of the folder with public instances, where there is one.
FILES = {
    "tsp": ("tsplib/berlin52.tsp", "tsplib/gr120.tsp", "tsplib/lin318.tsp"),
    "cvrp": (
        "cvrplib/X-n101-k25.vrp",
        "cvrplib/X-n317-k53.vrp",
        "large/cvrplib/X-n1001-k43.vrp",
    ),
    "jssp": (
        "jsplib/ft10.txt",
        "jsplib/ta01.txt",
        "jsplib/ta11.txt",
        "jsplib/ta31.txt",
    ),
}


@dataclass(frozen=True)
class Case:
    """A call to measure."""

    path: str
    seconds: float
    search: str | None = None
    then: str | None = None


@dataclass(frozen=True)
class Measured:
    """How long a call took, and what was wrong with it, if anything."""

    case: Case
    used: float
    attempts: int
    trouble: str = ""
    load: float = 0.0  # mean number of other threads that ran meanwhile, ours among them

    @property
    def excess(self) -> float:
        """Seconds beyond what is allowed; negative if the call was in time."""
        allowed = self.case.seconds * (1.0 + ALLOWED_SHARE) + ALLOWED_SECONDS
        return self.used - allowed

    @property
    def fault(self) -> str:
        """What is to be mended, or nothing."""
        name = Path(self.case.path).name
        search = self.case.search or "default search"
        asked = f"{name}, {search}, {self.case.seconds:g} s"
        if self.trouble:
            return f"{asked}: {self.trouble}"
        if self.excess > 0.0:
            return f"{asked}: took {self.used:.2f} s"
        return ""


# --- instances


def generated_files(folder: Path, seed: int) -> dict[str, list[str]]:
    """Write random instances of all kinds, and return their paths by problem."""
    import numpy as np

    rng = np.random.default_rng(seed)
    made: dict[str, list[str]] = {"tsp": [], "cvrp": [], "jssp": []}
    for cities in (50, 200, 1000):
        path = folder / f"random{cities}.tsp"
        path.write_text(tsp_text(rng.integers(0, 10_000, (cities, 2)).tolist()))
        made["tsp"].append(str(path))
    points = rng.integers(0, 1000, (120, 2)).astype(float)
    apart = points[:, None] - points
    distances = np.rint(np.hypot(apart[..., 0], apart[..., 1])).astype(int)
    path = folder / "matrix120.tsp"
    path.write_text(matrix_text(distances.tolist()))
    made["tsp"].append(str(path))
    for customers in (100, 400, 1000):
        places = rng.integers(0, 1000, (customers + 1, 2)).tolist()
        demands = [0, *rng.integers(1, 100, customers).tolist()]
        path = folder / f"random{customers}.vrp"
        path.write_text(cvrp_text(places, demands, capacity=800))
        made["cvrp"].append(str(path))
    for jobs, machines in ((10, 10), (15, 15), (20, 15), (30, 15), (50, 15)):
        durations = rng.integers(1, 100, (jobs, machines)).tolist()
        orders = [rng.permutation(machines).tolist() for _ in range(jobs)]
        path = folder / f"random{jobs}x{machines}.json"
        path.write_text(json.dumps({"durations": durations, "machines": orders}))
        made["jssp"].append(str(path))
    return made


def tsp_text(places: Sequence[Sequence[int]]) -> str:
    """Return a TSPLIB file with coordinates."""
    lines = ["NAME: random", "TYPE: TSP", f"DIMENSION: {len(places)}", "EDGE_WEIGHT_TYPE: EUC_2D"]
    lines.append("NODE_COORD_SECTION")
    lines += [f"{number} {x} {y}" for number, (x, y) in enumerate(places, 1)]
    return "\n".join([*lines, "EOF", ""])


def matrix_text(distances: Sequence[Sequence[int]]) -> str:
    """Return a TSPLIB file with a full matrix."""
    lines = ["NAME: matrix", "TYPE: TSP", f"DIMENSION: {len(distances)}"]
    lines += ["EDGE_WEIGHT_TYPE: EXPLICIT", "EDGE_WEIGHT_FORMAT: FULL_MATRIX"]
    lines.append("EDGE_WEIGHT_SECTION")
    lines += [" ".join(map(str, row)) for row in distances]
    return "\n".join([*lines, "EOF", ""])


def cvrp_text(places: Sequence[Sequence[int]], demands: Sequence[int], capacity: int) -> str:
    """Return a VRPLIB file whose depot is the first place."""
    lines = ["NAME: random", "TYPE: CVRP", f"DIMENSION: {len(places)}"]
    lines += ["EDGE_WEIGHT_TYPE: EUC_2D", f"CAPACITY: {capacity}", "NODE_COORD_SECTION"]
    lines += [f"{number} {x} {y}" for number, (x, y) in enumerate(places, 1)]
    lines.append("DEMAND_SECTION")
    lines += [f"{number} {demand}" for number, demand in enumerate(demands, 1)]
    return "\n".join([*lines, "DEPOT_SECTION", "1", "-1", "EOF", ""])


def choose_files(folder: Path | None, generated: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the files of each problem: public ones, and generated ones for sizes they lack."""
    if folder is None:
        return generated
    chosen: dict[str, list[str]] = {}
    for problem, names in FILES.items():
        found = [str(folder / name) for name in names if (folder / name).exists()]
        largest = generated[problem][-1 if problem == "jssp" else 2]
        if problem == "cvrp" and found:
            largest = None
        chosen[problem] = [*found, largest] if largest else found
    return chosen


# --- measuring


def warm_up(path: str, searches: Sequence[str | None], then: str | None) -> list[str | None]:
    """Import everything and use the kernels of each strategy once; return those that can serve."""
    import rhumbline

    serving: list[str | None] = []
    for search in searches:
        try:
            rhumbline.solve(path, strategy=search, seconds=2.0, device="cpu", then=then)
        except rhumbline.InputError as error:
            print(f"{search} does not serve here: {error}")
        else:
            serving.append(search)
    return serving


def measure(case: Case) -> Measured:
    """Solve a file in the worker process."""
    import rhumbline

    began = time.monotonic()
    try:
        (found,) = rhumbline.solve(
            case.path, strategy=case.search, seconds=case.seconds, device="cpu", then=case.then
        )
    except rhumbline.RhumbError as error:
        return Measured(case, time.monotonic() - began, 0, str(error))
    used = time.monotonic() - began
    found.plan.check(found.instance)
    priced = found.plan.cost(found.instance)
    trouble = "" if priced == found.cost else f"the plan costs {priced}, not {found.cost}"
    return Measured(case, used, found.attempts, trouble)


@contextmanager
def busy_processes(count: int) -> Generator[None]:
    """Let processes compete for the cores meanwhile."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def measure_problem(
    paths: Sequence[str],
    asked: Sequence[float],
    searches: Sequence[str | None],
    then: str | None,
) -> Iterator[Measured]:
    """Measure all calls of one problem, one after another, in one worker process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as worker:
        serving = worker.submit(warm_up, paths[0], searches, then).result()
        for search in serving:
            for path in paths:
                for seconds in asked:
                    future = worker.submit(measure, Case(path, seconds, search, then))
                    load = mean_load(future)
                    yield replace(future.result(), load=load)


def mean_load(future: Future[Measured]) -> float:
    """Wait for a call; return how many threads of the machine ran meanwhile, on average."""
    seen: list[int] = []
    while not future.done():
        wait([future], 0.05)
        seen.append(running_threads() - 1)  # without this one
    return sum(seen) / max(1, len(seen))


def busy_default() -> int:
    """Return the number of competing processes: two for each core."""
    return BUSY_PER_CORE * (os.cpu_count() or 1)


def run_table(options: argparse.Namespace, folder: Path) -> list[Measured]:
    """Measure everything that the options ask for, and print a line for each call."""
    generated = generated_files(folder, options.seed)
    files = choose_files(options.files, generated)
    measured: list[Measured] = []
    columns = f"{'file':<22} {'search':<16} {'asked':>6} {'used':>7} {'over':>7}"
    print(f"{columns} {'attempts':>9} {'load':>5}")
    for paths in files.values():
        wanted = [path for path in paths if options.only in path]
        if not wanted:
            continue
        with busy_processes(options.busy):
            for one in measure_problem(wanted, options.seconds, options.search, options.then):
                measured.append(one)
                print(table_line(one), flush=True)
    return measured


def table_line(one: Measured) -> str:
    """Return a line of the table; a fault is marked."""
    case = one.case
    over = one.used - case.seconds
    mark = f"  FAULT {one.trouble}" if one.fault else ""
    return (
        f"{Path(case.path).name:<22} {case.search or 'default':<16} {case.seconds:>6g} "
        f"{one.used:>7.2f} {over:>+7.2f} {one.attempts:>9,} {one.load:>5.1f}{mark}"
    )


def summarise(measured: Sequence[Measured]) -> CampaignResult:
    """Return the faults, and how late the latest call was."""
    faults = tuple(one.fault for one in measured if one.fault)
    over = [one.used - one.case.seconds for one in measured]
    figures: dict[str, float | int | str] = {
        "latest end after the seconds, s": round(max(over, default=0.0), 2),
        "mean end after the seconds, s": round(sum(over) / max(1, len(over)), 3),
        "mean of threads that ran": round(sum(one.load for one in measured) / len(over or [0]), 1),
    }
    return CampaignResult("time_limits", len(measured), faults, figures)


def run(seconds: float, seed: int) -> CampaignResult:
    """Measure as many of the limits on generated files as the time allows, with full load."""
    per_limit = 20.0  # calls of one limit on all files
    asked = list[float]()
    for limit in ASKED:
        if not asked or sum(asked) + limit <= seconds / per_limit:
            asked.append(limit)
    arguments = ["--seed", str(seed), "--seconds", *map(str, asked)]
    options = parse_options(arguments)
    with TemporaryDirectory() as folder:
        return summarise(run_table(options, Path(folder)))


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--files", type=Path, help="folder with tsplib, cvrplib and jsplib")
    parser.add_argument("--seconds", type=float, nargs="+", default=list(ASKED))
    parser.add_argument("--busy", type=int, default=busy_default(), help="competing processes")
    parser.add_argument("--search", nargs="+", default=[None], help="default: the usual one")
    parser.add_argument("--then", default="auto", help="none: only the search of the policy")
    parser.add_argument("--only", default="", help="files whose path has this text")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def main() -> int:
    """Print the table and the faults."""
    options = parse_options()
    with TemporaryDirectory() as folder:
        result = summarise(run_table(options, Path(folder)))
    for name, value in result.figures.items():
        print(f"{name}: {value}")
    print(f"{result.tried} calls, {len(result.faults)} faults")
    return 1 if result.faults else 0


if __name__ == "__main__":
    sys.exit(main())
