"""Reference makespans of a standard job-shop set by CP-SAT (OR-Tools: Apache-2.0), stored as a small file.

    python benchmarks/reference_jssp.py jssp10x10 --seconds 600 --out benchmarks/reference/jssp10x10.npz

One thread and `--seconds` of wall time per instance; the file keeps the best makespan as `cost` and the proven lower
bound as `bound` (equal where the optimum is proven). Every schedule is checked and its makespan recomputed.
`--resume FILE` goes on from a file, `--minutes` stops early. ortools is in no extra of ours: `pip install ortools`.
"""

from functools import partial
from hashlib import sha256
from importlib.metadata import version

import numpy as np
from references import Row, arguments, compute

JSSP_SETS = {  # jobs, machines, hash of the set (spec 5)
    "jssp10x10": (10, 10, "fca0b967bf000233bfd98e91bd4518cd"),
    "jssp15x15": (15, 15, "bba266e527cd42208b44246da67444ec"),
    "jssp20x15": (20, 15, "6acbdc4f897a28899c30483a23cb3ef3"),
}
COUNT, SEED = 100, 200


def jssp_set(name: str) -> np.ndarray:
    """Durations and machines of 100 instances, [100, 2, jobs, machines], checked by hash."""
    jobs, machines, digest = JSSP_SETS[name]
    stream, drawn = np.random.RandomState(SEED), np.zeros((COUNT, 2, jobs, machines), dtype=np.int32)
    for instance in drawn:
        instance[0] = stream.randint(1, 99, size=(jobs, machines))
        instance[1] = stream.random_sample((jobs, machines)).argsort(axis=1)
    if sha256(drawn.tobytes()).hexdigest()[:32] != digest:
        raise SystemExit(f"{name}: the regenerated set does not have the published hash")
    return drawn


def cp_sat(instance: np.ndarray, seconds: float) -> Row:
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
    for spans in on_machine.values():
        model.add_no_overlap(spans)
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 0  # 2 to 3 % shorter in 40 s on two of 20x15
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE), solver.status_name(status)
    chosen = np.array([[solver.value(start) for start in row] for row in starts])
    return {"cost": makespan_of(chosen, instance), "bound": float(np.ceil(solver.best_objective_bound - 1e-6))}


def makespan_of(starts: np.ndarray, instance: np.ndarray) -> float:
    """When a schedule ends; raises unless jobs keep their order and no machine does two things at once."""
    machines, ends = instance[1], starts + instance[0]
    if (starts < 0).any() or (starts[:, 1:] < ends[:, :-1]).any():
        raise ValueError("an operation starts before the job's previous one ends")
    for machine in range(machines.shape[1]):
        mine = machines == machine
        order = starts[mine].argsort()
        if (starts[mine][order][1:] < ends[mine][order][:-1]).any():
            raise ValueError(f"machine {machine} does two operations at once")
    return float(ends.max())


def main() -> None:
    parser = arguments(first=COUNT)
    parser.add_argument("--seconds", type=float, default=60.0, help="of wall time per instance")
    args = parser.parse_args()
    made_by = f"ortools {version('ortools')} (CP-SAT), 1 thread, no linear relaxation, up to {args.seconds:g} s"
    compute(args, jssp_set(args.name)[: args.first], partial(cp_sat, seconds=args.seconds), made_by)


if __name__ == "__main__":
    main()
