"""A residual layer on the glimpse in the GPU's kernels, in Triton's interpreter and in float32,
against plain torch.
"""

from dataclasses import replace

import pytest
import torch
from asking import chosen

from rhumbline import kernels
from rhumbline.decoding import CompletionRequest, complete, engines, log_prob, rollout, scoring
from rhumbline.decoding.request import Prefixes
from rhumbline.errors import MissingExtra
from rhumbline.kernels.triton.rollout import launch as triton_rollout
from rhumbline.kernels.triton.rollout import tables as rollout_tables
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.attention.memory import ResidualLayer
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.cvrp import CVRP
from rhumbline.problems.tsp import TSP

# Raised inside Triton's interpreter, by how it reads scalars.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Conversion of an array with ndim > 0:DeprecationWarning"
)

KINDS = {"tsp": (TSP(), TSPPolicy, 12), "cvrp": (CVRP(), CVRPPolicy, 9)}
SEED, ATTEMPT = 9, 2
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    """A problem, a policy whose latents and biases matter, two latents of two instances, and their
    size.
    """
    problem, kind, size = KINDS[request.param]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        policy = kind(Architecture(hidden=64, layers=1, latent=4)).eval()
        for weight, spread in (("query_latent", 0.01), ("value_latent", 0.01), ("value_bias", 0.5)):
            getattr(policy.decoder, weight).data.normal_(0.0, spread)
    return problem, policy, policy.space.sample((2, 2), torch.Generator().manual_seed(1)), size


def layer(instances: int, scale: float = 0.15) -> ResidualLayer:
    """A layer that changes decisions."""
    rng = torch.Generator().manual_seed(7)
    shapes = ((128, 128), (1, 128), (128, 128), (1, 128))
    return ResidualLayer(
        *(scale * torch.randn(instances, *shape, generator=rng) for shape in shapes)
    )


@torch.no_grad()
def tables_with_layer(case, size: int):
    """Return instances, their starts, and tables with a layer and without."""
    problem, policy, _, _ = case
    batch = problem.sample(2, size, torch.Generator().manual_seed(size))
    memory = policy.encode(batch)
    return batch, problem.starts(batch)[:, :4], replace(memory, layer=layer(2)), memory


@torch.no_grad()
def by_kernel(
    case, batch, starts, memory, latents, temperature: float, given: Prefixes | None = None
):
    problem, policy, _, _ = case
    tables = rollout_tables.build_triton_tables(
        memory, policy.condition(memory, latents), torch.float32
    )
    load = () if problem.name == "tsp" else (batch.demand, batch.capacity)
    build = triton_rollout.tsp_rollout if problem.name == "tsp" else triton_rollout.cvrp_rollout
    more = {
        "temperature": temperature,
        "shape": (16, 4),
        "given": given and (given.actions, given.length),
    }
    return build(tables, batch.xy, *load, starts, batch.key, torch.tensor([SEED, ATTEMPT]), **more)


def assert_plans_of_torch(case, size: int, temperature: float) -> None:
    """Check that plans under a layer are those of plain torch, and not those without it; these
    seeds have no near tie.
    """
    problem, policy, latents, _ = case
    batch, starts, memory, bare = tables_with_layer(case, size)
    options = {"seed": SEED, "attempt": ATTEMPT, "temperature": temperature, "engine": "torch"}
    plain, other = (
        rollout(problem, policy, batch, latents, starts, memory=m, **options)
        for m in (memory, bare)
    )
    cost, actions = by_kernel(case, batch, starts, memory, latents, temperature)
    assert torch.equal(actions, plain.actions)
    assert torch.allclose(cost, plain.cost, rtol=1e-5)
    assert (other.actions == plain.actions).all(-1).float().mean() < 0.5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_kernels_decide_as_torch_does(case, temperature: float) -> None:
    """Two latents add to the glimpse, which the layer must not see."""
    assert_plans_of_torch(case, case[3], temperature)


@pytest.mark.usefixtures("small_parts")
def test_parts_decide_as_torch_does(case, monkeypatch) -> None:
    """Columns are worked on in parts, and maxima are subtracted."""
    tuning = replace(rollout_tables.TUNING, max_exponent=0.0)
    monkeypatch.setattr(rollout_tables, "TUNING", tuning)
    assert_plans_of_torch(case, 33, 1.0)


def test_prefixes_are_completed(case) -> None:
    """Imposed actions stay and the rest is decided under the layer, as a beam search needs it."""
    problem, policy, latents, size = case
    batch, starts, memory, _ = tables_with_layer(case, size)
    one = latents[:, :1]
    plans = (
        rollout(problem, policy, batch, one, starts, seed=4, engine="torch").actions[:, 0].long()
    )
    given = Prefixes(plans, torch.tensor([[1, 3, 3, 5], [2, 2, 4, 1]]))
    options = {"seed": SEED, "attempt": ATTEMPT, "temperature": 0.0}
    request = CompletionRequest(problem, policy, batch, one, given, memory, **options)
    plain = complete(request)
    _, actions = by_kernel(case, batch, starts, memory, one, 0.0, given)
    assert torch.equal(actions[:, 0], plain.actions[:, 0])


def test_scores_and_gradients_of_the_layer_agree(case) -> None:
    """Scores from a kernel's glimpses, and their gradients in all parts of the layer, are those of
    plain torch.
    """
    problem, policy, latents, size = case
    batch, starts, memory, _ = tables_with_layer(case, size)
    rolled = rollout(
        problem, policy, batch, latents, starts, seed=SEED, engine="torch", memory=memory
    )
    actions, weight = rolled.actions.flatten(1, 2), torch.linspace(-1.0, 1.0, 16).view(2, 8)

    def scored(fused: bool) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        parts = [x.clone().requires_grad_() for x in vars(memory.layer).values()]
        tables = replace(memory, layer=ResidualLayer(*parts))
        if fused:
            shift = policy.condition(tables, latents)
            scores = scoring.layer_log_prob(problem, policy, batch, tables, shift, actions)
        else:
            scores = log_prob(
                problem, policy, batch, latents, actions, memory=tables, engine="torch"
            )
        return scores.detach(), torch.autograd.grad((weight * scores).sum(), parts)

    (expected, expected_gradient), (scores, gradient) = scored(fused=False), scored(fused=True)
    assert torch.allclose(scores, expected, atol=1e-4)
    for one, other in zip(
        gradient, expected_gradient, strict=True
    ):  # relative to the largest: sums that cancel
        assert (one - other).abs().max() <= 1e-4 * other.abs().max()
        assert other.abs().max() > 1e-3


def test_log_prob_applies_the_layer(case, monkeypatch) -> None:
    """Under either name, the fused engine scores with the layer as plain torch does."""
    problem, policy, latents, size = case
    batch, starts, memory, _ = tables_with_layer(case, size)
    actions = rollout(
        problem, policy, batch, latents, starts, seed=SEED, engine="torch"
    ).actions.flatten(1, 2)
    expected = log_prob(problem, policy, batch, latents, actions, memory=memory, engine="torch")
    monkeypatch.setattr(engines, "choose_engine", lambda *_: engines.ENGINES["triton"])
    assert torch.allclose(
        log_prob(problem, policy, batch, latents, actions, memory=memory, engine="fused"),
        expected,
        atol=1e-4,
    )


@pytest.mark.parametrize("asked", ["gradient", "certain"])
def test_other_gradients_need_plain_torch(case, monkeypatch, asked: str) -> None:
    """Gradients of latents and skipped decisions are right with `auto`, and refused with the reason
    if fused.
    """
    problem, policy, latents, size = case
    batch, starts, memory, _ = tables_with_layer(case, size)
    actions = rollout(
        problem, policy, batch, latents, starts, seed=SEED, engine="torch"
    ).actions.flatten(1, 2)
    options = {"memory": memory, "certain": 0.9 if asked == "certain" else 1.0}
    wanted = latents.clone().requires_grad_(asked == "gradient")
    expected = log_prob(problem, policy, batch, wanted, actions, engine="torch", **options)
    monkeypatch.setattr(engines, "choose_engine", lambda *_: engines.ENGINES["triton"])
    assert torch.equal(
        log_prob(problem, policy, batch, wanted, actions, engine="auto", **options), expected
    )
    with pytest.raises(MissingExtra, match="with a layer on the glimpse the fused engine"):
        log_prob(problem, policy, batch, wanted, actions, engine="fused", **options)


def test_rounded_latent_bias_is_taken_back() -> None:
    """In bfloat16 the kernel adds a rounded number to the glimpse, and the layer sees nothing of
    it.
    """
    rng = torch.Generator().manual_seed(2)
    one, shift = layer(1), torch.randn(1, 2, 128, generator=rng)
    tables = rollout_tables.build_layer_tables(
        one, torch.randn(1, 5, 128, generator=rng), shift, torch.bfloat16
    )
    seen = shift.bfloat16().float() @ tables.into.float() + tables.into_bias
    assert torch.allclose(seen, one.into_bias.expand_as(seen), atol=1e-5)
    assert not torch.allclose(
        shift @ tables.into.float() + tables.into_bias, one.into_bias.expand_as(seen), atol=1e-3
    )


@torch.no_grad()
def test_products_in_16_bits(case) -> None:
    """Logits after them are float32, and close to those of float32 products."""
    _, policy, latents, size = case
    _, _, memory, _ = tables_with_layer(case, size)
    glimpse = torch.randn(2, 6, 128, generator=torch.Generator().manual_seed(8))
    shift = policy.condition(memory, latents)
    exact = policy.decoder.score_through_layer(memory, shift, glimpse)
    with torch.autocast("cpu", torch.bfloat16):
        half = policy.decoder.score_through_layer(memory, shift, glimpse.bfloat16())
    assert half.dtype == torch.float32
    assert not torch.equal(half, exact)
    assert (half - exact).abs().max() < 0.3


def test_tiles_with_a_layer_are_roomy(case, monkeypatch) -> None:
    """Smaller tiles of tours would spill, and ptxas gives up on some of them."""
    batch, starts, memory, bare = tables_with_layer(case, case[3])
    shapes: list[tuple[int, int]] = []
    real = triton_rollout.prepare_launch

    def spy(*arguments):
        shapes.append(arguments[-1])
        return real(*arguments[:-1], (16, 4))

    monkeypatch.setattr(triton_rollout, "prepare_launch", spy)
    problem, policy, latents, _ = case
    for tables in (memory, bare):
        with torch.no_grad():
            made = rollout_tables.build_triton_tables(
                tables, policy.condition(tables, latents), torch.float32
            )
        load = () if problem.name == "tsp" else (batch.demand, batch.capacity)
        build = triton_rollout.tsp_rollout if problem.name == "tsp" else triton_rollout.cvrp_rollout
        build(made, batch.xy, *load, starts, batch.key, torch.tensor([SEED, ATTEMPT]))
    large = triton_rollout.TUNING.large_tile
    assert shapes == [large, (16, 1) if problem.name == "tsp" else large]


def test_streamed_tables_refuse_a_layer(case, monkeypatch) -> None:
    """The streaming kernels would ignore it."""
    _, _, latents, size = case
    batch, starts, memory, _ = tables_with_layer(case, size)
    monkeypatch.setattr(triton_rollout, "MAX_TILE_NODES", 0)
    with pytest.raises(AssertionError, match="knows of layers"):
        by_kernel(case, batch, starts, memory, latents, 0.0)


def test_padding_is_not_scored() -> None:
    """Of plans that end early only the decisions are scored, and one decision at least."""
    plans = torch.tensor([[[2, 1, 0, 0, 0, 0], [1, 0, 2, 0, 0, 0]]])
    assert scoring.last_decision(plans) == 2
    assert scoring.last_decision(plans[:, :1]) == 1
    assert scoring.last_decision(torch.tensor([[[1, 0]]])) == 1


def test_engines_that_support_layers(case) -> None:
    """A GPU supports layers up to the largest tile.

    Elsewhere `auto` takes plain torch, and fused is refused with the reason.
    """
    _, _, memory, bare = tables_with_layer(case, 4)
    problem = case[0].name
    largest = kernels.MAX_TILE_NODES
    assert engines.has_layer(memory)
    assert not engines.has_layer(bare)
    assert chosen("fused", problem, CPU, 4) == "fused"
    assert chosen("auto", problem, CPU, 4, layer=True) == "torch"
    assert chosen("fused", problem, CUDA, largest, layer=True) == "fused"
    assert chosen("auto", problem, CUDA, largest + 1, layer=True) == "torch"
    with pytest.raises(MissingExtra, match="up to 256 nodes, and there are 257"):
        chosen("fused", problem, CUDA, largest + 1, layer=True)
    with pytest.raises(MissingExtra, match="not linear"):
        chosen("fused", problem, CPU, 4, layer=True)
