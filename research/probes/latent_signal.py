# Dated record: a finished probe of November 2026. Its findings are in research/notebooks.
"""How much of what a latent costs is its own doing, and how much is luck: what CMA-ES has to go by.

    python research/probes/latent_signal.py tsp100 cvrp100 [--instances 8] [--latents 48]

Random latents are tried twice on the same random instances, with other noise. Printed are the
correlations of both trials over an instance's latents, for the cheapest of all starts, the mean of
the cheapest ten and the mean of all (1: a latent decides, 0: luck does); the spread of those means
over latents; and the cheapest of all rollouts with these latents, and with the centre of the space
as often. `--scale` makes the latents larger: how far apart policies may be.
"""

import argparse
from functools import partial

import torch
from torch import Tensor

from rhumbline import checkpoint
from rhumbline.decoding import rollout
from rhumbline.domains import find_policy_family

FITNESS = {
    "best": lambda cost: cost.amin(2),
    "best ten": lambda cost: cost.sort(2).values[..., :10].mean(2),
    "mean": lambda cost: cost.mean(2),
}


def correlation(one: Tensor, other: Tensor) -> float:
    """Mean over instances of the correlation over latents."""
    one, other = (x - x.mean(1, keepdim=True) for x in (one, other))
    return ((one * other).sum(1) / (one.norm(dim=1) * other.norm(dim=1))).mean().item()


@torch.no_grad()
def measured(name: str, args: argparse.Namespace, device: torch.device) -> str:
    """The line of one policy."""
    policy = checkpoint.load(checkpoint.find_checkpoint(name, ""), device)
    problem, rng = find_policy_family(policy.problem)[1].rules, torch.Generator().manual_seed(77)
    batch = problem.sample(args.instances, args.size, rng).to(device)
    latents = args.scale * policy.space.sample((args.instances, args.latents), rng).to(device)
    work = partial(
        rollout, problem, policy, batch, starts=problem.starts(batch), temperature=args.temperature
    )
    one, other = (work(latents, seed=seed).cost for seed in (1, 2))
    shares = ", ".join(f"{n} {correlation(f(one), f(other)):.2f}" for n, f in FITNESS.items())
    spread = (one.mean(2).std(1) / one.mean((1, 2))).mean().item()
    cheapest = [
        x.amin((1, 2)).mean().item() for x in (one, work(torch.zeros_like(latents), seed=1).cost)
    ]
    costs = f"mean {one.mean():.2f}, spread {spread:.2%}"
    least = f"cheapest {cheapest[0]:.4f}, at the centre {cheapest[1]:.4f}"
    return f"{name}: {shares}; {costs}; {least}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("policies", nargs="+")
    parser.add_argument("--instances", type=int, default=8)
    parser.add_argument("--latents", type=int, default=48)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--size", type=int, default=100, help="cities or customers")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name in args.policies:
        print(measured(name, args, device), flush=True)


if __name__ == "__main__":
    main()
