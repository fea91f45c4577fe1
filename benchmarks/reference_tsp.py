"""Reference costs of a standard TSP set by LKH (elkai: for research and non-profit use), stored as a small file.

    python benchmarks/reference_tsp.py tsp100 --first 1000 --out benchmarks/reference/tsp100.npz

Ten LKH runs per instance (`--runs`) on distances scaled by 1e6; the cost is recomputed in float64 from the coordinates.
Without --out it only prints the mean cost and the seconds per instance.
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from rhumbline.problems.metrics import euclidean
from rhumbline.problems.standard import tsp_set


def lkh_cost(xy: np.ndarray, runs: int) -> float:
    import elkai

    distances = euclidean(xy)
    tour = elkai.DistanceMatrix(np.rint(distances * 1e6).astype(int).tolist()).solve_tsp(runs=runs)
    return float(distances[tour[:-1], tour[1:]].sum())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    instances = tsp_set(args.name)[: args.first]
    began = time.perf_counter()
    with ProcessPoolExecutor(args.processes) as pool:  # processes: LKH holds the interpreter lock and C globals
        cost = np.array(list(pool.map(partial(lkh_cost, runs=args.runs), instances, chunksize=10)))
    seconds = (time.perf_counter() - began) * args.processes / len(cost)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(args.out, cost=cost, made_by=f"elkai 2.0.1 (LKH 3.0.8), {args.runs} runs, distances x 1e6")
    print(f"{args.name}: first {len(cost)}, mean {cost.mean():.6f}, {seconds:.3f} core seconds per instance")


if __name__ == "__main__":
    main()
