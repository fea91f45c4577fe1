"""Fused rollouts on the CPU against our plain-torch engine, in one run: agreement first, then
speed.

    python benchmarks/decoding_cpu.py [--threads 2] [--repeats 7] [--problems tsp cvrp] [--sizes 20
50] [--turn 0.1]

The engines take turns, each beginning with idle cores, and the ratio is the median of the ratios of
neighbours: what else runs on the machine disturbs both. A turn is as many calls as fit into a tenth
of a second, one after the other as in a search, and at least one; with `--turn 0` it is a single
call, for which idle cores have to wake up first.

Torch waits for its slowest thread at every step, so on a busy machine believe the run with one
thread, whose clock is the thread's own CPU time. Encoding is in a column of its own; the tables are
part of the fused time. The kernel is compiled (or loaded) before the clock starts.
"""

import argparse
import os
import platform
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numba
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from rhumbline import checkpoint
from rhumbline.decoding import rollout
from rhumbline.kernels.numba.rollout import launch as numba_rollout
from rhumbline.policies import POLICIES
from rhumbline.problems import PROBLEMS

# until the OpenMP threads of the work before have stopped spinning, which takes milliseconds
PAUSE = 0.02
# Problem, cities or customers, latents, and how many times faster than plain torch the fused engine
# should be.
CASES = (
    ("tsp", 100, 16, 8.0),
    ("tsp", 100, 1, 5.0),
    ("tsp", 20, 16, 5.0),
    ("tsp", 50, 16, 5.0),
    ("tsp", 200, 16, 5.0),
    ("cvrp", 100, 16, 6.0),
    ("cvrp", 100, 1, 5.0),
    ("cvrp", 20, 16, 5.0),
    ("cvrp", 50, 16, 5.0),
    ("cvrp", 200, 16, 6.0),
)


def seconds(
    work: Callable[[], object], clock: Callable[[], float] = time.perf_counter, turn: float = 0.0
) -> float:
    """Of one call, in a turn of so many seconds."""
    time.sleep(PAUSE)
    began, calls = clock(), 0
    while not calls or clock() - began < turn:
        work()
        calls += 1
    return (clock() - began) / calls


def policy_for(problem: str) -> Any:
    """The shipped policy, or an untrained one; random latent rows where it has none, so that
    latents differ.
    """
    shipped = checkpoint.shipped_checkpoints().get(f"{problem}100")
    with torch.random.fork_rng():
        torch.random.default_generator.manual_seed(0)
        policy = checkpoint.load(shipped) if shipped else POLICIES[problem][0]()
        print(f"{problem}: {'policy ' + shipped.stem if shipped else 'untrained policy'}")
        for rows in (policy.decoder.query_latent, policy.decoder.value_latent):
            if not rows.any():
                rows.data.normal_(0.0, 0.0015)
        if policy.decoder.query_load is not None and not policy.decoder.query_load.any():
            policy.decoder.query_load.data.normal_(0.0, 0.1)
    return policy.requires_grad_(False)


def written_out(run: Callable[..., object]) -> None:
    """Plain torch without its fused attention: scores, softmax and products one after the other."""
    with sdpa_kernel(SDPBackend.MATH):
        run(engine="torch")


def agreement(name: str, policy: Any, size: int) -> None:
    """Share of solutions that both engines built alike from the same noise, and costs on them."""
    problem, rng = PROBLEMS[name], torch.Generator().manual_seed(1)
    batch = problem.sample(2, size, rng)
    latents, starts = policy.space.sample((2, 4), rng), problem.starts(batch)
    for temperature in (0.0, 0.1, 1.0):
        run = partial(
            rollout, problem, policy, batch, latents, starts, seed=3, temperature=temperature
        )
        fused, plain = run(engine="fused"), run(engine="torch")
        same = (fused.actions == plain.actions).all(-1)
        error = (
            ((fused.cost - plain.cost).abs() / plain.cost)[same].max().item()
            if same.any()
            else float("nan")
        )
        print(
            f"{name} {size} temperature {temperature:g}: equal {same.float().mean():7.2%}, cost error on them "
            f"{error:.1e}, mean cost fused {fused.cost.mean():.4f} torch {plain.cost.mean():.4f}"
        )


def speed(
    name: str, policy: Any, size: int, latents: int, target: float, args: argparse.Namespace
) -> None:
    problem, rng = PROBLEMS[name], torch.Generator().manual_seed(2)
    batch = problem.sample(1, size, rng)
    z, starts = policy.space.sample((1, latents), rng), problem.starts(batch)
    memory = policy.encode(batch)
    run = partial(rollout, problem, policy, batch, z, starts, seed=5, memory=memory)
    works = {
        "plain": partial(written_out, run),
        "torch": partial(run, engine="torch"),
        "fused": partial(run, engine="fused"),
        "encode": partial(policy.encode, batch),
        "tables": lambda: numba_rollout.build_numba_tables(memory, policy.condition(memory, z)),
    }
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    times = [
        {n: seconds(work, clock, args.turn) for n, work in works.items()}
        for _ in range(args.repeats + 1)
    ][1:]
    middle = {n: median(t[n] for t in times) for n in works}
    plain, torch_, fused = (
        latents * starts.shape[1] / middle[n] for n in ("plain", "torch", "fused")
    )
    ratio, of_plain = (median(t[n] / t["fused"] for t in times) for n in ("torch", "plain"))
    print(
        f"{name:>5s} {size:5d} {f'1 x {latents} x {starts.shape[1]}':>14s} {plain:9,.0f} {torch_:9,.0f} {fused:9,.0f}"
        f" {of_plain:6.1f} {ratio:6.1f} {target:6.1f} {1e3 * middle['encode']:10.2f} {1e3 * middle['tables']:9.2f}",
        flush=True,
    )


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--problems", nargs="+", default=["tsp", "cvrp"])
    parser.add_argument("--sizes", nargs="+", type=int)
    parser.add_argument("--turn", type=float, default=0.1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(
        f"{platform.machine()}, {numba_rollout.LANES} lanes, {args.threads} threads, torch {torch.__version__}",
        end=", ",
    )
    print(f"numba {numba.__version__}, load {os.getloadavg()[0]:.1f}", end="; ")
    ready = (seconds(partial(numba_rollout.kernel, vehicles)) for vehicles in (False, True))
    print("kernels ready in {:.2f} and {:.2f} s".format(*ready))
    policies = {name: policy_for(name) for name in args.problems}
    for name, policy in policies.items():
        for size in (37, 100):
            agreement(name, policy, size)
    print(
        "rollouts a second of plain torch with attention written out, our torch engine and the fused one:"
    )
    print(
        "           size       rollouts     plain     torch     fused /plain /torch target  encode ms tables ms"
    )
    for name, size, latents, target in CASES:
        if name in policies and size in (args.sizes or [size]):
            speed(name, policies[name], size, latents, target, args)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
