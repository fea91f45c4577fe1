"""Reference costs of a standard TSP set by LKH (elkai: for research and non-profit use), stored as a small file.

    python benchmarks/reference_tsp.py tsp100 --first 1000 --out benchmarks/reference/tsp100.npz

Ten LKH runs per instance on distances scaled by 1e6; the cost is recomputed in float64 from the coordinates.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from rhumbline.problems.metrics import euclidean
from rhumbline.problems.standard import tsp_set


def lkh_cost(xy: np.ndarray) -> float:
    import elkai

    distances = euclidean(xy)
    tour = elkai.DistanceMatrix(np.rint(distances * 1e6).astype(int).tolist()).solve_tsp(runs=10)
    return float(distances[tour[:-1], tour[1:]].sum())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    instances = tsp_set(args.name)[: args.first]
    with ProcessPoolExecutor(args.processes) as pool:  # processes: LKH holds the interpreter lock and C globals
        cost = np.array(list(pool.map(lkh_cost, instances, chunksize=10)))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(args.out, cost=cost, made_by="elkai 2.0.1 (LKH 3.0.8), 10 runs, distances x 1e6")
    print(f"{args.name}: first {len(cost)}, mean {cost.mean():.6f}")


if __name__ == "__main__":
    main()
