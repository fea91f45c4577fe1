"""Completion of partial solutions, and the scores of what may follow them."""

from dataclasses import dataclass
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


@dataclass(frozen=True)
class CompletionRequest:
    """Partial solutions to complete, greedily by default.

    With `samples`, each group of `samples` consecutive prefixes draws the noise of an attempt of
    its own. Without, all prefixes draw the noise of one attempt. `limit` is that of a
    `RolloutRequest`.
    """

    problem: Problem[Any, Any]
    policy: Policy[Any, Any, Any]
    batch: Any
    latents: Float[Tensor, "B 1 Z"]
    prefixes: Prefixes
    memory: Any
    seed: int | Tensor = 0
    attempt: int = 0
    temperature: float = 0.0
    samples: int = 0
    limit: TimeLimit = NO_LIMIT

    def choose_engine(self, name: EngineName) -> Engine:
        """Return the engine of a name that can complete the prefixes."""
        ask = engines.make_ask(self.problem, self.policy, self.batch, self.memory, prefixes=True)
        return engines.choose_engine(name, ask)

    def for_rollouts(self) -> RolloutRequest:
        """Return the request with a latent for each group of prefixes."""
        rollouts = self.prefixes.length.shape[1]
        group = self.samples or rollouts
        assert rollouts % group == 0, f"{rollouts} rollouts are no groups of {group}"
        return RolloutRequest(
            self.problem,
            self.policy,
            self.batch,
            self.memory,
            self.latents.expand(-1, rollouts // group, -1),
            self.prefixes.actions[:, :group, 0],
            self.seed,
            self.attempt,
            self.temperature,
            self.prefixes,
            limit=self.limit,
        )


@torch.no_grad()
def complete(request: CompletionRequest, engine: EngineName | Engine = "torch") -> Rollouts:
    """Complete partial solutions, and return them as R latents of one start."""
    if isinstance(engine, str):
        engine = request.choose_engine(engine)
    completed = engine.rollout(request.for_rollouts())
    return completed.map(lambda x: x.flatten(1, 2)[:, None])
