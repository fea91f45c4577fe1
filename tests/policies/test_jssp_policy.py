"""The job-shop policy: what it must ignore, what costs nothing, and that scoring is sampling."""

from dataclasses import replace

import pytest
import torch

from rhumbline.decoding import RolloutRequest, log_prob, rollout
from rhumbline.decoding.engines.cuda_graphs import construct_with_cuda_graph
from rhumbline.decoding.engines.plain_torch import construct_torch
from rhumbline.kernels import cuda_graph
from rhumbline.policies.jssp import (
    TUNING,
    JSSPArchitecture,
    JSSPPolicy,
    fast_asinh,
    fast_softmax,
    is_cpu_inference,
    machine_groups,
)
from rhumbline.problems.jssp import JSSP, JSSPBatch, JSSPInstance
from rhumbline.problems.jssp.rules import batch_from_tables

# Jobs of several lengths; one visits machine 0 three times, and none visits machine 2.
UNEVEN = JSSPInstance(
    "uneven", ((2, 5, 1, 4), (3,), (4, 2), (0, 7, 6)), ((0, 1, 0, 0), (1,), (0, 1), (1, 0, 1)), 3
)
CROWDED = replace(UNEVEN, machines=((0, 0, 0, 0), (0,), (0, 0), (0, 1, 0)))


def small_policy(latent: int = 4, seed: int = 0) -> JSSPPolicy:
    """Return a random policy whose scores are not flat and whose latents matter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy = JSSPPolicy(JSSPArchitecture(width=32, heads=2, layers=2, hidden=32, latent=latent))
        policy.decoder.score.weight.data.mul_(8.0)
        for weight in (policy.decoder.rival, *(x.offset for x in policy.encoder.layers)):
            weight.data.normal_()
        for weight in (policy.decoder.token_latent, policy.decoder.hidden_latent):
            weight.data.normal_(0, 0.005)  # times the amplification of 100
    return policy.requires_grad_(False)


@pytest.fixture(scope="module")
def policy() -> JSSPPolicy:
    return small_policy()


def latents_for(policy: JSSPPolicy, count: int, tried: int, seed: int = 0) -> torch.Tensor:
    return policy.space.sample((count, tried), torch.Generator().manual_seed(seed))


def scores_on_the_way(policy: JSSPPolicy, batch: JSSPBatch, actions: torch.Tensor) -> torch.Tensor:
    """Return masked scores before every decision of given sequences, [B, R, T - 1, J]."""
    problem = JSSP()
    state, memory = problem.replay(batch, actions), policy.encode(batch)
    allowed = problem.mask(state)
    shift = policy.condition(memory, torch.full((len(actions), state.next.shape[1], 4), 0.3))
    logits = policy.logits(memory, shift, state, allowed).masked_fill(~allowed, -torch.inf)
    return logits.view(*actions.shape[:2], -1, logits.shape[2])


def random_batch(count: int, shape: tuple[int, int], rng: torch.Generator) -> JSSPBatch:
    """Return instances with durations so long that machines never tie."""
    machine = JSSP().sample(count, f"{shape[0]}x{shape[1]}", rng).machine[..., :-1]
    duration = torch.randint(1, 10**5, (count, *shape), generator=rng)
    return batch_from_tables(
        duration,
        machine,
        shape[1],
        torch.arange(count),
        steps=shape[0] * shape[1],
        max_per_machine=shape[0],
    )


# --- groups


@pytest.mark.parametrize("instances", [[UNEVEN], [UNEVEN, CROWDED]], ids=["alone", "with a crowd"])
def test_groups_hold_the_operations_of_each_machine(instances: list[JSSPInstance]) -> None:
    """Each place of a machine holds one of its operations or is masked.

    Each operation is in its place.
    """
    batch = JSSP().collate(instances)
    groups, crowd = machine_groups(batch), batch.max_per_machine
    for row, instance in enumerate(instances):
        open_places = groups.on_machine[row, :, 0, 0].flatten() == 0
        operations = [(o.job * 4 + o.step, o.machine) for o in instance.operations]
        assert int(open_places.sum()) == instance.size
        for operation, machine in operations:
            place = groups.place[row, operation].item()
            assert place // crowd == machine
            assert open_places[place]
            assert groups.member[row, place] == operation
        assert int((groups.in_job[row] == 0).sum()) == instance.size


# --- what may not matter


def test_permuting_jobs_permutes_scores(policy: JSSPPolicy, rng: torch.Generator) -> None:
    """Jobs in another order get the same scores at every decision of the same schedule."""
    batch, order = random_batch(4, (5, 4), rng), torch.tensor([2, 4, 0, 3, 1])
    shuffled = replace(
        batch, **{n: getattr(batch, n)[:, order] for n in ("duration", "machine", "tail")}
    )
    starts = torch.zeros(4, 3, dtype=torch.int64)
    actions = (
        rollout(JSSP(), policy, batch, latents_for(policy, 4, 1), starts, seed=0)
        .actions[:, 0]
        .long()
    )
    renamed = torch.cat([actions[..., :1], order.argsort()[actions[..., 1:]]], dim=-1)
    one, other = (
        scores_on_the_way(policy, batch, actions),
        scores_on_the_way(policy, shuffled, renamed),
    )
    assert torch.allclose(one[..., order], other, atol=2e-4)
    assert one[one.isfinite()].std() > 0.1


def test_names_of_machines_change_nothing(policy: JSSPPolicy, rng: torch.Generator) -> None:
    """Machines in another order leave every greedy schedule unchanged."""
    batch, names = random_batch(6, (6, 4), rng), torch.tensor([2, 0, 3, 1, 4])
    renamed = replace(batch, machine=names[batch.machine], load=batch.load[:, names.argsort()])
    z, starts = latents_for(policy, 6, 5), JSSP().starts(batch)
    one, other = (
        rollout(JSSP(), policy, b, z, starts, seed=0, temperature=0.0) for b in (batch, renamed)
    )
    assert torch.equal(one.actions, other.actions)


def test_the_unit_of_time_changes_nothing(policy: JSSPPolicy, rng: torch.Generator) -> None:
    """Durations times 60 give the same greedy schedules."""
    batch = random_batch(6, (6, 4), rng)
    scaled = replace(
        batch, duration=60 * batch.duration, tail=60 * batch.tail, load=60 * batch.load
    )
    z, starts = latents_for(policy, 6, 3), JSSP().starts(batch)
    one, other = (
        rollout(JSSP(), policy, b, z, starts, seed=0, temperature=0.0) for b in (batch, scaled)
    )
    assert torch.equal(one.actions, other.actions)
    assert torch.equal(60 * one.cost, other.cost)


def test_batch_and_chunks_change_nothing(policy: JSSPPolicy) -> None:
    """An instance gets the same schedules in any batch and any chunking."""
    problem, pair, z = (
        JSSP(),
        JSSP().collate([CROWDED, UNEVEN]),
        latents_for(policy, 1, 6).expand(2, -1, -1),
    )
    whole = rollout(problem, policy, pair, z, problem.starts(pair), seed=4)
    for chunk in (1, 4, 6):
        assert torch.equal(
            rollout(problem, policy, pair, z, problem.starts(pair), seed=4, chunk=chunk).actions,
            whole.actions,
        )
    alone = JSSP().collate([UNEVEN])
    own = rollout(problem, policy, alone, z[:1], problem.starts(alone), seed=4)
    assert torch.equal(own.actions[0], whole.actions[1])
    later = rollout(problem, policy, alone, z[:1, 2:], problem.starts(alone), seed=4, attempt=2)
    assert torch.equal(later.actions, own.actions[:, 2:])


def test_a_new_latent_space_changes_nothing(rng: torch.Generator) -> None:
    """A widened policy decides as before; a latent of the small policy matters."""
    single, batch = small_policy(0), JSSP().sample(3, "5x4", rng)
    wide, starts = single.widened(4), JSSP().starts(batch)
    one = rollout(JSSP(), single, batch, torch.zeros(3, 8, 0), starts, seed=1)
    assert torch.equal(
        rollout(JSSP(), wide, batch, latents_for(wide, 3, 8), starts, seed=1).actions, one.actions
    )
    policy = small_policy()
    z = latents_for(policy, 3, 8)
    greedy = rollout(JSSP(), policy, batch, z, starts, seed=1, temperature=0.0)
    assert not torch.equal(greedy.actions[:, :1].expand_as(greedy.actions), greedy.actions)


# --- scores


def test_log_prob_is_the_sum_over_steps(policy: JSSPPolicy) -> None:
    """Teacher forcing equals walking through the states, also with uneven jobs and batches."""
    problem, batch, z = JSSP(), JSSP().collate([UNEVEN, CROWDED]), latents_for(policy, 2, 3)
    actions = (
        rollout(problem, policy, batch, z, problem.starts(batch), seed=0)
        .actions.flatten(1, 2)
        .long()
    )
    memory = policy.encode(batch)
    state, walked, shift = (
        problem.reset(batch, actions[..., 0]),
        torch.zeros(2, 3),
        policy.condition(memory, z),
    )
    for t in range(1, actions.shape[2]):
        allowed = problem.mask(state)
        logits = policy.logits(memory, shift, state, allowed).masked_fill(~allowed, -torch.inf)
        walked += logits.log_softmax(-1).gather(2, actions[..., t : t + 1])[..., 0]
        state = problem.step(state, actions[..., t])
    scores = log_prob(problem, policy, batch, z, actions)
    assert torch.allclose(scores, walked, atol=1e-5)
    assert (scores < -0.1).all()


def test_forced_decisions_are_left_out_exactly(policy: JSSPPolicy, rng: torch.Generator) -> None:
    """Allowed jobs get the scores of a full pass where a choice exists; elsewhere zero."""
    problem, batch = JSSP(), JSSP().sample(2, "5x4", rng)
    z = latents_for(policy, 2, 4)
    actions = (
        rollout(problem, policy, batch, z, problem.starts(batch), seed=0)
        .actions.flatten(1, 2)
        .long()
    )
    state, memory = problem.replay(batch, actions), policy.encode(batch)
    allowed, shift = problem.mask(state), policy.condition(memory, z.repeat_interleave(20, dim=1))
    every = policy.score_rows(memory, shift, state, allowed, slice(None)).view(allowed.shape)
    some, free = policy.logits(memory, shift, state, allowed), allowed.sum(2) > 1
    assert 0.2 < free.float().mean() < 0.8
    wanted = allowed & free[..., None]
    assert torch.allclose(some[wanted], every[wanted], atol=1e-5)
    assert not some[~wanted].any()


def test_every_weight_learns(rng: torch.Generator) -> None:
    """The score of sampled schedules has a finite gradient for every weight."""
    policy, batch = small_policy().requires_grad_(True), JSSP().collate([UNEVEN])
    z = latents_for(policy, 1, 8)
    actions = rollout(JSSP(), policy, batch, z, JSSP().starts(batch), seed=0).actions.flatten(1, 2)
    log_prob(JSSP(), policy, batch, z, actions).sum().backward()
    for name, weight in policy.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), name


@torch.no_grad()
def test_fast_functions_of_a_cpu_equal_those_of_torch() -> None:
    """The fast functions of a CPU agree with torch's softmax and asinh, also on masked rows."""
    score = torch.randn(7, 4, 5, 10, generator=torch.Generator().manual_seed(0))
    score[0, :, :, 3:] += TUNING.mask_bias
    # One row rounds to nothing, the other does not.
    low = torch.tensor([[-100.0, -101.0, -120.0], [1.0, 2.0, 3.0]])
    for some in (score, 10.0 * score, 1000.0 * score, low, torch.full((2, 3), TUNING.mask_bias)):
        assert torch.allclose(fast_softmax(some), some.softmax(-1), atol=1e-6)
    x = torch.tensor([-300.0, -1.5, -1e-3, 0.0, 1e-3, 0.4, 7.0, 5e4])
    assert torch.allclose(fast_asinh(x), torch.asinh(x), rtol=1e-5, atol=1e-7)


def test_fast_functions_are_not_used_with_gradients() -> None:
    """With a gradient, no function changes a tensor in place."""
    score = torch.randn(3, 4, 2, 5, 5, requires_grad=True)
    assert not is_cpu_inference(score)
    with torch.no_grad():
        assert is_cpu_inference(score)
    fast_asinh(score).sum().backward()
    assert torch.allclose(score.grad, 1.0 / torch.sqrt(score**2 + 1.0))


def test_nothing_takes_time(policy: JSSPPolicy) -> None:
    """An instance of zero durations has a schedule of length 0 and finite scores."""
    nothing = JSSPInstance("nothing", ((0, 0), (0, 0), (0,)), ((0, 1), (1, 0), (0,)), 2)
    batch, z = JSSP().collate([nothing]), latents_for(policy, 1, 3)
    rolled = rollout(JSSP(), policy, batch, z, JSSP().starts(batch), seed=0)
    assert not rolled.cost.any()
    assert log_prob(JSSP(), policy, batch, z, rolled.actions.flatten(1, 2)).isfinite().all()


# --- the loop that a GPU records


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_recorded_loop_is_the_plain_one(
    policy: JSSPPolicy, monkeypatch, temperature: float
) -> None:
    """Steps that work in place, as a CUDA graph needs them, give what plain steps give."""

    def run(step, times: int, device: torch.device, done) -> None:
        for _ in range(times):
            step()

    monkeypatch.setattr(cuda_graph, "repeat", run)
    problem, batch = JSSP(), JSSP().collate([UNEVEN, CROWDED])
    z, starts = latents_for(policy, 2, 5), torch.zeros(2, 3, dtype=torch.int64)
    work = RolloutRequest(
        problem, policy, batch, policy.encode(batch), z, starts, 3, 2, temperature
    )
    plain, looped = construct_torch(work), construct_with_cuda_graph(work)
    assert torch.equal(plain.actions, looped.actions)
    assert torch.equal(plain.cost, looped.cost)
