# Dated record: a finished probe of November 2026. Its findings are in research/notebooks.
"""A picture of the nine mutations, and the mean cost of mutated sets by LKH beside the paper's
(needs elkai).

    python research/probes/mutations.py --picture docs/mutations.png
    python research/probes/mutations.py --powers 0.1 0.5 0.9 --count 450

The paper's sets were never released; equal means say that ours are made alike (spec 6.3).
"""

import argparse
from pathlib import Path

import numpy as np

from rhumbline.bench.baselines import BASELINES, SolverTask
from rhumbline.plots.canvas import save_figure
from rhumbline.plots.gallery import draw_mutations
from rhumbline.problems.distributions.mutations import sample_mutated_set
from rhumbline.problems.tsp import TSPInstance

SEED = 2023
PAPER = {
    0.0: 7.768,
    0.1: 7.609,
    0.2: 7.562,
    0.3: 7.485,
    0.4: 7.386,
    0.5: 7.308,
    0.6: 7.182,
    0.7: 7.063,
    0.8: 6.910,
    0.9: 6.732,
}


def lkh_cost(xy: np.ndarray) -> float:
    instance = TSPInstance("", "EXACT_2D", xy=xy)
    return BASELINES["lkh"].solve(SolverTask(instance, None, 0, {"runs": 1})).cost(instance)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--picture", type=Path, default=None)
    parser.add_argument("--powers", type=float, nargs="*", default=[])
    parser.add_argument("--count", type=int, default=450)
    args = parser.parse_args()
    if args.picture:
        save_figure(
            args.picture, draw_mutations(np.random.default_rng(4).random((150, 2)), 0.5, seed=302)
        )
    for power in args.powers:
        costs = np.array([lkh_cost(xy) for xy in sample_mutated_set(args.count, 100, power, SEED)])
        error = costs.std(ddof=1) / np.sqrt(len(costs))
        found = f"{costs.mean():.3f} ± {error:.3f} (standard error)"
        print(f"power {power}: {found}, the paper's LKH {PAPER[power]}")


if __name__ == "__main__":
    main()
