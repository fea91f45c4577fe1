"""Populations: members are policies of their own that share the encoder."""

from dataclasses import replace

import pytest
import torch

from rhumbline.checkpoint import TrainingFacts, load, save
from rhumbline.decoding import log_prob, rollout
from rhumbline.errors import InputError
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.policies.latent_space import Members
from rhumbline.policies.population import make_population
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.cvrp import CVRP
from rhumbline.problems.tsp import TSP

MEMBERS = 3


@pytest.fixture
def population(make_policy) -> TSPPolicy:
    return make_policy(latent=0, members=MEMBERS, seed=3)


def member(policy: TSPPolicy, number: int) -> TSPPolicy:
    """Return one member as a policy of its own."""
    single = TSPPolicy(replace(policy.architecture, members=0)).requires_grad_(False)
    single.encoder.load_state_dict(policy.encoder.state_dict())
    single.decoder.load_state_dict(policy.decoder[number].state_dict())
    return single


def numbers(*which: list[int]) -> torch.Tensor:
    return torch.tensor(which, dtype=torch.float32)[..., None]


def test_rollouts_are_those_of_the_members(make_batch, population) -> None:
    """A latent's rollouts are its member's, also if instances use different members."""
    policy, batch = population, make_batch(2, 7)
    starts = TSP().starts(batch)
    rolled = rollout(TSP(), policy, batch, numbers([0, 1, 2], [2, 2, 0]), starts, seed=4)
    for row, wanted in enumerate(([0, 1, 2], [2, 2, 0])):
        for k, number in enumerate(wanted):
            alone = member(policy, number)
            own = rollout(TSP(), alone, batch, torch.zeros(2, 1, 0), starts, seed=4, attempt=k)
            assert torch.equal(rolled.actions[row, k], own.actions[row, 0]), (row, k)


def test_scores_are_those_of_the_members(make_batch, population) -> None:
    """Sequence r is scored by the member of latent r // (R / K)."""
    policy, batch = population, make_batch(2, 6)
    latents = numbers([0, 1, 2], [2, 2, 0])
    actions = torch.stack([torch.stack([torch.randperm(6) for _ in range(6)]) for _ in range(2)])
    scores = log_prob(TSP(), policy, batch, latents, actions)
    for number in range(MEMBERS):
        own = log_prob(TSP(), member(policy, number), batch, torch.zeros(2, 1, 0), actions)
        mine = (latents[..., 0] == number).repeat_interleave(2, 1)
        assert torch.allclose(scores[mine], own[mine], atol=1e-5)


def test_a_member_learns_from_its_own_sequences_only(make_batch, population) -> None:
    """The scores of one member give other decoders no gradient, and the encoder one."""
    policy, batch = population.requires_grad_(True), make_batch(2, 6)
    actions = torch.arange(6).expand(2, 1, 6)
    log_prob(TSP(), policy, batch, numbers([1], [1]), actions).sum().backward()
    for number in range(MEMBERS):
        moved = any(
            p.grad is not None and p.grad.any() for p in policy.decoder[number].parameters()
        )
        assert moved == (number == 1)
    assert any(p.grad.any() for p in policy.encoder.parameters())


def test_a_population_of_clones_is_the_single_policy(make_batch, make_policy) -> None:
    """Every member starts as the decoder it was cloned from."""
    single, batch = make_policy(0), make_batch(2, 7)
    many, starts = make_population(single, 4), TSP().starts(batch)
    one = rollout(TSP(), single, batch, torch.zeros(2, 4, 0), starts, seed=1)
    all_of_them = rollout(
        TSP(), many, batch, Members(4).sample((2, 4), torch.Generator()), starts, seed=1
    )
    assert torch.equal(one.actions, all_of_them.actions)


def test_a_population_of_a_latent_space_is_its_centre(make_batch, make_policy) -> None:
    """A population of a latent policy has its decoder at the centre."""
    wide, batch = make_policy(3), make_batch(2, 7)
    with torch.no_grad():
        for x in (wide.decoder.query_latent, wide.decoder.value_latent):
            x.normal_()
    many, starts = make_population(wide, 2), TSP().starts(batch)
    centre = rollout(TSP(), wide, batch, torch.zeros(2, 2, 3), starts, seed=1)
    members = rollout(
        TSP(), many, batch, Members(2).sample((2, 2), torch.Generator()), starts, seed=1
    )
    away = rollout(TSP(), wide, batch, torch.ones(2, 2, 3), starts, seed=1)
    assert torch.equal(centre.actions, members.actions)
    assert not torch.equal(centre.actions, away.actions)


def test_members_run_fused(make_batch, make_policy) -> None:
    """A member's tables are those of a single policy, so CPU kernels make torch's choices."""
    policy, batch = make_policy(latent=0, members=2, width=128, heads=8), make_batch(2, 9)
    starts, members = TSP().starts(batch), numbers([0, 1], [1, 1])
    one, other = (
        rollout(TSP(), policy, batch, members, starts, seed=2, engine=e) for e in ("torch", "fused")
    )
    assert torch.allclose(one.cost, other.cost, atol=1e-5)


def test_members_have_constants_of_their_own(make_batch, population) -> None:
    """A node's constant is the member's own glimpse through its pointers, and its own bias."""
    crowd, latents = population.encode(make_batch(2, 6)), torch.zeros(2, 1, 1)
    biases = [member.bias for member in crowd.members]
    assert not torch.allclose(biases[0], biases[1])
    for tables in (*crowd.members, crowd.pick(torch.tensor([2, 0]))):
        shift = population.condition(tables, latents)
        assert torch.allclose(
            shift.glimpse @ tables.pointer.mT + tables.bias, shift.pointer, atol=1e-5
        )
    assert torch.equal(crowd.pick(torch.tensor([2, 0])).bias[1], biases[0][1])


def test_vehicles_too() -> None:
    """A CVRP population gives different, complete routes of one instance."""
    torch.manual_seed(0)
    policy = CVRPPolicy(Architecture(32, 2, 1, 32, latent=0, members=2)).requires_grad_(False)
    batch = CVRP().sample(1, 6, torch.Generator().manual_seed(0))
    rolled = rollout(
        CVRP(), policy, batch, numbers([0, 1]), CVRP().starts(batch), seed=0, temperature=0.0
    )
    served = rolled.actions.flatten(0, 2).sort(1).values
    assert all(row[row > 0].tolist() == [1, 2, 3, 4, 5, 6] for row in served)
    assert not torch.equal(rolled.actions[:, 0], rolled.actions[:, 1])


def test_checkpoints_keep_all_members(make_batch, tmp_path, population) -> None:
    """A loaded population has the same number of members and makes the same choices."""
    policy, batch = population, make_batch(1, 6)
    save(tmp_path / "many.safetensors", policy, TrainingFacts("tsp", 6))
    again = load(tmp_path / "many.safetensors")
    assert again.space == Members(MEMBERS)
    pair = [
        rollout(TSP(), p, batch, numbers([0, 1, 2]), TSP().starts(batch), seed=0).actions
        for p in (policy, again)
    ]
    assert torch.equal(*pair)


def test_what_a_population_is_not(make_policy, population) -> None:
    """A population has no latent space, cannot be widened, and is not made of a population."""
    with pytest.raises(InputError, match="no latent space"):
        Architecture(latent=4, members=2)
    with pytest.raises(InputError, match="population of 3 already; start from"):
        make_population(population, 2)
    with pytest.raises(InputError, match="no latent space"):
        population.widened(4)
