"""The CVRP kernels in Triton's interpreter, float32, against plain torch."""

from dataclasses import replace

import pytest
import torch

from rhumbline.decoding import log_prob, rollout, scoring
from rhumbline.kernels.triton.rollout import launch as triton_rollout
from rhumbline.kernels.triton.rollout import tables as rollout_tables
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.problems.cvrp import CVRP, CVRPBatch

# Raised inside Triton's interpreter, by how it reads scalars.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Conversion of an array with ndim > 0:DeprecationWarning"
)

SEED, ATTEMPT = 11, 5
PROBLEM = CVRP()


@pytest.fixture(scope="module")
def policy() -> CVRPPolicy:
    """A random policy of the kernels' width whose load and latents matter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        policy = CVRPPolicy(Architecture(layers=1))
        for weight, spread in (
            (policy.decoder.query_load, 0.5),
            (policy.decoder.query_latent, 0.01),
            (policy.decoder.value_latent, 0.01),
        ):
            weight.data.normal_(0.0, spread)
    return policy


def tight(customers: int, capacity: int) -> CVRPBatch:
    """Make two random instances whose vehicles hold little, so that the capacity matters often."""
    batch = PROBLEM.sample(2, customers, torch.Generator().manual_seed(customers))
    batch.capacity.fill_(capacity)
    return batch


@torch.no_grad()
def by_kernel(
    policy: CVRPPolicy,
    batch: CVRPBatch,
    latents: torch.Tensor,
    starts: torch.Tensor,
    temperature: float,
):
    memory = policy.encode(batch)
    tables = rollout_tables.build_triton_tables(
        memory, policy.condition(memory, latents), torch.float32
    )
    whole, counters = (batch.demand, batch.capacity), torch.tensor([SEED, ATTEMPT])
    return triton_rollout.cvrp_rollout(
        tables,
        batch.xy,
        *whole,
        starts,
        batch.key,
        counters,
        temperature=temperature,
        shape=(16, 4),
    )


@pytest.mark.parametrize(("customers", "capacity"), [(1, 9), (6, 9), (11, 20)])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_kernel_chooses_as_torch_does(
    policy: CVRPPolicy, customers: int, capacity: int, temperature: float
) -> None:
    """Routes, padding and costs are the plain engine's for the same counters; these seeds have no
    near tie.
    """
    batch = tight(customers, capacity)
    latents = policy.space.sample((2, 2), torch.Generator().manual_seed(1))
    starts = PROBLEM.starts(batch)[:, :4]
    cost, actions = by_kernel(policy, batch, latents, starts, temperature)
    plain = rollout(
        PROBLEM,
        policy,
        batch,
        latents,
        starts,
        seed=SEED,
        attempt=ATTEMPT,
        temperature=temperature,
        engine="torch",
    )
    assert torch.equal(actions, plain.actions)
    assert torch.allclose(cost, plain.cost, rtol=1e-5)
    assert actions.shape[-1] == 2 * customers


@pytest.mark.parametrize(
    ("customers", "part", "temperature", "safe"),
    [(37, 32, 1.0, rollout_tables.TUNING.max_exponent), (33, 32, 0.0, 0.0)],
)
@pytest.mark.usefixtures("small_parts")
def test_parts_choose_as_torch_does(
    policy: CVRPPolicy, monkeypatch, customers: int, part: int, temperature: float, safe: float
) -> None:
    """Columns are worked on in parts, the depot being in the first, and maxima are subtracted."""
    tuning = replace(rollout_tables.TUNING, max_exponent=safe, part_columns=part)
    monkeypatch.setattr(rollout_tables, "TUNING", tuning)
    batch = tight(customers, 40)
    latents = policy.space.sample((2, 1), torch.Generator().manual_seed(1))
    starts = PROBLEM.starts(batch)[:, :4]
    cost, actions = by_kernel(policy, batch, latents, starts, temperature)
    options = {"seed": SEED, "attempt": ATTEMPT, "temperature": temperature, "engine": "torch"}
    plain = rollout(PROBLEM, policy, batch, latents, starts, **options)
    assert torch.equal(actions, plain.actions)
    assert torch.allclose(cost, plain.cost, rtol=1e-5)


@pytest.mark.parametrize(("strided", "certain"), [(False, 1.0), (True, 1.0), (False, 0.5)])
def test_scores_and_gradients_agree(policy: CVRPPolicy, strided: bool, certain: float) -> None:
    """The fused log-probability of sampled routes and its gradient in every weight are those of
    plain torch. This holds for the strided view that a fused rollout returns, and if likely
    decisions have no gradient.
    """
    batch = tight(7, 12)
    latents = policy.space.sample((2, 2), torch.Generator().manual_seed(2))
    starts = PROBLEM.starts(batch)[:, :3]
    actions = rollout(
        PROBLEM, policy, batch, latents, starts, seed=SEED, engine="torch"
    ).actions.flatten(1, 2)
    if strided:
        actions = actions.transpose(1, 2).contiguous().transpose(1, 2)

    def scored(fused: bool) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        policy.zero_grad()
        memory = policy.encode(batch)
        if fused:
            scores = scoring.triton_log_prob(
                batch, memory, policy.condition(memory, latents), actions, certain=certain
            )
        else:
            scores = log_prob(
                PROBLEM,
                policy,
                batch,
                latents,
                actions,
                memory=memory,
                engine="torch",
                certain=certain,
            )
        (scores * torch.arange(1.0, 13.0).view(2, 6)).sum().backward()
        return scores.detach(), {
            n: p.grad for n, p in policy.named_parameters() if p.grad is not None
        }

    expected, expected_gradient = scored(fused=False)
    scores, gradient = scored(fused=True)
    assert torch.allclose(scores, expected, atol=1e-4)
    assert gradient.keys() == expected_gradient.keys()
    for (
        name,
        value,
    ) in (
        expected_gradient.items()
    ):  # relative to the largest entry: single ones are cancelling sums
        assert (gradient[name] - value).abs().max() <= 1e-4 * value.abs().max() + 1e-7, name
