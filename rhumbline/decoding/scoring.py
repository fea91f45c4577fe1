"""Log-probabilities of given actions with gradients: plain torch, the definition, or kernels."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline.decoding import engines
from rhumbline.decoding.engines import ENGINES, Engine, has_layer, require_engine
from rhumbline.decoding.request import EngineName
from rhumbline.policies import Policy
from rhumbline.policies.attention.pointer import CLIP
from rhumbline.policies.population import PopulationMemory
from rhumbline.problems import Problem
from rhumbline.record import Record


def log_prob(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B K Z"],
    actions: Int[Tensor, "B R T"],
    *,
    memory: Any = None,
    engine: EngineName | Engine = "auto",
    certain: float = 1.0,
    temperature: float = 1.0,
) -> Float[Tensor, "B R"]:
    """Compute the log-probability of given action sequences at a temperature, with gradients.

    The first action is imposed and not scored. All steps are scored at once (teacher forcing).
    K divides R, and sequence r belongs to latent r // (R / K).

    Decisions with a probability of at least `certain` count, but have no gradient. Their gradient
    would be close to zero, and kernels save the work. Below 1, actions may be marked by `rollout`;
    a marked decision counts as certain.
    """
    if memory is None:
        memory = policy.encode(batch)
    if isinstance(memory, PopulationMemory):
        return score_by_member(
            problem,
            policy,
            batch,
            latents,
            actions,
            memory,
            engine=engine,
            certain=certain,
            temperature=temperature,
        )
    skip = None
    if certain < 1.0:
        actions, skip = unmark_actions(actions)
    chosen = engine
    if isinstance(chosen, str):
        ask = engines.make_ask(problem, policy, batch, memory, gradients=True)
        chosen = engines.choose_engine(chosen, ask)
    has_kernels = chosen is ENGINES["triton"]
    if has_kernels and not has_layer(memory):
        bias = policy.condition(memory, latents)
        clip = CLIP / temperature  # logits are CLIP tanh(x)
        return triton_log_prob(batch, memory, bias, actions, clip=clip, certain=certain, skip=skip)
    if has_kernels and temperature == 1.0:
        reason = why_not_layer_alone(memory, latents, certain)
        if reason is None:
            bias = policy.condition(memory, latents)
            return layer_log_prob(problem, policy, batch, memory, bias, actions)
        if engine == "fused":
            require_engine(reason)
    if chosen is ENGINES["numba_job_shop"] and certain == temperature == 1.0:
        bias = policy.condition(memory, latents)
        if differentiates_table_alone(policy, memory, bias):
            return schedule_log_prob(problem, policy, batch, memory, bias, actions)
    scored = score_decisions(problem, policy, batch, latents, actions, memory)
    decisions = chosen_log_prob(scored.logits / temperature, scored.allowed, actions)
    if skip is not None:
        is_certain = decisions >= math.log(certain)
        decisions = torch.where(is_certain, decisions.detach(), decisions)
        decisions = decisions.masked_fill(skip[..., 1:], 0.0)
    return decisions.sum(-1)


def differentiates_table_alone(policy: Any, memory: Any, bias: Any) -> bool:
    """Return whether no gradients but those of the table of operations are wanted."""
    if not torch.is_grad_enabled():
        return True
    fixed = (*policy.parameters(), *vars(bias).values(), memory.unit, memory.bound)
    return not any(x.requires_grad for x in fixed)


def schedule_log_prob(
    problem: Any,
    policy: Any,
    batch: Any,
    memory: Any,
    bias: Any,
    actions: Int[Tensor, "B R T"],
) -> Float[Tensor, "B R"]:
    """Compute the log-probabilities of schedules by compiled code on a CPU."""
    from rhumbline.kernels.numba.job_shop.scoring import score_schedules

    return score_schedules(policy.decoder, memory, bias, batch, actions, problem.active)


@dataclass(frozen=True)
class Decisions(Record):
    """The decisions of given sequences: t of each, side by side in the rollout axis V."""

    logits: Float[Tensor, "B V N"]
    allowed: Bool[Tensor, "B V N"]
    state: Any


def score_decisions(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B K Z"],
    actions: Int[Tensor, "B R T"],
    memory: Any,
) -> Decisions:
    """Return the logits before each action but the first, and their states: the definition."""
    state = problem.replay(batch, actions.long())
    _, sequences, length = actions.shape
    per_latent = sequences // latents.shape[1]
    decisions = per_latent * (length - 1)
    bias = policy.condition(memory, latents)
    bias = bias.map(lambda x: x.repeat_interleave(decisions, dim=1))
    allowed = problem.mask(state)
    logits = policy.logits(memory, bias, state, allowed)
    return Decisions(logits, allowed, state)


def chosen_log_prob(
    logits: Float[Tensor, "B V N"], allowed: Bool[Tensor, "B V N"], actions: Int[Tensor, "B R T"]
) -> Float[Tensor, "B R t"]:
    """Select the log-probability of each action but the first."""
    count, sequences, _ = actions.shape
    logits = logits.masked_fill(~allowed, -torch.inf)
    scores = logits.log_softmax(-1)
    chosen = actions[:, :, 1:]
    index = chosen.long().flatten(1)
    index = index[..., None]
    selected = scores.gather(-1, index)
    return selected.view(count, sequences, -1)


def unmark_actions(
    actions: Int[Tensor, "*S T"],
) -> tuple[Int[Tensor, "*S T"], Bool[Tensor, "*S T"]]:
    """Return the actions themselves, and which of them were marked as certain."""
    actions = actions.contiguous()  # rollouts of a GPU are strided views, and several passes follow
    marked = actions < 0
    unmarked = torch.where(marked, ~actions, actions)
    return unmarked, marked


def score_by_member(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B K 1"],
    actions: Int[Tensor, "B R T"],
    memory: PopulationMemory,
    **options: Any,
) -> Float[Tensor, "B R"]:
    """Score sequences under a population: each member scores those of its own latents.

    Instances of which a member has fewer sequences are filled up to the most that it has of one.
    """
    sequences = actions.shape[1] // latents.shape[1]
    owner = latents[..., 0].long().repeat_interleave(sequences, dim=1)  # [B, R]
    scores = torch.zeros(owner.shape, device=actions.device)
    for number, member in enumerate(memory.members):
        owned = owner == number
        most = int(owned.sum(1).max())
        order = owned.int().argsort(
            dim=1,
            descending=True,
            stable=True,
        )
        order = order[:, :most]
        if not order.shape[1]:
            continue
        index = order[..., None]
        index = index.expand(-1, -1, actions.shape[2])
        some = actions.gather(1, index)
        scored = log_prob(problem, policy, batch, latents[:, :1], some, memory=member, **options)
        scored = scored * owned.gather(1, order)
        scores = scores.scatter_add(1, order, scored)
    return scores


def triton_log_prob(
    batch: Any,
    memory: Any,
    bias: Any,
    actions: Int[Tensor, "B R T"],
    **options: Any,
) -> Float[Tensor, "B R"]:
    """Compute the log-probabilities by Triton kernels, without any tensor of rows x nodes."""
    from rhumbline.kernels.triton.scoring import autograd as triton_scoring

    tables = scoring_tables(memory, bias)
    mask = scoring_mask(batch, memory, actions)
    return triton_scoring.score_actions(tables, actions, mask, **options)


def layer_log_prob(
    problem: Problem[Any, Any],
    policy: Any,
    batch: Any,
    memory: Any,
    bias: Any,
    actions: Int[Tensor, "B R T"],
) -> Float[Tensor, "B R"]:
    """Compute the log-probabilities with a residual layer after the attention read-out.

    Only the layer gets gradients. A kernel makes the glimpses, without gradients, and plain torch
    does the rest, in 16 bits on a GPU.
    """
    from rhumbline.kernels.triton.scoring import autograd as triton_scoring

    bias = bias.map(Tensor.detach)
    if memory.query_load is not None:
        end = last_decision(actions) + 1
        actions = actions[:, :, :end]
    tables = scoring_tables(memory, bias)
    mask = scoring_mask(batch, memory, actions)
    glimpses = triton_scoring.glimpses(tables, actions, mask)
    glimpses = glimpses.flatten(1, 2)
    device = actions.device.type
    with torch.autocast(device, torch.bfloat16, enabled=actions.is_cuda):
        logits = policy.decoder.score_through_layer(memory, bias, glimpses)
    state = problem.replay(batch, actions.long())
    allowed = problem.mask(state)
    decisions = chosen_log_prob(logits, allowed, actions)
    return decisions.sum(-1)


def why_not_layer_alone(memory: Any, latents: Tensor, certain: float) -> str | None:
    """Return why `layer_log_prob` cannot score with a residual layer, or None if it can."""
    if certain < 1.0:
        return (
            "with a layer on the glimpse the fused engine scores every decision, "
            "also those that are certain"
        )
    fields = (*vars(memory).values(), latents)  # the layer is a record, not a tensor
    differentiable = any(x.requires_grad for x in fields if isinstance(x, Tensor))
    if torch.is_grad_enabled() and differentiable:
        return "with a layer on the glimpse the fused engine has gradients to that layer alone"
    return None


def last_decision(actions: Int[Tensor, "B R T"]) -> int:
    """Return the last step at which any vehicle goes to a customer, 1 at least.

    All later actions are certain; the first action is imposed.
    """
    sequences = actions.flatten(0, 1)
    is_visit = sequences.ne(0)
    has_visit = is_visit.any(0)
    steps = has_visit.nonzero()
    last = steps.amax()
    return max(1, int(last))


def scoring_tables(memory: Any, bias: Any) -> Any:
    """Select what the scoring kernels read of a policy's tables."""
    from rhumbline.kernels.triton.scoring import autograd as triton_scoring

    return triton_scoring.ScoringTables(
        key=memory.key,
        value=memory.value,
        pointer=memory.pointer,
        query_last=memory.query_last,
        query_first=memory.query_first,
        query_load=None if memory.query_load is None else memory.query_load[:, 0],
        query_constant=bias.query,
        pointer_constant=bias.pointer,
    )


def scoring_mask(batch: Any, memory: Any, actions: Int[Tensor, "B R T"]) -> Any:
    """Compute what the scoring kernels read of the rules; None for a TSP, where actions suffice."""
    from rhumbline.kernels.triton.scoring import autograd as triton_scoring

    if memory.query_load is None:
        return None
    capacity = batch.capacity[:, None, None]
    return triton_scoring.cvrp_mask(actions, batch.demand, capacity)
