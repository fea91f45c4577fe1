"""The plain torch engine: the definition of a rollout, which all other engines reproduce."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from rhumbline.decoding.engines.base import Ask
from rhumbline.decoding.request import RolloutRequest, Rollouts, split_rollouts


def construct_torch(request: RolloutRequest) -> Rollouts:
    """Construct rollouts step by step."""
    problem = request.problem
    batch = request.batch
    prefixes = request.prefixes
    horizon = problem.horizon(batch)
    tried = request.latents.shape[1]
    bias = request.rollout_bias
    first = request.first_actions
    state = problem.reset(batch, first)
    actions = [first]
    uniforms = request.uniforms(horizon) if request.temperature else None
    imposed_on_all = 1 if prefixes is None else int(prefixes.length.min())

    def next_action(step: int) -> Tensor:
        if prefixes is not None and step < imposed_on_all:
            return prefixes.actions[..., step]
        uniform = None if uniforms is None else uniforms[..., step]
        action = request.decide(bias, state, uniform)
        if prefixes is None:
            return action
        imposed = step < prefixes.length
        return torch.where(imposed, prefixes.actions[..., step], action)

    while len(actions) < imposed_on_all or not problem.finished(state):
        request.limit.check()
        action = next_action(len(actions))
        state = problem.step(state, action)
        actions.append(action)
    sequence = torch.stack(actions, dim=-1)
    # Finished rollouts take action 0. All results have the horizon's length, whatever the chunk.
    sequence = pad(sequence, (0, horizon - sequence.shape[-1]))
    cost = problem.outcome(batch, state, sequence)
    return split_rollouts(cost, sequence, tried)


class TorchEngine:
    """Plain torch, which serves all rules on all devices."""

    name = "torch"
    fused = False

    def why_not(self, ask: Ask) -> str | None:
        """Return None: plain torch always serves."""
        return None

    def rollout(self, request: RolloutRequest) -> Rollouts:
        """Construct rollouts step by step."""
        return construct_torch(request)


TORCH = TorchEngine()
