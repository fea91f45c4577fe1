"""The rollout kernel, in Triton's interpreter and in float32, against the plain engine."""

import gc
from dataclasses import replace

import pytest
import torch
from asking import chosen, chosen_for_scores, why_not
from triton.runtime.interpreter import InterpretedFunction

from rhumbline import checkpoint, kernels, noise
from rhumbline.decoding import BELOW_ONE, choose, engines, log_prob, rollout, unmark_actions
from rhumbline.domains import find_policy_family
from rhumbline.errors import MissingExtra
from rhumbline.kernels.triton.rollout import launch as triton_rollout
from rhumbline.kernels.triton.rollout import tables as rollout_tables
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.problems.tsp import TSP, TSPBatch

assert isinstance(triton_rollout.tsp_rollout_kernel, InterpretedFunction), (
    "the kernels were imported before conftest.py was read"
)

pytestmark = [
    # Triton 3.6 turns arrays of one element into scalars, which numpy 2.3 only announces to refuse.
    pytest.mark.filterwarnings(
        "ignore:Conversion of an array with ndim > 0 to a scalar:DeprecationWarning:triton.*"
    ),
]

NEAR_TIE = 1e-6  # of the total weight: float32 sums in another order
SAFE = rollout_tables.TUNING.max_exponent
SMALL_TILE = (16, 1)
SEED, ATTEMPT = (5 << 32) + 17, 6
CUDA = torch.device("cuda")


@pytest.fixture(scope="module")
def wide(make_policy):
    """A policy of the sizes that the kernels are made for."""
    return make_policy(latent=4, width=128, heads=8, hidden=64)


def problem_of(
    nodes: int, count: int, tried: int, starts: int, policy
) -> tuple[TSPBatch, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(nodes)
    batch = TSP().sample(count, nodes, rng)
    batch = replace(
        batch, key=torch.tensor([0xF0000001, 12, 0x7FFFFFFF])[:count]
    )  # keys are 32-bit hashes
    first = torch.stack([torch.randperm(nodes, generator=rng)[:starts] for _ in range(count)])
    return batch, policy.space.sample((count, tried), rng), first


def by_kernel(
    policy, batch, latents, first, temperature, **options
) -> tuple[torch.Tensor, torch.Tensor]:
    memory = policy.encode(batch)
    tables = rollout_tables.build_triton_tables(
        memory, policy.condition(memory, latents), torch.float32
    )
    counters = torch.tensor([SEED, ATTEMPT])
    return triton_rollout.tsp_rollout(
        tables, batch.xy, first, batch.key, counters, temperature=temperature, **options
    )


def assert_choices_of_torch(policy, batch, latents, actions, temperature: float) -> None:
    """Check that each action of the kernel, given those before it, is what the same uniform selects
    in torch, or a near tie.
    """
    problem, (_, tried, per, nodes) = TSP(), actions.shape
    tours = actions.flatten(1, 2).long().contiguous()
    assert torch.equal(tours.sort(-1).values, torch.arange(nodes).expand_as(tours))
    memory, state = policy.encode(batch), problem.replay(batch, tours)
    shift = policy.condition(memory, latents.repeat_interleave(per * (nodes - 1), 1))
    allowed = problem.mask(state)
    logits = policy.logits(memory, shift, state, allowed)
    attempts = ATTEMPT + torch.arange(tried)
    uniform = noise.decoding_uniforms(SEED, batch.key, attempts, per, nodes)[..., 1:].flatten(1)
    expected, taken = choose(logits, allowed, uniform, temperature), tours[:, :, 1:].flatten(1)
    logits = logits.double().masked_fill(~allowed, -torch.inf)
    if temperature == 0:
        margin = logits.amax(-1) - logits.gather(-1, taken[..., None])[..., 0]
        assert (margin <= NEAR_TIE * 10).all()  # logits reach 10
    else:
        sums = (logits / temperature).softmax(-1).cumsum(-1)
        edges = (sums - uniform[..., None] * BELOW_ONE).abs().amin(-1)
        different = taken != expected
        assert (edges[different] < NEAR_TIE).all()
        assert different.float().mean() < 0.02


CASES = [(3, 3, 2, 3), (13, 2, 2, 5), (37, 1, 2, 3)]


@pytest.mark.parametrize(("nodes", "count", "tried", "starts"), CASES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_kernel_chooses_as_torch_does(
    wide, nodes: int, count: int, tried: int, starts: int, temperature: float
) -> None:
    """Choices are the plain engine's except for near ties; costs agree to 1e-5; partly filled tiles
    are right.
    """
    batch, latents, first = problem_of(nodes, count, tried, starts, wide)
    cost, actions = by_kernel(wide, batch, latents, first, temperature, shape=SMALL_TILE)
    assert torch.equal(actions[..., 0].long(), first[:, None].expand(-1, tried, -1))
    assert_choices_of_torch(wide, batch, latents, actions, temperature)
    priced = TSP().cost(batch, actions.flatten(1, 2).long()).view_as(cost)
    assert torch.allclose(cost, priced, rtol=1e-5)
    plain = rollout(
        TSP(),
        wide,
        batch,
        latents,
        first,
        seed=SEED,
        attempt=ATTEMPT,
        temperature=temperature,
        engine="torch",
    )
    same = (plain.actions == actions).all(-1)
    assert same.float().mean() > 0.8  # the rest left the path at a near tie
    assert torch.allclose(plain.cost[same], cost[same], rtol=1e-5)


def test_search_temperature(wide) -> None:
    """The search's temperature of 0.1 sharpens the kernel's weights as it does torch's."""
    batch, latents, first = problem_of(13, 1, 2, 8, wide)
    _, actions = by_kernel(wide, batch, latents, first, 0.1)
    assert_choices_of_torch(wide, batch, latents, actions, 0.1)


def test_marks_are_where_torch_is_certain(wide) -> None:
    """With marks the tours are the same, and decisions of at least that probability are
    complemented.
    """
    batch, latents, first = problem_of(13, 2, 2, 5, wide)
    cost, plain = by_kernel(wide, batch, latents, first, 1.0, shape=SMALL_TILE)
    priced, actions = by_kernel(wide, batch, latents, first, 1.0, shape=SMALL_TILE, mark=0.3)
    tours, marks = unmark_actions(actions.flatten(1, 2).long())
    assert torch.equal(tours, plain.flatten(1, 2).long())
    assert torch.equal(priced, cost)
    memory, state = wide.encode(batch), TSP().replay(batch, tours)
    shift, allowed = wide.condition(memory, latents.repeat_interleave(5 * 12, 1)), TSP().mask(state)
    shares = (
        wide.logits(memory, shift, state, allowed).masked_fill(~allowed, -torch.inf).softmax(-1)
    )
    shares = shares.gather(-1, tours[:, :, 1:].flatten(1)[..., None]).view(2, 10, 12)
    clear = (shares - 0.3).abs() > 1e-5
    assert torch.equal(marks[..., 1:][clear], (shares >= 0.3)[clear])
    assert not marks[..., 0].any()  # imposed, not decided
    assert 0.05 < marks.float().mean() < 0.95


def test_one_rollout(wide) -> None:
    """A single rollout fills one row of a tile, and no other memory is written."""
    batch, latents, first = problem_of(13, 1, 1, 1, wide)
    cost, actions = by_kernel(wide, batch, latents, first, 1.0)
    assert (tuple(cost.shape), tuple(actions.shape)) == ((1, 1, 1), (1, 1, 1, 13))
    assert_choices_of_torch(wide, batch, latents, actions, 1.0)


def test_more_rollouts_than_a_tile(wide) -> None:
    """Rollouts in a second, partly filled tile are as right as those in the first."""
    batch, latents, first = problem_of(5, 1, 5, 5, wide)  # 25 rollouts in tiles of 16
    cost, actions = by_kernel(wide, batch, latents, first, 1.0, shape=SMALL_TILE)
    assert_choices_of_torch(wide, batch, latents, actions, 1.0)
    wider, _ = by_kernel(wide, batch, latents, first, 1.0, shape=(32, 1))
    assert torch.allclose(wider, cost, rtol=1e-5)


@pytest.mark.parametrize("members", [0, 2])
def test_adapted_tables_are_read(make_policy, members: int) -> None:
    """The kernel uses tables that active search has changed, and those of a population member, as
    torch does.
    """
    policy = make_policy(latent=0 if members else 4, members=members, width=128, heads=8, hidden=64)
    batch, _, first = problem_of(13, 2, 1, 5, policy)
    latents, usual = policy.space.centre((2, 1), torch.device("cpu")), policy.encode(batch)
    if members:
        usual, changed = usual.members
    else:
        noisy = usual.embedding + 0.5 * torch.randn(
            usual.embedding.shape, generator=torch.Generator().manual_seed(1)
        )
        changed = policy.adjusted(usual, noisy)
    found = []
    for memory in (usual, changed):
        tables = rollout_tables.build_triton_tables(
            memory, policy.condition(memory, latents), torch.float32
        )
        _, actions = triton_rollout.tsp_rollout(
            tables, batch.xy, first, batch.key, torch.tensor([SEED, 0]), temperature=0.0
        )
        same = rollout(
            TSP(),
            policy,
            batch,
            latents,
            first,
            seed=SEED,
            temperature=0.0,
            memory=memory,
            engine="torch",
        )
        assert torch.equal(actions, same.actions)
        found.append(actions)
    assert not torch.equal(*found)


def test_tables_are_padded_and_scaled(wide) -> None:
    """Nodes are padded with zeros to a power of two of at least 16, queries carry log2(e)/4."""
    batch, latents, _ = problem_of(37, 1, 2, 1, wide)
    memory = wide.encode(batch)
    nodes = rollout_tables.build_triton_tables(
        memory, wide.condition(memory, latents), torch.float32
    ).nodes
    assert nodes.key.shape == (1, 64, 128)
    assert torch.equal(nodes.key[:, :37], memory.key)
    assert not nodes.key[:, 37:].any()
    assert torch.allclose(nodes.query_last[:, :37], memory.query_last * 1.4426950408889634 / 4)
    assert (
        rollout_tables.build_triton_tables(memory, wide.condition(memory, latents)).nodes.key.dtype
        == torch.bfloat16
    )


@pytest.mark.parametrize(
    ("instances", "rollouts", "padded", "expected"),
    [
        (1, 1, 16, 16),
        (4, 2560, 128, 64),
        (64, 2000, 128, 64),
        (64, 2000, 256, 128),
        (8, 2000, 192, 64),  # 128 programs of 128 rows: some processors would have none
        (200, 64, 256, 64),  # 128 rows would be half empty
        (1, 100, 256, 64),  # smaller tiles would spill their tables from registers
        (2, 2560, 128, 32),
        (1, 100, 128, 16),
        (500, 13, 16, 16),
    ],
)
def test_tiles_fill_the_chip(instances: int, rollouts: int, padded: int, expected: int) -> None:
    """Tiles are as large as registers allow while each of the 132 processors has a program, and not
    mostly empty.
    """
    rows, warps = triton_rollout.choose_tile(instances, rollouts, padded)
    assert rows == expected
    assert 1 <= warps <= 8


@pytest.mark.parametrize(("padded", "expected"), [(64, (64, 4)), (128, (64, 4)), (192, (128, 8))])
def test_cvrp_has_no_small_tiles(padded: int, expected: tuple[int, int]) -> None:
    """Tiles have 64 rows, and twice as many above 128 nodes if there is enough work."""
    assert triton_rollout.choose_roomy_tile(64, 2000, padded) == expected
    assert triton_rollout.choose_roomy_tile(1, 20, padded) == (64, 4)


# --- which engine


@pytest.mark.parametrize(
    ("problem", "device", "nodes", "words"),
    [
        ("knapsack", CUDA, 10, "there is no fused kernel for knapsack"),
        ("tsp", CUDA, 1025, "nodes, and there are 1025"),  # rollouts up to 1,024, scores up to 256
    ],
)
def test_reasons_are_given_in_words(
    problem: str, device: torch.device, nodes: int, words: str
) -> None:
    """A fused engine that cannot run is refused with the reason and a remedy; `auto` takes torch
    instead.
    """
    assert words in why_not(problem, device, nodes)
    with pytest.raises(MissingExtra, match=rf"{words}\. Use engine torch"):
        chosen("fused", problem, device, nodes)
    with pytest.raises(MissingExtra, match=words):
        chosen_for_scores("fused", problem, device, nodes)
    assert chosen("auto", problem, device, nodes) == "torch"


def test_policies_of_another_shape_take_torch(policy) -> None:
    """The kernels assume 8 heads of 16: any other policy takes torch on a GPU too, for rollouts and
    for gradients.
    """
    shape = policy.architecture  # 2 heads of 16
    assert chosen("auto", "tsp", CUDA, 10, shape) == "torch"
    assert chosen_for_scores("auto", "tsp", CUDA, 10, shape) == "torch"
    with pytest.raises(
        MissingExtra, match="takes policies with 8 heads of width 16, and this one has 2 of 16"
    ):
        chosen_for_scores("fused", "tsp", CUDA, 10, shape)
    assert chosen_for_scores("auto", "tsp", CUDA, 10, Architecture()) == "fused"


def test_log_prob_passes_the_architecture(policy, make_batch, monkeypatch) -> None:
    """The policy that is scored decides the engine."""
    asked: list[object] = []
    real = engines.choose_engine

    def spy(wanted: str, ask: engines.Ask) -> engines.Engine:
        asked.append(ask.architecture)
        return real(wanted, ask)

    monkeypatch.setattr(engines, "choose_engine", spy)
    batch = make_batch(1, 5)
    tours = torch.arange(5).expand(1, 1, 5)
    log_prob(TSP(), policy, batch, policy.space.centre((1, 1), torch.device("cpu")), tours)
    assert asked == [policy.architecture]


def test_missing_triton_is_named(monkeypatch) -> None:
    """Without Triton the reason names Triton."""
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    assert why_not("tsp", CUDA, 10) == "the fused engine needs Triton, which is not installed"


def test_fused_engine_serves_up_to_1024_nodes() -> None:
    """On a GPU `auto` and `fused` take the kernels up to 1,024 nodes, and torch stays torch."""
    assert why_not("tsp", CUDA, 1024) is None
    assert {chosen(e, "tsp", CUDA, n) for e in ("auto", "fused") for n in (1, 1024)} == {"fused"}
    assert chosen("torch", "tsp", CUDA, 10) == "torch"


# --- when the maximum need not be subtracted


def test_bounded_scores_stay_below_the_bound(wide) -> None:
    """Keys are stretched until the largest score of any query passes the limit, which the bound
    must detect before.
    """
    batch, latents, first = problem_of(13, 3, 3, 5, wide)
    memory = wide.encode(batch)
    tables = rollout_tables.build_triton_tables(
        memory, wide.condition(memory, latents), torch.float32
    )
    nodes = tables.nodes
    begun = nodes.query_context.gather(1, first[..., None].expand(-1, -1, 128))
    query = (
        tables.query_shift[:, :, None, None]
        + begun[:, None, :, None]
        + nodes.query_last[:, None, None, :13]
    )
    heads = (query.unflatten(-1, (8, 16)), nodes.key[:, :13].unflatten(-1, (8, 16)))
    largest = torch.einsum("bkslhd,bnhd->bkslhn", *heads).abs().amax()
    for factor, expected in ((1e-3, 1), (1.001 * SAFE / largest, 0)):
        stretched = rollout_tables.build_node_tables(
            replace(memory, key=memory.key * factor), torch.float32
        )
        flags = rollout_tables.find_bounded_instances(stretched, tables.query_shift, begun)
        assert flags.amin() == expected
    assert rollout_tables.find_bounded_instances(
        nodes, tables.query_shift, begun
    ).all()  # not so careful that it never holds


@pytest.mark.parametrize("name", ["tsp100", "cvrp100", "cvrp"])
def test_the_shipped_policies_are_bounded(name: str) -> None:
    """The faster kernel serves them.

    Bounds by lengths of vectors would fail for one policy and then for the other.
    """
    policy = checkpoint.load(checkpoint.shipped_checkpoints()[name]).requires_grad_(False)
    problem, rng = find_policy_family(policy.problem)[1].rules, torch.Generator().manual_seed(1)
    batch = problem.sample(4, 100, rng)
    memory = policy.encode(batch)
    tables = rollout_tables.build_triton_tables(
        memory, policy.condition(memory, policy.space.sample((4, 16), rng))
    )
    parts = (tables.query_shift, tables.nodes.query_context)
    parts = (
        (rollout_tables.empty_and_full_queries(*parts, batch.capacity),)
        if policy.problem == "cvrp"
        else parts
    )
    assert rollout_tables.find_bounded_instances(tables.nodes, *parts).all()


def test_extreme_loads_bound_all_loads() -> None:
    """Scores are linear in the load left, so their extremes are at both ends."""
    rng = torch.Generator().manual_seed(3)
    query, load, key = (
        torch.randn(*shape, 128, generator=rng) for shape in ((2, 5), (2,), (2, 16))
    )
    capacity = torch.tensor([7, 40])
    most = rollout_tables.bound_scores(
        rollout_tables.empty_and_full_queries(query, load, capacity), key
    )
    for share in (0.1, 0.35, 0.8):
        part = rollout_tables.bound_scores(query + share * (load * capacity[:, None])[:, None], key)
        assert (part <= most).all()


def test_tables_are_made_once_for_a_memory(wide) -> None:
    """The same memory gives the same tables; another one, or another type, gives its own."""
    batch, latents, _ = problem_of(9, 2, 2, 3, wide)
    memory, other = wide.encode(batch), wide.encode(replace(batch, xy=batch.xy.flip(-1)))
    shift = wide.condition(memory, latents)
    once = rollout_tables.build_triton_tables(memory, shift, torch.float32)
    assert rollout_tables.build_triton_tables(memory, shift, torch.float32).nodes is once.nodes
    half = rollout_tables.build_triton_tables(memory, shift).nodes
    assert half.key.dtype == torch.bfloat16
    moved = rollout_tables.build_triton_tables(other, shift, torch.float32).nodes
    assert torch.equal(moved.key[:, :9], other.key)
    assert torch.equal(
        rollout_tables.build_triton_tables(memory, shift, torch.float32).nodes.key, once.nodes.key
    )
    del memory, half
    gc.collect()
    assert rollout_tables.TABLE_CACHE.last is None  # nothing is held longer than its memory


@pytest.mark.parametrize(
    ("nodes", "part", "columns", "temperature", "safe"),
    [
        (33, 32, 64, 0.0, 0.0),
        (40, 32, 64, 0.1, SAFE),
        (64, 32, 64, 0.1, 0.0),
        (66, 32, 96, 1.0, SAFE),
        (66, 64, 128, 1.0, SAFE),  # two words have the bits of a part of 64
    ],
)
@pytest.mark.usefixtures("small_parts")
def test_parts_choose_as_torch_does(
    wide, monkeypatch, nodes: int, part: int, columns: int, temperature: float, safe: float
) -> None:
    """Two parts and three, filled or nearly empty, also if maxima are subtracted because no
    instance is bounded.
    """
    tuning = replace(rollout_tables.TUNING, max_exponent=safe, part_columns=part)
    monkeypatch.setattr(rollout_tables, "TUNING", tuning)
    assert rollout_tables.padded_columns(nodes) == columns
    batch, latents, first = problem_of(nodes, 1, 2, 3, wide)
    cost, actions = by_kernel(wide, batch, latents, first, temperature, shape=SMALL_TILE)
    assert_choices_of_torch(wide, batch, latents, actions, temperature)
    priced = TSP().cost(batch, actions.flatten(1, 2).long()).view_as(cost)
    assert torch.allclose(cost, priced, rtol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "columns"), [(3, 16), (16, 16), (100, 128), (128, 128), (129, 192), (193, 256)]
)
def test_columns_of_a_tile(nodes: int, columns: int) -> None:
    """A power of two up to 128, then a multiple of the part of 64; parts divide tiles."""
    assert rollout_tables.padded_columns(nodes) == columns
    assert columns % rollout_tables.part_width(columns) == 0
