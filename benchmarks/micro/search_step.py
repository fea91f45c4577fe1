"""Time of a step of a search, and what CMA-ES costs beside its rollouts.

    python benchmarks/micro/search_step.py                      # CMA-ES on random TSP100
    python benchmarks/micro/search_step.py --search cmaes-refine --instances 64 --profile
    python benchmarks/micro/search_step.py --search eas-emb --augment 8

`host` is the time until the host has told the device everything: where it is close to that of the
step, the host keeps the device waiting. `ask and tell` is the part of a CMA-ES generation that is
no rollout. With `encoding`, which is done once, these are the parts of a search's time.
"""

import statistics
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from harness import Case, Harness, load_or_make_policy, make_parser

from rhumbline.noise import box_muller
from rhumbline.problems.tsp import TSP, TSPInstance
from rhumbline.search import cma_es
from rhumbline.search.driver import Budget, stream
from rhumbline.search.strategies import build_strategy
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.task import Task, make_task

WARM_UP_STEPS = 2
PARENTS = 8  # of a generation of 16 latents
LATENTS = 16
ATTEMPTS = 10**9  # more than any step needs


def make_random_task(harness: Harness, instances: int, size: int, augment: int) -> Task:
    """Return a task of random TSP instances with the policy of the published search."""
    rng = np.random.RandomState(1)
    drawn = [
        TSPInstance(f"{number}", "EXACT_2D", xy=xy)
        for number, xy in enumerate(rng.uniform(size=(instances, size, 2)))
    ]
    policy = load_or_make_policy("tsp", harness.device)
    return make_task(TSP(), policy, drawn, device=harness.device, augment=augment)


def encode_again(harness: Harness, task: Task, augment: int) -> Task:
    """Return the same task with its instances transferred and encoded once more."""
    return make_task(TSP(), task.policy, task.instances, device=harness.device, augment=augment)


def time_steps(harness: Harness, steps: Iterator[Any], count: int) -> tuple[float, float]:
    """Return the median milliseconds of a step, and of its part on the host."""
    whole = list[float]()
    host = list[float]()
    for _ in range(count):
        harness.wait()
        began = time.perf_counter()
        next(steps)
        told = time.perf_counter()
        harness.wait()
        host.append(1e3 * (told - began))
        whole.append(1e3 * (time.perf_counter() - began))
    return statistics.median(whole), statistics.median(host)


def ask_and_tell(task: Task) -> None:
    """Run the part of a CMA-ES generation that is no rollout."""
    state = CMAES().init(task).components[:, 0]
    latents = cma_es.ask(state, box_muller(task.uniforms(LATENTS)))
    cost = latents.square().sum(-1)
    constants = cma_es.constants(latents.shape[-1], PARENTS)
    cma_es.tell(state, latents, cost, constants, 3)


def main() -> None:
    """Measure what the command line says."""
    parser = make_parser(__doc__)
    parser.add_argument("--search", default="cmaes", metavar="NAME[+FIELD=VALUE]")
    parser.add_argument("--instances", type=int, default=None, help="[512 on a GPU, else 1]")
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--augment", type=int, default=1, help="symmetric copies")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--rows", type=int, default=20, help="of a profile")
    given = parser.parse_args()
    harness = Harness("search_step", given)
    instances = given.instances or (512 if harness.on_gpu else 1)
    name, *settings = given.search.split("+")
    task = make_random_task(harness, instances, given.size, given.augment)
    steps = stream(build_strategy(name, settings), task, Budget(attempts=ATTEMPTS))
    for _ in islice(steps, WARM_UP_STEPS):
        pass
    whole, host = time_steps(harness, steps, given.repeats)
    case = f"TSP{given.size} {instances} instances, {given.search}"
    harness.report(Case("search_step", case, task.engine, whole), f"   host {host:.2f} ms")
    encoding = harness.milliseconds(lambda: encode_again(harness, task, given.augment))
    note = "   once in a search, with the transfer of the instances"
    harness.report(Case("search_step", "encoding", "torch", encoding), note)
    if task.policy.space.size:
        with torch.no_grad():
            spent = harness.milliseconds(lambda: ask_and_tell(task))
        share = f"   {spent / whole:.1%} of that step"
        harness.report(Case("search_step", "CMA-ES ask and tell", "torch", spent), share)
    if given.profile:
        harness.profile(lambda: next(steps), given.rows)


if __name__ == "__main__":
    main()
