"""The folded decoder against the network of the paper, and zero-initialised conditioning."""

import math

import pytest
import torch

from rhumbline.policies.attention.encoder import (
    Architecture,
    attention_ranges,
    limit_attention_ranges,
)
from rhumbline.policies.attention.pointer import CLIP
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.cvrp import CVRP
from rhumbline.problems.tsp import TSP, TSPBatch, TSPState


def states(batch: TSPBatch, rollouts: int) -> TSPState:
    """Return rollouts at different depths of random tours."""
    rng = torch.Generator().manual_seed(3)
    count, size = batch.xy.shape[:2]
    tours = torch.rand(count, rollouts, size, generator=rng).argsort(2)
    depth = torch.arange(rollouts) % (size - 1) + 1
    visited = tours.argsort(2) < depth[:, None]
    last = tours.gather(2, (depth - 1).expand(count, rollouts)[..., None])[..., 0]
    return TSPState(tours[..., 0], last, visited, 0)


def unfolded(
    policy: TSPPolicy,
    batch: TSPBatch,
    latents: torch.Tensor,
    state: TSPState,
    key_latent: torch.Tensor,
):
    """Return the logits of the network as written: z is concatenated to the inputs."""
    d = policy.decoder
    e = policy.encoder(batch.xy)  # [B, N, D]
    (count, nodes, width), rollouts = e.shape, state.last.shape[1]
    z = latents * d.amplify  # [B, R, Z]
    rows = torch.arange(count)[:, None]
    mean = e.mean(1, keepdim=True).expand(-1, rollouts, -1)
    query_in = torch.cat([mean, e[rows, state.last], e[rows, state.first], z], -1)
    query = (
        query_in @ torch.cat([d.query_mean, d.query_last, d.query_first, d.query_latent])
        + d.query_bias
    )
    pairs = torch.cat(
        [e[:, None].expand(-1, rollouts, -1, -1), z[:, :, None].expand(-1, -1, nodes, -1)], -1
    )
    key = pairs @ torch.cat([d.key, key_latent])  # [B, R, N, D]
    value = pairs @ torch.cat([d.value, d.value_latent]) + d.value_bias
    heads = (d.heads, width // d.heads)
    scores = torch.einsum(
        "brhc,brnhc->brhn", query.unflatten(-1, heads), key.unflatten(-1, heads)
    ) / math.sqrt(heads[1])
    weight = scores.masked_fill(state.visited[:, :, None], -torch.inf).softmax(-1)
    glimpse = torch.einsum("brhn,brnhc->brhc", weight, value.unflatten(-1, heads)).flatten(2)
    h = glimpse @ d.output + d.output_bias
    return 10.0 * torch.tanh(torch.einsum("brd,bnd->brn", h, e) / math.sqrt(width))


@pytest.mark.parametrize("latent", [0, 4])
def test_tables_equal_the_network_as_written(make_policy, make_batch, latent: int) -> None:
    """Folding changes no logit by more than 1e-5 against conditioning by concatenation."""
    policy, batch = make_policy(latent, growth=0.0), make_batch(3, 9)
    rng = torch.Generator().manual_seed(0)
    latents, state = policy.space.sample((3, 8), rng), states(batch, 8)
    key_latent = torch.randn(latent, 32, generator=rng) * 0.01
    memory = policy.encode(batch)
    folded = policy.logits(memory, policy.condition(memory, latents), state, TSP().mask(state))
    written = unfolded(policy, batch, latents, state, key_latent)
    assert folded.std() > 0.3  # neither flat ...
    assert folded.abs().max() < 0.99 * CLIP  # ... nor saturated
    assert (folded - written).abs().max() < 1e-5


@pytest.mark.parametrize("nodes", [27, 100])
def test_attention_grows_with_the_cube_root_of_the_nodes(
    make_policy, make_batch, nodes: int
) -> None:
    """One layer and the keys of the decoder scale every score where the paper computes it."""
    policy, batch, factor = (
        make_policy(layers=1),
        make_batch(2, nodes),
        {27: 3.0 / 100.0 ** (1 / 3), 100: 1.0}[nodes],
    )
    layer, x = policy.encoder.layers[0], policy.encoder.embed(batch.xy)
    query, key, value = (w.unflatten(-1, (layer.heads, -1)) for w in layer.qkv(x).chunk(3, dim=-1))
    scores = factor * torch.einsum("bihc,bjhc->bhij", query, key) / math.sqrt(query.shape[-1])
    mixed = torch.einsum("bhij,bjhc->bihc", scores.softmax(-1), value).flatten(2)
    x = layer.norm_attention(x + layer.out(mixed))
    x = layer.norm_hidden(x + layer.down(layer.up(x).relu()))
    memory = policy.encode(batch)
    assert torch.allclose(memory.embedding, x, atol=1e-5)
    assert torch.allclose(memory.key, factor * (x @ policy.decoder.key), atol=1e-5)
    assert torch.allclose(memory.value, x @ policy.decoder.value, atol=1e-5)


def test_a_vehicle_counts_customers_only() -> None:
    """A CVRP policy of 100 customers, which are 101 nodes, has factor 1."""
    assert CVRPPolicy(Architecture(32, 2, 1, 32)).sharpness(100) == 1.0
    policy, batch = (
        CVRPPolicy(Architecture(32, 2, 1, 32)),
        CVRP().sample(1, 100, torch.Generator().manual_seed(0)),
    )
    assert torch.equal(policy.encode(batch).embedding, policy.encoder(policy.features(batch)))


def test_key_conditioning_cancels(make_policy, make_batch) -> None:
    """In the network as written, conditioning keys changes nothing; conditioning queries does."""
    policy, batch = make_policy(), make_batch(2, 7)
    rng = torch.Generator().manual_seed(0)
    latents, state = policy.space.sample((2, 6), rng), states(batch, 6)
    without = unfolded(policy, batch, latents, state, torch.zeros(4, 32))
    conditioned = unfolded(policy, batch, latents, state, 0.02 * torch.randn(4, 32, generator=rng))
    assert (without - conditioned).abs().max() < 1e-5
    assert (
        without - unfolded(policy, batch, -latents, state, torch.zeros(4, 32))
    ).abs().max() > 0.1


def test_a_widened_policy_is_the_old_one_for_every_latent(make_policy, make_batch) -> None:
    """Zero-initialised conditioning leaves every logit bit-identical."""
    single, batch = make_policy(0), make_batch(2, 8)
    wide = single.widened(16)
    assert wide.space.size == 16
    latents, state = wide.space.sample((2, 7), torch.Generator().manual_seed(0)), states(batch, 7)
    allowed = TSP().mask(state)
    memory = single.encode(batch)
    before = single.logits(memory, single.condition(memory, latents[..., :0]), state, allowed)
    memory = wide.encode(batch)
    assert torch.equal(wide.logits(memory, wide.condition(memory, latents), state, allowed), before)


def test_widening_keeps_sizes_and_amplification(make_policy) -> None:
    """Only the latent's size and factor change; the factor is stored with the weights."""
    wide = make_policy(0).widened(3, 50.0)
    assert wide.architecture == Architecture(32, 2, 1, 32, latent=3, amplify=50.0)
    assert wide.state_dict()["decoder.amplify"] == 50.0
    assert not wide.decoder.query_latent.any()


def test_encoder_does_not_care_about_the_order_of_cities(policy, make_batch) -> None:
    """Renumbering the cities renumbers their embeddings and changes nothing else."""
    batch = make_batch(2, 10)
    order = torch.randperm(10, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(
        policy.encoder(batch.xy[:, order]), policy.encoder(batch.xy)[:, order], atol=1e-5
    )


def test_batch_mates_do_not_touch_the_tables(policy, make_batch) -> None:
    """The tables of an instance are the same in any batch."""
    batch = make_batch(4, 6)
    whole, alone = policy.encode(batch), policy.encode(batch[2:3])
    tables = {name: table for name, table in vars(alone).items() if table is not None}
    assert len(tables) == 8
    for name, table in tables.items():
        assert torch.allclose(table[0], getattr(whole, name)[2], atol=1e-5), name


def test_box_samples_fill_the_box(policy) -> None:
    """Latents are uniform in [-1, 1]: mean 0, variance 1/3, up to both ends."""
    z = policy.space.sample((2000, 5), torch.Generator().manual_seed(0))
    assert z.shape == (2000, 5, 4)
    assert z.min() >= -1
    assert z.max() <= 1
    assert (z.min() < -0.999, z.max() > 0.999) == (True, True)
    assert abs(z.mean()) < 0.015  # 40,000 numbers: a standard error of 0.003
    assert z.var() == pytest.approx(1 / 3, abs=0.01)
    assert not policy.space.centre((2, 3), torch.device("cpu")).any()


def test_only_heads_that_spread_too_far_are_limited(make_policy, make_batch) -> None:
    """The range of such a head falls to the limit at once; no other head changes.

    Scores are products of queries and keys, which are scaled alike.
    """
    policy, batch = make_policy(0), make_batch(3, 9)
    weight = policy.encoder.layers[0].qkv.weight
    with torch.no_grad():
        weight.view(3, 2, -1)[:2, 1] *= 100.0
    before, sick = weight.detach().clone(), attention_ranges(policy.encoder, batch.xy)[0]
    assert sick[1] > 100 > sick[0]
    limit_attention_ranges(policy.encoder, batch.xy, 100.0)
    healed = attention_ranges(policy.encoder, batch.xy)[0]
    assert healed == pytest.approx([sick[0], 100.0], rel=1e-5)
    scaled = weight.view(3, 2, -1) / before.view(3, 2, -1)
    assert torch.allclose(scaled[:2, 1], scaled[:1, 1, :1].expand(2, -1))  # queries and keys alike
    assert torch.equal(weight.view(3, 2, -1)[:, 0], before.view(3, 2, -1)[:, 0])
    assert torch.equal(weight.view(3, 2, -1)[2], before.view(3, 2, -1)[2])  # values


def test_a_healthy_encoder_is_left_as_it_is(make_policy, make_batch) -> None:
    """Below the limit not one bit changes."""
    policy, batch = make_policy(0), make_batch(3, 9)
    before = {n: x.clone() for n, x in policy.state_dict().items()}
    limit_attention_ranges(policy.encoder, batch.xy, 300.0)
    assert all(torch.equal(x, before[n]) for n, x in policy.state_dict().items())
