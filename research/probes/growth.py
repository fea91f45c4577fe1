# Dated record: a finished probe of November 2026. Its findings are in research/notebooks.
"""How much attention should sharpen with the number of nodes: greedy plans of other sizes, by power
of the size.

    python research/probes/growth.py tsp100 cvrp100 [--sizes 50 150 200] [--powers 0 0.25 0.33]

Scores of attention are multiplied by (nodes / 100) to a power, which is `growth` of the policy's
architecture. Printed are costs at the first power, and differences to it in % with their standard
errors: best of at most 50 starts, uniform instances of a seed of their own (never the test sets).
"""

import argparse
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rhumbline import checkpoint
from rhumbline.decoding import rollout
from rhumbline.domains import find_policy_family

SEED, STARTS = 4321, 50


@torch.no_grad()
def greedy(policy: Any, batch: Any, growth: float) -> Tensor:
    """The best greedy plan of each instance."""
    policy.architecture = replace(policy.architecture, growth=growth)
    problem = find_policy_family(policy.problem)[1].rules
    starts = problem.starts(batch)
    starts = starts[:, :: max(1, starts.shape[1] // STARTS)]
    centre = policy.space.centre((len(starts), 1), starts.device)
    return (
        rollout(problem, policy, batch, centre, starts, seed=0, temperature=0.0)
        .cost.flatten(1)
        .amin(1)
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("policies", nargs="+")
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 150, 200, 300])
    parser.add_argument("--powers", type=float, nargs="+", default=[0.0, 0.25, 1 / 3, 0.45])
    parser.add_argument("--count", type=int, default=16)
    args = parser.parse_args()
    for name in args.policies:
        policy = checkpoint.load(checkpoint.shipped_checkpoints()[name])
        for size in args.sizes:
            rng = torch.Generator().manual_seed(SEED + size)
            batch = find_policy_family(policy.problem)[1].rules.sample(args.count, size, rng)
            first, *others = (greedy(policy, batch, power) for power in args.powers)
            row = f"{name} at {size}: {args.powers[0]:.2f} {first.mean():.4f}"
            for power, cost in zip(args.powers[1:], others, strict=True):
                change = 100.0 * (cost / first - 1.0)
                error = change.std() / len(change) ** 0.5
                row += f"   {power:.2f} {change.mean():+.2f} ± {error:.2f} %"
            print(row, flush=True)


if __name__ == "__main__":
    main()
