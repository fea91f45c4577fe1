"""Fused rollouts against our plain-torch engine, in one run on one GPU: agreement first, then
speed.

    python benchmarks/decoding.py [--problem tsp] [--instances 64] [--latents 16] [--size 100] [--tune | --only speed]
    python benchmarks/decoding.py --against FILE    # former and present kernels in turns
    python benchmarks/decoding.py --layer           # with a layer on the glimpse, as `eas-lay` has it

Times are means over 20 calls queued one after another, as a search makes them, the median of three
such rounds after a warm-up, by device events; encoding is not included in either engine.
"""

import argparse
import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from rhumbline import checkpoint
from rhumbline.decoding import rollout
from rhumbline.kernels.triton.rollout import launch as triton_rollout
from rhumbline.kernels.triton.rollout import tables as rollout_tables
from rhumbline.policies import POLICIES
from rhumbline.policies.attention.memory import ResidualLayer
from rhumbline.policies.attention.pointer import RoutingPolicy
from rhumbline.problems import PROBLEMS


def milliseconds(work: Callable[[], object], repeats: int = 20) -> float:
    """Of one call among several that are queued: the host prepares one while the device works on
    another.
    """
    for _ in range(3):
        work()
    times: list[float] = []
    for _ in range(3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(repeats):
            work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / repeats)
    return statistics.median(times)


def policy_for(problem: str, seed: int) -> RoutingPolicy:
    """The shipped policy; random latent rows if it has none yet, so that latents differ."""
    known = checkpoint.shipped_checkpoints()
    policy = (
        checkpoint.load(known[f"{problem}100"])
        if f"{problem}100" in known
        else POLICIES[problem][0]()
    )
    if policy.architecture.latent == 0:
        policy = policy.widened(16)
    if not policy.decoder.query_latent.any():
        rng = torch.Generator().manual_seed(seed)
        for rows in (policy.decoder.query_latent, policy.decoder.value_latent):
            rows.data.normal_(0.0, 0.0015, generator=rng)
    return policy.to("cuda").requires_grad_(False)


def encoded(policy: RoutingPolicy, batch: Any, layer: bool) -> Any:
    """A policy's tables, if wanted with a layer on the glimpse that changes most plans a little."""
    memory, width = policy.encode(batch), policy.architecture.width
    rng = torch.Generator("cuda").manual_seed(4)
    parts = (
        torch.randn(1, rows, width, generator=rng, device="cuda") for rows in (width, 1, width, 1)
    )
    parts = (0.1 / width**0.5 * part.expand(len(batch.key), -1, -1) for part in parts)
    return replace(memory, layer=ResidualLayer(*parts)) if layer else memory


def kernel(
    problem: str,
    tables: rollout_tables.TritonTables,
    batch: Any,
    starts: Tensor,
    counters: Tensor,
    **options: Any,
) -> Any:
    if problem == "tsp":
        return triton_rollout.tsp_rollout(tables, batch.xy, starts, batch.key, counters, **options)
    whole = (batch.demand, batch.capacity)
    return triton_rollout.cvrp_rollout(
        tables, batch.xy, *whole, starts, batch.key, counters, **options
    )


def check(problem: Any, batch: Any, actions: Tensor) -> None:
    """Every decision of every rollout was allowed when it was made."""
    allowed = problem.mask(problem.replay(batch, actions))
    taken = allowed.gather(-1, actions[:, :, 1:].flatten(1)[..., None])
    assert taken.all(), "a fused rollout took a closed node"


@torch.no_grad()
def agreement(policy: RoutingPolicy, size: int, layer: bool) -> None:
    """Share of whole plans that both engines chose alike, for the same noise, and costs on equal
    plans.
    """
    problem, rng = PROBLEMS[policy.problem], torch.Generator("cuda").manual_seed(1)
    batch = problem.sample(8, size, rng)
    latents, starts = policy.space.sample((8, 4), rng), problem.starts(batch)
    memory = encoded(policy, batch, layer)
    for temperature in (1.0, 0.0):
        plain = rollout(
            problem,
            policy,
            batch,
            latents,
            starts,
            seed=3,
            temperature=temperature,
            memory=memory,
            engine="torch",
        )
        for dtype in (torch.float32, torch.bfloat16):
            tables = rollout_tables.build_triton_tables(
                memory, policy.condition(memory, latents), dtype
            )
            counters = torch.tensor([3, 0], device="cuda")
            shape = (16, 4) if dtype == torch.float32 else None
            cost, actions = kernel(
                policy.problem,
                tables,
                batch,
                starts,
                counters,
                temperature=temperature,
                shape=shape,
            )
            check(problem, batch, actions.flatten(1, 2).long())
            same = (actions == plain.actions).all(-1)
            error = (
                ((cost - plain.cost).abs() / plain.cost)[same].max().item()
                if same.any()
                else float("nan")
            )
            print(
                f"{policy.problem}{size} temperature {temperature:g} {str(dtype)[6:]:9s} "
                f"equal plans {same.float().mean():7.2%}  cost error on them {error:.1e}  "
                f"mean cost fused {cost.mean():.4f} torch {plain.cost.mean():.4f}"
            )


@torch.no_grad()
def speed(
    policy: RoutingPolicy, instances: int, latents: int, size: int, plain: bool, layer: bool = False
) -> None:
    problem, rng = PROBLEMS[policy.problem], torch.Generator("cuda").manual_seed(2)
    batch = problem.sample(instances, size, rng)
    z, starts = policy.space.sample((instances, latents), rng), problem.starts(batch)
    memory = encoded(policy, batch, layer)
    total = instances * latents * starts.shape[1]

    def run(engine: str, repeats: int = 20) -> float:
        work = partial(
            rollout, problem, policy, batch, z, starts, seed=5, memory=memory, engine=engine
        )
        return milliseconds(work, repeats)

    fused = run("fused")
    row = f"{policy.problem}{size} {instances:4d} x {latents} x {starts.shape[1]}:"
    row += f" fused {fused:8.2f} ms {total / fused / 1e3:6.2f} M/s"
    if plain:
        torch_ms = run("torch", 4)
        row += f"   torch {torch_ms:8.1f} ms {total / torch_ms / 1e3:6.3f} M/s   ratio {torch_ms / fused:5.1f}"
    print(row, flush=True)


@torch.no_grad()
def tune(policy: RoutingPolicy, instances: int, latents: int, size: int, per: int) -> None:
    problem, rng = PROBLEMS[policy.problem], torch.Generator("cuda").manual_seed(2)
    batch = problem.sample(instances, size, rng)
    starts, memory = problem.starts(batch)[:, :per], policy.encode(batch)
    tables = rollout_tables.build_triton_tables(
        memory, policy.condition(memory, policy.space.sample((instances, latents), rng))
    )
    counters = torch.tensor([3, 0], device="cuda")
    total = instances * latents * starts.shape[1]
    smaller = (
        ((32, 4), (32, 2), (16, 2))
        if memory.key.shape[1] <= rollout_tables.TUNING.whole_columns
        else ()
    )
    for shape in ((128, 8), (64, 4), *smaller):
        work = partial(kernel, policy.problem, tables, batch, starts, counters, shape=shape)
        ms = milliseconds(work, 5)
        print(
            f"  {instances} x {latents} x {starts.shape[1]} tile {shape}: {total / ms / 1e3:6.2f} M/s",
            flush=True,
        )


@torch.no_grad()
def against(
    policy: RoutingPolicy,
    path: Path,
    former_tile: tuple[int, int] | None,
    instances: int,
    latents: int,
    size: int,
) -> None:
    """The present kernel and one from another file, such as an earlier state of ours, in turns;
    tables made before.
    """
    spec = spec_from_file_location("former", path)
    assert spec is not None
    assert spec.loader is not None
    former = module_from_spec(spec)
    spec.loader.exec_module(former)
    problem, rng = PROBLEMS[policy.problem], torch.Generator("cuda").manual_seed(2)
    batch = problem.sample(instances, size, rng)
    starts, memory = problem.starts(batch), policy.encode(batch)
    tables = rollout_tables.build_triton_tables(
        memory, policy.condition(memory, policy.space.sample((instances, latents), rng))
    )
    counters, name = torch.tensor([3, 0], device="cuda"), f"{policy.problem}_rollout_kernel"
    work = partial(kernel, policy.problem, tables, batch, starts, counters)
    ways = {
        "former": (getattr(former, name), former_tile),
        "present": (getattr(triton_rollout, name), None),
    }
    times: dict[str, float] = {}
    for label, (used, shape) in (*ways.items(), *ways.items()):
        with patch.object(triton_rollout, name, used):
            times[label] = min(
                times.get(label, math.inf), milliseconds(partial(work, shape=shape), 3)
            )
    plans = [chosen_by(work, name, *way) for way in ways.values()]
    total, same = (
        instances * latents * starts.shape[1],
        (plans[0] == plans[1]).all(-1).float().mean(),
    )
    for label, ms in times.items():
        print(
            f"  {label:8} {ms:8.2f} ms {total / ms / 1e3:6.2f} M/s   ratio {times['former'] / ms:.3f}"
        )
    print(f"  equal plans: {same:.2%}")


def chosen_by(
    work: Callable[..., Any], name: str, used: Any, shape: tuple[int, int] | None
) -> Tensor:
    """The actions that a kernel chooses."""
    with patch.object(triton_rollout, name, used):
        return work(shape=shape)[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--instances", type=int, default=64)
    parser.add_argument("--latents", type=int, default=16)
    parser.add_argument("--problem", default="tsp", choices=["tsp", "cvrp"])
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument(
        "--only",
        choices=["agreement", "speed"],
        help="agreement compiles float32 kernels for a minute",
    )
    parser.add_argument(
        "--layer", action="store_true", help="a layer on the glimpse, in both engines"
    )
    parser.add_argument(
        "--against", type=Path, help="a file with other kernels, timed beside ours instead"
    )
    parser.add_argument(
        "--former-tile",
        type=int,
        nargs=2,
        help="rows and warps of those, instead of the launcher's",
    )
    args = parser.parse_args()
    policy = policy_for(args.problem, 0)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    if args.against:
        against(policy, args.against, args.former_tile, args.instances, args.latents, args.size)
        return
    if not args.tune and args.only != "speed":
        agreement(policy, args.size, args.layer)
    if args.only == "agreement":
        return
    speed(policy, args.instances, args.latents, args.size, plain=not args.tune, layer=args.layer)
    if args.tune:
        tune(policy, args.instances, args.latents, args.size, 100)
        tune(policy, 256, 1, args.size, 64)
        for instances in (1, 8, 512):
            speed(policy, instances, args.latents, args.size, plain=False)


if __name__ == "__main__":
    main()
