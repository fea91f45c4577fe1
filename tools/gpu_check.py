"""Check the kernels on a GPU and print their rates beside the recorded ones, within three minutes.

    python tools/gpu_check.py             # or: make gpu-check
    python tools/gpu_check.py --record    # these rates are the ones to compare with from now on

Parity comes first: rollouts in float32 must be those of plain torch except at near ties, scores and
their gradients must be close. Then the micro-benchmarks run, each in a process of its own. Exit
codes: 0 if all is well, 1 if a check fails or a rate has fallen, 4 without a GPU.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "benchmarks" / "reference" / "gpu_rates.json"
MAX_SECONDS = 180.0
MIN_SHARE = 0.9  # of a recorded rate; below it the rate counts as fallen
# Endings of the names of rates in plain torch, which the kernels are compared with. These rates
# depend on the host, which differs between machines, so lower ones do not count as fallen.
PLAIN_TORCH_ENDINGS = ("torch", "tensors")
DEVICE = "cuda"
NO_GPU = "gpu-check needs an NVIDIA GPU that torch can use, and there is none"

# What is measured: the options of each micro-benchmark.
BENCHMARKS = (
    ("rollout.py",),
    ("rollout.py", "--problem", "cvrp"),
    ("rollout.py", "--size", "500", "--instances", "8"),
    ("rollout.py", "--problem", "jssp", "--latents", "64"),
    ("rollout.py", "--layer"),
    ("scoring.py",),
    ("partitioning.py", "--instances", "16"),
)

Rates = dict[str, float]  # of each "benchmark: case, engine"


@contextmanager
def float32_tables() -> Generator[None]:
    """Let the kernels multiply in float32, in which their choices are those of torch."""
    from rhumbline.kernels.triton.job_shop import launch as job_shop
    from rhumbline.kernels.triton.rollout import tables

    table_builder = tables.build_triton_tables
    weight_builder = job_shop.build_shop_weights
    tables.build_triton_tables = partial(table_builder, dtype=torch.float32)
    job_shop.build_shop_weights = lambda decoder: weight_builder(decoder, torch.float32)
    try:
        yield
    finally:
        tables.build_triton_tables = table_builder
        job_shop.build_shop_weights = weight_builder


def parity_checks() -> dict[str, Callable[[], None]]:
    """Return the checks by name: rollouts of each kernel, in both sizes of tables, and scores."""
    checks: dict[str, Callable[[], None]] = {}
    sizes = {"tsp": (20, 100, 300), "cvrp": (20, 100, 300), "jssp": ("6x6", "10x10")}
    for problem, sizes_of_problem in sizes.items():
        for size in sizes_of_problem:
            checks[f"rollouts {problem} {size}"] = partial(check_rollouts, problem, size)
    for problem in ("tsp", "cvrp"):
        checks[f"scores {problem} 100"] = partial(check_scores, problem, 100)
    return checks


def load_case(problem: str, size: Any) -> tuple[Any, Any, Any]:
    """Return rules, the shipped policy, and a batch of four random instances on the GPU."""
    from rhumbline import checkpoint
    from rhumbline.domains import find_policy_family

    policy: Any = checkpoint.load(checkpoint.find_checkpoint(None, problem))
    rules = find_policy_family(problem)[1].rules
    batch = rules.sample(4, size, torch.Generator().manual_seed(1))
    return rules, policy.to(DEVICE), batch.to(DEVICE)


def check_rollouts(problem: str, size: Any) -> None:
    """Compare greedy rollouts in float32 with those of torch: equal costs, except at near ties."""
    from rhumbline.decoding import rollout

    rules, policy, batch = load_case(problem, size)
    latents = policy.space.sample((4, 4), torch.Generator().manual_seed(2)).to(DEVICE)
    roll = partial(rollout, rules, policy, batch, latents, rules.starts(batch), seed=3)
    with float32_tables():
        found = roll(temperature=0.0, engine="fused")
    plain = roll(temperature=0.0, engine="torch")
    priced = rules.cost(batch, found.actions.flatten(1, 2).long()).view_as(found.cost)
    require(torch.allclose(found.cost, priced, rtol=1e-4), "costs are not those of the actions")
    equal = (found.actions == plain.actions).all(-1).float().mean().item()
    require(equal > 0.9, f"only {equal:.1%} of the rollouts are those of torch")


def check_scores(problem: str, size: Any) -> None:
    """Compare scores and the gradients of the decoder with those of torch."""
    from rhumbline.decoding import log_prob, rollout

    rules, policy, batch = load_case(problem, size)
    latents = policy.space.sample((4, 2), torch.Generator().manual_seed(2)).to(DEVICE)
    starts = rules.starts(batch)[:, :8]
    actions = rollout(rules, policy, batch, latents, starts, seed=3).actions.flatten(1, 2)
    weights = [weight.requires_grad_() for weight in policy.decoder.parameters()]
    scores: list[torch.Tensor] = []
    gradients: list[torch.Tensor] = []
    for engine in ("fused", "torch"):
        score = log_prob(rules, policy, batch, latents, actions, engine=engine)
        parts = torch.autograd.grad(score.sum(), weights, materialize_grads=True)
        scores.append(score.detach())
        gradients.append(torch.cat([part.flatten() for part in parts]))
    require(torch.allclose(*scores, rtol=0.05, atol=0.5), "scores differ from those of torch")
    likeness = torch.cosine_similarity(*gradients, dim=0).item()
    require(likeness > 0.98, f"gradients point elsewhere: cosine {likeness:.3f}")


def require(is_kept: bool, failure: str) -> None:
    """Raise `AssertionError` with the failure."""
    if not is_kept:
        raise AssertionError(failure)


def run_checks(checks: Mapping[str, Callable[[], None]], deadline: float) -> int:
    """Run the checks, print how each ends, and return how many failed or had no time."""
    failures = 0
    for name, check in checks.items():
        if time.monotonic() > deadline:
            print(f"{name:60s} no time left")
            failures += 1
            continue
        try:
            check()
            print(f"{name:60s} ok", flush=True)
        except Exception as error:  # a kernel that does not compile must not hide the others
            failures += 1
            print(f"{name:60s} FAILED: {type(error).__name__}: {error}", flush=True)
    return failures


def measure(options: tuple[str, ...], deadline: float) -> Rates:
    """Run one micro-benchmark and return its rates; none if there is no time for it."""
    left = deadline - time.monotonic()
    script, *rest = options
    with TemporaryDirectory() as folder:
        file = Path(folder) / "lines.jsonl"
        program = str(ROOT / "benchmarks" / "micro" / script)
        command = [sys.executable, program, *rest, "--repeats", "3", "--json", str(file)]
        try:
            subprocess.run(command, check=True, timeout=max(1.0, left), capture_output=True)
        except subprocess.SubprocessError as error:
            print(f"{' '.join(options):60s} not measured: {type(error).__name__}", flush=True)
        return read_rates(file)


def add_rates(rates: Rates, more: Rates) -> None:
    """Add the rates of a micro-benchmark; no two of them may have the same name."""
    for name, rate in more.items():
        if name in rates:
            raise ValueError(f"two micro-benchmarks measure '{name}'; name what differs")
        rates[name] = rate


def read_rates(file: Path) -> Rates:
    """Return the rates in a file of lines; calls per second where a line has no rate."""
    rates = Rates()
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    for line in lines:
        case = json.loads(line)
        name = f"{case['benchmark']}: {case['case']}, {case['engine']}"
        rates[name] = case["rate"] or 1e3 / case["milliseconds"]
    return rates


def print_rates(rates: Rates, recorded: Rates) -> int:
    """Print each rate beside the recorded one, and return how many have fallen or are missing."""
    fallen = 0
    for name in [*rates, *(name for name in recorded if name not in rates)]:
        before = recorded.get(name)
        now = rates.get(name)
        words = "" if now is None else f"{now:14,.1f}/s"
        note = "   not recorded"
        if before is not None:
            is_plain_torch = name.endswith(PLAIN_TORCH_ENDINGS)
            is_lower = now is None or (now < MIN_SHARE * before and not is_plain_torch)
            fallen += is_lower
            ratio = "not measured" if now is None else f"{now / before:.2f}x"
            note = f"   recorded {before:,.1f}/s: {ratio}" + "  FALLEN" * is_lower
        print(f"{name:60s} {words}{note}")
    return fallen


def read_recorded(file: Path, hardware: str) -> Rates:
    """Return the rates recorded on this kind of GPU; none if there are none."""
    if not file.exists():
        return Rates()
    return json.loads(file.read_text(encoding="utf-8")).get(hardware, Rates())


def record_rates(file: Path, hardware: str, rates: Rates) -> None:
    """Store rates beside those of other kinds of GPU."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    known[hardware] = {name: round(rate, 1) for name, rate in rates.items()}
    file.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main(words: list[str] | None = None) -> int:
    """Check and measure; return the exit code."""
    parser = argparse.ArgumentParser(description="Check the kernels on a GPU.")
    parser.add_argument("--record", action="store_true", help="store the rates for later calls")
    given = parser.parse_args(words)
    if not torch.cuda.is_available():
        print(NO_GPU, file=sys.stderr)
        return 4
    deadline = time.monotonic() + MAX_SECONDS
    hardware = torch.cuda.get_device_name()
    print(f"{hardware}, torch {torch.__version__}", flush=True)
    failures = run_checks(parity_checks(), deadline)
    rates = Rates()
    for options in BENCHMARKS:
        add_rates(rates, measure(options, deadline))
    fallen = print_rates(rates, read_recorded(RECORDED, hardware))
    if given.record:
        record_rates(RECORDED, hardware, rates)
        fallen = 0
    return 1 if failures or fallen else 0


if __name__ == "__main__":
    sys.exit(main())
