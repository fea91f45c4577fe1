"""Ways to build rollouts: plain torch, which is the definition, and the kernels that do the same
faster.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline import kernels
from rhumbline.decoding.request import EngineName, Prefixes, RolloutRequest, Rollouts
from rhumbline.policies import Policy
from rhumbline.problems import Problem

NO_PREFIXES = "the kernels for job shops cannot carry on a sequence that has begun"


def choose_constructor(
    engine: EngineName,
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    memory: Any,
) -> Callable[..., Rollouts]:
    """The function behind an engine's name; raises if it was asked for by name and cannot run."""
    device = batch.key.device
    nodes = problem.action_count(batch)
    engine = engine_for_layer(engine, memory, device, nodes)
    if kernels.resolve(engine, problem.name, device, nodes, policy.architecture) == "torch":
        return construct_torch
    if problem.name in kernels.CUDA_GRAPH_PROBLEMS:
        return choose_shop_constructor(problem, policy)
    return construct_triton if device.type == "cuda" else construct_numba


def choose_shop_constructor(
    problem: Problem[Any, Any], policy: Policy[Any, Any, Any]
) -> Callable[..., Rollouts]:
    """The kernel for job shops, or a graph: for other rules, and for policies that it cannot
    hold, which is said.
    """
    if problem.name != "jssp":
        return construct_with_cuda_graph
    reason = kernels.why_not_job_shop(policy.architecture)
    if reason:
        kernels.note_once(
            f"job shops are built by plain torch in a CUDA graph, several times slower: {reason}"
        )
    return construct_with_cuda_graph if reason else construct_triton_shop


def engine_for_layer(
    engine: EngineName, memory: Any, device: torch.device, nodes: int
) -> EngineName:
    """The engine, or plain torch where the tables come with a layer that no kernel there knows."""
    reason = (
        None if getattr(memory, "layer", None) is None else kernels.why_not_layer(device, nodes)
    )
    return kernels.fused_unless(engine, reason) if reason else engine


def construct_torch(work: RolloutRequest) -> Rollouts:
    """Plain torch: the definition."""
    problem, batch, horizon, tried = (
        work.problem,
        work.batch,
        work.problem.horizon(work.batch),
        work.latents.shape[1],
    )
    shift = work.shift_of_rollouts
    given = work.given
    state = problem.reset(batch, work.first)
    actions = [work.first]
    uniform = work.uniform(horizon) if work.temperature else None
    settled = 1 if given is None else int(given.length.min())  # actions that are imposed on all
    while len(actions) < settled or not problem.finished(state):
        step = len(actions)
        if given is not None and step < settled:
            action = given.actions[..., step]
        else:
            action = work.decide(shift, state, None if uniform is None else uniform[..., step])
            if given is not None:
                action = torch.where(step < given.length, given.actions[..., step], action)
        state = problem.step(state, action)
        actions.append(action)
    sequence = torch.stack(actions, dim=-1)
    # Finished rollouts take action 0; all results have the horizon's length, whatever the chunk
    # they came from.
    sequence = torch.nn.functional.pad(sequence, (0, horizon - sequence.shape[-1]))
    return split_rollouts(problem.outcome(batch, state, sequence), sequence, tried)


@torch.no_grad()
def next_logits(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    latents: Float[Tensor, "B 1 Z"],
    state: Any,
    memory: Any,
) -> Float[Tensor, "B R A"]:
    """Scores of the action that follows a state, -inf where it is forbidden."""
    allowed = problem.mask(state)
    shift = policy.condition(memory, latents).map(
        lambda x: x.repeat_interleave(allowed.shape[1], dim=1)
    )
    return policy.logits(memory, shift, state, allowed).masked_fill(~allowed, -torch.inf)


@torch.no_grad()
def complete(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B 1 Z"],
    given: Prefixes,
    memory: Any,
    *,
    seed: int | Tensor = 0,
    attempt: int = 0,
    temperature: float = 0.0,
    samples: int = 0,
    engine: EngineName = "torch",
) -> Rollouts:
    """Given beginnings carried on, greedily unless told otherwise; results as of one latent and R
    starts.

    The noise is that of one attempt, or of one for each group of so many `samples`.
    """
    engine = (
        kernels.fused_unless(engine, NO_PREFIXES)
        if problem.name in kernels.CUDA_GRAPH_PROBLEMS
        else engine
    )
    build = choose_constructor(engine, problem, policy, batch, memory)
    rollouts = given.length.shape[1]
    each = samples or rollouts
    assert rollouts % each == 0, f"{rollouts} rollouts are no groups of {each}"
    latents = latents.expand(-1, rollouts // each, -1)
    starts = given.actions[:, :each, 0]
    rolled = build(
        RolloutRequest(
            problem, policy, batch, memory, latents, starts, seed, attempt, temperature, given
        )
    )
    return rolled.map(lambda x: x.flatten(1, 2)[:, None])


def split_rollouts(
    cost: Float[Tensor, "B R"], sequence: Int[Tensor, "B R T"], tried: int
) -> Rollouts:
    """Sequences with their cost, the rollout axis cut into latents and starts."""
    count = len(cost)
    per = cost.shape[1] // tried
    return Rollouts(
        cost.view(count, tried, per), sequence.to(torch.int16).view(count, tried, per, -1)
    )


def construct_with_cuda_graph(work: RolloutRequest) -> Rollouts:
    """Plain torch again, but a step is recorded once as a CUDA graph and then replayed; finished
    rollouts stay put.
    """
    from rhumbline.kernels import cuda_graph

    problem, steps, first, shift = (
        work.problem,
        work.problem.horizon(work.batch),
        work.first,
        work.shift_of_rollouts,
    )
    uniform = work.uniform(steps) if work.temperature else None
    kept = problem.reset(work.batch, first)
    at = torch.ones(1, dtype=torch.int64, device=first.device)
    sequence = first.new_zeros(*first.shape, steps)
    sequence[..., 0] = first

    def step() -> None:
        draw = None if uniform is None else uniform.index_select(2, at)[..., 0]
        state = replace(kept)  # a new object, which has not looked at anything yet
        action = work.decide(shift, state, draw)
        kept.copy_(problem.step(state, action))
        sequence.index_copy_(2, at, action[..., None])
        at.add_(1)

    cuda_graph.repeat(step, steps - 1, first.device, lambda: problem.finished(replace(kept)))
    return split_rollouts(
        problem.outcome(work.batch, kept, sequence), sequence, work.latents.shape[1]
    )


def construct_triton(work: RolloutRequest) -> Rollouts:
    """The whole rollout in one kernel launch."""
    from rhumbline.kernels.triton.rollout import tables as rollout_tables

    tables = rollout_tables.build_triton_tables(work.memory, work.shift)
    straight = (
        work.batch.has_euclidean_cost
    )  # else costs are measured from the actions, which must be what they are
    given = work.given and (work.given.actions, work.given.length)
    options = {
        "temperature": work.temperature,
        "mark": work.mark if straight else 0.0,
        "given": given,
    }
    found = GPU[work.problem.name](tables, work.batch, work.starts, noise_counters(work), **options)
    return reprice(work.problem, work.batch, *found)


def construct_triton_shop(work: RolloutRequest) -> Rollouts:
    """The same for job shops."""
    from rhumbline.kernels.triton.job_shop import launch as triton_job_shop

    policy: Any = work.policy
    problem: Any = work.problem
    found = triton_job_shop.jssp_rollout(
        triton_job_shop.build_shop_weights(policy.decoder),
        work.memory,
        work.shift,
        work.batch,
        noise_counters(work),
        starts=work.starts.shape[1],
        steps=problem.horizon(work.batch),
        heads=policy.architecture.heads,
        active=problem.active,
        temperature=work.temperature,
    )
    return Rollouts(*found)


def noise_counters(work: RolloutRequest) -> Int[Tensor, "2"]:
    """Seed and first attempt, filled on the device: nothing is copied from the host, so a graph
    may record it.
    """
    counters = torch.full((2,), work.attempt, dtype=torch.int64, device=work.starts.device)
    counters[0] = work.seed
    return counters


def reprice(
    problem: Problem[Any, Any],
    batch: Any,
    cost: Float[Tensor, "B K S"],
    actions: Int[Tensor, "B K S T"],
) -> Rollouts:
    """What a kernel found. It measures straight lines; other metrics and limits are priced from
    the actions.
    """
    if not batch.has_euclidean_cost:
        sequence = actions.flatten(1, 2).long()
        return split_rollouts(problem.cost(batch, sequence), sequence, actions.shape[1])
    return Rollouts(cost, actions)


def gpu_tsp(
    tables: Any, batch: Any, starts: Tensor, counters: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    """What the kernel reads of a TSP batch."""
    from rhumbline.kernels.triton.rollout import launch as triton_rollout

    return triton_rollout.tsp_rollout(tables, batch.xy, starts, batch.key, counters, **options)


def gpu_cvrp(
    tables: Any, batch: Any, starts: Tensor, counters: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    """What the kernel reads of a CVRP batch."""
    from rhumbline.kernels.triton.rollout import launch as triton_rollout

    return triton_rollout.cvrp_rollout(
        tables, batch.xy, batch.demand, batch.capacity, starts, batch.key, counters, **options
    )


GPU: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"tsp": gpu_tsp, "cvrp": gpu_cvrp}


def construct_numba(work: RolloutRequest) -> Rollouts:
    """The whole rollout in one call, with as many threads as torch uses."""
    from rhumbline.kernels.numba.rollout import launch as numba_rollout

    batch = work.batch
    threads = torch.get_num_threads()
    with numba_rollout.limit_torch_to_one_thread():
        found = numba_rollout.run_rollouts(
            numba_rollout.build_numba_tables(work.memory, work.shift),
            batch.xy,
            work.starts,
            batch.key,
            work.host_seed,
            work.attempt,
            vehicles=CPU[work.problem.name](batch),
            temperature=work.temperature,
            threads=threads,
            given=work.given and (work.given.actions, work.given.length),
        )
        return reprice(work.problem, batch, *found)


# What a problem gives the CPU kernel besides the policy's tables.
CPU: dict[str, Callable[[Any], tuple[Tensor, Tensor] | None]] = {
    "tsp": lambda batch: None,
    "cvrp": lambda batch: (batch.demand, batch.capacity),
}
