"""Fused decoding. Kernels see tensors; they know neither problems nor modules.

Which engine serves which problem on which device is decided here, and `why_not` says in words why
one cannot.
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

if TYPE_CHECKING:  # `ahead` is for processes that have not imported torch yet
    import torch

ResolvedEngine = Literal["torch", "fused"]

# nodes that one tile of the GPU kernels holds: scores and the encoder's attention end there
MAX_TILE_NODES = 256
MAX_STREAM_NODES = 1024  # nodes of rollouts, whose larger tables come part by part
HEADS, HEAD_WIDTH = 8, 16  # of the policies that the rollout kernels are made for
GPU_PROBLEMS = ("tsp", "cvrp")
CPU_PROBLEMS = ("tsp", "cvrp")
SHOP_WIDTHS = (32, 64, 128)  # of the policies that the kernel for job shops can hold
CUDA_GRAPH_PROBLEMS = (
    "jssp",
    "jssp-machines",
)  # fused on a GPU may mean the steps of plain torch in a CUDA graph; for any size
AUTO_CUDA_GRAPH_PROBLEMS: tuple[str, ...] = (
    "jssp",
)  # those of them that `auto` takes: seen to be equal and faster on a GPU


def why_not(
    problem: str,
    device: "torch.device",
    nodes: int,
    architecture: Any = None,
    largest: int = MAX_STREAM_NODES,
) -> str | None:
    """The reason why fused rollouts cannot serve, or None if they can; without an architecture,
    for the usual one.
    """
    misfit = why_not_supported(problem, device, nodes, architecture, largest)
    return misfit or (None if device.type == "cuda" else why_not_numba())


def why_not_supported(
    problem: str,
    device: "torch.device",
    nodes: int,
    architecture: Any,
    largest: int = MAX_STREAM_NODES,
) -> str | None:
    """What is wrong with the work or the device; whether numba serves is another question, and
    slower to answer.
    """
    on_gpu = device.type == "cuda"
    if on_gpu and problem in CUDA_GRAPH_PROBLEMS:
        return None
    if problem not in (GPU_PROBLEMS if on_gpu else CPU_PROBLEMS):
        return f"there is no fused kernel for {problem}{'' if on_gpu else ' on a CPU'}"
    if on_gpu and find_spec("triton") is None:
        return "the fused engine needs Triton, which is not installed"
    if on_gpu and nodes > largest:
        return f"the fused engine takes up to {largest} nodes, and there are {nodes}"
    if architecture and (architecture.heads, architecture.width) != (HEADS, HEADS * HEAD_WIDTH):
        own = f"{architecture.heads} of {architecture.width // architecture.heads}"
        return f"the fused engine takes policies with {HEADS} heads of width {HEAD_WIDTH}, and this one has {own}"
    return None


def why_not_job_shop(architecture: Any) -> str | None:
    """Why the kernel for job shops cannot serve a policy on a GPU, where the steps of plain
    torch in a graph can.
    """
    if find_spec("triton") is None:
        return "Triton is not installed"
    if architecture.width not in SHOP_WIDTHS or architecture.width // architecture.heads < 16:
        return "the kernel takes widths of {}, {} or {}, and heads of 16 or more".format(
            *SHOP_WIDTHS
        )
    return None


def on_gpu(x: "torch.Tensor") -> bool:
    """Whether small work on a tensor is for a kernel of its own; elsewhere tensor operations do
    the same.
    """
    return x.is_cuda


def why_not_layer(device: "torch.device", nodes: int) -> str | None:
    """Why no fused engine can serve tables that come with a layer on the glimpse, or None if one
    can.
    """
    if device.type != "cuda":
        return "a layer on the glimpse is not linear, so no table of the fused engine of a CPU can hold it"
    if nodes > MAX_TILE_NODES:
        return f"the fused engine takes a layer on the glimpse up to {MAX_TILE_NODES} nodes, and there are {nodes}"
    return None


@contextmanager
def pause_garbage_collection() -> Generator[None]:
    """Without Python's search for cyclic garbage, which goes through everything that torch has
    loaded again and again.

    That is half of the time to import numba and a fifth of the time to compile with it.
    """
    usual = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if usual:
            gc.enable()


@cache
def why_not_numba() -> str | None:
    """The reason why numba cannot be used, or None if it can."""
    if find_spec("numba") is None:
        return "the fused engine needs numba on a CPU; get it with: pip install 'rhumbline[cpu]' (or numba alone)"
    try:
        with pause_garbage_collection():
            import_module("rhumbline.kernels.numba.rollout.launch")
    except Exception as error:  # such as a numpy that is too new for it
        words = (str(error) or type(error).__name__).splitlines()[0]
        return f"the fused engine needs numba, which fails ({words}); mend it with: pip install --upgrade numba"
    return None


def require_numba(what: str) -> None:
    """Raise `MissingExtra` unless numba can be used for something that has no other engine."""
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
    """The engine that will run; asking for `fused` where it cannot run is an error, never a
    fallback.
    """
    if engine == "torch" or (
        engine == "auto"
        and problem in CUDA_GRAPH_PROBLEMS
        and problem not in AUTO_CUDA_GRAPH_PROBLEMS
    ):
        return "torch"
    reason = why_not_supported(problem, device, nodes, architecture)
    if reason is None and device.type != "cuda":
        reason = why_not_numba()
        if reason and engine == "auto":
            note_once(f"engine auto takes plain torch, which is several times slower: {reason}")
    return fused_unless(engine, reason)


@cache
def note_once(line: str) -> None:
    """Say something once on stderr: what runs otherwise than it might, and why."""
    print(f"note: {line}", file=sys.stderr, flush=True)


def resolve_log_prob(
    engine: str, problem: str, device: "torch.device", nodes: int, architecture: Any = None
) -> ResolvedEngine:
    """The same for scoring, which has kernels on the GPU only, for what one tile of the rollout
    kernels holds.
    """
    if engine == "torch":
        return "torch"
    if device.type != "cuda":
        return fused_unless(
            engine, "fused scoring needs an NVIDIA GPU with Triton, and this runs on the CPU"
        )
    if problem in CUDA_GRAPH_PROBLEMS:
        return fused_unless(engine, f"there is no fused scoring for {problem}")
    return fused_unless(engine, why_not(problem, device, nodes, architecture, MAX_TILE_NODES))


def fused_unless(engine: str, reason: str | None) -> ResolvedEngine:
    """Fused unless there is a reason against it, which is an error if it was asked for."""
    if reason and engine == "fused":
        raise MissingExtra(f"{reason}. Use engine torch (or auto)")
    return "torch" if reason else "fused"
