"""The kernels as machine code for a Hopper GPU.

The interpreter has no limits of memory or registers, and CI has no GPU.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rhumbline.kernels import MAX_STREAM_NODES, MAX_TILE_NODES
from rhumbline.kernels.triton.rollout import launch as triton_rollout

ROOT = Path(__file__).parents[2]
SIDE_BY_SIDE = """
import sys, threading
sys.path.insert(0, "tools")
import inspect_sm90 as hopper
from triton.runtime.jit import JITFunction

both, seen = threading.Barrier(2, timeout=20.0), []

def run(kernel, *arguments, grid, warmup, **options):
    if warmup:
        both.wait()  # breaks unless the other is being compiled too
    seen.append(("compile" if warmup else "start", options["BOUNDED"]))

JITFunction.run = run
hopper.rollouts("tsp", 100, 50)
hopper.rollouts("tsp", 100, 60, temperature=0.9)
hopper.rollouts("tsp", 100, 50, temperature=0.0)
print(*(f"{what} {flag}" for what, flag in seen), sep="; ")
"""
FITTING = """
import sys
sys.path.insert(0, "tools")
import inspect_sm90 as hopper

low, high = (int(sys.argv.pop(1)) for _ in range(2))
for name, sizes in hopper.NODES.items():
    hopper.NODES[name] = [n for n in sizes if low <= n <= high]
hopper.main()
"""
SHARED_BYTES = 232_448  # that a program may have on an H100 or H200: CUDA's sharedMemPerBlockOptin


def compile_report(low: int, high: int, *options: str) -> list[dict[str, str]]:
    """Return rows of `tools/inspect_sm90.py` for instances of `low` to `high` nodes; finding the
    launches of other sizes takes seconds. It runs in a process of its own, because this one has
    Triton's interpreter.
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-c", FITTING, str(low), str(high), *options]
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    heads, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in ran.stdout.splitlines()
    )
    return [dict(zip(heads, row, strict=True)) for row in rows]


def number(text: str) -> int:
    return int(text.replace(",", ""))


@pytest.mark.slow
def test_the_largest_rollout_kernel_fits_a_hopper():
    """Sampled tours of 256 nodes in the launcher's largest tile need the most; CVRP needs no more.

    Without a residual layer three tables of 256 x 128 in 16 bits lie in shared memory, with one
    two. If ptxas gives up on a kernel, it assigns a few dozen registers and spills thousands of
    times.
    """
    tile = map(str, triton_rollout.TUNING.double_tile)
    rows = compile_report(
        193, MAX_TILE_NODES, "--only", "rollout-tsp-256 BOUNDED WARM GIVEN", "--shape", *tile
    )
    assert [use["flags"] for use in rows] == ["BOUNDED WARM GIVEN", "BOUNDED WARM GIVEN LAYER"]
    for use, tables in zip(rows, (3, 2), strict=True):
        assert tables * 65_536 < number(use["shared bytes"]) <= SHARED_BYTES
        assert 100 <= number(use["registers"]) <= 255


@pytest.mark.slow
def test_kernels_for_large_instances_fit_a_hopper():
    """Both kernels fit for all sizes beyond the largest tile, with prefixes or without; two
    programs share a processor.
    """
    rows = compile_report(MAX_TILE_NODES + 1, MAX_STREAM_NODES, "--only", "stream")
    assert [use["kernel"] for use in rows] == ["stream-tsp"] * 2 + ["stream-cvrp"] * 2
    assert all(2 * number(use["shared bytes"]) <= SHARED_BYTES for use in rows)
    assert all(100 <= number(use["registers"]) <= 255 for use in rows)


def test_the_kernel_of_wide_beams_fits_a_hopper():
    """For 100 customers three programs share a processor, and no register is spilled."""
    (use,) = compile_report(101, 101, "--only", "places")
    assert 3 * number(use["shared bytes"]) <= SHARED_BYTES
    assert 100 <= number(use["registers"]) <= 255
    assert use["spilled loads"] == use["spilled stores"] == "0"


def test_both_kernels_compile_concurrently():
    """Both are compiled once, before either starts.

    Other latents and temperatures need no other kernels, greedy tours do.
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-c", SIDE_BY_SIDE]
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    seen, starts = ran.stdout.strip().split("; "), ["start True", "start False"]
    compiled = ["compile False", "compile True"]
    assert (sorted(seen[:2]), seen[2:6]) == (compiled, starts + starts)
    assert (sorted(seen[6:8]), seen[8:]) == (compiled, starts)
