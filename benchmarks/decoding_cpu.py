"""Fused rollouts on the CPU against our plain-torch engine, in one run: agreement first, then speed.

    python benchmarks/decoding_cpu.py [--threads 2] [--repeats 7]

The engines take turns, so that what else runs disturbs both; the best time of each counts, and each begins with idle
cores. Encoding is in a column of its own; the tables are part of the fused time. The kernel is compiled (or loaded)
before the clock starts.
"""

import argparse
import platform
import time
from collections.abc import Callable
from functools import partial

import numba
import torch

from rhumbline import checkpoint
from rhumbline.decoding import rollout
from rhumbline.kernels import cpu
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.tsp import TSP

PAUSE = 0.02  # until the OpenMP threads of the work before have stopped spinning, which takes milliseconds
# Nodes, latents, and how many times faster than plain torch the fused engine should be.
CASES = ((100, 16, 8.0), (100, 1, 5.0), (20, 16, 5.0), (50, 16, 5.0), (200, 16, 5.0))


def seconds(work: Callable[[], object]) -> float:
    time.sleep(PAUSE)
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def policy_for(seed: int) -> TSPPolicy:
    """The shipped policy; random latent rows if it has none yet, so that latents differ."""
    known = checkpoint.shipped()
    policy = checkpoint.load(known["tsp100"]) if "tsp100" in known else TSPPolicy()
    if not policy.decoder.query_latent.any():
        rng = torch.Generator().manual_seed(seed)
        for rows in (policy.decoder.query_latent, policy.decoder.value_latent):
            rows.data.normal_(0.0, 0.0015, generator=rng)
    return policy.requires_grad_(False)


def agreement(policy: TSPPolicy, nodes: int) -> None:
    """Share of tours that both engines built alike from the same noise, and costs on them."""
    problem, rng = TSP(), torch.Generator().manual_seed(1)
    batch = problem.sample(2, nodes, rng)
    latents, starts = policy.space.sample((2, 4), rng), problem.starts(batch)
    for temperature in (0.0, 0.1, 1.0):
        run = partial(rollout, problem, policy, batch, latents, starts, seed=3, temperature=temperature)
        fused, plain = run(engine="fused"), run(engine="torch")
        same = (fused.actions == plain.actions).all(-1)
        error = ((fused.cost - plain.cost).abs() / plain.cost)[same].max().item() if same.any() else float("nan")
        print(
            f"N={nodes} temperature {temperature:g}: equal tours {same.float().mean():7.2%}, cost error on them "
            f"{error:.1e}, mean cost fused {fused.cost.mean():.4f} torch {plain.cost.mean():.4f}"
        )


def speed(policy: TSPPolicy, nodes: int, latents: int, target: float, repeats: int) -> None:
    problem, rng = TSP(), torch.Generator().manual_seed(2)
    batch = problem.sample(1, nodes, rng)
    z, starts = policy.space.sample((1, latents), rng), problem.starts(batch)
    memory = policy.encode(batch)
    total = latents * starts.shape[1]
    run = partial(rollout, problem, policy, batch, z, starts, seed=5, memory=memory)
    works = {
        "torch": partial(run, engine="torch"),
        "fused": partial(run, engine="fused"),
        "encode": partial(policy.encode, batch),
        "tables": lambda: cpu.tables(memory, policy.condition(memory, z)),
    }
    times = [{name: seconds(work) for name, work in works.items()} for _ in range(repeats + 1)][1:]
    best = {name: min(t[name] for t in times) for name in works}
    rates = {name: total / best[name] for name in ("torch", "fused")}
    ratio = rates["fused"] / rates["torch"]
    print(
        f"{nodes:5d} {f'1 x {latents} x {starts.shape[1]}':>14s} {rates['torch']:11,.0f} {rates['fused']:11,.0f}"
        f" {ratio:7.1f} {target:7.1f} {1e3 * best['fused']:9.2f} {1e3 * best['encode']:10.2f}"
        f" {1e3 * best['tables']:10.2f}",
        flush=True,
    )


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"{platform.machine()}, {cpu.LANES} lanes, {args.threads} threads, torch {torch.__version__}", end=", ")
    print(f"numba {numba.__version__}; kernel ready in {seconds(cpu.kernel):.2f} s")
    policy = policy_for(0)
    for nodes in (37, 100):
        agreement(policy, nodes)
    print("nodes       rollouts torch tours/s fused tours/s  ratio  target  fused ms  encode ms  tables ms")
    for nodes, latents, target in CASES:
        speed(policy, nodes, latents, target, args.repeats)


if __name__ == "__main__":
    main()
