"""Whole rollouts on the CPU, compiled by numba: each thread carries tiles of rollouts through
every step.
"""

import ctypes
import os
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rhumbline import noise
from rhumbline.kernels import HEAD_WIDTH, HEADS
from rhumbline.kernels.numba.rollout.cache import load_rollout_kernel
from rhumbline.kernels.numba.rollout.kernel import LOG2E, scratch
from rhumbline.kernels.numba.rollout.simd import LANES

SHARPEST = 1.0e25  # bounds 1 / temperature, so that no product with lanes.CLOSED overflows


@dataclass(frozen=True)
class NumbaTables:
    """What the kernel reads, in float32: queries times log2(e)/sqrt(head width) for exp2, a row
    of zeros at the end.
    """

    key: np.ndarray  # [B, H, N + 1, C]
    value: np.ndarray  # [B, H, N + 1, C]
    pointer: np.ndarray  # [B, N + 1, E]
    query_last: np.ndarray  # [B, N, E]
    query_context: (
        np.ndarray
    )  # [B, N, E] of the first node (TSP), or [B, E] per unit of capacity left (CVRP)
    query_shift: np.ndarray  # [B, K, E]
    pointer_shift: np.ndarray  # [B, K, N]


def build_numba_tables(memory: Any, shift: Any) -> NumbaTables:
    """Kernel tables from a policy's memory and the shifts of its latents."""
    scale = np.float32(LOG2E / HEAD_WIDTH**0.5)
    return NumbaTables(
        key=split_heads_of_nodes(array(memory.key)),
        value=split_heads_of_nodes(array(memory.value)),
        pointer=append_zero_row(array(memory.pointer)),
        query_last=array(memory.query_last) * scale,
        query_context=array(
            memory.query_first if memory.query_load is None else memory.query_load[:, 0]
        )
        * scale,
        query_shift=array(shift.query) * scale,
        pointer_shift=array(shift.pointer),
    )


def split_heads_of_nodes(x: np.ndarray) -> np.ndarray:
    """[B, N, E] as [B, H, N + 1, C]: a head's keys in one piece, since in rows of E they would
    collide in the cache.
    """
    return append_zero_row(x.reshape(*x.shape[:2], HEADS, HEAD_WIDTH).swapaxes(1, 2))


def append_zero_row(x: np.ndarray) -> np.ndarray:
    """With a row of zeros at the end."""
    whole = np.zeros((*x.shape[:-2], x.shape[-2] + 1, x.shape[-1]), x.dtype)
    whole[..., :-1, :] = x
    return whole


def array(x: Tensor, dtype: torch.dtype = torch.float32) -> np.ndarray:
    """A tensor as a contiguous array, copied only where it must be."""
    return x.detach().to(dtype).contiguous().numpy()


@contextmanager
def limit_torch_to_one_thread() -> Generator[None]:
    """Keep torch to this thread: its others would go on spinning for milliseconds, on the cores
    the kernel needs.
    """
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def run_rollouts(
    tables: NumbaTables,
    xy: Tensor,
    starts: Tensor,
    key: Tensor,
    seed: int,
    attempt: int,
    *,
    vehicles: tuple[Tensor, Tensor] | None = None,
    temperature: float = 1.0,
    threads: int | None = None,
    given: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Costs [B, K, S] and actions (int16): [B, K, S, N] of tours or, padded with the depot, [B, K,
    S, 2n] of routes.

    Vehicles are whole demands [B, N] and capacities [B]. As many threads as torch uses, unless told
    otherwise. Given are sequences [B, K * S, T] and how many actions of each are imposed; they
    begin with the starts.
    """
    (count, nodes, _), per, tried = xy.shape, starts.shape[1], tables.query_shift.shape[1]
    assert (1 if vehicles else 0) <= int(starts.min()) <= int(starts.max()) < nodes
    horizon = 2 * (nodes - 1) if vehicles else nodes
    actions = np.zeros((count, tried, per, horizon), np.int16)
    cost = np.empty((count, tried, per), np.float32)
    imposed = np.ones((count, tried, per), np.int64)
    if given is None:
        actions[..., 0] = array(starts, torch.int16)[:, None]
    else:
        impose(actions, imposed, *given)
    sharpness = min(LOG2E / temperature, SHARPEST) if temperature else 0.0
    numbers = (count, nodes, horizon, tried, per, seed, attempt, sharpness)
    identity = array(key & noise.WORD, torch.int64).view(np.uint64)
    whole = [
        array(x, torch.int64) for x in vehicles or (starts, starts)
    ]  # without vehicles never read
    inputs = (*vars(tables).values(), array(xy), imposed, identity, *whole)
    shared = (np.zeros(1, np.int64), *inputs, actions, cost)
    compiled = function(load_rollout_kernel(vehicles is not None), len(numbers))
    tiles = count * -(-tried * per // LANES)
    busy = min(threads or torch.get_num_threads(), tiles)
    run_in_threads(busy, lambda: call_kernel(compiled, numbers, (*shared, *scratch(nodes))))
    return torch.from_numpy(cost), torch.from_numpy(actions)


def impose(actions: np.ndarray, imposed: np.ndarray, given: Tensor, length: Tensor) -> None:
    """Write the beginnings into the actions: zeros follow, as after the end of a rollout that
    the kernel makes.
    """
    whole = array(given, torch.int16).reshape(actions.shape)
    imposed[...] = array(length, torch.int64).reshape(imposed.shape)
    assert 1 <= imposed.min() <= imposed.max() <= actions.shape[-1]
    np.copyto(actions, whole, where=np.arange(actions.shape[-1]) < imposed[..., None])


@cache
def function(compiled: Any, numbers: int) -> Any:
    """The kernel as it is called: with so many numbers and then addresses, which pass quicker
    than typed pointers.
    """
    kinds = compiled.ctypes.argtypes
    return ctypes.CFUNCTYPE(None, *kinds[:numbers], *[ctypes.c_void_p] * (len(kinds) - numbers))(
        compiled.address
    )


def call_kernel(compiled: Any, numbers: tuple[float, ...], arrays: tuple[np.ndarray, ...]) -> None:
    """Call the kernel; Python's lock is free meanwhile."""
    compiled(*numbers, *(x.ctypes.data for x in arrays))


def run_in_threads(count: int, work: Callable[[], None]) -> None:
    """Do work that can be shared in up to so many threads at once, this one among them."""
    helpers = [pool(count - 1).submit(work) for _ in range(count - 1)]
    try:
        work()
    finally:
        for helper in helpers:
            if not helper.cancel():  # one that has not even begun has nothing left to do
                helper.result()


@cache
def pool(count: int) -> ThreadPoolExecutor:
    """So many threads to help; they are kept, because to start them takes as long as some
    rollouts of 20 cities.
    """
    return ThreadPoolExecutor(count, "rhumbline")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # threads stay with the parent
