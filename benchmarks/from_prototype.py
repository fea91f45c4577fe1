"""The team's TSP prototype as a checkpoint of this package: the healthy start of a training.

    python benchmarks/from_prototype.py tsp100_base.safetensors start.safetensors

The prototype has the same layers under other names, no latent space and no header.
"""

import sys

from safetensors.torch import load_file

from rhumbline.checkpoint import TrainingFacts, recorded_versions, save
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.tsp import TSPPolicy

LAYER = {
    "o": "out",
    "n1": "norm_attention",
    "n2": "norm_hidden",
    "f1": "up",
    "f2": "down",
    "qkv": "qkv",
}
DECODER = {
    "q_mean": "query_mean",
    "q_last": "query_last",
    "q_first": "query_first",
    "q_b": "query_bias",
    "k": "key",
    "v": "value",
    "v_b": "value_bias",
    "o": "output",
    "o_b": "output_bias",
}
UNUSED = ("q_z", "v_z")  # rows of a latent space, all zero


def name_of(theirs: str) -> str:
    if theirs.startswith("inp."):
        return f"encoder.embed.{theirs.removeprefix('inp.')}"
    if theirs.startswith("layers."):
        _, layer, part, rest = theirs.split(".")
        return f"encoder.layers.{layer}.{LAYER[part]}.{rest}"
    return f"decoder.{DECODER[theirs]}"


def main() -> None:
    source, target = sys.argv[1:]
    tensors = {name_of(n): x for n, x in load_file(source).items() if n not in UNUSED}
    policy = TSPPolicy(Architecture(latent=0))
    absent = policy.load_state_dict(tensors, strict=False)
    assert not absent.unexpected_keys
    assert all(n.endswith(("_latent", "amplify")) for n in absent.missing_keys), absent.missing_keys
    save(
        target, policy, TrainingFacts("tsp", 100, recipe="prototype", versions=recorded_versions())
    )


if __name__ == "__main__":
    main()
