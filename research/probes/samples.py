# Dated record: a finished probe of November 2026. Its findings are in research/notebooks.
"""What the samples of a policy are like: how good, from how many starts, and how certain its
decisions are.

    python research/probes/samples.py tsp100-single cvrp100-single runs/single/policy.safetensors

A start is given up if none of its 8 samples is within 20 % of the best of all starts. Certain
decisions hardly give any gradient: the share of the sum of (1 - p)^2 that they hold is printed
beside theirs. These are the numbers behind `objective.samples` and `objective.certain` in
docs/training.md and docs/kernels.md. One CPU thread, a minute a policy.
"""

import sys
from typing import Any

import torch
from torch import Tensor

from rhumbline import checkpoint
from rhumbline.decoding import rollout
from rhumbline.domains import find_policy_family

SIZE, COUNT, SAMPLES, LOST = 100, 32, 8, 0.2
SCORED, SCORED_STARTS, CERTAIN = 8, 24, (0.9, 0.98, 0.999)
CPU = torch.device("cpu")


def quality(problem: Any, policy: Any, temperature: float) -> None:
    """Mean and best cost, and the share of starts that are given up."""
    batch = problem.sample(COUNT, SIZE, torch.Generator().manual_seed(5))
    latents = policy.space.centre((COUNT, SAMPLES), CPU)
    cost = rollout(
        problem, policy, batch, latents, problem.starts(batch), seed=1, temperature=temperature
    ).cost
    best = cost.amin((1, 2))
    lost = cost.amin(1) > (1.0 + LOST) * best[:, None]
    found = f"mean {cost.mean():.3f}  best {best.mean():.3f}  given up {lost.float().mean():.1%}"
    print(f"  temperature {temperature:g}: {found}")


def certainty(problem: Any, policy: Any) -> None:
    """Shares of decisions by their probability, and the share of forced ones."""
    batch = problem.sample(SCORED, SIZE, torch.Generator().manual_seed(5))
    latents, memory = policy.space.centre((SCORED, 1), CPU), policy.encode(batch)
    starts = problem.starts(batch)[:, :SCORED_STARTS]
    actions = (
        rollout(problem, policy, batch, latents, starts, seed=1, memory=memory)
        .actions.flatten(1, 2)
        .long()
    )
    state = problem.replay(batch, actions)
    allowed = problem.mask(state)
    logits = policy.logits(memory, policy.condition(memory, latents), state, allowed)
    shares = logits.masked_fill(~allowed, -torch.inf).softmax(-1)
    taken: Tensor = shares.gather(-1, actions[:, :, 1:].flatten(1)[..., None])
    rest = (1.0 - taken) ** 2
    print(f"  forced {(allowed.sum(-1) == 1).float().mean():.1%}")
    for p in CERTAIN:
        sure = taken > p
        squares = rest[sure].sum() / rest.sum()
        print(f"  p > {p:g}: {sure.float().mean():.1%}, with {squares:.4%} of the squares")


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        policy: Any = checkpoint.load(checkpoint.find_checkpoint(name, "tsp"))
        problem = find_policy_family(policy.problem)[1].rules
        print(name)
        for temperature in (1.0, 0.0):
            quality(problem, policy, temperature)
        certainty(problem, policy)


if __name__ == "__main__":
    main()
