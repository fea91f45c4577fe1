"""Reference makespans of a standard job-shop set, stored as a small file: a tabu search, then CP-SAT (OR-Tools).

    python benchmarks/reference_jssp.py jssp10x10 --iterations 0 --out benchmarks/reference/jssp10x10.npz
    python benchmarks/reference_jssp.py jssp20x15 --seconds 30 --out benchmarks/reference/jssp20x15.npz

CP-SAT on one thread proves 10x10 in a second, but after 40 s was still some per cent from the best at 20x15, where the
tabu search (tabu_jssp.c, compiled here with `cc`) is better within 5 s. So CP-SAT starts from the tabu search's
schedule and has `--seconds` of wall time to improve it and to prove a lower bound. The file keeps the best makespan as
`cost` and the bound as `bound` (equal where the optimum is proven). Every schedule is checked and measured again.
`--resume FILE` goes on from a file, `--minutes` stops early. ortools is in the extra `solvers`.
"""

import ctypes
import subprocess
import tempfile
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
from references import Row, arguments, compute

from rhumbline.problems.schedule import Schedule, from_arrays
from rhumbline.problems.standard import jssp_set

COUNT, SEED = 100, 200  # instances of a set; of the tabu search


def best_of(instance: np.ndarray, library: str | None, iterations: int, seconds: float) -> Row:
    """The makespan of both solvers together, and CP-SAT's bound."""
    hint = tabu(instance, library, iterations) if library else None
    starts, bound = cp_sat(instance, seconds, hint)
    found = [makespan_of(x, instance) for x in (starts, hint) if x is not None]
    return {"cost": min(found), "bound": bound}


def tabu(instance: np.ndarray, library: str, iterations: int) -> np.ndarray:
    """Starting times by the tabu search."""
    (durations, machines), starts = instance, np.zeros(instance.shape[1:], dtype=np.int32)
    arrays = [np.ascontiguousarray(x, dtype=np.int32).ctypes for x in (durations, machines)]
    integers = [a.data_as(ctypes.POINTER(ctypes.c_int)) for a in (*arrays, starts.ctypes)]
    sizes = [*durations.shape, ctypes.c_int64(iterations), 0, SEED]  # no target: all iterations
    made = ctypes.CDLL(library).tabu_search(*integers[:2], *sizes, integers[2])
    assert made == makespan_of(starts, instance)
    return starts


def cp_sat(instance: np.ndarray, seconds: float, hint: np.ndarray | None) -> tuple[np.ndarray, float]:
    """Starting times and the proven lower bound by CP-SAT."""
    from ortools.sat.python import cp_model

    model, (durations, machines) = cp_model.CpModel(), instance
    horizon = int(durations.sum())
    starts = [[model.new_int_var(0, horizon, "") for _ in job] for job in durations]
    makespan = model.new_int_var(0, horizon, "")
    on_machine: dict[int, list[cp_model.IntervalVar]] = {}
    for job, row in enumerate(starts):
        for step, start in enumerate(row):
            span = model.new_fixed_size_interval_var(start, int(durations[job, step]), "")
            on_machine.setdefault(int(machines[job, step]), []).append(span)
            follower = row[step + 1] if step + 1 < len(row) else makespan
            model.add(follower >= start + int(durations[job, step]))
            if hint is not None:
                model.add_hint(start, int(hint[job, step]))
    for spans in on_machine.values():
        model.add_no_overlap(spans)
    model.minimize(makespan)
    if hint is not None:
        model.add_hint(makespan, int(makespan_of(hint, instance)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 0  # 2 to 3 % shorter in 40 s on two of 20x15
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE), solver.status_name(status)
    chosen = np.array([[solver.value(start) for start in row] for row in starts])
    return chosen, float(np.ceil(solver.best_objective_bound - 1e-6))


def makespan_of(starts: np.ndarray, instance: np.ndarray) -> int:
    """The makespan of a schedule, which is checked first."""
    shop, schedule = from_arrays(*instance), Schedule(tuple(tuple(row) for row in starts.tolist()))
    schedule.check(shop)
    return schedule.cost(shop)


def compiled(folder: str) -> str:
    """The tabu search as a library in a folder."""
    source, made = Path(__file__).with_name("tabu_jssp.c"), Path(folder) / "tabu_jssp.so"
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-o", made, source], check=True)
    return str(made)


def main() -> None:
    parser = arguments(first=COUNT)
    parser.add_argument("--iterations", type=int, default=6_000_000, help="of the tabu search; 0 leaves it out")
    parser.add_argument("--seconds", type=float, default=60.0, help="of wall time per instance for CP-SAT")
    parser.add_argument("--library", default=None, help="tabu_jssp.c as compiled before; otherwise cc does it now")
    args = parser.parse_args()
    first = f"tabu_jssp.c, {args.iterations} iterations, seed {SEED}, then " if args.iterations else ""
    made_by = f"{first}ortools {version('ortools')} (CP-SAT), 1 thread, no linear relaxation, up to {args.seconds:g} s"
    with tempfile.TemporaryDirectory() as folder:
        library = (args.library or compiled(folder)) if args.iterations else None
        solve = partial(best_of, library=library, iterations=args.iterations, seconds=args.seconds)
        compute(args, jssp_set(args.name)[: args.first], solve, made_by)


if __name__ == "__main__":
    main()
