# Dated record: a finished probe of November 2026. Its findings are in research/notebooks.
"""How far gradients of the encoder under bfloat16 are from those in float32: the numbers of
docs/training.md.

    python research/probes/gradient_error.py tsp100-single.safetensors [--batches 6]

For each layer: the error of the summed gradient of the same sampled tours, relative to its size,
with keys that are not centred (as until 2026-11-15), centred (as now), and centred with attention
in float32. Tours of a start are compared (`loss = "prefer"`), or all tours with their mean (`--loss
reinforce`). One CPU thread, a few minutes.
"""

import argparse
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rhumbline import checkpoint
from rhumbline.decoding import log_prob, rollout
from rhumbline.policies.attention.encoder import split_qkv, torch_attention
from rhumbline.problems.tsp import TSP
from rhumbline.training.objectives.reinforce import pomo_weight
from rhumbline.training.objectives.targets import preference_weight

INSTANCES, STARTS, SAMPLES, SHARPNESS = 12, 3, 4, 0.05


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention in the type that queries, keys and values have."""
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def not_centred(qkv: Tensor, heads: int) -> Tensor:
    """Attention as it was."""
    return attended(*qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4))


def in_float32(qkv: Tensor, heads: int) -> Tensor:
    """Attention as it is, but for its type."""
    return attended(*(part.float() for part in split_qkv(qkv, heads)))


KINDS = {
    "exact": torch_attention,
    "not centred": not_centred,
    "centred": torch_attention,
    "float32 attention": in_float32,
}


def weights(loss: str, cost: Tensor, score: Tensor) -> Tensor:
    """Of the sequences in the loss."""
    if loss == "reinforce":
        return pomo_weight(cost)
    groups = (len(cost), STARTS, SAMPLES)
    return preference_weight(cost.view(groups), score.detach().view(groups), SHARPNESS).flatten(1)


def gradients(policy: Any, loss: str, batches: int) -> dict[str, dict[str, Tensor]]:
    """The summed gradient of every weight, for every kind of layer."""
    problem, rng = TSP(), torch.Generator().manual_seed(1)
    latents = policy.space.centre((INSTANCES, 1), torch.device("cpu"))
    total: dict[str, dict[str, Tensor]] = {kind: {} for kind in KINDS}
    for seed in range(batches):
        batch = problem.sample(INSTANCES, 100, rng)
        starts = problem.starts(batch)[:, :STARTS].repeat_interleave(SAMPLES, 1)
        policy.encoder.set_attention(torch_attention)
        rolled = rollout(problem, policy, batch, latents, starts, seed=seed)
        cost, tours = rolled.cost.flatten(1), rolled.actions.flatten(1, 2)
        for kind, attention in KINDS.items():
            policy.encoder.set_attention(attention)
            policy.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=kind != "exact"):
                memory = policy.encode(batch)
            memory = memory.map(lambda x: x.float())
            score = log_prob(problem, policy, batch, latents, tours, memory=memory, engine="torch")
            (weights(loss, cost, score) * score).mean().backward()
            for name, weight in policy.named_parameters():
                if weight.grad is not None:
                    total[kind][name] = total[kind].get(name, 0) + weight.grad
    return total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("policy")
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--loss", default="prefer", choices=["prefer", "reinforce"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    policy: Any = checkpoint.load(args.policy)
    total = gradients(policy.requires_grad_(True), args.loss, args.batches)
    for name, true in total["exact"].items():
        if name.endswith(("qkv.weight", "norm_hidden.bias")):
            errors = {
                k: ((total[k][name] - true).norm() / true.norm()).item()
                for k in KINDS
                if k != "exact"
            }
            print(
                f"{name:36s}",
                *(f"{kind} {error:8.3f}" for kind, error in errors.items()),
                flush=True,
            )


if __name__ == "__main__":
    main()
