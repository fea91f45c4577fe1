"""Rollouts that begin with imposed actions: the CPU kernel against plain torch, and both against what was imposed."""

from types import SimpleNamespace

import pytest
import torch

from rhumbline.decoding import Beginnings, complete, rollout
from rhumbline.errors import MissingExtra
from rhumbline.policies.attention import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.cvrp import CVRP
from rhumbline.problems.tsp import TSP

pytest.importorskip("numba")

KINDS = {"tsp": (TSP(), TSPPolicy, 23), "cvrp": (CVRP(), CVRPPolicy, 21)}
RNG = torch.Generator().manual_seed(5)


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    """A problem, a policy of the kernel's sizes, instances, and a sampled plan from every start."""
    problem, kind, size = KINDS[request.param]
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(3)
        policy = kind(Architecture(hidden=64, layers=1, latent=4)).eval()
    batch = problem.sample(3, size, torch.Generator().manual_seed(2))
    latents = policy.space.sample((3, 1), torch.Generator().manual_seed(1))
    plans = rollout(problem, policy, batch, latents, problem.starts(batch), seed=4, engine="torch")
    return problem, policy, batch, latents, plans.actions[:, 0].long()


def beginnings(plans: torch.Tensor, least: int, most: int) -> Beginnings:
    """Plans of which so many actions are imposed; what follows is nonsense, and must not be read."""
    length = torch.randint(least, most + 1, plans.shape[:2], generator=RNG)
    return Beginnings(torch.where(torch.arange(plans.shape[2]) < length[..., None], plans, 7), length)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 21), (9, 12), (15, 15)])
def test_the_kernel_carries_on_as_torch_does(case, temperature: float, least: int, most: int) -> None:
    """What is imposed stays, what follows is the plain engine's choice but for near ties; whole plans are priced."""
    problem, policy, batch, latents, plans = case
    given, memory = beginnings(plans, least, most), policy.encode(batch)
    options = {"seed": 9, "attempt": 2, "temperature": temperature}
    plain, fused = (
        complete(problem, policy, batch, latents, given, memory, engine=engine, **options)
        for engine in ("torch", "fused")
    )
    imposed = torch.arange(plans.shape[2]) < given.length[..., None]
    for rolled in (plain, fused):
        actions = rolled.actions[:, 0].long()
        assert torch.equal(actions[imposed], plans[imposed])
        assert torch.allclose(rolled.cost[:, 0], problem.cost(batch, actions), rtol=1e-5)
        assert torch.equal(actions.sort(-1).values, plans.sort(-1).values) or problem.name == "cvrp"
    same = (plain.actions == fused.actions).all(-1)
    assert same.float().mean() > 0.9
    assert torch.allclose(plain.cost[same], fused.cost[same], rtol=1e-5)


def test_everybody_is_served(case) -> None:
    """After any beginning every city or customer is visited once."""
    problem, policy, batch, latents, plans = case
    rolled = complete(problem, policy, batch, latents, beginnings(plans, 1, 18), policy.encode(batch), engine="fused")
    first = 1 if problem.name == "cvrp" else 0
    for plan in rolled.actions.flatten(0, 2).tolist():
        visited = [node for node in plan if node >= first]
        assert sorted(visited) == list(range(first, batch.xy.shape[1]))


def test_with_one_imposed_action_it_is_a_rollout(case) -> None:
    """The first action alone is what every rollout is given: the noise and the plans are those of `rollout`."""
    problem, policy, batch, latents, plans = case
    starts = plans[..., 0]
    whole = rollout(problem, policy, batch, latents, starts, seed=9, attempt=2, engine="fused")
    given = Beginnings(plans, torch.ones_like(starts))
    same = complete(
        problem, policy, batch, latents, given, policy.encode(batch), seed=9, attempt=2, temperature=1.0, engine="fused"
    )
    assert torch.equal(whole.actions, same.actions)
    assert torch.equal(whole.cost, same.cost)


def test_a_gpu_has_no_kernel_for_it(case) -> None:
    """Whoever asks for kernels there is told so before anything is built."""
    problem, policy, _, latents, plans = case
    far = SimpleNamespace(key=SimpleNamespace(device=torch.device("cuda")))
    with pytest.raises(MissingExtra, match="cannot carry on a sequence that has begun"):
        complete(problem, policy, far, latents, beginnings(plans, 1, 1), None, engine="fused")
