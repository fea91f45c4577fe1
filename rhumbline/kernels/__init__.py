"""Kernels of the fused engines. They read tensors, and know neither problems nor policies.

This module holds the limits of the kernels, and says why a machine or a policy does not suit them.
Which engine serves which rules is decided in `rhumbline.decoding.engines`.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rhumbline.errors import MissingExtra

if TYPE_CHECKING:  # `precompile` is for processes that have not imported torch yet
    import torch

MAX_TILE_NODES = 256  # that one tile of the GPU kernels holds: limit of scoring and of the encoder
MAX_STREAM_NODES = 1024  # of rollouts with larger tables, which are read part by part
HEADS = 8  # of the policies that the rollout kernels are made for
HEAD_WIDTH = 16
SHOP_WIDTHS = (32, 64, 128)  # of the policies that the GPU kernel for job shops can hold
SHOP_HEAD_WIDTH = 32  # the CPU kernel for job shops has tiles of 32 columns at most


def why_not_triton(nodes: int, largest: int = MAX_STREAM_NODES) -> str | None:
    """Return why kernels of a GPU cannot serve instances of a size, or None if they can."""
    if find_spec("triton") is None:
        return "the fused engine needs Triton, which is not installed"
    if nodes > largest:
        return f"the fused engine takes up to {largest} nodes, and there are {nodes}"
    return None


def why_not_compiled(
    device: "torch.device", nodes: int, largest: int = MAX_STREAM_NODES
) -> str | None:
    """Return why kernels cannot run on a device, or None if they can; on a CPU any size will do."""
    if device.type == "cuda":
        return why_not_triton(nodes, largest)
    return why_not_numba()


def why_not_heads(architecture: Any) -> str | None:
    """Return why a policy does not suit the kernels for tours and routes, or None if it does.

    Without an architecture, the default one is meant.
    """
    if architecture is None:
        return None
    heads = architecture.heads
    width = architecture.width
    if (heads, width) == (HEADS, HEADS * HEAD_WIDTH):
        return None
    return (
        f"the fused engine takes policies with {HEADS} heads of width {HEAD_WIDTH}, "
        f"and this one has {heads} of {width // heads}"
    )


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


def why_not_job_shop_heads(architecture: Any) -> str | None:
    """Return why the kernel for job shops cannot serve a policy on a CPU, or None if it can."""
    head_width, rest = divmod(architecture.width, architecture.heads)
    if rest or head_width % SHOP_HEAD_WIDTH:
        return (
            f"the fused engine takes job-shop policies with heads of width {SHOP_HEAD_WIDTH} or a "
            f"multiple, and this one has {architecture.heads} of {head_width}"
        )
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
