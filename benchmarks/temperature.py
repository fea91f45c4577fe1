"""Which sampling temperature is best at some size, on validation instances: behind
`search.strategy.TEMPERATURES`.

    python benchmarks/temperature.py tsp 150 --count 16 --attempts 64 [--temperatures 1 0.5 0.3]
[--policy PATH]

Never tune on the test sets: these instances have a seed of their own.
"""

import argparse

import numpy as np
from evaluate import costs, of_the_paper

from rhumbline.api import find_device, load_policy
from rhumbline.problems.cvrp import cvrp_from_arrays
from rhumbline.problems.tsp import TSPInstance
from rhumbline.search.strategies import STRATEGIES

SEED = 4321
CAPACITY = {100: 50, 125: 55, 150: 60, 200: 70}  # as in the standard sets


def validation(problem: str, size: int, count: int) -> list[object]:
    """Uniform instances as the standard sets have them."""
    rng = np.random.RandomState(SEED)
    if problem == "tsp":
        return [
            TSPInstance(f"{i}", "EXACT_2D", xy=xy)
            for i, xy in enumerate(rng.uniform(size=(count, size, 2)))
        ]
    drawn = (
        (rng.uniform(size=2), rng.uniform(size=(size, 2)), rng.randint(1, 10, size))
        for _ in range(count)
    )
    return [
        cvrp_from_arrays(*arrays, CAPACITY[size], name=f"{i}") for i, arrays in enumerate(drawn)
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("problem", choices=["tsp", "cvrp"])
    parser.add_argument("size", type=int)
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--attempts", type=int, default=64)
    parser.add_argument(
        "--temperatures", type=float, nargs="+", default=[1.0, 0.7, 0.5, 0.3, 0.2, 0.1]
    )
    parser.add_argument("--policy", default=None)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    if args.problem == "cvrp" and args.size not in CAPACITY:
        parser.error(f"capacities are known for {', '.join(map(str, CAPACITY))} customers")
    instances = validation(args.problem, args.size, args.count)
    policy = load_policy(args.policy or of_the_paper(args.problem), args.problem)
    for temperature in args.temperatures:
        strategy = STRATEGIES["sampling"](temperature=temperature)
        cost, seconds = costs(instances, policy, strategy, args.attempts, find_device(args.device))
        print(f"temperature {temperature:g}: {cost.mean():.5f}  ({seconds:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
