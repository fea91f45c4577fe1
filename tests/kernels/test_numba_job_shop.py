"""The CPU kernel for job shops, compiled, against the plain engine."""

import copy
import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from asking import ask

from rhumbline import checkpoint
from rhumbline.decoding import (
    CompletionRequest,
    Prefixes,
    choose_engine,
    complete,
    log_prob,
    rollout,
)
from rhumbline.decoding.engines import why_not_fused
from rhumbline.errors import MissingExtra
from rhumbline.policies.jssp import JSSPArchitecture, JSSPPolicy
from rhumbline.problems.jssp import JSSP, JSSPInstance, jssp_from_arrays
from rhumbline.testing import check_engine

pytest.importorskip("numba")
from rhumbline.kernels.numba.job_shop import launch

SEED, ATTEMPT = (5 << 32) + 17, 6
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def policy() -> JSSPPolicy:
    """A small policy whose scores differ enough for latents and rivals to matter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        policy = JSSPPolicy(
            JSSPArchitecture(width=64, heads=2, layers=1, hidden=32, latent=4, amplify=1.0)
        )
        decoder = policy.decoder
        for weights, spread in (
            (decoder.token_latent, 0.5),
            (decoder.hidden_latent, 0.5),
            (decoder.rival, 1.0),
        ):
            weights.data.normal_(0.0, spread)
        for bias in (
            decoder.norm.weight,
            decoder.norm.bias,
            decoder.token.bias,
            decoder.hidden.bias,
            decoder.among.out.bias,
        ):
            bias.data += 0.3 * torch.randn_like(bias)
        decoder.score.weight.data *= 20.0
    return policy.requires_grad_(False)


def odd_shops() -> list[JSSPInstance]:
    """Make jobs of unequal lengths, operations without duration, machines that a job skips or
    visits twice.
    """
    ragged = {
        "durations": [[3, 0, 4], [2, 5], [0], [4, 4, 0]],
        "machines": [[0, 1, 0], [1, 1], [1], [2, 0, 2]],
    }
    full = {
        "durations": [[7, 2, 2], [1, 1, 9], [5, 5, 5], [2, 2, 3]],
        "machines": [[0, 1, 2], [2, 1, 0]] * 2,
    }
    return [jssp_from_arrays(**ragged, machine_count=3), jssp_from_arrays(**full, machine_count=3)]


def by_engine(
    engine: str, problem: JSSP, policy: JSSPPolicy, batch, latents, starts: int, temperature: float
) -> Any:
    first = torch.zeros(len(batch.key), starts, dtype=torch.int64)
    options = {"seed": SEED, "attempt": ATTEMPT, "temperature": temperature, "engine": engine}
    return rollout(problem, policy, batch, latents, first, **options)


def assert_same_rollouts(problem, policy, batch, latents, starts=1, temperature=1.0) -> None:
    """Check that every action and every makespan is that of torch."""
    fused, plain = (
        by_engine(engine, problem, policy, batch, latents, starts, temperature)
        for engine in ("fused", "torch")
    )
    assert torch.equal(fused.actions, plain.actions)
    assert torch.equal(fused.cost, plain.cost)


CASES = {
    "fewer rollouts than slots": (1, "4x3", 3, 1, 1.0),
    "several instances and rounds of slots": (3, "5x4", 11, 1, 1.0),
    "several starts of a latent": (2, "3x4", 2, 3, 1.0),
    "greedy": (2, "6x6", 5, 1, 0.0),
    "colder": (1, "5x2", 20, 1, 0.3),
    "hotter": (1, "8x5", 20, 1, 3.0),
    "one job": (1, "1x5", 2, 1, 1.0),
    "one machine, more jobs than columns of a tile": (1, "40x1", 3, 1, 1.0),
    "more machines than jobs": (1, "4x20", 5, 1, 1.0),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel_chooses_as_torch_does(policy: JSSPPolicy, case: str) -> None:
    """Schedules and makespans agree in every decision: noise, rules and network are the same."""
    count, size, tried, starts, temperature = CASES[case]
    rng = torch.Generator().manual_seed(len(case))
    batch = JSSP().sample(count, size, rng)
    latents = policy.space.sample((count, tried), rng)
    assert_same_rollouts(JSSP(), policy, batch, latents, starts, temperature)


@pytest.mark.parametrize("candidates", ["active", "any"])
def test_shops_of_all_kinds(policy: JSSPPolicy, candidates) -> None:
    """Unequal jobs, durations of 0, machines visited twice; instances of a batch end at different
    steps.
    """
    problem = JSSP(candidates)
    batch = problem.collate(odd_shops())
    latents = policy.space.sample((2, 9), torch.Generator().manual_seed(1))
    assert_same_rollouts(problem, policy, batch, latents)
    check_engine("fused", problem, policy, odd_shops())


def test_long_durations(policy: JSSPPolicy) -> None:
    """Times close to 2^31 are whole numbers, and no comparison of them overflows."""
    rows = [[2**28, 2**28 - 1, 1], [2**28 + 1, 3, 2**28], [7, 2**28, 2**27]]
    orders = [[0, 1, 2], [1, 0, 2], [2, 1, 0]]
    shop = jssp_from_arrays(durations=rows, machines=orders, machine_count=3)
    latents = policy.space.sample((1, 16), torch.Generator().manual_seed(1))
    assert_same_rollouts(JSSP(), policy, JSSP().collate([shop]), latents)


@pytest.mark.parametrize("size", ["10x10", "15x5"])
def test_shipped_policy(size: str) -> None:
    """The policy that is shipped makes the same schedules on both engines."""
    shipped = checkpoint.load(checkpoint.shipped_checkpoints()["jssp"])
    rng = torch.Generator().manual_seed(4)
    batch = JSSP().sample(2, size, rng)
    latents = shipped.space.sample((2, 6), rng)
    assert_same_rollouts(JSSP(), shipped, batch, latents)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_completions(policy: JSSPPolicy, temperature: float) -> None:
    """Prefixes of all lengths are completed as torch does; finished jobs in them are skipped."""
    problem = JSSP()
    rng = torch.Generator().manual_seed(5)
    batch = problem.collate(odd_shops())
    horizon = problem.horizon(batch)
    latents = policy.space.sample((2, 1), rng)
    given = torch.randint(0, 4, (2, 3 * horizon, horizon), generator=rng)
    given[..., 0] = 0
    lengths = torch.arange(1, horizon + 1).repeat(2, 3)
    memory = policy.encode(batch)
    request = CompletionRequest(
        problem,
        policy,
        batch,
        latents,
        Prefixes(given, lengths),
        memory,
        seed=SEED,
        temperature=temperature,
        samples=3 if temperature else 0,
    )
    fused = complete(request, "fused")
    plain = complete(request, "torch")
    assert torch.equal(fused.actions, plain.actions)
    assert torch.equal(fused.cost, plain.cost)


def test_threads_change_nothing(policy: JSSPPolicy) -> None:
    """A rollout is the same whatever other rollouts its thread carries."""
    problem, rng = JSSP(), torch.Generator().manual_seed(2)
    batch, latents = problem.sample(2, "6x5", rng), policy.space.sample((2, 13), rng)
    memory = policy.encode(batch)
    tables = launch.build_shop_tables(policy.decoder, memory, policy.condition(memory, latents))
    run = partial(
        launch.run_schedules, tables, memory, batch, SEED, ATTEMPT, starts=1,
        steps=problem.horizon(batch),
    )  # fmt: skip
    cost, actions = run(threads=1)
    for threads in (2, 3, 26, 60):
        others = run(threads=threads)
        assert torch.equal(others[0], cost)
        assert torch.equal(others[1], actions)
    one = run(threads=2)[1][:, 3:4]
    alone = replace(tables, token_shift=tables.token_shift[:, 3:4].copy())
    alone = replace(alone, hidden_shift=tables.hidden_shift[:, 3:4].copy())
    single = launch.run_schedules(
        alone, memory, batch, SEED, ATTEMPT + 3, starts=1, steps=problem.horizon(batch)
    )
    assert torch.equal(single[1], one)


@pytest.mark.parametrize(
    ("rollouts", "threads", "expected"),
    [(1, 2, (1, 1)), (64, 2, (2, 32)), (65, 1, (1, 33)), (200, 2, (2, 50)), (3, 16, (3, 1))],
)
def test_threads_end_together(rollouts: int, threads: int, expected: tuple[int, int]) -> None:
    """Tiles are of about the same size."""
    assert launch.share_rollouts(rollouts, threads) == expected


@pytest.mark.parametrize("temperature", [0.0, 0.2, 1.0])
def test_equal_latents_share_decisions(policy: JSSPPolicy, temperature: float) -> None:
    """Rollouts of one latent share the network until they part, and are still those of torch."""
    rng = torch.Generator().manual_seed(8)
    batch = JSSP().sample(2, "6x5", rng)
    latents = policy.space.sample((2, 3), rng).repeat_interleave(30, dim=1)
    assert_same_rollouts(JSSP(), policy, batch, latents, temperature=temperature)


def test_rollouts_end_at_the_deadline(policy: JSSPPolicy) -> None:
    """A kernel at work ends before its next decision; with time left nothing changes."""
    problem, rng = JSSP(), torch.Generator().manual_seed(9)
    batch, latents = problem.sample(1, "50x20", rng), policy.space.sample((1, 300), rng)
    memory = policy.encode(batch)
    tables = launch.build_shop_tables(policy.decoder, memory, policy.condition(memory, latents))
    run = partial(
        launch.run_schedules, tables, memory, batch, SEED, ATTEMPT, starts=1,
        steps=problem.horizon(batch), threads=2,
    )  # fmt: skip
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        run(deadline=began + 0.1)
    assert time.monotonic() - began < 1.0  # without a deadline it takes many seconds


def test_nan_policy_is_safe(policy: JSSPPolicy) -> None:
    """A policy of NaN still makes schedules: every operation is placed once."""
    problem, rng = JSSP(), torch.Generator().manual_seed(3)
    batch, latents = problem.sample(1, "3x3", rng), policy.space.sample((1, 2), rng)
    memory = policy.encode(batch)
    tables = launch.build_shop_tables(policy.decoder, memory, policy.condition(memory, latents))
    tables = replace(tables, score=np.full_like(tables.score, np.nan))
    cost, actions = launch.run_schedules(
        tables, memory, batch, SEED, ATTEMPT, starts=1, steps=problem.horizon(batch)
    )
    placed = actions[..., 1:].flatten(0, 2).long().sort().values
    assert (placed == torch.arange(3).repeat_interleave(3)).all()
    assert torch.equal(cost, problem.cost(batch, actions.flatten(1, 2).long()).view_as(cost))


def test_what_the_engine_serves() -> None:
    """Rollouts and completions of the default policy; the answers to others name the reason."""
    assert choose_engine("fused", ask("jssp", CPU, 10)).name == "numba_job_shop"
    assert choose_engine("auto", ask("jssp", CPU, 10, prefixes=True)).name == "numba_job_shop"
    narrow = JSSPArchitecture(width=128, heads=8)
    assert choose_engine("auto", ask("jssp", CPU, 10, narrow)).name == "torch"
    with pytest.raises(MissingExtra, match=r"heads of width 32 or a multiple.* has 8 of 16"):
        choose_engine("fused", ask("jssp", CPU, 10, narrow))
    assert "no fused kernel for jssp-machines" in str(why_not_fused(ask("jssp-machines", CPU, 10)))
    assert choose_engine("fused", ask("jssp", CPU, 10, gradients=True)).name == "numba_job_shop"


def score_both(problem: JSSP, policy: JSSPPolicy, batch, latents, actions, weight) -> list[Any]:
    """Return scores and the gradient of their weighted sum, by the kernel and by torch."""
    with torch.no_grad():
        memory = policy.encode(batch)
    found = list[Any]()
    for engine in ("fused", "torch"):
        table = memory.table.clone().requires_grad_()
        options = {"memory": replace(memory, table=table), "engine": engine}
        scores = log_prob(problem, policy, batch, latents, actions, **options)
        (gradient,) = torch.autograd.grad((weight * scores).sum(), table)
        found += [scores.detach(), gradient]
    return found


@pytest.mark.parametrize("candidates", ["active", "any"])
@pytest.mark.parametrize("shops", ["odd", "6x5", "35x2"])
def test_scores_and_gradients_are_those_of_torch(policy: JSSPPolicy, shops, candidates) -> None:
    """Both agree to a few units of float32, for several latents and sequences of each."""
    problem, rng = JSSP(candidates), torch.Generator().manual_seed(6)
    batch = problem.collate(odd_shops()) if shops == "odd" else problem.sample(2, shops, rng)
    latents = policy.space.sample((2, 2), rng)
    three = latents.repeat_interleave(3, dim=1)
    actions = by_engine("fused", problem, policy, batch, three, 1, 1.0).actions.flatten(1, 2)
    weight = torch.randn(2, 6, generator=rng)
    scores, gradient, plain, plain_gradient = score_both(
        problem, policy, batch, latents, actions, weight
    )
    assert torch.allclose(scores, plain, rtol=1e-5, atol=1e-5)
    assert plain_gradient.abs().max() > 0.01
    assert (gradient - plain_gradient).abs().max() < 2e-5 * plain_gradient.abs().max()


def test_gradients_do_not_depend_on_threads(policy: JSSPPolicy, monkeypatch) -> None:
    """Parts of the sequences are added up in one order."""
    problem, rng = JSSP(), torch.Generator().manual_seed(7)
    batch, latents = problem.sample(1, "5x5", rng), policy.space.sample((1, 1), rng)
    many = latents.expand(-1, 9, -1)
    actions = by_engine("fused", problem, policy, batch, many, 1, 1.0).actions.flatten(1, 2)
    found = []
    for threads in (1, 4):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(score_both(problem, policy, batch, latents, actions, torch.ones(1, 9))[:2])
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


def test_gradients_of_weights_come_from_torch(policy: JSSPPolicy) -> None:
    """Training differentiates all weights, which the kernel does not know."""
    problem, rng = JSSP(), torch.Generator().manual_seed(7)
    batch, latents = problem.sample(1, "3x3", rng), policy.space.sample((1, 1), rng)
    actions = by_engine("fused", problem, policy, batch, latents, 1, 1.0).actions.flatten(1, 2)
    learning = copy.deepcopy(policy).requires_grad_(True)
    log_prob(problem, learning, batch, latents, actions, engine="fused").sum().backward()
    gradients = [weights.grad for weights in learning.parameters()]
    assert all(gradient is not None for gradient in gradients)
