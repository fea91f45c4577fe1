# Dated record: a finished probe of November 2026. Its findings are in research/notebooks.
"""How well policies plan neighbourhoods of good plans again, which is what `cmaes-refine` does most
of the time.

    python research/probes/parts.py cvrp cvrp100 runs/cvrp100/policy.safetensors [--count 48]

Validation instances are solved by the first policy with a few attempts of `cmaes-refine`. Each plan
is cut in several ways, tours the way round that they were built, and each policy carries on each
cut 16 times at the temperature of training, at the centre of its latent space. `excess` is how much
dearer than the plan these are on average, `better` the share of cuts of which one is cheaper (for
the policy that solved, of what it has left over), and `gain` what that is worth on average; ± is a
95 % interval over instances. `whole` is by how much whole plans are dearer on average, and `greedy`
the best greedy one of each instance: what training on parts may cost.
"""

import argparse

import numpy as np
import torch

from rhumbline.bench.compare.sets import draw_uniform_set
from rhumbline.decoding import CompletionRequest, complete, rollout
from rhumbline.decoding.neighbourhoods import neighbourhood_prefixes
from rhumbline.errors import RhumbError
from rhumbline.pipeline import find_device, load_policy, make_tasks
from rhumbline.search.driver import Budget, search
from rhumbline.search.strategies import build_strategy
from rhumbline.search.task import Task

SAMPLES, SEED = 16, 5


def solved(policy: object, size: int, count: int, attempts: int, device: torch.device) -> Task:
    """A task whose incumbents are good plans."""
    short = {"tsp": "tsp", "cvrp": "vrp"}[policy.problem]
    instances = draw_uniform_set(f"{short}{size}", count).instances
    ((_, task),) = make_tasks(
        instances, {policy.problem: policy}, seed=0, device=device, engine="auto"
    )
    search(build_strategy("cmaes-refine"), task, Budget(attempts))
    return task


def interval(values: torch.Tensor) -> str:
    """Mean and 95 % interval over the first axis."""
    each = values.flatten(1).mean(1).double().cpu().numpy()
    return f"{each.mean():.4f} ± {1.96 * each.std(ddof=1) / np.sqrt(len(each)):.4f}"


@torch.no_grad()
def row(policy: object, task: Task, cuts: int) -> str:
    """What a policy makes of the plans of a task."""
    problem, batch, count = task.problem, task.batch, task.count
    memory, centre = policy.encode(batch), policy.space.centre((count, 1), task.device)
    luck = torch.rand(count, cuts, 2, generator=torch.Generator().manual_seed(SEED)).to(task.device)
    plans = task.incumbents.long()
    given = neighbourhood_prefixes(task.domain.neighbourhoods, batch.xy, plans, luck, both=False)
    given = given.map(lambda x: x.repeat_interleave(SAMPLES, 1))
    options = {"seed": SEED, "temperature": 1.0}
    request = CompletionRequest(
        problem, policy, batch, centre, given, memory, samples=SAMPLES, **options
    )
    cost = complete(request, "auto").cost[:, 0]
    known = problem.cost(batch, plans[:, None])
    ratio = cost.unflatten(1, (cuts, SAMPLES)) / known[..., None]
    best = (1.0 - ratio.amin(2)).clamp(min=0.0)
    whole, greedy = (
        rollout(
            problem,
            policy,
            batch,
            centre,
            problem.starts(batch),
            seed=SEED,
            memory=memory,
            temperature=t,
        ).cost
        for t in (1.0, 0.0)
    )
    wholes = (
        x / problem.cost(batch, plans[:, None]) - 1.0
        for x in (whole.flatten(1), greedy.flatten(1).amin(1, True))
    )
    return " | ".join(
        interval(100.0 * x) for x in (ratio - 1.0, (best > 1e-6).float(), best, *wholes)
    )


def main() -> None:
    """Whatever cannot be used ends in words, not in a traceback."""
    try:
        compare()
    except RhumbError as error:
        raise SystemExit(str(error)) from error


def compare() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problem", choices=["tsp", "cvrp"])
    parser.add_argument(
        "policies",
        nargs="+",
        metavar="POLICY",
        help="a shipped name or a path; the first one solves",
    )
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--count", type=int, default=48, help="instances")
    parser.add_argument("--cuts", type=int, default=30, help="of each plan")
    parser.add_argument("--attempts", type=int, default=48, help="at each instance, for its plan")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=None)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    device = find_device(args.device)
    policies = {name: load_policy(name, args.problem).to(device) for name in args.policies}
    task = solved(policies[args.policies[0]], args.size, args.count, args.attempts, device)
    titles = ("policy", "excess, %", "better, %", "gain, %", "whole, %", "greedy, %")
    print(f"| {' | '.join(titles)} |", f"| --- |{' ---: |' * (len(titles) - 1)}", sep="\n")
    for name, policy in policies.items():
        print(f"| {name} | {row(policy, task, args.cuts)} |", flush=True)


if __name__ == "__main__":
    main()
