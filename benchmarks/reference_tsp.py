"""Reference costs of a standard TSP set by LKH (elkai: for research and non-profit use), stored as a small file.

    python benchmarks/reference_tsp.py tsp100 --first 1000 --out benchmarks/reference/tsp100.npz

Ten LKH runs per instance (`--runs`) on distances scaled by 1e6; every tour is checked and its cost recomputed in
float64 from the coordinates. `--resume FILE` goes on from a file, `--minutes` stops early. Without --out it only prints
the mean cost and the seconds per instance.
"""

from functools import partial
from importlib.metadata import version

import numpy as np
from references import Row, arguments, compute

from rhumbline.problems.standard import tsp_set
from rhumbline.problems.tsp import Tour, TSPInstance


def lkh(xy: np.ndarray, runs: int) -> Row:
    import elkai

    instance = TSPInstance("instance", "EXACT_2D", xy=xy)
    scaled = np.rint(instance.distances * 1e6).astype(int).tolist()
    tour = Tour(tuple(elkai.DistanceMatrix(scaled).solve_tsp(runs=runs)[:-1]))  # LKH repeats the first city
    tour.check(instance)
    return {"cost": tour.cost(instance)}


def main() -> None:
    parser = arguments(first=1000)
    parser.add_argument("--runs", type=int, default=10)
    args = parser.parse_args()
    made_by = f"elkai {version('elkai')} (LKH 3.0.8), {args.runs} runs, distances x 1e6"
    compute(args, tsp_set(args.name)[: args.first], partial(lkh, runs=args.runs), made_by)


if __name__ == "__main__":
    main()
