"""Scores of given plans with all gradients, forward and backward: fused kernels and plain torch.

    python benchmarks/micro/scoring.py [--instances 256] [--plans 50] [--problems tsp cvrp]
    python benchmarks/micro/scoring.py --problems jssp --size 20x15 --instances 1 --plans 4

Both engines take the same tables; the encoder is not included. Plain torch works on slices of the
instances that fit the memory. Without a GPU only plain torch is timed, except for job shops.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from harness import Harness, Work, load_or_make_policy, make_parser

from rhumbline.decoding import log_prob, rollout
from rhumbline.domains import find_policy_family

SLICE = 32  # instances of plain torch at a time: masks and logits of all steps are gigabytes


@dataclass(frozen=True)
class SampledPlans:
    """Plans that are scored, and what they are scored with."""

    policy: Any
    batch: Any
    memory: Any
    latents: torch.Tensor
    actions: torch.Tensor


def sample_plans(harness: Harness, name: str, size: str, shape: tuple[int, int]) -> SampledPlans:
    """Sample plans of random instances: each from another start, or with other random numbers."""
    count, plans = shape
    problem = find_policy_family(name)[1].rules
    policy = load_or_make_policy(name, harness.device)
    rng = torch.Generator().manual_seed(1)
    batch = problem.sample(count, size if "x" in size else int(size), rng).to(harness.device)
    repeats = plans if name == "jssp" else 1
    latents = policy.space.centre((count, repeats), harness.device)
    starts = problem.starts(batch)[:, :plans]
    with torch.no_grad(), torch.autocast(harness.device.type, torch.bfloat16, harness.on_gpu):
        memory = policy.encode(batch)
    rolled = rollout(problem, policy, batch, latents, starts, seed=1, memory=memory)
    actions = rolled.actions.flatten(1, 2)
    return SampledPlans(policy, batch, memory, latents[:, :1], actions)


def with_gradients(policy: Any, memory: Any) -> Any:
    """Return tables that want gradients: all of them, or for job shops what a search adjusts."""
    if policy.problem == "jssp":
        table = policy.adjustable(memory).detach().requires_grad_()
        return policy.adjusted(memory, table)
    return memory.map(lambda x: x.detach().requires_grad_())


def compute_gradients(sampled: SampledPlans, engine: Any, instances: int, autocast: bool) -> None:
    """Score all plans and differentiate, a slice of the instances at a time."""
    problem = find_policy_family(sampled.policy.problem)[1].rules
    device = sampled.latents.device.type
    for at in range(0, len(sampled.actions), instances):
        rows = slice(at, at + instances)
        tables = with_gradients(sampled.policy, sampled.memory[rows])
        given = (sampled.batch[rows], sampled.latents[rows], sampled.actions[rows])
        with torch.autocast(device, torch.bfloat16, autocast):
            score = log_prob(problem, sampled.policy, *given, memory=tables, engine=engine)
            score.sum().backward()


def main() -> None:
    """Measure what the command line says."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--problems", nargs="+", default=["tsp", "cvrp"], choices=["tsp", "cvrp", "jssp"]
    )
    parser.add_argument("--size", default="100", help="nodes, or jobs x machines")
    parser.add_argument("--instances", type=int, default=256)
    parser.add_argument("--plans", type=int, default=50)
    given = parser.parse_args()
    harness = Harness("scoring", given)
    for name in given.problems:
        sampled = sample_plans(harness, name, given.size, (given.instances, given.plans))
        works: dict[str, Work] = {
            "torch": partial(compute_gradients, sampled, "torch", SLICE, harness.on_gpu)
        }
        if harness.on_gpu or name == "jssp":
            works["fused"] = partial(compute_gradients, sampled, "fused", given.instances, False)
        case = f"{name} {given.size} {given.instances} x {given.plans}"
        harness.compare(case, works, given.instances * given.plans, "plans")


if __name__ == "__main__":
    main()
