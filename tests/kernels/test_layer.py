"""A layer on the glimpse in the GPU's kernels, in Triton's interpreter and in float32, against plain torch."""

from dataclasses import replace

import pytest
import torch

from rhumbline import kernels
from rhumbline.decoding import complete, log_prob, rollout
from rhumbline.decoding import scores as scoring
from rhumbline.decoding.engines import with_layer
from rhumbline.decoding.work import Beginnings
from rhumbline.errors import MissingExtra
from rhumbline.kernels import gpu, gpu_tables
from rhumbline.policies.attention import Architecture, Layer
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.cvrp import CVRP
from rhumbline.problems.tsp import TSP

# Raised inside Triton's interpreter, by how it reads scalars.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")

KINDS = {"tsp": (TSP(), TSPPolicy, 12), "cvrp": (CVRP(), CVRPPolicy, 9)}
SEED, ATTEMPT = 9, 2
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    """A problem, a policy whose latents and biases matter, two latents of two instances, and how large these are."""
    problem, kind, size = KINDS[request.param]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        policy = kind(Architecture(hidden=64, layers=1, latent=4)).eval()
        for weight, spread in (("query_latent", 0.01), ("value_latent", 0.01), ("value_bias", 0.5)):
            getattr(policy.decoder, weight).data.normal_(0.0, spread)
    return problem, policy, policy.space.sample((2, 2), torch.Generator().manual_seed(1)), size


def layer(instances: int, scale: float = 0.15) -> Layer:
    """One that changes what is decided."""
    rng = torch.Generator().manual_seed(7)
    shapes = ((128, 128), (1, 128), (128, 128), (1, 128))
    return Layer(*(scale * torch.randn(instances, *shape, generator=rng) for shape in shapes))


@torch.no_grad()
def layered(case, size: int):
    """Instances, their starts, and tables with a layer and without."""
    problem, policy, _, _ = case
    batch = problem.sample(2, size, torch.Generator().manual_seed(size))
    memory = policy.encode(batch)
    return batch, problem.starts(batch)[:, :4], replace(memory, layer=layer(2)), memory


@torch.no_grad()
def by_kernel(case, batch, starts, memory, latents, temperature: float, given: Beginnings | None = None):
    problem, policy, _, _ = case
    tables = gpu_tables.tables(memory, policy.condition(memory, latents), torch.float32)
    load = () if problem.name == "tsp" else (batch.demand, batch.capacity)
    build = gpu.tsp_rollout if problem.name == "tsp" else gpu.cvrp_rollout
    more = {"temperature": temperature, "shape": (16, 4), "given": given and (given.actions, given.length)}
    return build(tables, batch.xy, *load, starts, batch.key, torch.tensor([SEED, ATTEMPT]), **more)


def assert_alike(case, size: int, temperature: float) -> None:
    """Plans under a layer are the plain engine's, and not those without it; these seeds meet no near tie."""
    problem, policy, latents, _ = case
    batch, starts, memory, bare = layered(case, size)
    options = {"seed": SEED, "attempt": ATTEMPT, "temperature": temperature, "engine": "torch"}
    plain, other = (rollout(problem, policy, batch, latents, starts, memory=m, **options) for m in (memory, bare))
    cost, actions = by_kernel(case, batch, starts, memory, latents, temperature)
    assert torch.equal(actions, plain.actions)
    assert torch.allclose(cost, plain.cost, rtol=1e-5)
    assert (other.actions == plain.actions).all(-1).float().mean() < 0.5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_kernels_decide_as_torch_does(case, temperature: float) -> None:
    """Under two latents, which add to the glimpse what the layer must not see."""
    assert_alike(case, case[3], temperature)


@pytest.mark.usefixtures("small_parts")
def test_in_parts_too(case, monkeypatch) -> None:
    """Where columns are worked on in parts, and where maxima are subtracted."""
    monkeypatch.setattr(gpu_tables, "SAFE", 0.0)
    assert_alike(case, 33, 1.0)


def test_what_has_begun_is_carried_on(case) -> None:
    """Imposed actions stay, the rest is decided under the layer: what a beam search completes."""
    problem, policy, latents, size = case
    batch, starts, memory, _ = layered(case, size)
    one = latents[:, :1]
    plans = rollout(problem, policy, batch, one, starts, seed=4, engine="torch").actions[:, 0].long()
    given = Beginnings(plans, torch.tensor([[1, 3, 3, 5], [2, 2, 4, 1]]))
    options = {"seed": SEED, "attempt": ATTEMPT, "temperature": 0.0, "engine": "torch"}
    plain = complete(problem, policy, batch, one, given, memory, **options)
    _, actions = by_kernel(case, batch, starts, memory, one, 0.0, given)
    assert torch.equal(actions[:, 0], plain.actions[:, 0])


def test_scores_and_gradients_of_the_layer_agree(case) -> None:
    """Scores from a kernel's glimpses, and their gradients in all parts of the layer, are those of plain torch."""
    problem, policy, latents, size = case
    batch, starts, memory, _ = layered(case, size)
    rolled = rollout(problem, policy, batch, latents, starts, seed=SEED, engine="torch", memory=memory)
    actions, weight = rolled.actions.flatten(1, 2), torch.linspace(-1.0, 1.0, 16).view(2, 8)

    def scored(fused: bool) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        parts = [x.clone().requires_grad_() for x in vars(memory.layer).values()]
        tables = replace(memory, layer=Layer(*parts))
        if fused:
            shift = policy.condition(tables, latents)
            scores = scoring.layered_log_prob(problem, policy, batch, tables, shift, actions)
        else:
            scores = log_prob(problem, policy, batch, latents, actions, memory=tables, engine="torch")
        return scores.detach(), torch.autograd.grad((weight * scores).sum(), parts)

    (expected, expected_gradient), (scores, gradient) = scored(fused=False), scored(fused=True)
    assert torch.allclose(scores, expected, atol=1e-4)
    for one, other in zip(gradient, expected_gradient, strict=True):  # relative to the largest: sums that cancel
        assert (one - other).abs().max() <= 1e-4 * other.abs().max()
        assert other.abs().max() > 1e-3


def test_depots_behind_the_end_are_not_scored() -> None:
    """Of plans that end early only what was decided is looked at, and one decision at least."""
    plans = torch.tensor([[[2, 1, 0, 0, 0, 0], [1, 0, 2, 0, 0, 0]]])
    assert scoring.last_decision(plans) == 2
    assert scoring.last_decision(plans[:, :1]) == 1
    assert scoring.last_decision(torch.tensor([[[1, 0]]])) == 1


def test_which_engines_know_layers(case) -> None:
    """A GPU's up to the largest tile; elsewhere `auto` takes plain torch, and fused is refused with the reason."""
    _, _, memory, bare = layered(case, 4)
    assert with_layer("auto", bare, CPU, 4) == "auto"
    assert with_layer("fused", memory, CUDA, kernels.LARGEST_TILE) == "fused"
    assert with_layer("auto", memory, CUDA, kernels.LARGEST_TILE + 1) == "torch"
    with pytest.raises(MissingExtra, match="up to 256 nodes, and there are 257"):
        with_layer("fused", memory, CUDA, kernels.LARGEST_TILE + 1)
    with pytest.raises(MissingExtra, match="not linear"):
        with_layer("fused", memory, CPU, 4)
