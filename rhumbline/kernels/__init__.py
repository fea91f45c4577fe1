"""Fused decoding. Kernels see tensors; they know neither problems nor modules.

Which engine serves which problem on which device is decided here, and `why_not` says in words why one cannot.
"""

from importlib.util import find_spec
from typing import Literal

import torch

from rhumbline.errors import MissingExtra

Taken = Literal["torch", "fused"]

LARGEST_TILE = 256  # nodes that one tile of the GPU kernels holds
GPU_PROBLEMS = ("tsp",)
HEADS, HEAD_WIDTH = 8, 16


def why_not(problem: str, device: torch.device, nodes: int) -> str | None:
    """The reason why the fused engine cannot serve, or None if it can."""
    if device.type != "cuda":
        return "the fused engine needs an NVIDIA GPU with Triton, and this runs on the CPU"
    if find_spec("triton") is None:
        return "the fused engine needs Triton, which is not installed"
    if problem not in GPU_PROBLEMS:
        return f"there is no fused kernel for {problem}"
    if nodes > LARGEST_TILE:
        return f"the fused engine takes up to {LARGEST_TILE} nodes, and there are {nodes}"
    return None


def resolve(engine: str, problem: str, device: torch.device, nodes: int) -> Taken:
    """The engine that will run; asking for `fused` where it cannot run is an error, never a fallback."""
    if engine == "torch":
        return "torch"
    reason = why_not(problem, device, nodes)
    if reason and engine == "fused":
        raise MissingExtra(f"{reason}. Use engine torch (or auto)")
    return "torch" if reason else "fused"


def resolve_log_prob(engine: str, problem: str, device: torch.device, nodes: int) -> Taken:
    """The same for scoring; its kernels share the rollout kernels' limits."""
    return resolve(engine, problem, device, nodes)
