"""Rollouts by the engine that serves, in groups and chunks that fit into memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline.decoding import engines
from rhumbline.decoding.engines import Engine
from rhumbline.decoding.request import (
    NO_LIMIT,
    EngineName,
    RolloutRequest,
    Rollouts,
    TimeLimit,
)
from rhumbline.errors import InputError, note_once
from rhumbline.policies import Policy
from rhumbline.policies.population import PopulationMemory
from rhumbline.problems import Problem


@dataclass(frozen=True)
class RolloutTuning:
    """How much is worked on at once, by device."""

    # Tensor elements alive at once: a few cache-sized tensors on a CPU, gigabytes on a GPU.
    chunk_elements: Mapping[str, int] = field(
        default_factory=lambda: {"cpu": 1 << 21, "cuda": 1 << 28}
    )
    # Instances times steps that `rollout` encodes at once: 20 KB each at the default width.
    encoded_steps: Mapping[str, int] = field(
        default_factory=lambda: {"cpu": 1 << 16, "cuda": 1 << 17}
    )


TUNING = RolloutTuning()

Part = tuple[slice, slice, Rollouts]  # instances, latents, and their rollouts


@torch.no_grad()
def rollout(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B K Z"],
    starts: Int[Tensor, "B S"],
    *,
    seed: int | Tensor,
    attempt: int = 0,
    temperature: float = 1.0,
    memory: Any = None,
    chunk: int | None = None,
    engine: EngineName | Engine = "auto",
    mark: float = 0.0,
    limit: TimeLimit = NO_LIMIT,
) -> Rollouts:
    """Construct one solution for each instance, latent and start.

    `attempt` is the number of the first latent among all that were tried on these instances; the
    random numbers depend on it. `chunk` limits the rollouts that are alive at once; it changes the
    memory in use, never results. With `mark`, an engine that supports marks stores the actions that
    had at least that probability as their complements (~a), so that `log_prob` can leave them out.
    A `limit` may end the call; all rollouts are lost then.
    """
    device = starts.device.type
    horizon = problem.horizon(batch)
    options: dict[str, Any] = {
        "seed": seed,
        "temperature": temperature,
        "chunk": chunk,
        "engine": engine,
        "mark": mark,
        "limit": limit,
    }
    max_group = max(1, TUNING.encoded_steps[device] // horizon)
    if memory is None and len(starts) > max_group:
        return rollout_in_groups(
            problem, policy, batch, latents, starts, max_group, attempt=attempt, **options
        )
    if memory is None:
        memory = policy.encode(batch)
    if isinstance(memory, PopulationMemory):
        return rollout_by_member(
            problem, policy, batch, latents, starts, memory, attempt=attempt, **options
        )
    if isinstance(engine, str):
        ask = engines.make_ask(problem, policy, batch, memory)
        engine = engines.choose_engine(engine, ask)
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
        mark=mark,
        limit=limit,
    )
    if not chunk:
        footprint = policy.footprint(problem.action_count(batch), horizon)
        chunk = max(1, TUNING.chunk_elements[device] // footprint)
    parts = construct_chunks(request, engine.rollout, chunk)
    return gather_parts(parts, *latents.shape[:2])


def rollout_by_member(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B K 1"],
    starts: Int[Tensor, "B S"],
    memory: PopulationMemory,
    **options: Any,
) -> Rollouts:
    """Construct the rollouts of a population, one latent at a time.

    Each instance then has the tables of one member, which its latent names.
    """
    count, num_latents, _ = latents.shape
    first_attempt = options.pop("attempt")

    def parts() -> Iterator[Part]:
        for k, latent in enumerate(latents.split(1, dim=1)):
            member = memory.pick(latent[:, 0, 0].long())
            part = rollout(
                problem,
                policy,
                batch,
                latent,
                starts,
                memory=member,
                attempt=first_attempt + k,
                **options,
            )
            yield slice(0, count), slice(k, k + 1), part

    return gather_parts(parts(), count, num_latents)


def rollout_in_groups(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B K Z"],
    starts: Int[Tensor, "B S"],
    max_group: int,
    **options: Any,
) -> Rollouts:
    """Construct rollouts of many instances, encoding and decoding at most `max_group` at once."""
    count, num_latents, _ = latents.shape

    def parts() -> Iterator[Part]:
        for begin in range(0, count, max_group):
            group = slice(begin, begin + max_group)
            part = rollout(
                problem,
                policy,
                batch[group],
                latents[group],
                starts[group],
                **options,
            )
            yield group, slice(0, num_latents), part

    return gather_parts(parts(), count, num_latents)


def construct_chunks(
    request: RolloutRequest, construct: Callable[[RolloutRequest], Rollouts], chunk: int
) -> Iterator[Part]:
    """Construct all rollouts, at most `chunk` at a time, with their instances and latents.

    A chunk that does not fit into the memory of a GPU is halved, and so are those after it.
    """
    count, num_latents, _ = request.latents.shape
    starts = request.starts.shape[1]
    max_chunk = max(1, chunk // starts)
    done = 0
    while done < count * num_latents:
        request.limit.check()
        instances, latents = next_chunk(done, count, num_latents, max_chunk)
        instance_count = instances.stop - instances.start
        size = instance_count * (latents.stop - latents.start)
        part = None
        try:
            part = construct(request.part(instances, latents))
        except torch.OutOfMemoryError as error:
            if size == 1:
                raise InputError(
                    f"{starts:,} rollouts of one instance need more memory than the GPU has left; "
                    "use --device cpu"
                ) from error
        if part is None:  # here, not above: the error has released the tensors that were in the way
            max_chunk = size // 2
            torch.cuda.empty_cache()
            note_once(
                "the GPU's memory is too small for the default chunks of rollouts; they are halved"
            )
            continue
        yield instances, latents, part
        done += size


def next_chunk(done: int, count: int, num_latents: int, max_chunk: int) -> tuple[slice, slice]:
    """Return the instances and the latents of the next chunk, which has at most `max_chunk` pairs.

    A chunk has all latents of several instances, or some latents of one instance.
    """
    row, latent = divmod(done, num_latents)
    if latent == 0 and max_chunk >= num_latents:
        rows = max_chunk // num_latents
        end = min(row + rows, count)
        instances = slice(row, end)
        return instances, slice(0, num_latents)
    end = min(latent + max_chunk, num_latents)
    instance = slice(row, row + 1)
    return instance, slice(latent, end)


def gather_parts(parts: Iterable[Part], count: int, num_latents: int) -> Rollouts:
    """Copy parts into one result, or return a single part as it is.

    Each part is released as soon as it is copied.
    """
    whole = None
    for instances, latents, part in parts:
        if part.cost.shape[:2] == (count, num_latents):
            return part
        if whole is None:
            whole = part.map(lambda x: x.new_empty(count, num_latents, *x.shape[2:]))
        whole.cost[instances, latents] = part.cost
        whole.actions[instances, latents] = part.actions
    assert whole is not None
    return whole
