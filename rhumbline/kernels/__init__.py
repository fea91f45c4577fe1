"""Kernels of the fused engines. They read tensors, and know neither problems nor policies.

This module decides which engine serves which problem on which device. `why_not` gives the reason
if the fused engine cannot.
"""

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from rhumbline.errors import MissingExtra

if TYPE_CHECKING:  # `precompile` is for processes that have not imported torch yet
    import torch

ResolvedEngine = Literal["torch", "fused"]

MAX_TILE_NODES = 256  # that one tile of the GPU kernels holds: limit of scoring and of the encoder
MAX_STREAM_NODES = 1024  # of rollouts with larger tables, which are read part by part
HEADS = 8  # of the policies that the rollout kernels are made for
HEAD_WIDTH = 16
GPU_PROBLEMS = ("tsp", "cvrp")
CPU_PROBLEMS = ("tsp", "cvrp")
SHOP_WIDTHS = (32, 64, 128)  # of the policies that the kernel for job shops can hold
# Fused on a GPU may mean the steps of plain torch in a CUDA graph, for any size.
CUDA_GRAPH_PROBLEMS = ("jssp", "jssp-machines")
# Those of them for which `auto` takes the graph: measured to be equal and faster on a GPU.
AUTO_CUDA_GRAPH_PROBLEMS: tuple[str, ...] = ("jssp",)


def why_not(
    problem: str,
    device: "torch.device",
    nodes: int,
    architecture: Any = None,
    largest: int = MAX_STREAM_NODES,
) -> str | None:
    """Return why fused rollouts cannot serve, or None if they can.

    Without an architecture, the default one is meant.
    """
    reason = why_not_supported(problem, device, nodes, architecture, largest)
    if reason is not None or device.type == "cuda":
        return reason
    return why_not_numba()


def why_not_supported(
    problem: str,
    device: "torch.device",
    nodes: int,
    architecture: Any,
    largest: int = MAX_STREAM_NODES,
) -> str | None:
    """Return why the problem, the device or the policy does not suit fused rollouts, or None.

    Whether numba works is a question of its own, which takes longer to answer.
    """
    on_cuda = device.type == "cuda"
    if on_cuda and problem in CUDA_GRAPH_PROBLEMS:
        return None
    if problem not in (GPU_PROBLEMS if on_cuda else CPU_PROBLEMS):
        place = "" if on_cuda else " on a CPU"
        return f"there is no fused kernel for {problem}{place}"
    if on_cuda and find_spec("triton") is None:
        return "the fused engine needs Triton, which is not installed"
    if on_cuda and nodes > largest:
        return f"the fused engine takes up to {largest} nodes, and there are {nodes}"
    if architecture is None:
        return None
    heads = architecture.heads
    width = architecture.width
    if (heads, width) != (HEADS, HEADS * HEAD_WIDTH):
        return (
            f"the fused engine takes policies with {HEADS} heads of width {HEAD_WIDTH}, "
            f"and this one has {heads} of {width // heads}"
        )
    return None


def why_not_job_shop(architecture: Any) -> str | None:
    """Return why the kernel for job shops cannot serve a policy on a GPU, or None if it can.

    Without it, the steps of plain torch run in a CUDA graph.
    """
    if find_spec("triton") is None:
        return "Triton is not installed"
    width = architecture.width
    head_width = width // architecture.heads
    if width not in SHOP_WIDTHS or head_width < 16:
        small, medium, large = SHOP_WIDTHS
        return f"the kernel takes widths of {small}, {medium} or {large}, and heads of 16 or more"
    return None


def on_gpu(x: "torch.Tensor") -> bool:
    """Return whether small work on a tensor is left to a kernel of its own.

    On a CPU, tensor operations do the same.
    """
    return x.is_cuda


def why_not_layer(device: "torch.device", nodes: int) -> str | None:
    """Return why no fused engine serves tables with a residual layer, or None if one does."""
    if device.type != "cuda":
        return (
            "a layer on the glimpse is not linear, "
            "so no table of the fused engine of a CPU can hold it"
        )
    if nodes > MAX_TILE_NODES:
        return (
            f"the fused engine takes a layer on the glimpse up to {MAX_TILE_NODES} nodes, "
            f"and there are {nodes}"
        )
    return None


@contextmanager
def pause_garbage_collection() -> Generator[None]:
    """Switch off Python's cyclic garbage collector, which scans all objects of torch repeatedly.

    It takes half of the time to import numba, and a fifth of the time to compile with it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@cache
def why_not_numba() -> str | None:
    """Return why numba cannot be used, or None if it can."""
    if find_spec("numba") is None:
        return (
            "the fused engine needs numba on a CPU; "
            "get it with: pip install 'rhumbline[cpu]' (or numba alone)"
        )
    try:
        with pause_garbage_collection():
            import_module("rhumbline.kernels.numba.rollout.launch")
    except Exception as error:  # such as a numpy that is too new for it
        words = (str(error) or type(error).__name__).splitlines()[0]
        return (
            f"the fused engine needs numba, which fails ({words}); "
            "mend it with: pip install --upgrade numba"
        )
    return None


def require_numba(what: str) -> None:
    """Raise `MissingExtra` unless numba works, for `what` has no other engine."""
    if find_spec("numba") is None:
        raise MissingExtra(f"{what} needs numba; get it with: pip install 'rhumbline[cpu]'")
    try:
        import_module("rhumbline.kernels.numba.local_search.launch")
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise MissingExtra(f"{what} needs numba, which is installed but fails: {reason}") from error


def resolve(
    engine: str, problem: str, device: "torch.device", nodes: int, architecture: Any = None
) -> ResolvedEngine:
    """Return the engine that constructs rollouts.

    Asking for `fused` where it cannot run is an error, never a fallback.
    """
    if engine == "torch":
        return "torch"
    only_by_name = problem in CUDA_GRAPH_PROBLEMS and problem not in AUTO_CUDA_GRAPH_PROBLEMS
    if engine == "auto" and only_by_name:
        return "torch"
    reason = why_not_supported(problem, device, nodes, architecture)
    if reason is None and device.type != "cuda":
        reason = why_not_numba()
        if reason and engine == "auto":
            note_once(f"engine auto takes plain torch, which is several times slower: {reason}")
    return fused_unless(engine, reason)


@cache
def note_once(line: str) -> None:
    """Print a note on stderr, once in the life of the process."""
    note = f"note: {line}"
    print(note, file=sys.stderr, flush=True)


def resolve_log_prob(
    engine: str, problem: str, device: "torch.device", nodes: int, architecture: Any = None
) -> ResolvedEngine:
    """Return the engine that scores actions.

    Fused scoring exists on a GPU only, for the nodes that one tile of the rollout kernels holds.
    """
    if engine == "torch":
        return "torch"
    if device.type != "cuda":
        reason = "fused scoring needs an NVIDIA GPU with Triton, and this runs on the CPU"
        return fused_unless(engine, reason)
    if problem in CUDA_GRAPH_PROBLEMS:
        return fused_unless(engine, f"there is no fused scoring for {problem}")
    reason = why_not(problem, device, nodes, architecture, MAX_TILE_NODES)
    return fused_unless(engine, reason)


def fused_unless(engine: str, reason: str | None) -> ResolvedEngine:
    """Return "fused", or "torch" if there is a reason against it.

    Raises `MissingExtra` with the reason if the fused engine was asked for by name.
    """
    if not reason:
        return "fused"
    if engine == "fused":
        raise MissingExtra(f"{reason}. Use engine torch (or auto)")
    return "torch"
