"""Launches of the job-shop kernel in `shop_kernels`: tiles, buffers, and a policy's weights as
it reads them.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from rhumbline.kernels.triton.job_shop.kernels import jssp_rollout_kernel
from rhumbline.kernels.triton.rollout.tables import LOG2E, PROCESSORS, padded_columns

AHEAD = 3  # decisions without a choice that are made, at most, before the network is asked again
STAGES = 2  # not one: on an H200 such a kernel read illegal addresses (docs/kernels.md)
SHARPEST = 1.0e25  # bounds 1 / temperature, so that nothing is multiplied with infinity
PART = 64  # columns of a hidden layer that are worked on at a time


@dataclass(frozen=True)
class ShopWeights:
    """The network of a decision: matrices [in, out] in the type of the products, the rest in
    float32.
    """

    times: Tensor  # [16, 2D], of which 13 rows are in use
    token: Tensor  # [2D, D]
    token_bias: Tensor
    norm: Tensor  # [2, D]: factor and bias
    qkv: Tensor  # [D, 3D]
    out: Tensor  # [D, D]
    out_bias: Tensor
    rival: Tensor  # [heads], times log2(e)
    hidden: Tensor  # [D, 2D]
    hidden_bias: Tensor
    context: Tensor  # [2D, 2D]: rows of the mean of unfinished jobs, then of those allowed
    score: Tensor  # [2D]


@torch.no_grad()
def build_shop_weights(decoder: Any, dtype: torch.dtype = torch.bfloat16) -> ShopWeights:
    """From a policy's decoder."""

    def matrix(layer: Any) -> Tensor:
        return layer.weight.t().to(dtype).contiguous()

    times = matrix(decoder.times)
    assert len(times) <= 16, "the kernel has a tile of 16 columns for the times of a decision"
    return ShopWeights(
        times=torch.nn.functional.pad(times, (0, 0, 0, 16 - len(times))),
        token=matrix(decoder.token),
        token_bias=decoder.token.bias.float(),
        norm=torch.stack([decoder.norm.weight, decoder.norm.bias]).float(),
        qkv=matrix(decoder.among.qkv),
        out=matrix(decoder.among.out),
        out_bias=decoder.among.out.bias.float(),
        rival=decoder.rival.flatten().float() * LOG2E,
        hidden=matrix(decoder.hidden),
        hidden_bias=decoder.hidden.bias.float(),
        context=matrix(decoder.context),
        score=decoder.score.weight[0].float().contiguous(),
    )


def choose_shop_tile(instances: int, rollouts: int, padded: int) -> tuple[int, int]:
    """Rollouts of a program and its warps: many rows read the weights less often, few fill the
    processors.

    Two programs of 64 rows share a processor, and do a third more than one of 128.
    """
    fits = (m // padded for m in (64, 32) if m >= padded and m // padded < 2 * rollouts)
    rows = next((r for r in fits if instances * -(-rollouts // r) >= PROCESSORS), 1)
    return rows, max(4, rows * padded // 16)


def jssp_rollout(
    network: ShopWeights,
    memory: Any,
    shift: Any,
    batch: Any,
    counters: Tensor,
    *,
    starts: int,
    steps: int,
    heads: int,
    active: bool = True,
    temperature: float = 1.0,
    shape: tuple[int, int] | None = None,
    ahead: int = AHEAD,
) -> tuple[Tensor, Tensor]:
    """Costs [B, K, S] and actions [B, K, S, T] (int16; a strided view). `counters` is [seed, first
    attempt], int64.

    The counters live on the device so that a CUDA graph can be replayed with other noise.
    """
    (count, tried, _), (jobs, columns), machines = (
        shift.token.shape,
        batch.duration.shape[1:],
        batch.load.shape[1],
    )
    rollouts = tried * starts
    width = len(network.out)
    dtype = network.token.dtype
    rows, warps = shape or choose_shop_tile(count, rollouts, padded_columns(jobs))
    actions = torch.zeros(count, steps, rollouts, dtype=torch.int16, device=counters.device)
    cost = torch.empty(count, rollouts, device=counters.device)
    kernel: Any = jssp_rollout_kernel
    kernel[(count, -(-rollouts // rows))](
        *network_arguments(network, memory, shift),
        *rule_arguments(batch),
        memory.unit.float().contiguous(),
        memory.bound.float().contiguous(),
        batch.key,
        counters,
        actions,
        cost,
        tried,
        starts,
        jobs,
        columns,
        machines,
        steps,
        LOG2E / (width // heads) ** 0.5,
        min(LOG2E / (temperature or 1.0), SHARPEST),
        R=rows,
        JP=padded_columns(jobs),
        WP=padded_columns(machines),
        D=width,
        H=heads,
        PART=PART,
        AHEAD=ahead,
        ACTIVE=active,
        GREEDY=temperature == 0.0,
        PREC="ieee",
        DT=tl.bfloat16 if dtype == torch.bfloat16 else tl.float32,
        num_warps=warps,
        num_stages=STAGES,
    )
    shaped = (count, tried, starts)
    return cost.view(shaped), actions.transpose(1, 2).view(*shaped, -1)


def network_arguments(n: ShopWeights, memory: Any, shift: Any) -> tuple[Tensor, ...]:
    """All that the network reads, as the kernel takes it."""
    table = memory.table.to(n.token.dtype).contiguous()
    token_shift, hidden_shift = (x.float().contiguous() for x in (shift.token, shift.hidden))
    return (
        table,
        n.times,
        n.token,
        n.token_bias,
        token_shift,
        n.norm,
        n.qkv,
        n.out,
        n.out_bias,
        n.rival,
        n.hidden,
        n.hidden_bias,
        hidden_shift,
        n.context,
        n.score,
    )


def rule_arguments(batch: Any) -> tuple[Tensor, ...]:
    """All that the rules read; times are below 2^31, and so are differences of two."""
    tables = (batch.duration, batch.machine, batch.tail, batch.load)
    operations = (batch.machine < batch.load.shape[1] - 1).sum((1, 2), dtype=torch.int32)
    return *(x.to(torch.int32).contiguous() for x in tables), operations
