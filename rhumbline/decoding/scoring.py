"""Log-probabilities of given actions, with gradients: plain torch, which is the definition, or
kernels.
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline import kernels
from rhumbline.decoding.engines import engine_for_layer
from rhumbline.decoding.request import EngineName
from rhumbline.policies import Policy
from rhumbline.policies.attention.pointer import CLIP
from rhumbline.policies.population import PopulationMemory
from rhumbline.problems import Problem


def log_prob(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B K Z"],
    actions: Int[Tensor, "B R T"],
    *,
    memory: Any = None,
    engine: EngineName = "auto",
    certain: float = 1.0,
) -> Float[Tensor, "B R"]:
    """Log-probability at temperature 1 of given action sequences, with gradients; the first action
    is imposed.

    Teacher forcing: all steps at once. K divides R, and sequence r belongs to latent r // (R / K).
    Decisions with a probability of at least `certain` count, but give no gradient; they have next
    to none, and kernels save the work. Below 1, actions may be marked by `rollout`: such a decision
    counts as certain.
    """
    memory = policy.encode(batch) if memory is None else memory
    if isinstance(memory, PopulationMemory):
        return score_by_member(problem, policy, batch, latents, actions, memory, engine, certain)
    actions, skip = unmark_actions(actions) if certain < 1.0 else (actions, None)
    width = problem.action_count(batch)
    layered = getattr(memory, "layer", None) is not None
    engine = engine_for_layer(engine, memory, actions.device, width)
    fused = (
        kernels.resolve_log_prob(engine, problem.name, actions.device, width, policy.architecture)
        == "fused"
    )
    if fused and not layered:
        return triton_log_prob(
            batch, memory, policy.condition(memory, latents), actions, certain, skip
        )
    if (
        fused
        and kernels.fused_unless(engine, why_not_layer_alone(memory, latents, certain)) == "fused"
    ):
        return layer_log_prob(
            problem, policy, batch, memory, policy.condition(memory, latents), actions
        )
    state = problem.replay(batch, actions.long())
    steps = actions.shape[2] - 1
    rows = steps * (actions.shape[1] // latents.shape[1])
    shift = policy.condition(memory, latents).map(lambda x: x.repeat_interleave(rows, dim=1))
    allowed = problem.mask(state)
    chosen = chosen_log_prob(policy.logits(memory, shift, state, allowed), allowed, actions)
    if skip is not None:
        chosen = torch.where(chosen >= math.log(certain), chosen.detach(), chosen).masked_fill(
            skip[..., 1:], 0.0
        )
    return chosen.sum(-1)


def chosen_log_prob(
    logits: Float[Tensor, "B V N"], allowed: Bool[Tensor, "B V N"], actions: Int[Tensor, "B R T"]
) -> Float[Tensor, "B R t"]:
    """Log-probability of each action but the first."""
    scores = logits.masked_fill(~allowed, -torch.inf).log_softmax(-1)
    return scores.gather(-1, actions[:, :, 1:].long().flatten(1)[..., None]).view(
        *actions.shape[:2], -1
    )


def unmark_actions(
    actions: Int[Tensor, "*S T"],
) -> tuple[Int[Tensor, "*S T"], Bool[Tensor, "*S T"]]:
    """The actions themselves, and which were marked as certain."""
    actions = actions.contiguous()  # a GPU's rollouts are strided views, and several passes follow
    marks = actions < 0
    return torch.where(marks, ~actions, actions), marks


def score_by_member(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B K 1"],
    actions: Int[Tensor, "B R T"],
    crowd: PopulationMemory,
    engine: EngineName,
    certain: float,
) -> Float[Tensor, "B R"]:
    """Scores under a population: each member takes its own sequences, filled up to the most it
    has of an instance.
    """
    owner = (
        latents[..., 0].long().repeat_interleave(actions.shape[1] // latents.shape[1], dim=1)
    )  # [B, R]
    scores = torch.zeros(owner.shape, device=actions.device)
    for number, memory in enumerate(crowd.members):
        mine = owner == number
        order = mine.int().argsort(dim=1, descending=True, stable=True)[:, : int(mine.sum(1).max())]
        if order.shape[1]:
            some = actions.gather(1, order[..., None].expand(-1, -1, actions.shape[2]))
            own = log_prob(
                problem,
                policy,
                batch,
                latents[:, :1],
                some,
                memory=memory,
                engine=engine,
                certain=certain,
            )
            scores = scores.scatter_add(1, order, own * mine.gather(1, order))
    return scores


def triton_log_prob(
    batch: Any,
    memory: Any,
    shift: Any,
    actions: Int[Tensor, "B R T"],
    certain: float = 1.0,
    skip: Tensor | None = None,
) -> Float[Tensor, "B R"]:
    """The same by Triton kernels, without any tensor of rows x nodes in memory."""
    from rhumbline.kernels.triton.scoring import autograd as fused

    tables = scoring_tables(memory, shift)
    mask = scoring_mask(batch, memory, actions)
    return fused.score_actions(tables, actions, mask, clip=CLIP, certain=certain, skip=skip)


def layer_log_prob(
    problem: Problem[Any, Any],
    policy: Any,
    batch: Any,
    memory: Any,
    shift: Any,
    actions: Int[Tensor, "B R T"],
) -> Float[Tensor, "B R"]:
    """The same with a layer on the glimpse, and with gradients to the layer alone.

    So glimpses have none: a kernel makes them, and plain torch does the rest, in 16 bits on a GPU.
    """
    from rhumbline.kernels.triton.scoring import autograd as fused

    shift = shift.map(Tensor.detach)
    actions = (
        actions[:, :, : last_decision(actions) + 1] if memory.query_load is not None else actions
    )
    glimpse = fused.glimpses(
        scoring_tables(memory, shift), actions, scoring_mask(batch, memory, actions)
    )
    with torch.autocast(actions.device.type, torch.bfloat16, enabled=actions.is_cuda):
        logits = policy.decoder.layered(memory, shift, glimpse.flatten(1, 2))
    return chosen_log_prob(
        logits, problem.mask(problem.replay(batch, actions.long())), actions
    ).sum(-1)


def why_not_layer_alone(memory: Any, latents: Tensor, certain: float) -> str | None:
    """Why scores with a layer on the glimpse are not for `layer_log_prob`, or None if they are."""
    if certain < 1.0:
        return "with a layer on the glimpse the fused engine scores every decision, also those that are certain"
    tables = [
        x for x in (*vars(memory).values(), latents) if isinstance(x, Tensor)
    ]  # of which the layer is none
    if torch.is_grad_enabled() and any(x.requires_grad for x in tables):
        return "with a layer on the glimpse the fused engine has gradients to that layer alone"
    return None


def last_decision(actions: Int[Tensor, "B R T"]) -> int:
    """The last step at which any vehicle goes to a customer: behind it all is certain. The first
    is imposed.
    """
    return max(1, int(actions.flatten(0, 1).ne(0).any(0).nonzero().amax()))


def scoring_tables(memory: Any, shift: Any) -> Any:
    """What the kernels for scores read of a policy's tables."""
    from rhumbline.kernels.triton.scoring import autograd as fused

    return fused.ScoringTables(
        key=memory.key,
        value=memory.value,
        pointer=memory.pointer,
        query_last=memory.query_last,
        query_first=memory.query_first,
        query_load=None if memory.query_load is None else memory.query_load[:, 0],
        query_constant=shift.query,
        pointer_constant=shift.pointer,
    )


def scoring_mask(batch: Any, memory: Any, actions: Int[Tensor, "B R T"]) -> Any:
    """What the kernels for scores read of the rules, given the actions; None for tours, whose
    actions say it all.
    """
    from rhumbline.kernels.triton.scoring import autograd as fused

    if memory.query_load is None:
        return None
    return fused.cvrp_mask(actions, batch.demand, batch.capacity[:, None, None])
