"""Scores of given schedules on a CPU as a function that torch differentiates."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rhumbline.kernels.numba.job_shop.launch import ShopTables, build_shop_tables, pack_panels
from rhumbline.kernels.numba.job_shop.scores import scratch
from rhumbline.kernels.numba.rollout.cache import load_rollout_kernel
from rhumbline.kernels.numba.rollout.launch import call_kernel, function, run_in_threads, to_array

MAX_PARTS = 4  # of an instance's sequences: threads share them, and each needs a table of gradients


@dataclass(frozen=True)
class TransposedWeights:
    """The transposed matrices of the backward pass, in the order of the kernel's arguments."""

    token: np.ndarray
    query_key: np.ndarray
    value: np.ndarray  # head by head
    out: np.ndarray
    hidden: np.ndarray
    context: np.ndarray


@dataclass(frozen=True)
class ScoredSchedules:
    """Everything that scores depend on, except the table of operations."""

    tables: ShopTables
    transposed: TransposedWeights
    memory: Any
    batch: Any
    actions: np.ndarray  # [B, R, T]
    active: bool
    threads: int


@torch.no_grad()
def transpose_weights(decoder: Any) -> TransposedWeights:
    """Return the weights of the backward pass; `build_shop_tables` has those of the forward pass."""
    qkv = decoder.among.qkv.weight.float()
    width = qkv.shape[1]
    heads = decoder.among.heads
    scale = np.log2(np.e) / (width // heads) ** 0.5
    query_key = qkv[: 2 * width].clone()
    query_key[:width] *= scale
    values = qkv[2 * width :].view(heads, -1, width)
    return TransposedWeights(
        token=pack_panels(decoder.token.weight.t()),
        query_key=pack_panels(query_key.t()),
        value=np.stack([pack_panels(value.t()) for value in values]),
        out=pack_panels(decoder.among.out.weight.t()),
        hidden=pack_panels(decoder.hidden.weight.t()),
        context=pack_panels(decoder.context.weight.t()),
    )


def run_scores(
    given: ScoredSchedules, factor: np.ndarray, differentiates: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores [B, R], and the gradient of their sum weighted by `factor` [B, R].

    The gradient is that with respect to the table, [B, JC, 2D], and empty unless it is wanted.
    """
    tables = given.tables
    batch = given.batch
    count, tried, wide = tables.token_shift.shape
    _, sequences, horizon = given.actions.shape
    jobs, columns = batch.duration.shape[1:]
    machines = batch.load.shape[1]
    parts = min(MAX_PARTS, sequences)
    width = wide // 2
    heads = len(tables.rival)
    shape = (count, jobs, columns, machines, horizon, tried, sequences // tried, width, heads)
    numbers = (*shape, int(given.active), parts, int(differentiates))
    gradient = np.zeros((count, parts if differentiates else 0, jobs * columns, wide), np.float32)
    scores = np.empty((count, sequences), np.float32)
    rules = (batch.duration, batch.machine, batch.tail, batch.load)
    inputs = (
        np.zeros(1, np.int64),
        *vars(tables).values(),
        *vars(given.transposed).values(),
        to_array(given.memory.unit),
        to_array(given.memory.bound),
        factor,
        *(to_array(x, torch.int64) for x in rules),
        given.actions,
        scores,
        gradient,
    )
    compiled = function(load_rollout_kernel("schedule_scores"), len(numbers))

    def work() -> None:
        call_kernel(compiled, numbers, (*inputs, *scratch(jobs, machines, width, heads)))

    run_in_threads(min(given.threads, count * parts), work)
    return scores, gradient.sum(1)


class ScheduleScores(torch.autograd.Function):
    """Scores [B, R] of schedules as a function of the table of operations alone."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, given: ScoredSchedules) -> Tensor:
        """Score the schedules; the backward pass computes the network again."""
        ctx.given = given
        factor = np.zeros(given.actions.shape[:2], np.float32)
        scores, _ = run_scores(given, factor, differentiates=False)
        return torch.from_numpy(scores)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the table."""
        factor = to_array(grads[0])
        _, gradient = run_scores(ctx.given, factor, differentiates=True)
        return torch.from_numpy(gradient), None


def score_schedules(
    decoder: Any, memory: Any, bias: Any, batch: Any, actions: Tensor, active: bool
) -> Tensor:
    """Return the log-probabilities [B, R] of sequences, which the table of operations may change."""
    given = ScoredSchedules(
        build_shop_tables(decoder, memory, bias),
        transpose_weights(decoder),
        memory,
        batch,
        to_array(actions, torch.int64),
        active,
        torch.get_num_threads(),
    )
    scores: Any = ScheduleScores.apply(memory.table, given)
    return scores
