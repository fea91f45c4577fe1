"""Log-probabilities of given actions, with gradients: plain torch, which is the definition, or kernels."""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline import kernels
from rhumbline.decoding.engines import with_layer
from rhumbline.decoding.work import Engine
from rhumbline.policies import Policy
from rhumbline.policies.attention import CLIP
from rhumbline.policies.population import Crowd
from rhumbline.problems import Problem


def log_prob(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B K Z"],
    actions: Int[Tensor, "B R T"],
    *,
    memory: Any = None,
    engine: Engine = "auto",
    certain: float = 1.0,
) -> Float[Tensor, "B R"]:
    """Log-probability at temperature 1 of given action sequences, with gradients; the first action is imposed.

    Teacher forcing: all steps at once. K divides R, and sequence r belongs to latent r // (R / K). Decisions with a
    probability of at least `certain` count, but give no gradient; they have next to none, and kernels save the work.
    Below 1, actions may be marked by `rollout`: such a decision counts as certain.
    """
    memory = policy.encode(batch) if memory is None else memory
    if isinstance(memory, Crowd):
        return score_by_member(problem, policy, batch, latents, actions, memory, engine, certain)
    actions, skip = unmarked(actions) if certain < 1.0 else (actions, None)
    engine, width, architecture = with_layer(engine, memory), problem.width(batch), policy.architecture
    if kernels.resolve_log_prob(engine, problem.name, actions.device, width, architecture) == "fused":
        return fused_log_prob(batch, memory, policy.condition(memory, latents), actions, certain, skip)
    state, steps = problem.replay(batch, actions.long()), actions.shape[2] - 1
    rows = steps * (actions.shape[1] // latents.shape[1])
    shift = policy.condition(memory, latents).map(lambda x: x.repeat_interleave(rows, dim=1))
    allowed = problem.mask(state)
    logits = policy.logits(memory, shift, state, allowed).masked_fill(~allowed, -torch.inf)
    chosen = logits.log_softmax(-1).gather(-1, actions[:, :, 1:].long().flatten(1)[..., None])
    chosen = chosen.view(*actions.shape[:2], steps)
    if skip is not None:
        chosen = torch.where(chosen >= math.log(certain), chosen.detach(), chosen).masked_fill(skip[..., 1:], 0.0)
    return chosen.sum(-1)


def unmarked(actions: Int[Tensor, "*S T"]) -> tuple[Int[Tensor, "*S T"], Bool[Tensor, "*S T"]]:
    """The actions themselves, and which were marked as certain."""
    marks = actions < 0
    return torch.where(marks, ~actions, actions), marks


def score_by_member(
    problem: Problem[Any, Any], policy: Policy[Any, Any, Any], batch: Any, latents: Float[Tensor, "B K 1"],
    actions: Int[Tensor, "B R T"], crowd: Crowd, engine: Engine, certain: float,
) -> Float[Tensor, "B R"]:  # fmt: skip
    """Scores under a population: each member takes its own sequences, filled up to the most it has of an instance."""
    owner = latents[..., 0].long().repeat_interleave(actions.shape[1] // latents.shape[1], dim=1)  # [B, R]
    scores = torch.zeros(owner.shape, device=actions.device)
    for number, memory in enumerate(crowd.members):
        mine = owner == number
        order = mine.int().argsort(dim=1, descending=True, stable=True)[:, : int(mine.sum(1).max())]
        if order.shape[1]:
            some = actions.gather(1, order[..., None].expand(-1, -1, actions.shape[2]))
            own = log_prob(problem, policy, batch, latents[:, :1], some, memory=memory, engine=engine, certain=certain)
            scores = scores.scatter_add(1, order, own * mine.gather(1, order))
    return scores


def fused_log_prob(
    batch: Any, memory: Any, shift: Any, actions: Int[Tensor, "B R T"], certain: float = 1.0, skip: Tensor | None = None
) -> Float[Tensor, "B R"]:
    """The same by Triton kernels, without any tensor of rows x nodes in memory."""
    from rhumbline.kernels import log_prob as fused

    tables = fused.Tables(
        key=memory.key,
        value=memory.value,
        pointer=memory.pointer,
        query_last=memory.query_last,
        query_first=memory.query_first,
        query_load=None if memory.query_load is None else memory.query_load[:, 0],
        query_constant=shift.query,
        pointer_constant=shift.pointer,
    )
    if memory.query_load is None:
        return fused.log_prob(tables, actions, clip=CLIP, certain=certain, skip=skip)
    mask = fused.cvrp_mask(actions, batch.demand, batch.capacity[:, None, None])
    return fused.log_prob(tables, actions, mask, clip=CLIP, certain=certain, skip=skip)
