"""The job-shop kernel, in Triton's interpreter and in float32, against the plain engine."""

from dataclasses import replace

import pytest
import torch
from triton.runtime.interpreter import InterpretedFunction

from rhumbline import kernels
from rhumbline.decoding import engines, rollout
from rhumbline.errors import note_once
from rhumbline.kernels.triton.job_shop import launch as triton_job_shop
from rhumbline.policies.jssp import JSSPArchitecture, JSSPPolicy
from rhumbline.problems.jssp import JSSP, JSSPInstance, jssp_from_arrays

assert isinstance(triton_job_shop.jssp_rollout_kernel, InterpretedFunction), (
    "imported before conftest.py was read"
)

pytestmark = [
    # Triton 3.6 turns arrays of one element into scalars, which numpy 2.3 only announces to refuse.
    pytest.mark.filterwarnings(
        "ignore:Conversion of an array with ndim > 0 to a scalar:DeprecationWarning:triton.*"
    ),
]

SEED, ATTEMPT = (5 << 32) + 17, 6


@pytest.fixture(scope="module")
def policy() -> JSSPPolicy:
    """A small policy whose scores differ enough for latents and rivals to matter."""
    torch.manual_seed(3)
    policy = JSSPPolicy(
        JSSPArchitecture(width=32, heads=2, layers=1, hidden=32, latent=4, amplify=1.0)
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
        decoder.among.out.bias,
    ):
        bias.data += 0.3 * torch.randn_like(bias)
    decoder.score.weight.data *= 20.0
    return policy.requires_grad_(False)


def shops() -> list[JSSPInstance]:
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


def by_kernel(
    problem: JSSP, policy: JSSPPolicy, batch, latents, starts: int, temperature: float, **options
):
    memory = policy.encode(batch)
    return triton_job_shop.jssp_rollout(
        triton_job_shop.build_shop_weights(policy.decoder, torch.float32),
        memory,
        policy.condition(memory, latents),
        batch,
        torch.tensor([SEED, ATTEMPT]),
        starts=starts,
        steps=problem.horizon(batch),
        heads=2,
        active=problem.active,
        temperature=temperature,
        **options,
    )


def by_torch(problem: JSSP, policy: JSSPPolicy, batch, latents, starts: int, temperature: float):
    first = torch.zeros(len(batch.key), starts, dtype=torch.int64)
    return rollout(
        problem,
        policy,
        batch,
        latents,
        first,
        seed=SEED,
        attempt=ATTEMPT,
        temperature=temperature,
        engine="torch",
    )


CASES = {
    "sampled, two programs, the last one not full": (2, "4x3", 3, 1, 1.0, (2, 4)),
    "several starts of a latent": (1, "3x4", 2, 2, 1.0, (4, 4)),
    "greedy": (1, "4x4", 2, 1, 0.0, (2, 4)),
    "colder": (1, "5x2", 2, 1, 0.3, (2, 4)),
    "one machine, as many jobs as columns": (1, "16x1", 2, 1, 1.0, (2, 4)),
    "more jobs than 16": (1, "17x1", 2, 1, 1.0, (2, 4)),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel_chooses_as_torch_does(policy: JSSPPolicy, case: str) -> None:
    """Schedules and makespans agree in every decision: noise, rules and network are the same."""
    count, size, tried, starts, temperature, shape = CASES[case]
    problem, rng = JSSP(), torch.Generator().manual_seed(len(case))
    batch, latents = problem.sample(count, size, rng), policy.space.sample((count, tried), rng)
    cost, actions = by_kernel(problem, policy, batch, latents, starts, temperature, shape=shape)
    plain = by_torch(problem, policy, batch, latents, starts, temperature)
    assert torch.equal(actions, plain.actions)
    assert torch.equal(cost, plain.cost)


@pytest.mark.parametrize("candidates", ["active", "any"])
def test_shops_of_all_kinds(policy: JSSPPolicy, candidates) -> None:
    """Unequal jobs, durations of 0, machines visited twice; instances of a batch end at different
    steps.
    """
    problem = JSSP(candidates)
    batch = problem.collate(shops())
    latents = policy.space.sample((2, 3), torch.Generator().manual_seed(1))
    cost, actions = by_kernel(problem, policy, batch, latents, 1, 1.0, shape=(4, 4))
    plain = by_torch(problem, policy, batch, latents, 1, 1.0)
    assert torch.equal(actions, plain.actions)
    assert torch.equal(cost, plain.cost)


def test_forced_decisions_change_nothing(policy: JSSPPolicy) -> None:
    """Asking the network at every decision, or only for choices, gives the same schedules."""
    problem, rng = JSSP(), torch.Generator().manual_seed(2)
    batch, latents = problem.sample(1, "4x3", rng), policy.space.sample((1, 4), rng)
    cost, actions = by_kernel(problem, policy, batch, latents, 1, 1.0, shape=(4, 4), ahead=0)
    later, others = by_kernel(problem, policy, batch, latents, 1, 1.0, shape=(4, 4), ahead=100)
    assert (
        len(actions.flatten(0, 2).unique(dim=0)) > 1
    )  # latents and noise differ, so rollouts take turns
    assert torch.equal(actions, others)
    assert torch.equal(cost, later)


def test_tiles_fill_the_processors() -> None:
    """Large work has 64 tokens in a program; little work is spread over processors; no tile splits
    a job shop.
    """
    assert triton_job_shop.choose_shop_tile(256, 64, 16) == (4, 4)
    assert triton_job_shop.choose_shop_tile(128, 128, 32) == (2, 4)
    assert triton_job_shop.choose_shop_tile(4, 64, 16) == (1, 4)
    assert triton_job_shop.choose_shop_tile(100, 16, 64) == (1, 4)
    assert triton_job_shop.choose_shop_tile(1, 1, 128) == (1, 8)


def test_policies_that_the_kernel_serves() -> None:
    """Plain torch in a CUDA graph serves the others."""
    assert kernels.why_not_job_shop(JSSPArchitecture()) is None
    for width, heads in ((96, 4), (256, 4), (64, 8), (16, 1)):
        assert "widths of 32, 64 or 128, and heads of 16 or more" in (
            kernels.why_not_job_shop(JSSPArchitecture(width=width, heads=heads)) or ""
        )


def test_engines_on_a_gpu(policy: JSSPPolicy, monkeypatch, capsys) -> None:
    """The kernel serves policies that it can hold.

    For another policy the CUDA graph runs, with one note.
    """
    problem = JSSP()
    batch, kept = (
        problem.sample(1, "3x2", torch.Generator().manual_seed(1)),
        triton_job_shop.build_shop_weights,
    )
    real = engines.choose_engine
    serving = {"auto": "job_shop", "torch": "torch"}
    monkeypatch.setattr(
        engines, "choose_engine", lambda wanted, _: engines.ENGINES[serving[wanted]]
    )
    monkeypatch.setattr(
        triton_job_shop, "build_shop_weights", lambda decoder: kept(decoder, torch.float32)
    )
    latents, starts = (
        policy.space.sample((1, 1), torch.Generator().manual_seed(2)),
        torch.zeros(1, 2, dtype=torch.long),
    )
    found = rollout(problem, policy, batch, latents, starts, seed=SEED, attempt=ATTEMPT)
    plain = rollout(
        problem, policy, batch, latents, starts, seed=SEED, attempt=ATTEMPT, engine="torch"
    )
    note_once.cache_clear()
    unfit = JSSPPolicy(JSSPArchitecture(width=16, heads=1, layers=1, hidden=16))
    asked = engines.Ask(problem, torch.device("cuda"), 3, unfit.architecture)
    assert real("fused", replace(asked, architecture=policy.architecture)).name == "job_shop"
    assert capsys.readouterr().err == ""
    assert real("fused", asked).name == "cuda_graph"
    assert (
        "plain torch in a CUDA graph, several times slower: the kernel takes widths"
        in capsys.readouterr().err
    )
    assert torch.equal(found.actions, by_torch(problem, policy, batch, latents, 2, 1.0).actions)
    assert torch.equal(found.cost, plain.cost)


def test_nan_policy_is_safe(policy: JSSPPolicy) -> None:
    """A policy of NaN still makes schedules: every operation is placed once, and no address is
    invalid.
    """
    problem, rng = JSSP(), torch.Generator().manual_seed(3)
    broken = triton_job_shop.build_shop_weights(policy.decoder, torch.float32)
    broken.score.fill_(torch.nan)
    batch, latents = problem.sample(1, "3x3", rng), policy.space.sample((1, 2), rng)
    memory = policy.encode(batch)
    more = {"starts": 1, "steps": problem.horizon(batch), "heads": 2, "shape": (2, 4)}
    shift, counters = policy.condition(memory, latents), torch.tensor([SEED, ATTEMPT])
    cost, actions = triton_job_shop.jssp_rollout(broken, memory, shift, batch, counters, **more)
    assert (
        actions[..., 1:].flatten(0, 2).long().sort().values == torch.arange(3).repeat_interleave(3)
    ).all()
    assert torch.equal(cost, problem.cost(batch, actions.flatten(1, 2).long()).view_as(cost))
