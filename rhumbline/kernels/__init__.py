"""Fused decoding. Kernels see tensors; they know neither problems nor modules.

Which engine serves which problem on which device is decided here, and `why_not` says in words why one cannot.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

import torch

from rhumbline.errors import MissingExtra

Taken = Literal["torch", "fused"]

LARGEST_TILE = 256  # nodes that one tile of the GPU kernels holds
HEADS, HEAD_WIDTH = 8, 16  # of the policies that the rollout kernels are made for
GPU_PROBLEMS = ("tsp", "cvrp")
CPU_PROBLEMS = ("tsp",)
GRAPHED = ("jssp", "jssp-machines")  # fused on a GPU means the steps of plain torch in a CUDA graph; for any size
AUTO_GRAPHED: tuple[str, ...] = ()  # those of them that `auto` takes


def why_not(problem: str, device: torch.device, nodes: int, architecture: Any = None) -> str | None:
    """The reason why fused rollouts cannot serve, or None if they can; without an architecture, for the usual one."""
    on_gpu = device.type == "cuda"
    if on_gpu and problem in GRAPHED:
        return None
    if problem not in (GPU_PROBLEMS if on_gpu else CPU_PROBLEMS):
        return f"there is no fused kernel for {problem}{'' if on_gpu else ' on a CPU'}"
    if on_gpu and find_spec("triton") is None:
        return "the fused engine needs Triton, which is not installed"
    if on_gpu and nodes > LARGEST_TILE:
        return f"the fused engine takes up to {LARGEST_TILE} nodes, and there are {nodes}"
    if architecture and (architecture.heads, architecture.width) != (HEADS, HEADS * HEAD_WIDTH):
        own = f"{architecture.heads} of {architecture.width // architecture.heads}"
        return f"the fused engine takes policies with {HEADS} heads of width {HEAD_WIDTH}, and this one has {own}"
    return None if on_gpu else why_not_numba()


@cache
def why_not_numba() -> str | None:
    """The reason why numba cannot be used, or None if it can."""
    if find_spec("numba") is None:
        return "the fused engine needs numba on a CPU; get it with: pip install 'rhumbline[cpu]'"
    try:
        import_module("rhumbline.kernels.cpu")
    except Exception as error:  # such as a numpy that is too new for it
        return f"the fused engine needs numba, which is installed but fails: {str(error).splitlines()[0]}"
    return None


def resolve(engine: str, problem: str, device: torch.device, nodes: int, architecture: Any = None) -> Taken:
    """The engine that will run; asking for `fused` where it cannot run is an error, never a fallback."""
    if engine == "torch" or (engine == "auto" and problem in GRAPHED and problem not in AUTO_GRAPHED):
        return "torch"
    return settled(engine, why_not(problem, device, nodes, architecture))


def resolve_log_prob(engine: str, problem: str, device: torch.device, nodes: int, architecture: Any = None) -> Taken:
    """The same for scoring, which has kernels on the GPU only; they share the rollout kernels' limits."""
    if engine == "torch":
        return "torch"
    if device.type != "cuda":
        return settled(engine, "fused scoring needs an NVIDIA GPU with Triton, and this runs on the CPU")
    if problem in GRAPHED:
        return settled(engine, f"there is no fused scoring for {problem}")
    return settled(engine, why_not(problem, device, nodes, architecture))


def settled(engine: str, reason: str | None) -> Taken:
    """Fused unless there is a reason against it, which is an error if it was asked for."""
    if reason and engine == "fused":
        raise MissingExtra(f"{reason}. Use engine torch (or auto)")
    return "torch" if reason else "fused"
