# Dated record: a finished probe of November 2026. Its findings are in research/notebooks.
"""What keeping different plans costs beside the rollouts that find them: one generation of 16
latents.

    python research/probes/pool.py [--instances 1] [--size 100] [--places 16] [--threads 1]
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from rhumbline.domains import DOMAINS
from rhumbline.pipeline import find_device, load_policy
from rhumbline.problems.tsp import TSP, TSPInstance
from rhumbline.search.after_search import TUNING
from rhumbline.search.plan_sets.diverse import DiverseSet
from rhumbline.search.task import make_task


def seconds(work: Callable[[], object], repeats: int, device: torch.device) -> float:
    """Processor time on a CPU, where other jobs run beside; wall time on a GPU."""
    wait, clock = (
        (torch.cuda.synchronize, time.perf_counter)
        if device.type == "cuda"
        else (int, time.process_time)
    )
    for _ in range(2):
        work()
    wait()
    began = clock()
    for _ in range(repeats):
        work()
    wait()
    return (clock() - began) / repeats


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument(
        "--places",
        type=int,
        default=TUNING.polished_plans,
        help="plans that are kept; --top K keeps 2 K",
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    device = find_device(args.device)
    xy = np.random.RandomState(1).uniform(size=(args.instances, args.size, 2))
    instances = [TSPInstance("", "EXACT_2D", xy=x) for x in xy]
    task = make_task(TSP(), load_policy("tsp100", "tsp"), instances, device=device)
    latents = 2.0 * task.uniforms(16)[..., 0] - 1.0
    rolled = task._try(latents, 0.1)
    pool = DiverseSet(DOMAINS["tsp"].plans, args.places, task.batch)
    keeping = seconds(lambda: pool.enter(rolled), 20, device)
    rolling = seconds(lambda: task._try(latents, 0.1), 3, device)
    print(
        f"{args.instances} x {args.size} on {device.type}, {task.resolved_engine}: "
        f"pool {keeping * 1e3:.2f} ms, "
        f"rollouts {rolling * 1e3:.1f} ms, share {keeping / rolling:.1%}"
    )


if __name__ == "__main__":
    main()
