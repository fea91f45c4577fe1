"""Fused scoring with gradients against plain torch, in one run on one GPU: forward and backward of
given plans.

    python benchmarks/log_prob.py [--instances 256] [--plans 50]

Both take the same tables in bfloat16. Plain torch runs in slices of instances that fit the memory;
times are as in decoding.py.
"""

import argparse
from functools import partial
from typing import Any

import torch
from decoding import milliseconds, policy_for
from torch import Tensor

from rhumbline.decoding import log_prob, rollout
from rhumbline.problems import PROBLEMS

SLICE = 32  # instances per plain-torch pass: masks and logits of all steps are gigabytes


def gradients(
    problem: Any,
    policy: Any,
    batch: Any,
    latents: Tensor,
    actions: Tensor,
    engine: str,
    slices: int,
) -> None:
    """One forward and backward pass from the tables on; the encoder is not part of it."""
    for at in range(0, len(actions), slices):
        rows = slice(at, at + slices)
        memory = batch["memory"][rows].map(lambda x: x.detach().requires_grad_())
        score = log_prob(
            problem,
            policy,
            batch["batch"][rows],
            latents[rows],
            actions[rows],
            memory=memory,
            engine=engine,
        )
        score.sum().backward()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--instances", type=int, default=256)
    parser.add_argument("--plans", type=int, default=50)
    args = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for name in ("tsp", "cvrp"):
        problem, policy = PROBLEMS[name], policy_for(name, 0)
        rng = torch.Generator("cuda").manual_seed(1)
        batch = problem.sample(args.instances, 100, rng)
        latents, starts = (
            policy.space.centre((args.instances, 1), rng.device),
            problem.starts(batch)[:, : args.plans],
        )
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            memory = policy.encode(batch)
        actions = rollout(problem, policy, batch, latents, starts, seed=1, memory=memory).actions[
            :, 0
        ]
        given = {"batch": batch, "memory": memory}
        times = {}
        for engine, slices in (("fused", args.instances), ("torch", SLICE)):
            with torch.autocast("cuda", torch.bfloat16, enabled=engine == "torch"):
                work = partial(gradients, problem, policy, given, latents, actions, engine, slices)
                times[engine] = milliseconds(work, 5)
        ratio = times["torch"] / times["fused"]
        print(
            f"{name}100 {args.instances} x {args.plans}: "
            f"fused {times['fused']:.2f} ms   torch {times['torch']:.1f} ms   ratio {ratio:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
