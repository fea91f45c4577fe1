"""Reference makespans of a standard job-shop set, as `rhumb bench reference` makes them, but with a
tabu search first.

    python tools/reference_jssp.py jssp20x15 --seconds 30 --out benchmarks/reference/jssp20x15.npz

CP-SAT on one thread proves 10x10 in a second, but after 40 s was still some per cent from the best
at 20x15, where the tabu search (tabu_jssp.c, compiled here with `cc`) is better within 5 s. So
CP-SAT starts from the tabu search's schedule and has `--seconds` of wall time to improve it and to
prove a bound. A file that is there is gone on with, by whomever it was made. ortools is in the
extra `solvers`; neither typer nor rich is needed.
"""

import argparse
import ctypes
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from rhumbline.bench.reference.file import read_references
from rhumbline.bench.reference.make import (
    ReferenceOptions,
    fill_references,
    find_reference_solver,
    solve_by_cpsat,
)
from rhumbline.problems.jssp import JSSPInstance, Schedule, jssp_from_arrays
from rhumbline.problems.standard_sets import jssp_set

COUNT, SEED = 100, 200  # instances of a set; of the tabu search


def tabu_then_cpsat(
    instance: JSSPInstance, library: str, iterations: int, seconds: float
) -> tuple[float, float]:
    """The makespan of both solvers together, and CP-SAT's bound."""
    return solve_by_cpsat(
        instance, seconds, tabu(instance, library, iterations) if iterations else None
    )


def tabu(instance: JSSPInstance, library: str, iterations: int) -> Schedule:
    """The schedule of the tabu search, checked."""
    arrays = [np.array(x, dtype=np.int32) for x in (instance.durations, instance.machines)]
    arrays.append(np.zeros_like(arrays[0]))
    integers = [x.ctypes.data_as(ctypes.POINTER(ctypes.c_int)) for x in arrays]
    sizes = [*arrays[0].shape, ctypes.c_int64(iterations), 0, SEED]  # no target: all iterations
    made = ctypes.CDLL(library).tabu_search(*integers[:2], *sizes, integers[2])
    schedule = Schedule(tuple(tuple(row) for row in arrays[2].tolist()))
    schedule.check(instance)
    assert made == schedule.cost(instance)
    return schedule


def compiled(folder: str) -> str:
    """The tabu search as a library in a folder."""
    source, made = Path(__file__).with_name("tabu_jssp.c"), Path(folder) / "tabu_jssp.so"
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-o", made, source], check=True)
    return str(made)


def arguments() -> argparse.Namespace:
    """What the user wants."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", help="the standard set")
    parser.add_argument("--first", type=int, default=COUNT, help="this many instances of the set")
    parser.add_argument(
        "--iterations", type=int, default=6_000_000, help="of the tabu search; 0 leaves it out"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of wall time per instance for CP-SAT"
    )
    parser.add_argument(
        "--workers", type=int, default=2, help="processes, one instance at a time each"
    )
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="stop then and keep what is done"
    )
    parser.add_argument(
        "--again", action="store_true", help="also what has a cost that is not proven"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="the file, gone on with if it is there"
    )
    parser.add_argument(
        "--resume", type=Path, default=None, help="a file that becomes --out if that is not there"
    )
    parser.add_argument("--machine", default="", help="the machine in words")
    parser.add_argument(
        "--library", default=None, help="tabu_jssp.c as compiled before; otherwise cc does it now"
    )
    return parser.parse_args()


def main() -> None:
    """Solve what the file lacks, and print the means."""
    args = arguments()
    if args.resume and args.resume.exists() and not args.out.exists():
        shutil.copy(args.resume, args.out)
    instances = [jssp_from_arrays(*shop) for shop in jssp_set(args.name)[: args.first]]
    cpsat = find_reference_solver("jssp").with_seconds(args.seconds)
    effort = ReferenceOptions(args.workers, args.minutes, args.again, args.machine)
    tabu_first = (
        f"tabu_jssp.c, {args.iterations} iterations, seed {SEED}, then " if args.iterations else ""
    )
    with tempfile.TemporaryDirectory() as folder:
        library = args.library or (compiled(folder) if args.iterations else "")
        judge = partial(
            tabu_then_cpsat, library=library, iterations=args.iterations, seconds=args.seconds
        )
        for filled in fill_references(
            args.out, instances, judge, tabu_first + cpsat.description, effort
        ):
            print(f"{args.name}: {filled.done} of {filled.total}", flush=True)
    known = read_references(args.out)
    means = f"mean cost {np.nanmean(known.cost):.2f}, mean bound {np.nanmean(known.bound):.2f}"
    print(f"{means}; {known.makers()}")


if __name__ == "__main__":
    main()
