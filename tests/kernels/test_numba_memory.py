"""Sizes of the work: chunks of rollouts, groups of encoded instances, and a GPU whose memory is too
small.
"""

import pytest
import torch

from rhumbline.decoding import RolloutRequest, Rollouts, engines, rollout, rollouts
from rhumbline.decoding.engines.plain_torch import construct_torch
from rhumbline.errors import InputError, note_once
from rhumbline.problems.tsp import TSP


@pytest.fixture(autouse=True)
def forget_notes():
    """Print notes again that are printed once, in the test and after it."""
    note_once.cache_clear()
    yield
    note_once.cache_clear()


def work_of(make_batch, policy, count: int, tried: int) -> RolloutRequest:
    batch = make_batch(count, 5)
    latents = policy.space.sample((count, tried), torch.Generator().manual_seed(3))
    return RolloutRequest(
        TSP(), policy, batch, policy.encode(batch), latents, TSP().starts(batch), 1, 0, 1.0
    )


@pytest.mark.parametrize("max_chunk", [1, 2, 3, 4, 7, 8, 100])
def test_chunks_cover_everything_once(max_chunk: int) -> None:
    """Chunks of 5 instances x 3 latents follow one another, leave nothing out and are never larger
    than allowed.
    """
    seen, done = torch.zeros(5, 3), 0
    while done < 15:
        instances, latents = rollouts.next_chunk(done, 5, 3, max_chunk)
        assert 1 <= seen[instances, latents].numel() <= max_chunk
        seen[instances, latents] += 1
        done += seen[instances, latents].numel()
    assert torch.equal(seen, torch.ones(5, 3))


def test_chunk_is_as_large_as_allowed() -> None:
    """8 of 15 allowed: two instances of 3 latents; 2 allowed: two latents of an instance, then the
    third.
    """
    assert rollouts.next_chunk(0, 5, 3, 8) == (slice(0, 2), slice(0, 3))
    assert rollouts.next_chunk(12, 5, 3, 8) == (slice(4, 5), slice(0, 3))
    assert rollouts.next_chunk(6, 5, 3, 2) == (slice(2, 3), slice(0, 2))
    assert rollouts.next_chunk(8, 5, 3, 2) == (slice(2, 3), slice(2, 3))


@pytest.mark.parametrize("encoded", [5, 10, 15])
def test_instances_are_encoded_in_groups(make_batch, policy, monkeypatch, encoded: int) -> None:
    """No group exceeds the bound, and rollouts are those of instances that are encoded together."""
    work, sizes, encode = work_of(make_batch, policy, 7, 3), [], policy.encode

    def counted(batch):
        sizes.append(len(batch.xy))
        return encode(batch)

    arguments = (TSP(), policy, work.batch, work.latents, work.starts)
    together = rollout(*arguments, seed=1, memory=work.memory, engine="torch")
    monkeypatch.setitem(rollouts.TUNING.encoded_steps, "cpu", encoded)
    monkeypatch.setattr(policy, "encode", counted)
    apart = rollout(*arguments, seed=1, engine="torch")
    assert max(sizes) == encoded // 5
    assert sum(sizes) == 7
    assert torch.equal(apart.actions, together.actions)
    assert torch.allclose(apart.cost, together.cost)


def test_default_chunks_are_small() -> None:
    """On a CPU a tensor of [rollouts, steps] stays within 16 MiB even in int64, and encoding below
    2 GiB.
    """
    assert rollouts.TUNING.chunk_elements["cpu"] * 8 <= 16 << 20
    assert rollouts.TUNING.encoded_steps["cpu"] * 20_000 < 2 << 30  # measured: 1.2 GiB at 65,536


def limited(construct, most: int, asked: list[int]):
    """Return an engine on a device whose memory holds `most` rollouts."""

    def run(work: RolloutRequest) -> Rollouts:
        asked.append(work.latents.shape[0] * work.latents.shape[1] * work.starts.shape[1])
        if asked[-1] > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return construct(work)

    return run


def test_a_full_gpu_halves_the_chunk(make_batch, policy, monkeypatch, capsys) -> None:
    """Chunks are halved until they fit and stay so; results are the same, and the note is printed
    once.
    """
    work, asked = work_of(make_batch, policy, 6, 4), []
    arguments = (TSP(), policy, work.batch, work.latents, work.starts)
    expected = rollout(*arguments, seed=1, memory=work.memory, engine="torch")
    engine = limited(construct_torch, 25, asked)
    monkeypatch.setattr(engines.ENGINES["torch"], "rollout", engine)
    found = rollout(*arguments, seed=1, memory=work.memory)
    # 6 instances x 4 latents x 5 starts; half of them; of a quarter, the whole instances: one
    assert asked == [120, 60, 20, 20, 20, 20, 20, 20]
    assert torch.equal(found.actions, expected.actions)
    assert torch.equal(found.cost, expected.cost)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "note: the GPU's memory is too small for the default chunks of rollouts; they are halved"
    ]


def test_chunks_go_below_an_instance(make_batch, policy) -> None:
    """If the latents of one instance do not fit together, they are constructed in turn with their
    own noise.
    """
    work, asked = work_of(make_batch, policy, 2, 4), []
    expected = construct_torch(work)
    parts = rollouts.construct_chunks(work, limited(construct_torch, 9, asked), 1000)
    found = rollouts.gather_parts(parts, 2, 4)
    assert asked == [40, 20, 10, *[5] * 8]
    assert torch.equal(found.actions, expected.actions)


def test_a_gpu_that_is_far_too_small(make_batch, policy) -> None:
    """If one latent of one instance does not fit, the error says so and what to do."""
    work = work_of(make_batch, policy, 1, 2)
    with pytest.raises(
        InputError,
        match="5 rollouts of one instance need more memory than the GPU has left; use --de",
    ):
        list(rollouts.construct_chunks(work, limited(construct_torch, 4, []), 1000))
