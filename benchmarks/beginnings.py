"""Parts of plans built anew: the fused engine against our plain torch in one run, agreement first,
then speed.

    python benchmarks/beginnings.py [--problem tsp] [--size 100] [--instances 64] [--ways 200]
[--device auto]

Of a sampled plan of each instance so many neighbourhoods are left out, as `cmaes-refine` does, and
each is planned again sixteen times. What both engines plan alike must cost alike; where sums are
rounded otherwise (bfloat16 on a GPU) choices may differ, so the means of all costs are compared,
too. `whole` is as many rollouts from nothing: what a part saves. Times are those of `decoding.py`,
on a CPU of the clock.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from decoding import milliseconds

from rhumbline.api import find_device, load_policy
from rhumbline.decoding import Prefixes, Rollouts, complete, rollout
from rhumbline.decoding.neighbourhoods import neighbourhood_prefixes
from rhumbline.problems import PROBLEMS
from rhumbline.search.strategies.cmaes_refine import TUNING

SEED, FEW = (
    7,
    20,
)  # plain torch is compared on so many neighbourhoods: it keeps every step's scores of all


def took(work: Callable[[], object], device: torch.device) -> float:
    """Milliseconds of a call."""
    if device.type == "cuda":
        return milliseconds(work, repeats=5)
    work()
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)


def agreement(
    plain: Rollouts, fused: Rollouts, given: Prefixes, price: Callable[..., torch.Tensor]
) -> str:
    """What is the same; raises where an imposed action was changed or a plan is priced wrongly."""
    imposed = (
        torch.arange(given.actions.shape[2], device=given.length.device) < given.length[..., None]
    )
    for rolled in (plain, fused):
        actions = rolled.actions[:, 0].long()
        assert torch.equal(actions[imposed], given.actions[imposed]), (
            "an imposed action was changed"
        )
        assert torch.allclose(rolled.cost[:, 0], price(actions), rtol=1e-4), (
            "a plan is not priced as it is"
        )
    same = (plain.actions == fused.actions).all(-1).float().mean().item()
    means = plain.cost.mean().item(), fused.cost.mean().item()
    return f"{100 * same:.1f} % of the plans are the same; mean cost {means[0]:.5f} (torch), {means[1]:.5f} (fused)"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", default="tsp", choices=("tsp", "cvrp"))
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--instances", type=int, default=64)
    parser.add_argument("--ways", type=int, default=200)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    device, problem = find_device(args.device), PROBLEMS[args.problem]
    policy = load_policy(args.problem, args.problem).to(device)
    batch = problem.sample(args.instances, args.size, torch.Generator().manual_seed(SEED)).to(
        device
    )
    with torch.no_grad():
        memory, latents = policy.encode(batch), policy.space.centre((args.instances, 1), device)
    starts = problem.starts(batch)
    plans = (
        rollout(problem, policy, batch, latents, starts, seed=SEED, memory=memory)
        .actions[:, 0, 0]
        .long()
    )
    luck = torch.rand(args.instances, args.ways, 2, generator=torch.Generator().manual_seed(SEED))
    luck[..., 1] = (
        luck[..., 1].sort(1).values
    )  # as the search has them: those of about one size side by side
    given = neighbourhood_prefixes(args.problem, batch.xy, plans, luck.to(device))
    work = partial(
        complete,
        problem,
        policy,
        batch,
        latents,
        seed=SEED,
        temperature=1.0,
        samples=TUNING.samples_per_neighbourhood,
    )
    few, all_of_them = (
        part.map(partial(torch.repeat_interleave, repeats=TUNING.samples_per_neighbourhood, dim=1))
        for part in (given[:, :FEW], given)
    )
    each = {engine: partial(work, few, memory, engine=engine) for engine in ("torch", "fused")}
    print(f"{args.problem}, {args.size} nodes, {args.instances} instances, {device}")
    print(agreement(each["torch"](), each["fused"](), few, partial(problem.cost, batch)))
    slow, fast = (took(each[engine], device) for engine in ("torch", "fused"))
    print(
        f"{few.length.numel():,} parts: torch {slow:.2f} ms, fused {fast:.2f} ms, {slow / fast:.1f} x"
    )
    many = all_of_them.length.numel()
    part = took(partial(work, all_of_them, memory, engine="fused"), device)
    attempts = latents.expand(-1, -(-many // starts.numel()), -1)
    build = partial(
        rollout, problem, policy, batch, attempts, starts, seed=SEED, memory=memory, engine="fused"
    )
    whole = took(build, device) * many / (attempts.shape[1] * starts.numel())
    rate = f"{part:.2f} ms, {many / part / 1e3:.2f} M/s"
    print(f"{many:,} parts: {rate}; as many wholes: {whole:.2f} ms, {whole / part:.2f} x")


if __name__ == "__main__":
    main()
