"""The kernels as machine code for a Hopper. The interpreter has no limits of memory or registers, and CI has no GPU."""

import os
import subprocess
import sys
from pathlib import Path

from rhumbline.kernels import gpu

ROOT = Path(__file__).parents[2]
SHARED_BYTES = 232_448  # that a program may have on an H100 or H200: CUDA's sharedMemPerBlockOptin


def test_the_largest_rollout_kernel_fits_a_hopper():
    """Sampling tours of 256 nodes in the launcher's largest tile: greedy kernels need less, the other problem no more.

    A process of its own, because this one has Triton's interpreter. ptxas gives a kernel on which it gives up a few
    dozen registers, and thousands of spills.
    """
    tile = map(str, gpu.DOUBLE_TILE)
    command = [sys.executable, "benchmarks/hopper.py", "--only", "rollout-tsp-256 BOUNDED", "--shape", *tile]
    ran = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    heads, _, *rows = ran.stdout.splitlines()
    assert len(rows) == 1
    cells = (line.strip("|").replace(",", "").split("|") for line in (heads, *rows))
    use = {head.strip(): cell.strip() for head, cell in zip(*cells, strict=True)}
    assert 196_608 < int(use["shared bytes"]) <= SHARED_BYTES  # three tables of 256 x 128 in 16 bits lie there
    assert 100 <= int(use["registers"]) <= 255
