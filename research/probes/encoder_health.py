# Dated record: a finished probe of November 2026. Its findings are in research/notebooks.
"""Whether the attention of an encoder still discriminates: the spread of its scores in each layer,
mean (widest head).

    python research/probes/encoder_health.py rhumbline/weights/*.safetensors
    python research/probes/encoder_health.py rhumbline/weights/tsp100.safetensors --limits 300 75

Healthy heads show 5 to 100. Thousands mean one-hot attention, and gradients below that are noise
(docs/training.md). With limits, what greedy tours of 300 validation instances cost as it is, and
with wider heads cut back to each limit.
"""

import argparse
from copy import deepcopy
from pathlib import Path

import torch

from rhumbline import checkpoint
from rhumbline.decoding import rollout
from rhumbline.domains import find_policy_family
from rhumbline.policies.attention.encoder import attention_ranges, limit_attention_ranges
from rhumbline.policies.attention.pointer import RoutingPolicy


def greedy_cost(policy: RoutingPolicy) -> float:
    """Mean cost of greedy plans from all starts, at the centre of the latent space."""
    problem = find_policy_family(policy.problem)[1].rules
    batch = problem.sample(300, 100, torch.Generator().manual_seed(4321))
    centre = policy.space.centre((300, 1), torch.device("cpu"))
    return (
        rollout(problem, policy, batch, centre, problem.starts(batch), seed=0, temperature=0.0)
        .cost.amin(2)
        .mean()
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("policies", nargs="+", type=Path)
    parser.add_argument("--limits", nargs="*", type=float, default=[])
    args = parser.parse_args()
    for path in args.policies:
        policy = checkpoint.load(path)
        if not isinstance(policy, RoutingPolicy):
            print(f"{path.name}: no routing policy")
            continue
        features = policy.features(
            find_policy_family(policy.problem)[1].rules.sample(
                16, 100, torch.Generator().manual_seed(1)
            )
        )
        spreads = attention_ranges(policy.encoder, features)
        print(
            f"{path.name}: " + "  ".join(f"{sum(s) / len(s):,.0f} ({max(s):,.0f})" for s in spreads)
        )
        for limit in (float("inf"), *args.limits) if args.limits else ():
            cut = deepcopy(policy)
            limit_attention_ranges(cut.encoder, features, limit)
            print(f"  limit {limit:g}: greedy {greedy_cost(cut):.4f}", flush=True)


if __name__ == "__main__":
    main()
