# Dated record: a finished probe of November 2026. Its findings are in research/notebooks.
"""Rates of rollouts, scores, training steps and a solve, in the tree of today or of commit 4166b41.

    PYTHONPATH=TREE python research/probes/redesign_rates.py [--updates 300]

It calls only what both trees have under the same names, with the same sizes and the same clock, so
that two processes can be compared. One line of JSON is printed for each rate.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch

import rhumbline
from rhumbline import checkpoint
from rhumbline.decoding import log_prob, rollout
from rhumbline.training.config import Objective, TrainConfig
from rhumbline.training.trainer import Trainer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def find_rules(problem: str) -> Any:
    """Return the rules of a problem, in either tree."""
    problems = import_module("rhumbline.problems")
    if hasattr(problems, "PROBLEMS"):  # the tree before the redesign
        return problems.PROBLEMS[problem]
    from rhumbline.domains import find_policy_family

    return find_policy_family(problem)[1].rules


def load_policy(name: str, problem: str) -> Any:
    """Return a shipped policy, in either tree."""
    finder = getattr(checkpoint, "find_checkpoint", None) or checkpoint.find
    return checkpoint.load(finder(name, problem)).to(DEVICE).requires_grad_(False)


def wait() -> None:
    """Return when the device has finished."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def median_seconds(work: Callable[[], object], calls: int, rounds: int = 5) -> float:
    """Return the seconds of one call among several queued ones: the median of some rounds."""
    for _ in range(3):
        work()
    times: list[float] = []
    for _ in range(rounds):
        wait()
        began = time.perf_counter()
        for _ in range(calls):
            work()
        wait()
        times.append((time.perf_counter() - began) / calls)
    return statistics.median(times)


def report(case: str, rate: float) -> None:
    """Print one line."""
    print(json.dumps({"case": case, "rate": round(rate, 3)}), flush=True)


@torch.no_grad()
def time_rollouts(name: str, problem: str, size: Any, shape: tuple[int, int], calls: int) -> None:
    """Time rollouts of random latents from all starts."""
    instances, latents = shape
    policy = load_policy(name, problem)
    rules = find_rules(problem)
    batch = rules.sample(instances, size, torch.Generator().manual_seed(2)).to(DEVICE)
    points = policy.space.sample((instances, latents), torch.Generator().manual_seed(3)).to(DEVICE)
    starts = rules.starts(batch)
    run = partial(
        rollout,
        rules,
        policy,
        batch,
        points,
        starts,
        seed=5,
        memory=policy.encode(batch),
        engine="auto",
    )
    seconds = median_seconds(run, calls)
    report(f"rollouts {problem} {size}", instances * latents * starts.shape[1] / seconds)


def time_scores(name: str, problem: str, instances: int, plans: int) -> None:
    """Time scores of given plans, forward and backward."""
    policy = load_policy(name, problem)
    rules = find_rules(problem)
    batch = rules.sample(instances, 100, torch.Generator().manual_seed(1)).to(DEVICE)
    latents = policy.space.centre((instances, 1), torch.device(DEVICE))
    starts = rules.starts(batch)[:, :plans]
    with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16, DEVICE == "cuda"):
        memory = policy.encode(batch)
        actions = rollout(rules, policy, batch, latents, starts, seed=1, memory=memory).actions[
            :, 0
        ]

    def score() -> None:
        tables = memory.map(lambda x: x.detach().requires_grad_())
        scores = log_prob(rules, policy, batch, latents, actions, memory=tables, engine="auto")
        scores.sum().backward()

    report(f"scores {problem} 100", instances * plans / median_seconds(score, 5))


def time_training(case: str, config: TrainConfig, updates: int) -> None:
    """Time training updates without validation and checkpoints."""
    trainer = Trainer(config, torch.device(DEVICE))
    step = partial(trainer.step, 0.0)
    for _ in range(10):
        step()
    report(f"training {case}", 1 / median_seconds(step, updates // 5))


def time_solve(count: int, attempts: int) -> None:
    """Time `rhumbline.solve` on random TSPs of 100 cities, after a call that does not count."""
    points = np.random.default_rng(7).random((count, 100, 2))
    solve = partial(rhumbline.solve, attempts=attempts, then=None, device=DEVICE)
    solve(points[: max(count // 4, 1)])
    times: list[float] = []
    for _ in range(3):
        began = time.perf_counter()
        solve(points)
        times.append(time.perf_counter() - began)
    report(f"solve {count} x TSP100, {attempts} attempts", count / statistics.median(times))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the program")
    given = parser.parse_args()
    few = 16 if given.small else 1
    print(rhumbline.__file__, flush=True)
    time_rollouts("tsp100", "tsp", 100, (64 // few, 16 // few), 10 // few or 1)
    time_rollouts("cvrp100", "cvrp", 100, (64 // few, 16 // few), 10 // few or 1)
    time_rollouts("jssp", "jssp", "10x10", (64 // few, 64 // few), 10 // few or 1)
    time_scores("tsp100", "tsp", 256 // few, 50 // few)
    time_scores("cvrp100", "cvrp", 256 // few, 50 // few)
    fast = not given.small
    compass = TrainConfig(
        graph=fast,
        compile=fast,
        batch=8 // few or 1,
        objective=Objective(latents=128 // few, starts=20),
    )
    time_training("TSP100 COMPASS 8 x 128 x 20", compass, given.updates)
    time_training("CVRP100 COMPASS 8 x 128 x 20", replace(compass, problem="cvrp"), given.updates)
    time_solve(1000 // few // few, 160 // few)


if __name__ == "__main__":
    main()
