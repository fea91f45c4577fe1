"""How far gradients of the encoder under bfloat16 are from those in float32: the numbers of docs/training.md.

    python benchmarks/gradient_error.py rhumbline/weights/tsp100-single.safetensors [--batches 12]

For each layer: the error of the summed gradient of the same sampled tours, relative to its size, with attention in
bfloat16 as it was until 2026-11-15, and as it is now (float32, centred keys). One CPU thread, a few minutes.
"""

import argparse

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rhumbline import checkpoint
from rhumbline.decoding import log_prob, rollout
from rhumbline.policies.attention import EncoderLayer
from rhumbline.problems.tsp import TSP

TOURS = 12  # of each of as many instances in a batch


def former(self: EncoderLayer, x: Tensor) -> Tensor:
    """The layer as it was: attention in the type that autocast gives."""
    count, nodes, width = x.shape
    q, k, v = self.qkv(x).view(count, nodes, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(count, nodes, width)
    x = self.norm_attention(x + self.out(mixed))
    return self.norm_hidden(x + self.down(F.relu(self.up(x))))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("policy")
    parser.add_argument("--batches", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    policy, problem, rng = checkpoint.load(args.policy).requires_grad_(True), TSP(), torch.Generator().manual_seed(1)
    present, latents = EncoderLayer.forward, policy.space.centre((TOURS, 1), torch.device("cpu"))
    kinds = {"float32": present, "former": former, "present": present}
    total: dict[str, dict[str, Tensor]] = {kind: {} for kind in kinds}
    for seed in range(args.batches):
        batch = problem.sample(TOURS, 100, rng)
        rolled = rollout(problem, policy, batch, latents, problem.starts(batch)[:, :TOURS], seed=seed)
        cost, tours = rolled.cost.flatten(1), rolled.actions.flatten(1, 2)
        for kind, forward in kinds.items():
            EncoderLayer.forward = forward
            policy.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=kind != "float32"):
                memory = policy.encode(batch)
            memory = memory.map(lambda x: x.float())
            score = log_prob(problem, policy, batch, latents, tours, memory=memory, engine="torch")
            ((cost - cost.mean(1, keepdim=True)) * score).mean().backward()
            for name, weight in policy.named_parameters():
                if weight.grad is not None:
                    total[kind][name] = total[kind].get(name, 0) + weight.grad
    for name, true in total["float32"].items():
        if name.endswith(("qkv.weight", "norm_hidden.bias")):
            errors = [((total[k][name] - true).norm() / true.norm()).item() for k in ("former", "present")]
            print(f"{name:40s} former {errors[0]:9.3f}   present {errors[1]:9.3f}", flush=True)


if __name__ == "__main__":
    main()
