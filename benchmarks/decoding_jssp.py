"""Job-shop rollouts per second: plain torch, its steps as a CUDA graph, and the kernel; agreement
first, then speed.

    python benchmarks/decoding_jssp.py [--size 10x10] [--work 32x16 256x64] [--policy PATH | --machines]
                                       [--half | --tf32] [--shape 8 8] [--ahead 0]

Times are medians of 10 after a warm-up, or of as many as begin within 3 seconds; encoding is timed
apart. `--half` computes decisions in bfloat16, as training does on a GPU and the kernel always;
`--tf32` rounds what goes into products to 10 bits. Without a policy the weights are random, but the
same each time: the work is the same, the share of forced decisions is not. `--machines` takes the
published network, which reads the whole shop at each decision. Its rollouts are as long as their
machines wait often, so the number of decisions is printed. With it, plain torch runs up to 2,048
rollouts only.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

from rhumbline import checkpoint, kernels
from rhumbline.decoding import Rollouts, rollout
from rhumbline.policies.jssp import JSSPPolicy
from rhumbline.policies.jssp_machines import JSSPMachinesPolicy
from rhumbline.problems import PROBLEMS

PLAIN = 2048  # rollouts of the published network that plain torch does in time
PUBLISHED = (
    628  # schedules/s of the authors' code on an H200, 10x10, 32 instances x 16 latents (issue 5)
)


def once(work: Callable[[], object], device: torch.device) -> float:
    """Time of a call."""
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def seconds(
    work: Callable[[], object], device: torch.device, repeats: int = 10, most: float = 3.0
) -> float:
    """Median time of a call that has been made before."""
    times = [once(work, device)]
    while len(times) < repeats and sum(times) < most:
        times.append(once(work, device))
    return statistics.median(times)


def policy_for(path: str | None, machines: bool, device: torch.device) -> Any:
    """The given policy, or a random one with latents that matter."""
    if path:
        return checkpoint.load(checkpoint.find_checkpoint(path, "jssp"), device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        policy = JSSPMachinesPolicy() if machines else JSSPPolicy()
    for name, rows in policy.decoder.named_parameters():
        if name.endswith("_latent"):
            rows.data.normal_(0.0, 0.0015, generator=torch.Generator().manual_seed(0))
    return policy.to(
        device
    )  # not frozen: autocast keeps its copies only of weights that can have a gradient


def decisions(rolled: Rollouts) -> str:
    """How long rollouts are. The last decision of each takes something, and action 0 of these
    takes nothing.
    """
    steps = torch.arange(rolled.actions.shape[-1], device=rolled.cost.device)
    length = (steps * (rolled.actions > 0)).amax(-1).float()
    return f"{length.mean():.1f} decisions on average, {length.max():.0f} at most"


def agreement(one: Rollouts, other: Rollouts) -> str:
    """How far two engines chose alike. They do the same sums; where they round otherwise, near
    ties fall otherwise.
    """
    same, means = (
        (one.actions == other.actions).all(-1).float().mean().item(),
        (one.cost.mean(), other.cost.mean()),
    )
    best = (x.cost.flatten(1).amin(1).mean() for x in (one, other))
    words = "makespans {:.2f} and {:.2f} on average, {:.2f} and {:.2f} the best of an instance"
    return f"{same:.2%} of the schedules alike, {words.format(*means, *best)}"


def launched_with(shape: list[int] | None, ahead: int | None) -> AbstractContextManager[Any]:
    """The kernel with another tile, or other decisions ahead, than its launcher would choose."""
    options = {"shape": tuple(shape)} if shape else {}
    options |= {} if ahead is None else {"ahead": ahead}
    if not options:
        return nullcontext()
    from rhumbline.kernels.triton.job_shop import launch as triton_job_shop

    return patch.object(
        triton_job_shop, "jssp_rollout", partial(triton_job_shop.jssp_rollout, **options)
    )


def engines_of(problem: Any, policy: Any, device: torch.device, rollouts: int) -> list[str]:
    """Those that serve; `graph` is `fused` where the kernel may not."""
    if device.type != "cuda":
        return ["torch"]
    if problem.name == "jssp":
        return ["torch", "graph"] + ["fused"] * (
            kernels.why_not_job_shop(policy.architecture) is None
        )
    return ["torch"] * (rollouts <= PLAIN) + ["graph"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="10x10")
    parser.add_argument(
        "--work", nargs="*", default=["32x16", "256x64"], help="instances x latents"
    )
    parser.add_argument("--policy", default=None)
    parser.add_argument("--machines", action="store_true")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument(
        "--shape",
        type=int,
        nargs=2,
        help="rollouts and warps of a program, instead of the launcher's",
    )
    parser.add_argument(
        "--ahead", type=int, help="decisions without a choice before the network is asked again"
    )
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high" if args.tf32 else "highest")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    policy, rng = (
        policy_for(args.policy, args.machines, device),
        torch.Generator(device).manual_seed(1),
    )
    problem = PROBLEMS[policy.problem]
    where = (
        torch.cuda.get_device_name()
        if device.type == "cuda"
        else f"CPU, {torch.get_num_threads()} threads"
    )
    products = "bfloat16" if args.half else "tf32" if args.tf32 else "float32"
    print(f"{where}, torch {torch.__version__}, {args.size}, {products}")
    for text in args.work:
        count, tried = map(int, text.split("x"))
        batch, latents = (
            problem.sample(count, args.size, rng),
            policy.space.sample((count, tried), rng),
        )
        with torch.no_grad():
            memory = policy.encode(batch)
            encoding = once(lambda batch=batch: policy.encode(batch), device)
        print(f"{text:>8s} encode {1e3 * encoding:8.1f} ms", flush=True)

        def run(engine: Any, work: tuple[Any, ...] = (batch, latents, memory)) -> Rollouts:
            batch, latents, memory = work
            half: AbstractContextManager[Any] = (
                torch.autocast(device.type, torch.bfloat16) if args.half else nullcontext()
            )
            name, kept = ("fused", "asked for otherwise") if engine == "graph" else (engine, None)
            kernel = launched_with(args.shape, args.ahead)
            with half, kernel, patch.object(kernels, "why_not_shop", lambda architecture: kept):
                return rollout(
                    problem,
                    policy,
                    batch,
                    latents,
                    problem.starts(batch),
                    seed=0,
                    memory=memory,
                    engine=name,
                )

        engines = engines_of(problem, policy, device, count * tried)
        rolled = [run(engine) for engine in engines]  # also the warm-up
        for engine, other in zip(engines[1:], rolled[1:], strict=True):
            print(f"{text}: {engines[0]} and {engine}: {agreement(rolled[0], other)}", flush=True)
        if problem.name == "jssp-machines":
            print(f"{text}: {decisions(rolled[-1])}", flush=True)
        for engine in engines:
            spent = seconds(lambda engine=engine: run(engine), device)
            pace = count * tried / spent
            times = f"{pace / PUBLISHED:.1f} x published"
            print(
                f"{text:>8s} {engine:6s} {1e3 * spent:8.1f} ms {pace:10,.0f} schedules/s, {times}",
                flush=True,
            )
    if device.type == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
