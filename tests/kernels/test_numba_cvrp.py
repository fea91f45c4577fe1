"""The compiled CPU kernel for CVRP against the plain engine and against plans checked singly."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from rhumbline.decoding import rollout
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.problems.cvrp import CVRP, CVRPBatch, CVRPInstance

pytest.importorskip("numba")
from rhumbline.kernels.numba.rollout import launch as numba_rollout

SEED, ATTEMPT = (3 << 32) + 8, 5
PROBLEM = CVRP()


@pytest.fixture(scope="module")
def policy() -> CVRPPolicy:
    """A random policy of the kernel's width whose load and latents matter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        policy = CVRPPolicy(Architecture(layers=1, hidden=64, latent=4))
        for weight, spread in (
            (policy.decoder.query_load, 0.5),
            (policy.decoder.query_latent, 0.01),
            (policy.decoder.value_latent, 0.01),
        ):
            weight.data.normal_(0.0, spread)
    return policy.requires_grad_(False)


@pytest.fixture
def assert_same_choices(assert_choices):
    """Check that routes are those that torch would choose, for the counters of this file."""
    return partial(assert_choices, PROBLEM, seed=SEED, attempt=ATTEMPT)


def random_batch(customers: int, capacities: list[int]) -> CVRPBatch:
    """Make random instances with these capacities and 32-bit instance ids; demands are 1 to 9."""
    batch = PROBLEM.sample(len(capacities), customers, torch.Generator().manual_seed(customers))
    keys = torch.tensor([0xF0000001, 12, 0x7FFFFFFF])[: len(capacities)]
    return replace(batch, capacity=torch.tensor(capacities), key=keys)


def latents_for(policy: CVRPPolicy, batch: CVRPBatch, tried: int) -> torch.Tensor:
    return policy.space.sample((len(batch.xy), tried), torch.Generator().manual_seed(1))


def by_kernel(
    policy: CVRPPolicy,
    batch: CVRPBatch,
    latents,
    starts,
    temperature: float,
    threads: int | None = None,
):
    memory = policy.encode(batch)
    tables = numba_rollout.build_numba_tables(memory, policy.condition(memory, latents))
    whole = (batch.demand, batch.capacity)
    return numba_rollout.run_rollouts(
        tables,
        batch.xy,
        starts,
        batch.key,
        SEED,
        ATTEMPT,
        vehicles=whole,
        temperature=temperature,
        threads=threads,
    )


def by_torch(policy: CVRPPolicy, batch: CVRPBatch, latents, starts, temperature: float):
    options = {"seed": SEED, "attempt": ATTEMPT, "temperature": temperature}
    return rollout(PROBLEM, policy, batch, latents, starts, engine="torch", **options)


def assert_plans(batch: CVRPBatch, actions: torch.Tensor, cost: torch.Tensor) -> None:
    """Check that the host accepts every sequence as a plan, at the cost that the host computes."""
    for row in range(len(batch.xy)):
        demands, capacity = tuple(batch.demand[row].tolist()), int(batch.capacity[row])
        instance = CVRPInstance(
            "random", "EXACT_2D", demands, capacity, xy=batch.xy[row].double().numpy()
        )
        for sequence, price in zip(
            actions[row].flatten(0, 1).tolist(), cost[row].flatten().tolist(), strict=True
        ):
            plan = PROBLEM.decode(instance, sequence)
            plan.check(instance)
            assert price == pytest.approx(plan.cost(instance), rel=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 0.1, 1.0, 3.0])
@pytest.mark.parametrize(
    ("customers", "capacities"),
    [(1, [9, 30]), (2, [9, 17]), (12, [9, 20, 200]), (36, [25, 9, 60]), (100, [50])],
)
def test_kernel_chooses_as_torch_does(
    policy, assert_same_choices, customers: int, capacities: list[int], temperature: float
) -> None:
    """Choices are the plain engine's except for near ties; plans, padding and costs are right."""
    batch = random_batch(customers, capacities)
    latents, starts = latents_for(policy, batch, 3), PROBLEM.starts(batch)[:, :7]
    cost, actions = by_kernel(policy, batch, latents, starts, temperature)
    assert actions.shape[2:] == (min(customers, 7), 2 * customers)
    assert torch.equal(actions[..., 0].long(), starts[:, None].expand(-1, 3, -1))
    assert_plans(batch, actions, cost)
    assert_same_choices(policy, batch, latents, actions, temperature)
    plain = by_torch(policy, batch, latents, starts, temperature)
    same = (plain.actions == actions).all(-1)
    assert same.float().mean() > 0.8  # the rest left the path at a near tie
    assert torch.allclose(plain.cost[same], cost[same], rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_customers_without_demand(policy, assert_same_choices, temperature: float) -> None:
    """A customer without demand fits a full vehicle; if no customer has demand, no vehicle needs to
    return.
    """
    batch = random_batch(13, [9, 5, 30])
    batch.demand[0] *= torch.arange(14) % 2
    batch.demand[1] = 0
    batch.demand[2, 1:] = torch.tensor([30, 0] * 6 + [30])
    latents, starts = latents_for(policy, batch, 3), PROBLEM.starts(batch)
    cost, actions = by_kernel(policy, batch, latents, starts, temperature)
    assert_plans(batch, actions, cost)
    assert_same_choices(policy, batch, latents, actions, temperature)
    full = actions[2].flatten(0, 1).long()
    demand = batch.demand[2][full]
    assert ((demand[:, :-1] == 30) & (demand[:, 1:] == 0) & (full[:, 1:] > 0)).any()


def test_loads_are_whole_numbers(policy) -> None:
    """A load that exceeds the capacity by 1 in 10^9, which float32 cannot represent, needs a second
    vehicle.
    """
    batch = random_batch(2, [10**9, 10**9])
    batch.demand[0] = torch.tensor([0, 5 * 10**8, 5 * 10**8 + 1])
    batch.demand[1] = torch.tensor([0, 5 * 10**8, 5 * 10**8])
    _, actions = by_kernel(policy, batch, latents_for(policy, batch, 8), PROBLEM.starts(batch), 3.0)
    assert actions[0].flatten(0, 1).unique(dim=0).tolist() == [[1, 0, 2, 0], [2, 0, 1, 0]]
    assert [1, 2, 0, 0] in actions[1].flatten(0, 1).tolist()


def test_the_only_customer(policy) -> None:
    """One customer is one route there and back, for every latent."""
    batch = random_batch(1, [9])
    cost, actions = by_kernel(
        policy, batch, latents_for(policy, batch, 3), PROBLEM.starts(batch), 1.0
    )
    assert actions.flatten(0, 2).tolist() == [[1, 0]] * 3
    there = (batch.xy[0, 1] - batch.xy[0, 0]).norm()
    assert torch.allclose(cost, 2 * there.expand(1, 3, 1))


def test_one_rollout(policy, assert_same_choices) -> None:
    """A single rollout fills one lane, and no other memory is written."""
    batch = random_batch(13, [15])
    latents = latents_for(policy, batch, 1)
    cost, actions = by_kernel(policy, batch, latents, PROBLEM.starts(batch)[:, 4:5], 1.0)
    assert (tuple(cost.shape), tuple(actions.shape)) == ((1, 1, 1), (1, 1, 1, 26))
    assert_same_choices(policy, batch, latents, actions, 1.0)


def test_threads_change_nothing(policy, assert_same_choices) -> None:
    """1,656 rollouts, the last tile partly filled, are bit-identical with 1, 2 and 5 threads."""
    batch = random_batch(36, [20, 45])
    latents, starts = latents_for(policy, batch, 23), PROBLEM.starts(batch)
    (cost, actions), *others = (
        by_kernel(policy, batch, latents, starts, 1.0, threads=n) for n in (1, 2, 5)
    )
    assert_same_choices(policy, batch, latents, actions, 1.0)
    for other_cost, other_actions in others:
        assert torch.equal(other_cost, cost)
        assert torch.equal(other_actions, actions)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_neither_chunks_nor_lanes_change_anything(policy, temperature: float) -> None:
    """The other rollouts of a tile, however long they last, change no bit of a rollout."""
    batch = random_batch(13, [9, 20, 200])
    latents, starts = latents_for(policy, batch, 5), PROBLEM.starts(batch)
    whole, *split = (
        rollout(
            PROBLEM,
            policy,
            batch,
            latents,
            starts,
            seed=7,
            temperature=temperature,
            chunk=c,
            engine="fused",
        )
        for c in (None, 1, 13, 26, 65)
    )
    for part in split:
        assert torch.equal(part.actions, whole.actions)
        assert torch.equal(part.cost, whole.cost)


@pytest.mark.parametrize("temperature", [1e-30, 0.05, 1.0, 1e30])
def test_sampled_plans_are_feasible(policy, temperature: float) -> None:
    """No uniform selects a customer that is served or does not fit, at any temperature."""
    batch = random_batch(60, [40])
    latents = latents_for(policy, batch, 8)
    cost, actions = by_kernel(policy, batch, latents, PROBLEM.starts(batch), temperature)
    assert_plans(batch, actions, cost)


def test_nan_policy_is_safe(policy) -> None:
    """A policy of NaN makes no plan, but every action is a node, the rollout ends and no other
    memory is written.
    """
    batch = random_batch(36, [20, 45])
    latents, starts = latents_for(policy, batch, 2), PROBLEM.starts(batch)
    memory = policy.encode(batch).map(lambda x: x * torch.nan)
    tables, whole = (
        numba_rollout.build_numba_tables(memory, policy.condition(memory, latents)),
        (batch.demand, batch.capacity),
    )
    for temperature in (0.0, 1.0):
        options = {"temperature": temperature, "threads": 2, "vehicles": whole}
        _, actions = numba_rollout.run_rollouts(
            tables, batch.xy, starts, batch.key, SEED, ATTEMPT, **options
        )
        assert ((actions >= 0) & (actions <= 36)).all()


def test_costs_follow_the_metric(policy) -> None:
    """If a file's metric rounds, costs are sums of its whole numbers, on this engine as on the
    plain one.
    """
    xy = np.random.default_rng(0).random((14, 2)) * 50
    batch = PROBLEM.collate([CVRPInstance("rounded", "EUC_2D", (0, *range(1, 14)), 25, xy=xy)])
    latents, starts = torch.zeros(1, 2, 4), PROBLEM.starts(batch)
    fused, plain = (
        rollout(PROBLEM, policy, batch, latents, starts, seed=1, engine=e)
        for e in ("fused", "torch")
    )
    assert torch.equal(fused.cost, fused.cost.round())
    same = (fused.actions == plain.actions).all(-1)
    assert same.any()
    assert torch.equal(fused.cost[same], plain.cost[same])
