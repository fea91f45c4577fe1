"""Job-shop rollouts per second: plain torch, and the same steps as a CUDA graph; agreement first, then speed.

    python benchmarks/decoding_jssp.py [--size 10x10] [--work 32x16 256x64] [--policy PATH | --machines] [--half]

Times are medians of 10 after a warm-up; encoding is not included. `--half` computes decisions in bfloat16, as training
does on a GPU. Without a policy the weights are random: the work is the same, the share of forced decisions is not.
`--machines` takes the published network, which reads the whole shop at each decision; it has no graph.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from rhumbline import checkpoint, kernels
from rhumbline.decoding import Rollouts, rollout
from rhumbline.policies.jssp import JSSPPolicy
from rhumbline.policies.jssp_machines import JSSPMachinesPolicy
from rhumbline.problems import PROBLEMS

PUBLISHED = 628  # schedules/s of the authors' code on an H200, 10x10, 32 instances x 16 latents (issue 5)


def seconds(work: Callable[[], object], device: torch.device, repeats: int = 10) -> float:
    """Median time of a call."""
    times: list[float] = []
    for _ in range(repeats + 2):
        begin = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[2:])


def policy_for(path: str | None, machines: bool, device: torch.device) -> Any:
    """The given policy, or a random one with latents that matter."""
    if path:
        return checkpoint.load(checkpoint.find(path, "jssp"), device)
    policy = JSSPMachinesPolicy() if machines else JSSPPolicy()
    for name, rows in policy.decoder.named_parameters():
        if name.endswith("_latent"):
            rows.data.normal_(0.0, 0.0015, generator=torch.Generator().manual_seed(0))
    return policy.to(device).requires_grad_(False)


def agreement(one: Rollouts, other: Rollouts) -> str:
    """How far two engines chose alike. They do the same sums; only near ties may fall otherwise."""
    same = (one.actions == other.actions).all(-1).float().mean().item()
    return f"{same:.2%} of the schedules alike, mean makespans {one.cost.mean():.2f} and {other.cost.mean():.2f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="10x10")
    parser.add_argument("--work", nargs="*", default=["32x16", "256x64"], help="instances x latents")
    parser.add_argument("--policy", default=None)
    parser.add_argument("--machines", action="store_true")
    parser.add_argument("--half", action="store_true")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    policy, rng = policy_for(args.policy, args.machines, device), torch.Generator(device).manual_seed(1)
    problem = PROBLEMS[policy.problem]
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}, torch {torch.__version__}, {args.size}, {'bfloat16' if args.half else 'float32'}")
    for text in args.work:
        count, tried = map(int, text.split("x"))
        batch, latents = problem.sample(count, args.size, rng), policy.space.sample((count, tried), rng)
        with torch.no_grad():
            memory = policy.encode(batch)

        def run(engine: Any, work: tuple[Any, ...] = (batch, latents, memory)) -> Rollouts:
            batch, latents, memory = work
            half: AbstractContextManager[Any] = (
                torch.autocast(device.type, torch.bfloat16) if args.half else nullcontext()
            )
            with half:
                return rollout(
                    problem, policy, batch, latents, problem.starts(batch), seed=0, memory=memory, engine=engine
                )

        graphed = device.type == "cuda" and problem.name in kernels.GRAPHED
        engines = ("torch", "fused") if graphed else ("torch",)
        if len(engines) > 1:
            print(f"{text}: {agreement(run('torch'), run('fused'))}", flush=True)
        for engine in engines:
            spent = seconds(lambda engine=engine: run(engine), device)
            pace = count * tried / spent
            times = f"{pace / PUBLISHED:.1f} x published"
            print(f"{text:>8s} {engine:6s} {1e3 * spent:8.1f} ms {pace:10,.0f} schedules/s, {times}", flush=True)
    if device.type == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
