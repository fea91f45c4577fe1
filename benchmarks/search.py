"""What CMA-ES costs beside its rollouts: ask and tell against one generation, at 512 instances.

python benchmarks/search.py [--instances 512] python benchmarks/search.py --widths vrp100
--instances 2 --attempts 960  # how wide components get, on validation
"""

import argparse
import time

import numpy as np
import torch
from evaluate import of_the_paper
from strategies import validation

from rhumbline.api import find_device, load_policy, make_tasks
from rhumbline.noise import box_muller
from rhumbline.problems.tsp import TSP, TSPInstance
from rhumbline.search import cma_es
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.task import make_task


def seconds(work: object, repeats: int, device: torch.device) -> float:
    for _ in range(3):
        work()
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    wait()
    return (time.perf_counter() - began) / repeats


def widths(name: str, count: int, attempts: int, device: torch.device) -> None:
    """Widths of all components and mean distance of their means from the centre, per axis (the
    box ends at 1).
    """
    instances, strategy = validation(name, count), CMAES()
    policy = load_policy(of_the_paper(instances[0].problem), instances[0].problem)
    for _, task in make_tasks(
        instances, {policy.problem: policy}, seed=0, device=device, engine="auto"
    ):
        state, narrowest = strategy.init(task), float("inf")
        for _ in range(attempts // strategy.population):
            state, _, _ = strategy.step(task, state)
            width = state.components.sigma * state.components.scale.amax(-1)
            narrowest = min(narrowest, float(width.min()))
        distance = float(state.components.mean.abs().mean())
        print(
            f"{name}: widths {width.flatten().tolist()}, narrowest ever {narrowest:.2f}, mean |mean| {distance:.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--instances", type=int, default=512)
    parser.add_argument("--policy", default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--widths", default="", metavar="SET")
    parser.add_argument("--attempts", type=int, default=960)
    args = parser.parse_args()
    device = find_device(args.device)
    if args.widths:
        widths(args.widths, args.instances, args.attempts, device)
        return
    xy = np.random.RandomState(1).uniform(size=(args.instances, 100, 2))
    task = make_task(
        TSP(),
        load_policy(args.policy, "tsp"),
        [TSPInstance("", "EXACT_2D", xy=x) for x in xy],
        device=device,
    )
    strategy = CMAES()
    state = strategy.init(task).components[:, 0]
    c = cma_es.constants(16, 8)
    latents = cma_es.ask(state, box_muller(task.uniforms(16)))
    cost = torch.rand(args.instances, 16, device=device)

    def ask_and_tell() -> None:
        cma_es.tell(state, cma_es.ask(state, box_muller(task.uniforms(16))), cost, c, 3)

    search = seconds(ask_and_tell, 20, device)
    rollouts = seconds(lambda: task._try(latents, 0.1), 5 if device.type == "cuda" else 1, device)
    print(
        f"{args.instances} instances: ask + tell {search * 1e3:.2f} ms, rollouts {rollouts * 1e3:.1f} ms, "
        f"share {search / rollouts:.1%}"
    )


if __name__ == "__main__":
    main()
