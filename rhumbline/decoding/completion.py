"""Completion of partial solutions, and the scores of what may follow them."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.decoding import engines
from rhumbline.decoding.engines import Engine
from rhumbline.decoding.request import (
    NO_LIMIT,
    EngineName,
    Prefixes,
    RolloutRequest,
    Rollouts,
    TimeLimit,
)
from rhumbline.policies import Policy
from rhumbline.problems import Problem


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
    engine: EngineName | Engine = "torch",
    limit: TimeLimit = NO_LIMIT,
) -> Rollouts:
    """Complete partial solutions, greedily by default, and return them as R latents of one start.

    With `samples`, each group of `samples` consecutive prefixes draws the noise of an attempt of
    its own. Without, all prefixes draw the noise of one attempt. `limit` is that of a
    `RolloutRequest`.
    """
    if isinstance(engine, str):
        ask = engines.make_ask(problem, policy, batch, memory, prefixes=True)
        engine = engines.choose_engine(engine, ask)
    rollouts = prefixes.length.shape[1]
    group = samples or rollouts
    assert rollouts % group == 0, f"{rollouts} rollouts are no groups of {group}"
    latents = latents.expand(-1, rollouts // group, -1)
    starts = prefixes.actions[:, :group, 0]
    request = RolloutRequest(
        problem,
        policy,
        batch,
        memory,
        latents,
        starts,
        seed,
        attempt,
        temperature,
        prefixes,
        limit=limit,
    )
    completed = engine.rollout(request)
    return completed.map(lambda x: x.flatten(1, 2)[:, None])
