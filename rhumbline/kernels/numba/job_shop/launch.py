"""Launch of the CPU kernel for job shops: the weights in its form, and its threads."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rhumbline import noise
from rhumbline.kernels.numba.job_shop.kernel import MAX_SLOTS, scratch
from rhumbline.kernels.numba.job_shop.network import LOG2E
from rhumbline.kernels.numba.job_shop.simd import TILE_COLUMNS
from rhumbline.kernels.numba.rollout.cache import load_rollout_kernel
from rhumbline.kernels.numba.rollout.launch import (
    MAX_SHARPNESS,
    call_kernel,
    function,
    impose,
    run_in_threads,
    to_array,
)


@dataclass(frozen=True)
class ShopTables:
    """What the kernel reads of a policy, in float32, in the order of its arguments.

    Matrices are in panels (`pack_panels`). Queries carry the factor log2(e) / sqrt(head width), so
    that exp2 computes the softmax.
    """

    table: np.ndarray  # [B, J C, 2D]
    times: np.ndarray  # 13 x 2D
    token: np.ndarray  # 2D x D
    token_bias: np.ndarray  # [D]
    token_shift: np.ndarray  # [B, K, 2D]
    norm: np.ndarray  # [2, D]: factor and bias
    query_key: np.ndarray  # D x 2D
    value: np.ndarray  # D x D
    out: np.ndarray  # D x D
    out_bias: np.ndarray  # [D]
    rival: np.ndarray  # [heads], times log2(e)
    hidden: np.ndarray  # D x 2D
    hidden_shift: np.ndarray  # [B, K, 2D], the layer's own bias included
    context: np.ndarray  # 2D x 2D
    score: np.ndarray  # [2D]


def pack_panels(weights: Tensor) -> np.ndarray:
    """Return the transposed weights of a linear layer, [in, out], in panels of TILE_COLUMNS columns.

    The rows of a panel follow one another.
    """
    outputs, inputs = weights.shape
    panels = to_array(weights).reshape(outputs // TILE_COLUMNS, TILE_COLUMNS, inputs)
    return np.ascontiguousarray(panels.swapaxes(1, 2))


@torch.no_grad()
def build_shop_tables(decoder: Any, memory: Any, bias: Any) -> ShopTables:
    """Build the tables from a policy's decoder, its memory and the biases of its latents."""
    qkv = decoder.among.qkv.weight.float()
    width = qkv.shape[1]
    head_width = width // decoder.among.heads
    scale = torch.ones(2 * width, 1)
    scale[:width] = LOG2E / head_width**0.5
    return ShopTables(
        table=to_array(memory.table),
        times=pack_panels(decoder.times.weight),
        token=pack_panels(decoder.token.weight),
        token_bias=to_array(decoder.token.bias),
        token_shift=to_array(bias.token),
        norm=to_array(torch.stack([decoder.norm.weight, decoder.norm.bias])),
        query_key=pack_panels(qkv[: 2 * width] * scale),
        value=pack_panels(qkv[2 * width :]),
        out=pack_panels(decoder.among.out.weight),
        out_bias=to_array(decoder.among.out.bias),
        rival=to_array(decoder.rival.flatten() * LOG2E),
        hidden=pack_panels(decoder.hidden.weight),
        hidden_shift=to_array(bias.hidden + decoder.hidden.bias),
        context=pack_panels(decoder.context.weight),
        score=to_array(decoder.score.weight[0]),
    )


def run_schedules(
    tables: ShopTables,
    memory: Any,
    batch: Any,
    seed: int,
    attempt: int,
    *,
    starts: int,
    steps: int,
    active: bool = True,
    temperature: float = 1.0,
    threads: int | None = None,
    given: tuple[Tensor, Tensor] | None = None,
    deadline: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Construct schedules; return costs [B, K, S] and actions [B, K, S, T] (int16).

    `given` are sequences [B, K * S, T] and how many actions of each are imposed. `threads` is
    torch's number by default. At the `deadline`, by `time.monotonic`, all rollouts end and
    `TimeoutError` is raised.
    """
    count, tried, _ = tables.token_shift.shape
    jobs, columns = batch.duration.shape[1:]
    machines = batch.load.shape[1]
    rollouts = (count, tried, starts)
    actions = np.zeros((*rollouts, steps), np.int16)
    cost = np.empty(rollouts, np.float32)
    imposed = np.ones(rollouts, np.int64)
    if given is not None:
        impose(actions, imposed, *given)
        assert 0 <= actions.min() <= actions.max() < jobs
    workers, slots = share_rollouts(cost.size, threads or torch.get_num_threads())
    width = len(tables.token_bias)
    heads = len(tables.rival)
    sharpness = min(LOG2E / temperature, MAX_SHARPNESS) if temperature else 0.0
    shape = (count, jobs, columns, machines, steps, tried, starts)
    numbers = (*shape, seed, attempt, sharpness, width, heads, int(active), slots)
    rules = (batch.duration, batch.machine, batch.tail, batch.load)
    stopped = np.zeros(1, np.int64)
    inputs = (
        np.zeros(1, np.int64),
        stopped,
        *vars(tables).values(),
        to_array(memory.unit),
        to_array(memory.bound),
        *(to_array(x, torch.int64) for x in rules),
        imposed,
        number_alike(tables, starts) if given is None else np.arange(cost.size),
        to_array(batch.key & noise.WORD, torch.int64).view(np.uint64),
        actions,
        cost,
    )
    compiled = function(load_rollout_kernel("schedules"), len(numbers))

    def work() -> None:
        own = scratch(jobs, machines, width, heads, slots)
        call_kernel(compiled, numbers, (*inputs, *own))

    with stop_at(deadline, stopped):
        run_in_threads(workers, work)
    return torch.from_numpy(cost), torch.from_numpy(actions)


@contextmanager
def stop_at(deadline: float | None, stopped: np.ndarray) -> Generator[None]:
    """Tell the threads of a kernel to stop at the deadline; raise `TimeoutError` if they were."""
    if deadline is None:
        yield
        return
    timer = Timer(max(0.0, deadline - time.monotonic()), stopped.fill, (1,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if stopped[0]:
        raise TimeoutError


def number_alike(tables: ShopTables, starts: int) -> np.ndarray:
    """Return a number for each rollout, equal for those of neighbouring latents that are the same.

    Such rollouts differ in nothing but their uniforms.
    """
    shift = np.concatenate([tables.token_shift, tables.hidden_shift], axis=2)
    is_new = np.ones(shift.shape[:2], np.int64)
    is_new[:, 1:] = (shift[:, 1:] != shift[:, :-1]).any(2)
    return is_new.cumsum().repeat(starts)


def share_rollouts(rollouts: int, threads: int) -> tuple[int, int]:
    """Return how many threads to use, and how many rollouts make a tile.

    Threads begin and end together: they get about equal numbers of rollouts, in tiles of one size.
    """
    workers = min(threads, rollouts)
    each = -(-rollouts // workers)
    tiles = -(-each // MAX_SLOTS)
    return workers, -(-each // tiles)
