"""How deep a search lies below the shell, and what is decided once (docs/architecture.md)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def counted() -> str:
    """Return the figures of one small solve."""
    words = ["examples/harbour100.tsp", "--attempts", "2", "--search", "sampling"]
    done = subprocess.run(
        [sys.executable, "tools/count_calls.py", *words, "--device", "cpu", "--engine", "torch"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_few_frames_lie_between_the_shell_and_a_rollout(counted: str) -> None:
    """At most twelve of our own functions."""
    frames = re.search(r"frames to first rollout +(\d+)", counted)
    assert frames
    assert 0 < int(frames[1]) <= 12, counted


def test_instances_are_collated_and_encoded_once(counted: str) -> None:
    """A single group is not tried beforehand."""
    assert re.search(r"^ +1 x problems\.tsp\.rules:TSP\.collate$", counted, re.MULTILINE)
    assert re.search(r"^ +1 x policies\.tsp:TSPPolicy\.encode$", counted, re.MULTILINE)
