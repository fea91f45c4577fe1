"""Launch of the CPU kernel: each thread carries tiles of rollouts through every step."""

import ctypes
import os
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Event, Timer
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rhumbline import noise
from rhumbline.kernels import HEAD_WIDTH, HEADS
from rhumbline.kernels.numba.rollout.cache import load_rollout_kernel
from rhumbline.kernels.numba.rollout.kernel import LOG2E, scratch
from rhumbline.kernels.numba.rollout.simd import LANES

MAX_SHARPNESS = 1.0e25  # bounds 1 / temperature, so that no product with simd.CLOSED overflows


@dataclass(frozen=True)
class NumbaTables:
    """What the kernel reads of a policy, in float32, in the order of its arguments.

    Queries carry the factor log2(e) / sqrt(head width), so that exp2 computes the softmax. Keys,
    values and pointers have a row of zeros at the end.
    """

    key: np.ndarray  # [B, H, N + 1, C]
    value: np.ndarray  # [B, H, N + 1, C]
    pointer: np.ndarray  # [B, N + 1, E]
    query_last: np.ndarray  # [B, N, E]
    query_context: np.ndarray  # TSP: first node [B, N, E]; CVRP: per unit of load left [B, E]
    query_shift: np.ndarray  # [B, K, E]
    pointer_shift: np.ndarray  # [B, K, N]


def build_numba_tables(memory: Any, bias: Any) -> NumbaTables:
    """Build the tables from a policy's memory and the biases of its latents."""
    scale = np.float32(LOG2E / HEAD_WIDTH**0.5)
    is_tsp = memory.query_load is None
    context = memory.query_first if is_tsp else memory.query_load[:, 0]
    return NumbaTables(
        key=split_nodes_into_heads(to_array(memory.key)),
        value=split_nodes_into_heads(to_array(memory.value)),
        pointer=append_zero_row(to_array(memory.pointer)),
        query_last=to_array(memory.query_last) * scale,
        query_context=to_array(context) * scale,
        query_shift=to_array(bias.query) * scale,
        pointer_shift=to_array(bias.pointer),
    )


def split_nodes_into_heads(x: np.ndarray) -> np.ndarray:
    """Reorder [B, N, E] to [B, H, N + 1, C], so that the keys of a head are contiguous.

    In rows of E numbers, they would collide in the cache.
    """
    count, nodes, _ = x.shape
    by_node = x.reshape(count, nodes, HEADS, HEAD_WIDTH)
    return append_zero_row(by_node.swapaxes(1, 2))


def append_zero_row(x: np.ndarray) -> np.ndarray:
    """Copy a table and append a row of zeros."""
    *before, rows, width = x.shape
    shape = (*before, rows + 1, width)
    whole = np.zeros(shape, x.dtype)
    whole[..., :rows, :] = x
    return whole


def to_array(x: Tensor, dtype: torch.dtype = torch.float32) -> np.ndarray:
    """Return a tensor as a contiguous array; it is copied only if it must be."""
    contiguous = x.detach().to(dtype).contiguous()
    return contiguous.numpy()


@contextmanager
def limit_torch_to_one_thread() -> Generator[None]:
    """Keep torch to the calling thread, so that the kernel has all cores.

    Torch's other threads would spin for milliseconds after each operation.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
    deadline: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Construct rollouts; return costs [B, K, S] and actions (int16).

    Actions are [B, K, S, N] for a TSP and [B, K, S, 2n], padded with the depot, for a CVRP.
    `vehicles` are whole demands [B, N] and capacities [B]. `given` are sequences [B, K * S, T] that
    begin with the starts, and how many actions of each are imposed. `threads` is torch's number by
    default. If rollouts are left at the `deadline`, none is begun, and `TimeoutError` is raised.
    """
    count, nodes, _ = xy.shape
    per_latent = starts.shape[1]
    tried = tables.query_shift.shape[1]
    first_allowed = 1 if vehicles else 0
    assert first_allowed <= int(starts.min()) <= int(starts.max()) < nodes
    horizon = 2 * (nodes - 1) if vehicles else nodes
    rollouts = (count, tried, per_latent)
    actions = np.zeros((*rollouts, horizon), np.int16)
    cost = np.empty(rollouts, np.float32)
    imposed = np.ones(rollouts, np.int64)
    if given is None:
        actions[..., 0] = to_array(starts, torch.int16)[:, None]
    else:
        impose(actions, imposed, *given)
    sharpness = min(LOG2E / temperature, MAX_SHARPNESS) if temperature else 0.0
    numbers = (count, nodes, horizon, tried, per_latent, seed, attempt, sharpness)
    identity = to_array(key & noise.WORD, torch.int64).view(np.uint64)
    demand, capacity = vehicles or (starts, starts)  # not read without vehicles
    counter = np.zeros(1, np.int64)
    inputs = (
        counter,
        *vars(tables).values(),
        to_array(xy),
        imposed,
        identity,
        to_array(demand, torch.int64),
        to_array(capacity, torch.int64),
    )
    kernel = load_rollout_kernel("routes" if vehicles else "tours")
    compiled = function(kernel, len(numbers))

    def work() -> None:
        own = scratch(nodes)
        arrays = (*inputs, actions, cost, *own)
        call_kernel(compiled, numbers, arrays)

    tiles_per_instance = -(-tried * per_latent // LANES)
    tile_count = count * tiles_per_instance
    wanted = threads or torch.get_num_threads()
    with end_tiles_at(deadline, counter, tile_count):
        run_in_threads(min(wanted, tile_count), work)
    return torch.from_numpy(cost), torch.from_numpy(actions)


@contextmanager
def end_tiles_at(deadline: float | None, counter: np.ndarray, count: int) -> Generator[None]:
    """Let the threads that share a counter of tiles find none from the deadline on.

    Raises `TimeoutError` in the end if tiles were left. A tile that has begun is finished.
    """
    if deadline is None:
        yield
        return
    is_early = Event()

    def stop() -> None:
        if counter[0] < count:
            is_early.set()
            counter[0] = count

    timer = Timer(max(0.0, deadline - time.monotonic()), stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if is_early.is_set():
        raise TimeoutError


def impose(actions: np.ndarray, imposed: np.ndarray, given: Tensor, length: Tensor) -> None:
    """Write given prefixes into the actions, and their lengths into `imposed`.

    Zeros follow, as they do after the end of a rollout.
    """
    horizon = actions.shape[-1]
    sequences = to_array(given, torch.int16)
    lengths = to_array(length, torch.int64)
    imposed[...] = lengths.reshape(imposed.shape)
    assert 1 <= imposed.min() <= imposed.max() <= horizon
    step = np.arange(horizon)
    is_imposed = step < imposed[..., None]
    np.copyto(
        actions,
        sequences.reshape(actions.shape),
        where=is_imposed,
    )


@cache
def function(compiled: Any, numbers: int) -> Any:
    """Return the kernel as a ctypes function of numbers and addresses.

    Plain addresses are passed faster than typed pointers.
    """
    types = compiled.ctypes.argtypes
    pointers = len(types) - numbers
    prototype = ctypes.CFUNCTYPE(
        None,
        *types[:numbers],
        *[ctypes.c_void_p] * pointers,
    )
    return prototype(compiled.address)


def call_kernel(compiled: Any, numbers: tuple[float, ...], arrays: tuple[np.ndarray, ...]) -> None:
    """Call the kernel, which releases Python's global lock."""
    addresses = (x.ctypes.data for x in arrays)
    compiled(*numbers, *addresses)


def run_in_threads(count: int, work: Callable[[], None]) -> None:
    """Run work that threads share in up to `count` threads at once, the calling one included."""
    helpers = [pool(count - 1).submit(work) for _ in range(count - 1)]
    try:
        work()
    finally:
        for helper in helpers:
            if not helper.cancel():  # a helper that has not begun would find nothing left to do
                helper.result()


@cache
def pool(count: int) -> ThreadPoolExecutor:
    """Return a pool of helper threads, kept for later calls.

    Starting threads takes as long as some rollouts of 20 cities.
    """
    return ThreadPoolExecutor(count, "rhumbline")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a child process has no threads
