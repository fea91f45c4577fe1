"""Rollouts with imposed prefixes: kernels against plain torch, and both against the prefixes."""

from dataclasses import replace

import pytest
import torch
from asking import ask

from rhumbline.decoding import CompletionRequest, Prefixes, choose_engine, complete, rollout
from rhumbline.errors import MissingExtra
from rhumbline.kernels.triton.rollout import launch as triton_rollout
from rhumbline.kernels.triton.rollout import tables as rollout_tables
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.policies.jssp import JSSPArchitecture
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.cvrp import CVRP
from rhumbline.problems.tsp import TSP

pytest.importorskip("numba")

KINDS = {"tsp": (TSP(), TSPPolicy, 23), "cvrp": (CVRP(), CVRPPolicy, 21)}
WARNS = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
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


def prefixes_of(plans: torch.Tensor, least: int, most: int) -> Prefixes:
    """Impose the first actions of plans; what follows is nonsense, and must not be read."""
    length = torch.randint(least, most + 1, plans.shape[:2], generator=RNG)
    return Prefixes(torch.where(torch.arange(plans.shape[2]) < length[..., None], plans, 7), length)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 21), (9, 12), (15, 15)])
def test_kernel_completes_as_torch_does(case, temperature: float, least: int, most: int) -> None:
    """Prefixes stay, the rest is the plain engine's choice except for near ties, and costs are
    those of whole plans.
    """
    problem, policy, batch, latents, plans = case
    given, memory = prefixes_of(plans, least, most), policy.encode(batch)
    options = {"seed": 9, "attempt": 2, "temperature": temperature}
    request = CompletionRequest(problem, policy, batch, latents, given, memory, **options)
    plain, fused = (complete(request, engine) for engine in ("torch", "fused"))
    imposed = torch.arange(plans.shape[2]) < given.length[..., None]
    for rolled in (plain, fused):
        actions = rolled.actions[:, 0].long()
        assert torch.equal(actions[imposed], plans[imposed])
        assert torch.allclose(rolled.cost[:, 0], problem.cost(batch, actions), rtol=1e-5)
        assert torch.equal(actions.sort(-1).values, plans.sort(-1).values) or problem.name == "cvrp"
    same = (plain.actions == fused.actions).all(-1)
    assert same.float().mean() > 0.9
    assert torch.allclose(plain.cost[same], fused.cost[same], rtol=1e-5)


@pytest.mark.parametrize(("samples", "temperature"), [(7, 1.0), (3, 0.3), (21, 0.0)])
def test_groups_of_samples(case, samples: int, temperature: float) -> None:
    """Each group has the noise of an attempt of its own, also if a tile has several groups."""
    problem, policy, batch, latents, plans = case
    given = prefixes_of(plans[:, :21], 4, 15)
    options = {"seed": 9, "attempt": 2, "temperature": temperature, "samples": samples}
    memory = policy.encode(batch)
    request = CompletionRequest(problem, policy, batch, latents, given, memory, **options)
    plain, fused = (complete(request, engine) for engine in ("torch", "fused"))
    assert (plain.actions == fused.actions).all(-1).float().mean() > 0.9


def test_every_node_is_visited(case) -> None:
    """After any prefix every city or customer is visited once."""
    problem, policy, batch, latents, plans = case
    given = prefixes_of(plans, 1, 18)
    memory = policy.encode(batch)
    request = CompletionRequest(problem, policy, batch, latents, given, memory)
    rolled = complete(request, "fused")
    first = 1 if problem.name == "cvrp" else 0
    for plan in rolled.actions.flatten(0, 2).tolist():
        visited = [node for node in plan if node >= first]
        assert sorted(visited) == list(range(first, batch.xy.shape[1]))


def test_one_imposed_action_is_a_rollout(case) -> None:
    """Every rollout has an imposed first action: the noise and the plans are those of `rollout`."""
    problem, policy, batch, latents, plans = case
    starts = plans[..., 0]
    whole = rollout(problem, policy, batch, latents, starts, seed=9, attempt=2, engine="fused")
    given = Prefixes(plans, torch.ones_like(starts))
    memory = policy.encode(batch)
    options = {"seed": 9, "attempt": 2, "temperature": 1.0}
    request = CompletionRequest(problem, policy, batch, latents, given, memory, **options)
    same = complete(request, "fused")
    assert torch.equal(whole.actions, same.actions)
    assert torch.equal(whole.cost, same.cost)


def by_triton(
    problem, policy, batch, latents, given: Prefixes, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the GPU's kernel in Triton's interpreter, in float32 and tiles of 16."""
    starts = torch.zeros(
        len(batch.xy), given.length.shape[1] // latents.shape[1], dtype=torch.int64
    )  # only counted
    with torch.no_grad():
        memory = policy.encode(batch)
        tables = rollout_tables.build_triton_tables(
            memory, policy.condition(memory, latents), torch.float32
        )
    load = () if problem.name == "tsp" else (batch.demand, batch.capacity)
    build = triton_rollout.tsp_rollout if problem.name == "tsp" else triton_rollout.cvrp_rollout
    more = {"temperature": temperature, "shape": (16, 4), "given": (given.actions, given.length)}
    return build(tables, batch.xy, *load, starts, batch.key, torch.tensor([9, 2]), **more)


def assert_completed_as_torch(
    case, nodes: int, free: tuple[int, int], samples: int, temperature: float, starts: int = 6
) -> None:
    """Check that prefixes stay, and that the rest is what torch decides with the same noise; these
    seeds have no near tie. All but the last few actions are imposed, as the interpreter is slow.
    """
    problem, policy, _, latents, _ = case
    batch, one = problem.sample(2, nodes, torch.Generator().manual_seed(nodes)), latents[:2]
    plans = rollout(
        problem, policy, batch, one, problem.starts(batch)[:, :starts], seed=4, engine="torch"
    ).actions[:, 0]
    ends = (plans != 0).int().mul(torch.arange(plans.shape[2])).amax(
        2
    ) + 1  # behind the last city or customer
    length = (ends - torch.randint(free[0], free[1] + 1, ends.shape, generator=RNG)).clamp(min=1)
    given = Prefixes(
        torch.where(torch.arange(plans.shape[2]) < length[..., None], plans, 7).long(), length
    )
    options = {"seed": 9, "attempt": 2, "temperature": temperature, "samples": samples}
    memory = policy.encode(batch)
    request = CompletionRequest(problem, policy, batch, one, given, memory, **options)
    plain = complete(request, "torch")
    cost, actions = by_triton(
        problem, policy, batch, one.expand(-1, starts // samples, -1), given, temperature
    )
    assert cost.shape[1:] == (starts // samples, samples)
    assert torch.equal(actions.flatten(1, 2), plain.actions[:, 0])
    assert torch.allclose(cost.flatten(1), plain.cost[:, 0], rtol=1e-5)


@WARNS
@pytest.mark.parametrize(
    ("nodes", "free", "samples", "temperature"),
    [(6, (9, 9), 3, 1.0), (23, (0, 9), 6, 0.0), (23, (3, 5), 2, 1.0), (23, (4, 4), 1, 0.3)],
)
def test_triton_completes_as_torch_does(
    case, nodes: int, free: tuple[int, int], samples: int, temperature
) -> None:
    """One part has all columns; rollouts of a tile may differ in their imposed actions."""
    assert_completed_as_torch(case, nodes, free, samples, temperature)


@WARNS
def test_tiles_have_their_own_prefixes(case) -> None:
    """Two tiles, the second of which is not full, each have their own least number of imposed
    actions.
    """
    assert_completed_as_torch(case, 21, (1, 4), 3, 1.0, starts=21)


@WARNS
@pytest.mark.parametrize(("nodes", "part"), [(37, 32), (70, 64)])
def test_parts_complete_as_torch_does(case, monkeypatch, nodes: int, part: int) -> None:
    """Visited nodes are bits in words there, one word for a part of 32 nodes, two for one of 64."""
    tuning = replace(rollout_tables.TUNING, whole_columns=32, part_columns=part)
    monkeypatch.setattr(rollout_tables, "TUNING", tuning)
    assert_completed_as_torch(case, nodes, (2, 5), 3, 1.0)


@WARNS
def test_streams_complete_as_torch_does(case, monkeypatch) -> None:
    """Beyond the largest tile they are bytes in memory."""
    monkeypatch.setattr(triton_rollout, "MAX_TILE_NODES", 0)
    tuning = replace(triton_rollout.TUNING, stream_columns=16)
    monkeypatch.setattr(triton_rollout, "TUNING", tuning)
    assert_completed_as_torch(case, 21, (2, 5), 3, 1.0)


def test_job_shop_kernels_of_a_gpu_refuse_prefixes() -> None:
    """The refusal comes before any work."""
    question = ask("jssp", torch.device("cuda"), 3, JSSPArchitecture(), prefixes=True)
    with pytest.raises(MissingExtra, match="job shops cannot continue a sequence that has begun"):
        choose_engine("fused", question)
