"""Plain torch with each step replayed as a CUDA graph: for rules without a kernel of their own."""

from dataclasses import replace

import torch

from rhumbline.decoding.engines.base import NO_PREFIXES, Ask
from rhumbline.decoding.request import RolloutRequest, Rollouts, split_rollouts


def construct_with_cuda_graph(request: RolloutRequest) -> Rollouts:
    """Construct rollouts by recording one step as a CUDA graph and replaying it.

    Every replay runs the same operations on the same memory; finished rollouts stay as they are.
    """
    from rhumbline.kernels import cuda_graph

    problem = request.problem
    horizon = problem.horizon(request.batch)
    first = request.first_actions
    bias = request.rollout_bias
    uniforms = request.uniforms(horizon) if request.temperature else None
    kept = problem.reset(request.batch, first)
    position = torch.ones(1, dtype=torch.int64, device=first.device)
    sequence = first.new_zeros(*first.shape, horizon)
    sequence[..., 0] = first

    def step() -> None:
        uniform = None
        if uniforms is not None:
            uniform = uniforms.index_select(2, position)
            uniform = uniform[..., 0]
        state = replace(kept)  # a new object, without values cached by an earlier step
        action = request.decide(bias, state, uniform)
        following = problem.step(state, action)
        kept.copy_(following)
        column = action[..., None]
        sequence.index_copy_(2, position, column)
        position.add_(1)

    def finished() -> bool:
        state = replace(kept)
        return problem.finished(state)

    steps = horizon - 1  # the first action is imposed
    cuda_graph.repeat(step, steps, first.device, finished)
    cost = problem.outcome(request.batch, kept, sequence)
    tried = request.latents.shape[1]
    return split_rollouts(cost, sequence, tried)


class CUDAGraphEngine:
    """Plain torch with recorded steps, for rules without compiled rollouts."""

    name = "cuda_graph"
    fused = True

    def why_not(self, ask: Ask) -> str | None:
        """Return why steps cannot be recorded; `auto` records them for some rules only."""
        if not ask.on_gpu or ask.graph_use is None:
            return ask.no_kernel
        if ask.prefixes:
            return NO_PREFIXES
        if ask.gradients:
            return f"there is no fused scoring for {ask.rules.name}"
        if ask.graph_use == "by name" and not ask.by_name:
            return f"steps of {ask.rules.name} are recorded only for engine fused"
        return None

    def rollout(self, request: RolloutRequest) -> Rollouts:
        """Construct rollouts by replaying one step."""
        return construct_with_cuda_graph(request)


CUDA_GRAPH = CUDAGraphEngine()
