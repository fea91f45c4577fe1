"""Rollouts per second of the fused engine and of plain torch: agreement first, then speed.

    python benchmarks/micro/rollout.py                           # TSP100 on this machine's device
    python benchmarks/micro/rollout.py --problem cvrp --size 200 --instances 16
    python benchmarks/micro/rollout.py --problem jssp --size 20x15 --latents 64 --half
    python benchmarks/micro/rollout.py --problem jssp --latents 64 --same      # as sampling-elite
    python benchmarks/micro/rollout.py --layer                   # with the layer of `eas-lay`
    python benchmarks/micro/rollout.py --completions 200         # large-neighbourhood search

Encoding is not included. With `--same`, all rollouts of an instance have one latent.
With `--completions N`, N neighbourhoods of a sampled plan of each
instance are sampled 16 times, as `cmaes-refine` does; `whole` is as many complete rollouts.
"""

import argparse
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from harness import Harness, Work, describe_agreement, load_or_make_policy, make_parser

from rhumbline.decoding import CompletionRequest, complete, rollout
from rhumbline.decoding.neighbourhoods import neighbourhood_prefixes
from rhumbline.domains import DOMAINS, domain_of, find_policy_family
from rhumbline.policies.attention.memory import ResidualLayer

SEED = 7
SAMPLES = 16  # of each neighbourhood
COMPARED = 20  # neighbourhoods of an instance for plain torch, which keeps the scores of all steps


@dataclass(frozen=True)
class Workload:
    """A policy and encoded instances."""

    policy: Any
    batch: Any
    memory: Any
    starts: torch.Tensor
    engines: list[str]
    title: str

    @property
    def problem(self) -> Any:
        """The problem of the policy."""
        return find_policy_family(self.policy.problem)[1].rules

    @property
    def count(self) -> int:
        """How many instances there are."""
        return len(self.starts)


def make_workload(harness: Harness, given: argparse.Namespace) -> Workload:
    """Draw random instances, of 100 nodes or 10 x 10 operations if no size is given."""
    policy = load_or_make_policy(given.problem, harness.device, given.policy)
    problem = find_policy_family(policy.problem)[1].rules
    size = given.size or str(problem.default_size)
    count = given.instances or (64 if harness.on_gpu else 1)
    rng = torch.Generator().manual_seed(SEED)
    batch = problem.sample(count, size if "x" in size else int(size), rng).to(harness.device)
    memory = policy.encode(batch)
    if given.layer:
        memory = replace(memory, layer=make_layer(policy.architecture.width, count, harness.device))
    title = f"{policy.problem} {size}, {count} instances"
    options = {"one latent": given.same, "with a layer": given.layer, "bfloat16": given.half}
    title = ", ".join([*(name for name, is_on in options.items() if is_on), title])
    return Workload(policy, batch, memory, problem.starts(batch), given.engines, title)


def make_layer(width: int, count: int, device: torch.device) -> ResidualLayer:
    """Return a residual layer that changes most plans a little."""
    rng = torch.Generator().manual_seed(SEED)
    scale = 0.1 / width**0.5
    parts = list[torch.Tensor]()
    for rows in (width, 1, width, 1):
        part = scale * torch.randn(1, rows, width, generator=rng)
        parts.append(part.expand(count, -1, -1).to(device))
    return ResidualLayer(*parts)


def print_agreement(works: dict[str, Work]) -> None:
    """Compare the plans of the first and the last engine."""
    if len(works) > 1:
        engines = list(works)
        one: Any = works[engines[0]]()
        other: Any = works[engines[-1]]()
        print(describe_agreement(one, other), flush=True)


def time_rollouts(harness: Harness, load: Workload, latents: int, same: bool) -> None:
    """Time complete rollouts of random latents, or of one latent, from all starts."""
    rng = torch.Generator().manual_seed(1)
    points = load.policy.space.sample((load.count, latents), rng).to(harness.device)
    if same:
        points = points[:, :1].expand_as(points)
    run = partial(
        rollout,
        load.problem,
        load.policy,
        load.batch,
        points,
        load.starts,
        seed=SEED,
        memory=load.memory,
    )
    works: dict[str, Work] = {engine: partial(run, engine=engine) for engine in load.engines}
    print_agreement(works)
    starts = load.starts.shape[1]
    case = f"{load.title} x {latents} x {starts}"
    harness.compare(case, works, load.count * latents * starts, "rollouts")


def time_completions(harness: Harness, load: Workload, neighbourhoods: int) -> None:
    """Time samples of neighbourhoods of a plan of each instance, and complete rollouts."""
    centre = load.policy.space.centre((load.count, 1), harness.device)
    options: dict[str, Any] = {"seed": SEED, "memory": load.memory}
    model = (load.problem, load.policy, load.batch)
    plans = rollout(*model, centre, load.starts, **options).actions[:, 0, 0].long()
    uniforms = torch.rand(
        load.count, neighbourhoods, 2, generator=torch.Generator().manual_seed(SEED)
    )
    uniforms[..., 1] = uniforms[..., 1].sort(1).values  # as in the search: equal sizes side by side
    prefixes = neighbourhood_prefixes(
        domain_of(load.problem).neighbourhoods, load.batch.xy, plans, uniforms.to(harness.device)
    )
    repeat = partial(torch.repeat_interleave, repeats=SAMPLES, dim=1)
    few = prefixes[:, :COMPARED].map(repeat)
    request = CompletionRequest(*model, centre, few, temperature=1.0, samples=SAMPLES, **options)
    works: dict[str, Work] = {engine: partial(complete, request, engine) for engine in load.engines}
    print_agreement(works)
    case = f"{load.title} x {COMPARED} x {SAMPLES}"
    harness.compare(case, works, few.length.numel(), "completions")
    every = prefixes.map(repeat)
    whole_request = replace(request, prefixes=every)
    count = every.length.numel()
    latents = centre.expand(-1, -(-count // load.starts.numel()), -1)
    engine = load.engines[-1]
    works = {
        "whole": partial(rollout, *model, latents, load.starts, engine=engine, **options),
        engine: partial(complete, whole_request, engine),
    }
    harness.compare(f"{load.title} x {neighbourhoods} x {SAMPLES}", works, count, "completions")


def policy_families() -> list[str]:
    """Return the names of all policy families."""
    return sorted(name for domain in DOMAINS.values() for name in domain.policies)


@torch.no_grad()
def main() -> None:
    """Measure what the command line says."""
    parser = make_parser(__doc__)
    parser.add_argument("--problem", default="tsp", choices=policy_families())
    parser.add_argument("--size", default=None, help="nodes, or jobs x machines [100 or 10x10]")
    parser.add_argument("--instances", type=int, default=None, help="[64 on a GPU, else 1]")
    parser.add_argument("--latents", type=int, default=16)
    parser.add_argument("--same", action="store_true", help="the same latent for all rollouts")
    parser.add_argument("--policy", default=None, help="a shipped name or a path")
    parser.add_argument(
        "--engines", nargs="+", default=["torch", "fused"], choices=["torch", "fused"]
    )
    parser.add_argument("--half", action="store_true", help="products in bfloat16, as in training")
    parser.add_argument("--layer", action="store_true", help="a residual layer on the read-out")
    parser.add_argument("--completions", type=int, default=0, metavar="N", help="neighbourhoods")
    given = parser.parse_args()
    harness = Harness("rollout", given)
    products: AbstractContextManager[Any] = nullcontext()
    if given.half:
        products = torch.autocast(harness.device.type, torch.bfloat16)
    with products:
        load = make_workload(harness, given)
        if given.completions:
            time_completions(harness, load, given.completions)
        else:
            time_rollouts(harness, load, given.latents, given.same)


if __name__ == "__main__":
    main()
