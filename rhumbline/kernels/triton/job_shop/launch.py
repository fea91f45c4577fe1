"""Launch of the job-shop kernel: tiles, buffers, and a policy's weights as it reads them."""

from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from rhumbline.kernels.triton.job_shop.kernels import jssp_rollout_kernel
from rhumbline.kernels.triton.rollout.tables import LOG2E, PROCESSORS, padded_columns


@dataclass(frozen=True)
class ShopTuning:
    """Settings of the launch."""

    max_forced_decisions: int = 3  # made at most before the network is asked again
    # Not one: on an H200 such a kernel read illegal addresses (research/notebooks/kernels.md).
    stages: int = 2
    max_sharpness: float = 1.0e25  # bounds 1 / temperature, so that no product is infinite
    hidden_columns: int = 64  # of a hidden layer that are worked on at once


TUNING = ShopTuning()


@dataclass(frozen=True)
class ShopWeights:
    """The network of a decision: matrices [in, out] in the products' type, the rest in float32."""

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
    """Build the weights from a policy's decoder."""

    def matrix(layer: Any) -> Tensor:
        transposed = layer.weight.t().to(dtype)
        return transposed.contiguous()

    times = matrix(decoder.times)
    unused = 16 - len(times)
    assert unused >= 0, "the kernel has a tile of 16 columns for the times of a decision"
    return ShopWeights(
        times=torch.nn.functional.pad(times, (0, 0, 0, unused)),
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


def choose_shop_tile(instances: int, rollouts: int, columns: int) -> tuple[int, int]:
    """Choose the rollouts of a program and its warps.

    Many rows read the weights less often, few keep more processors busy. Two programs of 64 rows
    share a processor, and do a third more than one of 128.
    """
    rows = 1
    for total in (64, 32):
        wanted = total // columns
        if total < columns or wanted >= 2 * rollouts:
            continue
        programs = instances * -(-rollouts // wanted)
        if programs >= PROCESSORS:
            rows = wanted
            break
    return rows, max(4, rows * columns // 16)


def jssp_rollout(
    network: ShopWeights,
    memory: Any,
    bias: Any,
    batch: Any,
    counters: Tensor,
    *,
    starts: int,
    steps: int,
    heads: int,
    active: bool = True,
    temperature: float = 1.0,
    shape: tuple[int, int] | None = None,
    ahead: int = TUNING.max_forced_decisions,
) -> tuple[Tensor, Tensor]:
    """Construct schedules; return costs [B, K, S] and actions [B, K, S, T] (int16; a strided view).

    `counters` is [seed, first attempt], int64, on the device, so that a CUDA graph can be replayed
    with other noise. `ahead` bounds the decisions without a choice that are made before the network
    is asked again.
    """
    count, tried, _ = bias.token.shape
    jobs, operations = batch.duration.shape[1:]
    machines = batch.load.shape[1]
    rollouts = tried * starts
    width = len(network.out)
    job_columns = padded_columns(jobs)
    dtype = network.token.dtype
    rows, warps = shape or choose_shop_tile(count, rollouts, job_columns)
    device = counters.device
    actions = torch.zeros(count, steps, rollouts, dtype=torch.int16, device=device)
    cost = torch.empty(count, rollouts, device=device)
    head_width = width // heads
    sharpness = min(LOG2E / (temperature or 1.0), TUNING.max_sharpness)
    kernel: Any = jssp_rollout_kernel
    kernel[(count, -(-rollouts // rows))](
        *network_arguments(network, memory, bias),
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
        operations,
        machines,
        steps,
        LOG2E / head_width**0.5,
        sharpness,
        R=rows,
        JP=job_columns,
        WP=padded_columns(machines),
        D=width,
        H=heads,
        PART=TUNING.hidden_columns,
        AHEAD=ahead,
        ACTIVE=active,
        GREEDY=temperature == 0.0,
        PREC="ieee",
        DT=tl.bfloat16 if dtype == torch.bfloat16 else tl.float32,
        num_warps=warps,
        num_stages=TUNING.stages,
    )
    costs = cost.view(count, tried, starts)
    return costs, actions.transpose(1, 2).view(count, tried, starts, -1)


def network_arguments(network: ShopWeights, memory: Any, bias: Any) -> tuple[Tensor, ...]:
    """Return all that the network reads, in the order of the kernel's arguments."""
    return (
        memory.table.to(network.token.dtype).contiguous(),
        network.times,
        network.token,
        network.token_bias,
        bias.token.float().contiguous(),
        network.norm,
        network.qkv,
        network.out,
        network.out_bias,
        network.rival,
        network.hidden,
        network.hidden_bias,
        bias.hidden.float().contiguous(),
        network.context,
        network.score,
    )


def rule_arguments(batch: Any) -> tuple[Tensor, ...]:
    """Return all that the rules read; times and their differences are below 2^31."""
    tables = (
        batch.duration,
        batch.machine,
        batch.tail,
        batch.load,
    )
    machines = batch.load.shape[1] - 1
    exists = batch.machine < machines
    operations = exists.sum((1, 2), dtype=torch.int32)
    whole = [x.to(torch.int32).contiguous() for x in tables]
    return *whole, operations
