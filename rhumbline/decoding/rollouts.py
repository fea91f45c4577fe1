"""Rollouts by whatever engine serves, in groups and chunks that memory can hold."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rhumbline import kernels
from rhumbline.decoding.engines import choose_constructor
from rhumbline.decoding.request import EngineName, RolloutRequest, Rollouts
from rhumbline.errors import InputError
from rhumbline.policies import Policy
from rhumbline.policies.population import PopulationMemory
from rhumbline.problems import Problem

# Numbers of all rollouts worked on at once: a few cache-sized tensors on a CPU, gigabytes on a GPU.
CHUNK_ELEMENTS = {"cpu": 1 << 21, "cuda": 1 << 28}

# Instances x steps encoded at once, where `rollout` encodes: 20 KB each at the usual width.
ENCODED_STEPS = {"cpu": 1 << 16, "cuda": 1 << 17}


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
    engine: EngineName = "auto",
    mark: float = 0.0,
) -> Rollouts:
    """One solution per (instance, latent, start).

    `attempt` numbers the first latent among all that were ever tried on these instances: it
    continues the noise. `chunk` bounds the rollouts worked on at once; it changes memory, never
    results. With `mark`, an engine that knows complements (~a) the actions that had at least that
    probability, so that `score_actions` can leave them out.
    """
    options = {
        "seed": seed,
        "temperature": temperature,
        "chunk": chunk,
        "engine": engine,
        "mark": mark,
    }
    most = max(1, ENCODED_STEPS[starts.device.type] // problem.horizon(batch))
    if memory is None and len(starts) > most:
        return rollout_in_groups(
            problem, policy, batch, latents, starts, most, attempt=attempt, **options
        )
    memory = policy.encode(batch) if memory is None else memory
    if isinstance(memory, PopulationMemory):
        return rollout_by_member(
            problem, policy, batch, latents, starts, memory, attempt, **options
        )
    construct = choose_constructor(engine, problem, policy, batch, memory)
    work = RolloutRequest(
        problem, policy, batch, memory, latents, starts, seed, attempt, temperature, mark=mark
    )
    each = policy.footprint(problem.action_count(batch), problem.horizon(batch))
    chunk = chunk or max(1, CHUNK_ELEMENTS[starts.device.type] // each)
    return gather_parts(construct_chunks(work, construct, chunk), *latents.shape[:2])


def rollout_by_member(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B K 1"],
    starts: Int[Tensor, "B S"],
    crowd: PopulationMemory,
    attempt: int,
    **options: Any,
) -> Rollouts:
    """A population's rollouts, latent by latent: each instance has one member's tables at a
    time.
    """
    parts = (
        rollout(
            problem,
            policy,
            batch,
            one,
            starts,
            memory=crowd.pick(one[:, 0, 0].long()),
            attempt=attempt + k,
            **options,
        )
        for k, one in enumerate(latents.split(1, dim=1))
    )
    whole = slice(0, len(starts))
    return gather_parts(
        ((whole, slice(k, k + 1), part) for k, part in enumerate(parts)), *latents.shape[:2]
    )


def rollout_in_groups(
    problem: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    batch: Any,
    latents: Float[Tensor, "B K Z"],
    starts: Int[Tensor, "B S"],
    most: int,
    **options: Any,
) -> Rollouts:
    """Rollouts of so many instances that they are encoded in groups, one after the other."""
    (count, tried, _), groups = (
        latents.shape,
        (slice(at, at + most) for at in range(0, len(starts), most)),
    )
    parts = (
        (g, rollout(problem, policy, batch[g], latents[g], starts[g], **options)) for g in groups
    )
    return gather_parts(((g, slice(0, tried), part) for g, part in parts), count, tried)


def construct_chunks(
    work: RolloutRequest, construct: Callable[[RolloutRequest], Rollouts], chunk: int
) -> Iterator[tuple[slice, slice, Rollouts]]:
    """All rollouts, at most a chunk at a time, with their instances and latents.

    Where a chunk is too large for a GPU's memory, they go on in chunks of half its size.
    """
    (count, tried, _), per, done = work.latents.shape, work.starts.shape[1], 0
    most = max(1, chunk // per)
    while done < count * tried:
        rows, some = next_chunk(done, count, tried, most)
        size = (rows.stop - rows.start) * (some.stop - some.start)
        part = None
        try:
            part = construct(work.part(rows, some))
        except torch.OutOfMemoryError as error:
            if size == 1:
                words = f"{per:,} rollouts of one instance need more memory than the GPU has left"
                raise InputError(f"{words}; use --device cpu") from error
        if part is None:  # only here has the error let go of the tensors that were in the way
            most = size // 2
            torch.cuda.empty_cache()
            kernels.note_once(
                "the GPU's memory is too small for the usual chunks of rollouts; they are halved"
            )
            continue
        yield rows, some, part
        done += size


def next_chunk(done: int, count: int, tried: int, most: int) -> tuple[slice, slice]:
    """Instances and latents of the next chunk: several whole instances, or some latents of one."""
    row, at = divmod(done, tried)
    if at == 0 and most >= tried:
        return slice(row, min(row + most // tried, count)), slice(0, tried)
    return slice(row, row + 1), slice(at, min(at + most, tried))


def gather_parts(
    parts: Iterable[tuple[slice, slice, Rollouts]], count: int, tried: int
) -> Rollouts:
    """Parts of one result in their places, each let go as soon as it is there; a single one is
    the result itself.
    """
    whole = None
    for rows, some, part in parts:
        if part.cost.shape[:2] == (count, tried):
            return part
        if whole is None:
            whole = part.map(lambda x: x.new_empty(count, tried, *x.shape[2:]))
        whole.cost[rows, some], whole.actions[rows, some] = part.cost, part.actions
    assert whole is not None
    return whole
