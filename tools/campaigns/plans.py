"""Plans of all strategies and local searches, against a checker that shares no code with them."""

import math
import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.campaigns.checker import WrongPlan
from tools.campaigns.raw_instances import FILE_MAKERS, MAKERS, RawInstance
from tools.campaigns.record import CampaignResult, Effort

POLICIES = {
    "tsp": ("tsp", "tsp100-single", "tsp100-poppy"),
    "cvrp": ("cvrp", "cvrp100-single"),
    "jssp": ("jssp",),
}
RELATIVE_ROUNDING = 1e-9  # of sums in another order
EFFORT = Effort(min_seconds=5.0, weight=8.0)


@dataclass
class Tally:
    """What was checked so far."""

    plans: int = 0
    faults: list[str] = field(default_factory=list)
    by_strategy: Counter = field(default_factory=Counter)

    def check(self, raw: RawInstance, plan: Any, cost: float, how: str) -> None:
        """Check one plan in file numbers, and the price that the package gave it."""
        self.plans += 1
        try:
            price = raw.price(plan)
        except WrongPlan as error:
            self.faults.append(f"{how}: {error}; instance {raw.text}")
            return
        if not math.isclose(price, cost, rel_tol=RELATIVE_ROUNDING, abs_tol=1e-9):
            self.faults.append(f"{how}: priced at {cost}, it costs {price}; instance {raw.text}")


def run(seconds: float, seed: int) -> CampaignResult:
    """Solve small random instances until the time is up, and check every plan."""
    rng = random.Random(seed)
    tally = Tally()
    ends = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < ends:
            solve_batch(rng, Path(folder), tally)
    counts = sorted(tally.by_strategy.items())
    figures: dict[str, float | int | str] = {f"plans of {name}": count for name, count in counts}
    return CampaignResult("plans", tally.plans, tuple(tally.faults[:20]), figures)


def solve_batch(rng: random.Random, folder: Path, tally: Tally) -> None:
    """Solve some instances of one size by a random method, and check all plans that come up."""
    import rhumbline as rl
    from rhumbline.errors import RhumbError
    from rhumbline.inputs import instances_from
    from rhumbline.search.strategies import STRATEGIES

    problem = rng.choice(list(MAKERS))
    make = rng.choice(MAKERS[problem])
    size = rng.choice((2, 3, 4, 5, 6, 7, 8, 10, 12))
    is_timed = rng.random() < 0.3
    count = rng.choice((1, 5, 20)) if is_timed or make in FILE_MAKERS else rng.choice((5, 60, 400))
    raws = []
    instances = []
    for _ in range(count):
        raw = make(rng, size, folder)
        raws.append(raw)
        instances += instances_from(raw.source)
    by_instance = {id(instance): raw for instance, raw in zip(instances, raws, strict=True)}
    strategy = rng.choice(list(STRATEGIES))
    policy = rng.choice(POLICIES[problem])
    options: dict[str, Any] = {
        "policy": policy,
        "strategy": strategy,
        "seed": rng.randrange(2**31),
        "top": rng.choice((1, 5, 20)),
        "polish": rng.random() < 0.3,
        "then": "auto" if is_timed else None,
        "attempts": rng.choice((1, 3, 16, 60)),
        "engine": rng.choice(("auto", "auto", "torch")),
        "augment": 1 if problem == "jssp" else rng.choice((1, 1, 8)),
    }
    if is_timed:
        options["seconds"] = 0.02 * count
    how = f"{problem} {make.__name__} {options}"

    def improved(found: Any) -> None:
        plan = found.plan.to_file_numbers(found.instance)
        tally.check(by_instance[id(found.instance)], plan, found.cost, f"{how} {found.phase}")

    if count <= 60 and rng.random() < 0.3:
        options["improved"] = improved
    before = tally.plans
    try:
        solutions = rl.solve(instances, **options)
    except RhumbError as error:
        if "Infeasible" in type(error).__name__:
            tally.faults.append(f"{how}: {error}")
        return  # this policy or problem does not support the method
    except Exception as error:
        texts = " | ".join(raw.text for raw in raws[:3])
        tally.faults.append(f"{how}: {type(error).__name__}: {error}; instances {texts}")
        return
    for raw, solution in zip(raws, solutions, strict=True):
        for found in (solution, *solution.others):
            plan = found.plan.to_file_numbers(solution.instance)
            tally.check(raw, plan, found.cost, f"{how} {found.phase}")
    tally.by_strategy[strategy] += tally.plans - before
