"""Whether the attention of an encoder still discriminates: the spread of its scores in each layer, mean (widest head).

    python benchmarks/encoder_health.py rhumbline/weights/*.safetensors

Healthy heads show 5 to 100. Thousands mean one-hot attention, and gradients below that are noise (docs/training.md).
"""

import sys
from pathlib import Path

import torch

from rhumbline import checkpoint
from rhumbline.policies.attention import RoutingPolicy, attention_ranges
from rhumbline.problems import PROBLEMS


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        policy = checkpoint.load(path)
        if not isinstance(policy, RoutingPolicy):
            print(f"{path.name}: no routing policy")
            continue
        batch = PROBLEMS[policy.problem].sample(4, 100, torch.Generator().manual_seed(1))
        spreads = attention_ranges(policy.encoder, policy.features(batch))
        print(f"{path.name}: " + "  ".join(f"{sum(s) / len(s):,.0f} ({max(s):,.0f})" for s in spreads))


if __name__ == "__main__":
    main()
