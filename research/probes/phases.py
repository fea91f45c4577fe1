# Dated record: a finished probe of November 2026. Its findings are in research/notebooks.
"""Where the time of one TSP100 attempt goes: encoding, decoding, CMA-ES, checking on the host.

    python research/probes/phases.py [--instances 1] [--size 100] [--repeats 500]

The paper's table on a TPU, per attempt on one instance: encoding 32.27 ms, decoding 297.99 ms,
environment 68.31 ms, CMA-ES 0.28 ms. Here decoding and environment are one loop, and the encoding
is done once for a whole search.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from rhumbline.noise import box_muller
from rhumbline.pipeline import find_device, load_policy
from rhumbline.problems.tsp import TSP, TSPInstance
from rhumbline.search import cma_es
from rhumbline.search.driver import collect_solutions
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.task import make_task


def milliseconds(work: Callable[[], object], repeats: int, device: torch.device) -> float:
    """Mean time of a call after a few that do not count."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for _ in range(3):
        work()
    wait()
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    wait()
    return 1e3 * (time.perf_counter() - began) / repeats


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--policy", default=None)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    device, policy = find_device(args.device), load_policy(args.policy or "tsp100", "tsp")
    xy = np.random.default_rng(1).random((args.instances, args.size, 2))
    task = make_task(
        TSP(),
        policy,
        [TSPInstance(f"{i}", "EXACT_2D", xy=x) for i, x in enumerate(xy)],
        device=device,
    )
    state = CMAES().init(task).components[:, 0]
    c = cma_es.constants(policy.space.size, 8)
    latents = cma_es.ask(state, box_muller(task.uniforms(16)))
    cost = torch.rand(args.instances, 16, device=device)

    def decode() -> None:
        task.forget()
        task.rollout(latents[:, :1], 1.0)

    def encode() -> None:
        with torch.no_grad():
            policy.encode(task.batch)

    phases = {
        "encoding (once per search)": encode,
        "one attempt: a tour from each city": decode,
        "CMA-ES ask and tell (a generation of 16)": lambda: cma_es.tell(
            state, cma_es.ask(state, box_muller(task.uniforms(16))), cost, c, 3
        ),
        "decoding, checking and pricing plans on the host": lambda: collect_solutions(
            task, 0.0, ()
        ),
    }
    where = f"{device.type}, engine {task.resolved_engine}"
    print(f"{args.instances} x TSP{args.size}, {where}, mean of {args.repeats}\n")
    print("| phase | ms |\n| --- | --- |")
    for name, work in phases.items():
        print(f"| {name} | {milliseconds(work, args.repeats, device):.3f} |", flush=True)


if __name__ == "__main__":
    main()
