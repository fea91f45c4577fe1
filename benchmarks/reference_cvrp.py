"""Reference costs of a standard CVRP set by HGS-CVRP (hygese: MIT), stored as a small file.

    python benchmarks/reference_cvrp.py vrp100 --first 256 --out benchmarks/reference/vrp100.npz

`--seconds` of CPU per instance (hygese counts CPU, not wall time), a free fleet, unrounded distances; every plan is
checked and its cost recomputed in float64 from the coordinates. `--resume FILE` goes on from a file, `--minutes` stops
early. These are the best plans of a heuristic, not proven optima. hygese is in the extra `hgs`.
"""

from functools import partial
from importlib.metadata import version

from references import Row, arguments, compute

from rhumbline.problems.cvrp import CVRPInstance, Routes, from_arrays
from rhumbline.problems.standard import cvrp_set

SEED = 0


def hgs(instance: CVRPInstance, seconds: float) -> Row:
    import hygese

    assert instance.xy is not None
    settings = hygese.AlgorithmParameters(timeLimit=seconds, nbIter=10**9, seed=SEED)  # only the clock stops it
    data = {
        "x_coordinates": instance.xy[:, 0],
        "y_coordinates": instance.xy[:, 1],
        "demands": instance.demands,
        "vehicle_capacity": instance.capacity,
        "depot": 0,
    }
    found = hygese.Solver(settings, verbose=False).solve_cvrp(data, rounding=False)
    plan = Routes(tuple(tuple(route) for route in found.routes if route))
    plan.check(instance)
    return {"cost": plan.cost(instance)}


def main() -> None:
    parser = arguments(first=256)
    parser.add_argument("--seconds", type=float, default=5.0, help="of CPU per instance")
    args = parser.parse_args()
    made_by = f"hygese {version('hygese')} (HGS-CVRP), {args.seconds:g} s of CPU, seed {SEED}"
    xy, demands, capacity = cvrp_set(args.name)
    drawn = zip(xy[: args.first], demands[: args.first], strict=True)
    instances = [from_arrays(nodes[0], nodes[1:], q[1:], capacity) for nodes, q in drawn]
    compute(args, instances, partial(hgs, seconds=args.seconds), made_by)


if __name__ == "__main__":
    main()
