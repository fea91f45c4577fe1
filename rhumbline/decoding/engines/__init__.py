"""Choice of the engine that constructs rollouts, and completion of partial solutions.

Plain torch is the definition. The kernels construct the same rollouts faster.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline import kernels
from rhumbline.decoding.engines.cuda_graphs import construct_with_cuda_graph
from rhumbline.decoding.engines.job_shops import construct_triton_shop
from rhumbline.decoding.engines.numba_rollouts import construct_numba
from rhumbline.decoding.engines.plain_torch import construct_torch
from rhumbline.decoding.engines.triton_rollouts import construct_triton
from rhumbline.decoding.request import EngineName, Prefixes, RolloutRequest, Rollouts
from rhumbline.policies import Policy
from rhumbline.problems import Problem

NO_PREFIXES = "the kernels for job shops cannot carry on a sequence that has begun"

Constructor = Callable[[RolloutRequest], Rollouts]


def choose_constructor(
    engine: EngineName,
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    memory: Any,
) -> Constructor:
    """Return the function that constructs rollouts with an engine.

    Raises `MissingExtra` if the fused engine was asked for by name and cannot run.
    """
    device = batch.key.device
    nodes = problem.action_count(batch)
    engine = engine_for_layer(engine, memory, device, nodes)
    resolved = kernels.resolve(engine, problem.name, device, nodes, policy.architecture)
    if resolved == "torch":
        return construct_torch
    if problem.name in kernels.CUDA_GRAPH_PROBLEMS:
        return choose_shop_constructor(problem, policy)
    if device.type == "cuda":
        return construct_triton
    return construct_numba


def choose_shop_constructor(
    problem: Problem[Any, Any], policy: Policy[Any, Any, Any]
) -> Constructor:
    """Return the kernel for job shops, or the CUDA graph for rules and policies without a kernel.

    A policy that the kernel cannot hold is reported once, as the graph is several times slower.
    """
    if problem.name != "jssp":
        return construct_with_cuda_graph
    reason = kernels.why_not_job_shop(policy.architecture)
    if reason is None:
        return construct_triton_shop
    kernels.note_once(
        f"job shops are built by plain torch in a CUDA graph, several times slower: {reason}"
    )
    return construct_with_cuda_graph


def engine_for_layer(
    engine: EngineName, memory: Any, device: torch.device, nodes: int
) -> EngineName:
    """Return the engine, or torch if the tables have a residual layer that no kernel serves."""
    if getattr(memory, "layer", None) is None:
        return engine
    reason = kernels.why_not_layer(device, nodes)
    if reason is None:
        return engine
    return kernels.fused_unless(engine, reason)


@torch.no_grad()
def next_logits(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    latents: Float[Tensor, "B 1 Z"],
    state: Any,
    memory: Any,
) -> Float[Tensor, "B R A"]:
    """Score the actions that may follow a state; forbidden actions have -inf."""
    allowed = problem.mask(state)
    rollouts = allowed.shape[1]
    bias = policy.condition(memory, latents)
    bias = bias.map(lambda x: x.repeat_interleave(rollouts, dim=1))
    logits = policy.logits(memory, bias, state, allowed)
    return logits.masked_fill(~allowed, -torch.inf)


@torch.no_grad()
def complete(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B 1 Z"],
    prefixes: Prefixes,
    memory: Any,
    *,
    seed: int | Tensor = 0,
    attempt: int = 0,
    temperature: float = 0.0,
    samples: int = 0,
    engine: EngineName = "torch",
) -> Rollouts:
    """Complete partial solutions, greedily by default, and return them as R latents of one start.

    With `samples`, each group of that many consecutive prefixes draws the noise of an attempt of
    its own. Without, all prefixes draw the noise of one attempt.
    """
    if problem.name in kernels.CUDA_GRAPH_PROBLEMS:
        engine = kernels.fused_unless(engine, NO_PREFIXES)
    construct = choose_constructor(engine, problem, policy, batch, memory)
    rollouts = prefixes.length.shape[1]
    group = samples or rollouts
    assert rollouts % group == 0, f"{rollouts} rollouts are no groups of {group}"
    latents = latents.expand(-1, rollouts // group, -1)
    starts = prefixes.actions[:, :group, 0]
    request = RolloutRequest(
        problem, policy, batch, memory, latents, starts, seed, attempt, temperature, prefixes
    )
    completed = construct(request)
    return completed.map(lambda x: x.flatten(1, 2)[:, None])
