"""Whole rollouts on the CPU, compiled by numba: each thread carries tiles of rollouts through every step."""

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rhumbline import noise
from rhumbline.kernels import HEAD_WIDTH, HEADS
from rhumbline.kernels.compiled import kernel
from rhumbline.kernels.lanes import LANES
from rhumbline.kernels.tiles import LOG2E, scratch

SHARPEST = 1.0e25  # bounds 1 / temperature, so that no product with lanes.CLOSED overflows


@dataclass(frozen=True)
class Tables:
    """What the kernel reads, in float32: queries times log2(e)/sqrt(head width) for exp2, a row of zeros at the end."""

    key: np.ndarray  # [B, H, N + 1, C]
    value: np.ndarray  # [B, H, N + 1, C]
    pointer: np.ndarray  # [B, N + 1, E]
    query_last: np.ndarray  # [B, N, E]
    query_context: np.ndarray  # [B, N, E] of the first node (TSP), or [B, E] per unit of capacity left (CVRP)
    query_shift: np.ndarray  # [B, K, E]
    pointer_shift: np.ndarray  # [B, K, N]


def tables(memory: Any, shift: Any) -> Tables:
    """Kernel tables from a policy's memory and the shifts of its latents."""
    scale = LOG2E / HEAD_WIDTH**0.5

    def padded(x: Tensor) -> Tensor:
        return torch.nn.functional.pad(x, (0, 0, 0, 1))

    def heads(x: Tensor) -> Tensor:  # a head's keys in one piece: in rows of E they would collide in the cache
        return padded(x).unflatten(-1, (HEADS, HEAD_WIDTH)).transpose(1, 2)

    return Tables(
        key=array(heads(memory.key)),
        value=array(heads(memory.value)),
        pointer=array(padded(memory.pointer)),
        query_last=array(memory.query_last * scale),
        query_context=array((memory.query_first if memory.query_load is None else memory.query_load[:, 0]) * scale),
        query_shift=array(shift.query * scale),
        pointer_shift=array(shift.pointer),
    )


def array(x: Tensor, dtype: torch.dtype = torch.float32) -> np.ndarray:
    """A tensor as a contiguous array, copied only where it must be."""
    return x.detach().to(dtype).contiguous().numpy()


@contextmanager
def one_torch_thread() -> Generator[None]:
    """Keep torch to this thread: its others would go on spinning for milliseconds, on the cores the kernel needs."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def rollout(
    tables: Tables, xy: Tensor, starts: Tensor, key: Tensor, seed: int, attempt: int, *,
    vehicles: tuple[Tensor, Tensor] | None = None, temperature: float = 1.0, threads: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Costs [B, K, S] and actions (int16): [B, K, S, N] of tours or, padded with the depot, [B, K, S, 2n] of routes.

    Vehicles are whole demands [B, N] and capacities [B]. As many threads as torch uses, unless told otherwise.
    """
    (count, nodes, _), per, tried = xy.shape, starts.shape[1], tables.query_shift.shape[1]
    assert (1 if vehicles else 0) <= int(starts.min()) <= int(starts.max()) < nodes
    horizon = 2 * (nodes - 1) if vehicles else nodes
    actions, cost = np.zeros((count, tried, per, horizon), np.int16), np.empty((count, tried, per), np.float32)
    sharpness = min(LOG2E / temperature, SHARPEST) if temperature else 0.0
    numbers = (count, nodes, horizon, tried, per, seed, attempt, sharpness)
    identity = array(key & noise.WORD, torch.int64).view(np.uint64)
    whole = [array(x, torch.int64) for x in (starts, *(vehicles or (starts, starts)))]  # without vehicles never read
    inputs = (*vars(tables).values(), array(xy), whole[0], identity, *whole[1:])
    shared = (np.zeros(1, np.int64), *inputs, actions, cost)
    compiled = kernel(vehicles is not None)
    tiles = count * -(-tried * per // LANES)
    busy = min(threads or torch.get_num_threads(), tiles)
    in_threads(busy, lambda: launch(compiled, numbers, (*shared, *scratch(nodes))))
    return torch.from_numpy(cost), torch.from_numpy(actions)


def launch(compiled: Any, numbers: tuple[float, ...], arrays: tuple[np.ndarray, ...]) -> None:
    """Call the kernel; Python's lock is free meanwhile."""
    function = compiled.ctypes
    pointers = (x.ctypes.data_as(kind) for x, kind in zip(arrays, function.argtypes[len(numbers) :], strict=True))
    function(*numbers, *pointers)


def in_threads(count: int, work: Callable[[], None]) -> None:
    """Do work in so many threads at once, this one among them."""
    if count == 1:
        return work()
    with ThreadPoolExecutor(count - 1) as pool:
        helpers = [pool.submit(work) for _ in range(count - 1)]
        work()
    for helper in helpers:
        helper.result()
    return None
