"""Equal seeds give equal plans: with one thread or two, and again in the same process."""

import random
import time
from typing import Any

from tools.campaigns.record import CampaignResult, Effort

SIZES = {"tsp": 30, "cvrp": 25, "jssp": 6}
EFFORT = Effort(min_seconds=5.0)


def run(seconds: float, seed: int) -> CampaignResult:
    """Solve the same instances in several ways until the time is up, and compare the plans."""
    rng = random.Random(seed)
    ends = time.monotonic() + seconds
    compared = 0
    faults = []
    alone = {"equal": 0, "different": 0}
    while time.monotonic() < ends:
        problem = rng.choice(list(SIZES))
        options = random_options(rng)
        instances = [random_instance(problem, rng.randrange(2**31)) for _ in range(3)]
        how = f"{problem} {options}"
        first = solve_with_threads(instances, 1, options)
        if first is None:
            continue  # the strategy is not for this problem
        compared += 1
        if solve_with_threads(instances, 2, options) != first:
            faults.append(f"{how}: two threads find other plans than one")
        if solve_with_threads(instances, 1, options) != first:
            faults.append(f"{how}: a second call finds other plans")
        last = solve_with_threads(instances[:1], 1, options)
        alone["equal" if last == first[:1] else "different"] += 1
    figures: dict[str, float | int | str] = {
        f"alone and in a batch {name}": count for name, count in alone.items()
    }
    return CampaignResult("determinism", compared, tuple(faults[:20]), figures)


def random_options(rng: random.Random) -> dict[str, Any]:
    """Return a strategy with a budget in attempts, which no clock can disturb."""
    from rhumbline.search.strategies import STRATEGIES

    return {
        "strategy": rng.choice(list(STRATEGIES)),
        "attempts": rng.choice((16, 64, 200)),
        "seed": rng.randrange(1000),
        "engine": rng.choice(("auto", "torch")),
        "polish": rng.random() < 0.3,
        "then": None,
    }


def random_instance(problem: str, seed: int) -> Any:
    """Return a random instance as a user would give it."""
    import numpy as np

    numbers = np.random.default_rng(seed)
    size = SIZES[problem]
    if problem == "tsp":
        return numbers.random((size, 2))
    if problem == "cvrp":
        demands = numbers.integers(1, 10, size)
        return numbers.random(2), numbers.random((size, 2)), demands, 30
    machines = [numbers.permutation(size).tolist() for _ in range(size)]
    durations = numbers.integers(1, 100, (size, size)).tolist()
    return {"durations": durations, "machines": machines}


def solve_with_threads(
    instances: list[Any], threads: int, options: dict[str, Any]
) -> list[tuple[float, str]] | None:
    """Return cost and plan of each instance, or None if the method is refused."""
    import torch

    import rhumbline as rl
    from rhumbline.errors import RhumbError

    torch.set_num_threads(threads)
    try:
        found = rl.solve(list(instances), **options)
    except RhumbError:
        return None
    finally:
        torch.set_num_threads(1)
    return [(one.cost, str(one.plan.to_file_numbers(one.instance))) for one in found]
