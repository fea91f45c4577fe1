"""The fused log-probability against plain torch in float64, in Triton's interpreter on a CPU."""

from dataclasses import fields, replace

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

from rhumbline import kernels as shared
from rhumbline.decoding import unmark_actions
from rhumbline.kernels.triton.scoring import autograd as kernels
from rhumbline.kernels.triton.scoring.autograd import (
    ScoringTables,
    Tile,
    TileConfig,
    cvrp_mask,
    score_actions,
    tsp_mask,
)

assert isinstance(kernels.forward_kernel, InterpretedFunction), (
    "the kernels were imported before conftest.py was read"
)
assert not isinstance(tl.cdiv, triton.JITFunction), (
    "triton was imported before conftest.py was read"
)

pytestmark = [
    # Triton 3.6 turns arrays of one element into scalars, which numpy 2.3 only announces to refuse.
    pytest.mark.filterwarnings(
        "ignore:Conversion of an array with ndim > 0 to a scalar:DeprecationWarning:triton.*"
    ),
]

CAPACITY = 20
SMALL = TileConfig(
    *[Tile(16, 4, 1)] * 4, programs=24
)  # tiles that trajectories cut at odd places, several chunks
WIDE = TileConfig(
    *[Tile(32, 4, 1)] * 4, programs=1
)  # tiles that span several trajectories, one chunk
TIGHT = 1e-5  # float32 sums in another order and exp2 of scaled scores; at most 3.4e-6 was seen
HALF = 4e-3  # float16: two or three roundings of 2^-11 in sequence; 1.2e-3 was seen


def random_tables(nodes, rollouts, *, groups=None, load=False, width=64, instances=1, seed=0):
    """Make tables for heads of 16 whose softmaxes are neither flat nor saturated.

    4 heads by default, for speed.
    """
    rng = torch.Generator().manual_seed(seed)
    shapes = {
        "key": (nodes, width, 1.0),
        "value": (nodes, width, 1.0),
        "pointer": (nodes, width, 0.1),
        "query_last": (nodes, width, 1.0),
        "query_constant": (groups or rollouts, width, 0.5),
        "query_first": (nodes, width, 1.0),
        "pointer_constant": (groups or rollouts, nodes, 0.3),
        "pointer_shift": (groups or rollouts, width, 0.3),
    }
    tables = {
        name: torch.randn(instances, n, w, generator=rng) * by
        for name, (n, w, by) in shapes.items()
    }
    if load:
        tables["query_load"] = torch.randn(instances, width, generator=rng) * 0.05
        tables["query_first"] = None
    return ScoringTables(**tables)


def random_tours(nodes, rollouts, *, instances=1, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(instances, rollouts, nodes, generator=rng).argsort(2)


def random_routes(nodes, rollouts, *, instances=1, seed=0):
    """Make feasible routes with some early returns, padded with depots, and customers' demands."""
    rng = torch.Generator().manual_seed(seed)
    demand = torch.randint(1, 10, (instances, nodes), generator=rng)
    demand[:, 0] = 0
    tours = []
    for needs in demand.tolist():
        for _ in range(rollouts):
            tour, left = [0], CAPACITY
            for customer in (torch.randperm(nodes - 1, generator=rng) + 1).tolist():
                if needs[customer] > left or (tour[-1] and torch.rand((), generator=rng) < 0.1):
                    tour, left = [*tour, 0], CAPACITY
                tour, left = [*tour, customer], left - needs[customer]
            tours.append([*tour, 0])
    length = max(map(len, tours)) + 1
    actions = torch.tensor([tour + [0] * (length - len(tour)) for tour in tours])
    return actions.view(instances, rollouts, length), demand


def rules(actions, nodes, demand=None):
    """Compute allowed nodes [B, R, T, N] and load left [B, R, T] before every step but the first,
    by walking the tours.
    """
    visited = torch.zeros(*actions.shape[:2], nodes, dtype=torch.bool)
    left = torch.full(actions.shape[:2], CAPACITY)
    allowed, loads = [], []
    for last in actions.long().unbind(2)[:-1]:
        visited = visited.scatter(2, last[:, :, None], True)
        may = ~visited
        if demand is not None:
            left = torch.where(last == 0, CAPACITY, left - demand.gather(1, last))
            may &= demand[:, None] <= left[:, :, None]
            may[:, :, 0] = (last != 0) | visited[:, :, 1:].all(2)
        allowed.append(may)
        loads.append(left)
    return torch.stack(allowed, 2), torch.stack(loads, 2)


def reference(tables, actions, demand=None, *, scale=0.25, clip=10.0):
    """Compute per-step log-probabilities in plain torch, as in the docstring of the kernels."""
    nodes, rollouts, actions = tables.key.shape[1], actions.shape[1], actions.long()
    allowed, load = rules(actions, nodes, demand)

    def each(x):
        return x.repeat_interleave(rollouts // x.shape[1], 1)[:, :, None]

    def rows(table, index):
        return torch.stack([x[i] for x, i in zip(table, index, strict=True)])

    query = rows(tables.query_last, actions[:, :, :-1]) + each(tables.query_constant)
    if tables.query_first is not None:
        query = query + rows(tables.query_first, actions[:, :, :1])
    if tables.query_load is not None:
        query = query + load[..., None] * tables.query_load[:, None, None]
    split = [x.unflatten(-1, (-1, 16)) for x in (query, tables.key, tables.value)]
    score = scale * torch.einsum("brthd,bnhd->brthn", *split[:2])
    weight = score.masked_fill(~allowed[:, :, :, None], -torch.inf).softmax(-1)
    glimpse = torch.einsum("brthn,bnhd->brthd", weight, split[2]).flatten(3)
    if tables.pointer_shift is not None:
        glimpse = glimpse + each(tables.pointer_shift)
    logit = torch.einsum("brte,bne->brtn", glimpse, tables.pointer)
    if tables.pointer_constant is not None:
        logit = logit + each(tables.pointer_constant)
    score = (clip * logit.tanh()).masked_fill(~allowed, -torch.inf).log_softmax(-1)
    return score.gather(3, actions[:, :, 1:, None])[..., 0]


def heads(tables):
    return tables.key.shape[2] // 16


def present(tables):
    return {f.name: x for f in fields(tables) if (x := getattr(tables, f.name)) is not None}


def leaves(tables, dtype=torch.float32):
    """Copy the tables into tensors that collect gradients."""
    return replace(
        tables,
        **{name: x.to(dtype, copy=True).requires_grad_() for name, x in present(tables).items()},
    )


def assert_agrees(tables, actions, demand=None, *, tolerance=TIGHT, config=WIDE, **options):
    """Check that values and all gradients equal the reference's, for random weights on every step.

    Errors are relative to the largest entry of each tensor: single small entries are sums that
    cancel.
    """
    mask = None if demand is None else cvrp_mask(actions, demand, CAPACITY)
    ours, exact = leaves(tables), leaves(tables, torch.float64)
    score = score_actions(
        ours, actions, mask, per_step=True, heads=heads(tables), config=config, **options
    )
    expected = reference(exact, actions, demand)
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(7))
    score.backward(weight)
    expected.backward(weight.double())
    pairs = {name: (getattr(ours, name).grad, x.grad) for name, x in present(exact).items()}
    assert score.dtype == torch.float32
    for name, (got, want) in {"score": (score, expected), **pairs}.items():
        error = ((got - want).abs().max() / want.abs().max()).item()
        assert error < tolerance, f"{name}: {error:.1e}"  # also fails for NaN


@pytest.mark.parametrize(
    ("instances", "nodes", "config"), [(2, 10, SMALL), (1, 20, SMALL), (2, 20, WIDE), (1, 33, WIDE)]
)
def test_tsp_scores_and_gradients_equal_plain_torch(instances, nodes, config):
    """Scores of tours and the gradients of all eight tables are those of plain torch in float64."""
    size = {"instances": instances, "seed": nodes}
    assert_agrees(
        random_tables(nodes, 3, width=128 if nodes == 10 else 64, **size),
        random_tours(nodes, 3, **size),
        config=config,
    )


@pytest.mark.parametrize(("instances", "nodes", "config"), [(2, 11, SMALL), (1, 21, WIDE)])
def test_cvrp_scores_and_gradients_equal_plain_torch(instances, nodes, config):
    """Scores of padded routes and the gradients of all tables, that of the load included, are
    those of plain torch.
    """
    size = {"instances": instances, "seed": 6}
    assert_agrees(
        random_tables(nodes, 3, load=True, width=128 if nodes == 11 else 64, **size),
        *random_routes(nodes, 3, **size),
        config=config,
    )


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_trajectories_share_constants_by_groups(groups):
    """One constant for all trajectories, one per group of neighbours and one per trajectory are
    all right.
    """
    assert_agrees(random_tables(10, 4, groups=groups, seed=2), random_tours(10, 4, seed=2))


@pytest.mark.parametrize("constants", [(1, 4), (4, 2)])
def test_constant_and_shift_may_be_grouped_differently(constants):
    """The pointer's constant and the glimpse's shift add up whichever of the two has more
    groups.
    """
    tables = random_tables(10, 4, seed=3)
    coarse, fine = constants
    tables = replace(
        tables,
        pointer_constant=tables.pointer_constant[:, :coarse],
        pointer_shift=tables.pointer_shift[:, :fine],
    )
    assert_agrees(tables, random_tours(10, 4, seed=3))


def test_pointer_constant_is_optional():
    """Without a pointer constant and a glimpse shift the other tables' gradients are still
    right.
    """
    tables = replace(random_tables(10, 3, seed=4), pointer_constant=None, pointer_shift=None)
    assert_agrees(tables, random_tours(10, 3, seed=4))


def test_actions_may_be_16_bit_and_the_first_node_absent():
    """Actions of 16 bits, as rollouts store them, score as any integers do, also without a table
    of first nodes.
    """
    assert_agrees(
        replace(random_tables(10, 3, seed=4), query_first=None), random_tours(10, 3, seed=4).short()
    )


def test_half_precision_stays_within_its_rounding():
    """In float16 products, scores and gradients are off by a few roundings only."""
    assert_agrees(
        random_tables(10, 3, seed=5),
        random_tours(10, 3, seed=5),
        tolerance=HALF,
        dtype=torch.float16,
    )


def test_autocast_around_the_call_changes_nothing():
    """Scores and gradients stay those of float32 if the caller's encoder runs under autocast."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, exact = (
            leaves(random_tables(10, 2, seed=8)),
            leaves(random_tables(10, 2, seed=8), torch.float64),
        )
        score = score_actions(ours, random_tours(10, 2, seed=8), heads=4, config=WIDE)
    torch.testing.assert_close(
        score.double(), reference(exact, random_tours(10, 2, seed=8)).sum(2), rtol=TIGHT, atol=0
    )


def test_gradients_equal_finite_differences():
    """Each table's gradient is the slope of the kernel's own values along a random direction."""
    tables, actions = random_tables(7, 2, seed=3), random_tours(7, 2, seed=3)
    rng = torch.Generator().manual_seed(11)
    live, h = leaves(tables), 0.05
    score_actions(live, actions, heads=4, config=WIDE).sum().backward()
    for name, x in present(tables).items():
        way = torch.randn(x.shape, generator=rng)
        way /= way.norm()
        f = [
            score_actions(replace(tables, **{name: x + s * h * way}), actions, heads=4, config=WIDE)
            .sum()
            .item()
            for s in (-2, -1, 1, 2)
        ]
        slope = (8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * h)  # fourth order
        grad = getattr(live, name).grad
        expected = (grad * way).sum().item()
        # float32 values of about 20: rounding of 1e-6 * 20 / h, and h^4 of the fifth derivative.
        assert abs(slope - expected) < 3e-3 * max(abs(expected), 0.1 * grad.norm().item()), name


def test_log_prob_is_the_sum_of_its_steps():
    """Without per_step the steps are added, and no tensor is kept unless gradients are needed."""
    tables, actions = random_tables(10, 3), random_tours(10, 3)
    steps = score_actions(tables, actions, tsp_mask(actions), heads=4, per_step=True)
    total = score_actions(tables, actions, heads=4)
    assert steps.shape == (1, 3, 9)
    assert not total.requires_grad
    torch.testing.assert_close(total, steps.sum(2))
    torch.testing.assert_close(steps, reference(tables, actions))


def test_padding_with_depots_costs_nothing():
    """A finished vehicle has only the depot left: such steps score 0."""
    actions, demand = random_routes(11, 2, seed=9)
    actions = torch.nn.functional.pad(actions, (0, 3))
    mask = cvrp_mask(actions, demand, CAPACITY)
    steps = score_actions(random_tables(11, 2, load=True), actions, mask, heads=4, per_step=True)
    assert steps[:, :, -3:].abs().max() < 1e-6  # log z of one term, rounded


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_nothing_is_read_back_from_the_device(problem, monkeypatch, forbid_host_sync):
    """Masks, scores and gradients need no synchronisation, so that a training step can be a CUDA
    graph.
    """
    for name in (x for x in vars(kernels) if x.endswith("_kernel")):
        monkeypatch.setattr(
            kernels, name, {(grid,): lambda *_, **__: None for grid in range(1000)}
        )  # only the host's part
    tables, demand = leaves(random_tables(11, 2, load=problem == "cvrp")), None
    actions = random_tours(11, 2)
    if problem == "cvrp":
        actions, demand = random_routes(11, 2)
    with forbid_host_sync:
        mask = tsp_mask(actions) if demand is None else cvrp_mask(actions, demand, CAPACITY)
        marks = torch.rand(actions.shape) < 0.5
        seen, skip = unmark_actions(torch.where(marks, ~actions, actions))
        score_actions(tables, seen, mask, heads=4, certain=0.9, skip=skip).sum().backward()
    assert all(x.grad is not None for x in present(tables).values())


@pytest.mark.parametrize(("problem", "certain"), [("tsp", 0.5), ("tsp", 1e-9), ("cvrp", 0.9)])
def test_certain_decisions_have_no_gradient(problem: str, certain: float) -> None:
    """Their scores act as constants; also if none or all decisions are certain."""
    vehicles = problem == "cvrp"
    tables = random_tables(11, 5, load=vehicles, instances=2, seed=4)
    actions, demand = (
        random_routes(11, 5, instances=2) if vehicles else (random_tours(11, 5, instances=2), None)
    )
    mask = None if demand is None else cvrp_mask(actions, demand, CAPACITY)
    ours, exact = leaves(tables), leaves(tables, torch.float64)
    score = score_actions(ours, actions, mask, heads=4, certain=certain, config=SMALL)
    expected = reference(exact, actions, demand)
    sure = expected.exp() >= certain
    torch.testing.assert_close(score.double(), expected.sum(2), rtol=TIGHT, atol=TIGHT)
    assert sure.any()
    assert certain == 1e-9 or not sure.all()
    score.sum().backward()
    (torch.where(sure, expected.detach(), expected).sum() + 0.0 * expected.sum()).backward()
    for name, x in present(exact).items():
        got = getattr(ours, name).grad
        assert (got - x.grad).abs().max() <= TIGHT * x.grad.abs().max(), name


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_skipped_steps_count_as_certain(problem: str) -> None:
    """Other steps' scores and gradients do not change; in one instance all steps are skipped."""
    vehicles = problem == "cvrp"
    tables = random_tables(11, 5, load=vehicles, instances=3, seed=4)
    actions, demand = (
        random_routes(11, 5, instances=3) if vehicles else (random_tours(11, 5, instances=3), None)
    )
    mask = None if demand is None else cvrp_mask(actions, demand, CAPACITY)
    skip = torch.rand(actions.shape, generator=torch.Generator().manual_seed(1)) < 0.7
    skip[1] = True
    ours, exact = leaves(tables), leaves(tables, torch.float64)
    score = score_actions(ours, actions, mask, heads=4, skip=skip, per_step=True, config=SMALL)
    expected = reference(exact, actions, demand).masked_fill(skip[..., 1:], 0.0)
    torch.testing.assert_close(score.double(), expected, rtol=TIGHT, atol=TIGHT)
    score.sum().backward()
    expected.sum().backward()
    for name, x in present(exact).items():
        assert (getattr(ours, name).grad - x.grad).abs().max() <= TIGHT * x.grad.abs().max(), name


def test_pointers_alone_have_the_same_gradients() -> None:
    """If only pointers and their constants are trained, they get the gradients that they get among
    all tables.
    """
    actions, found = random_tours(9, 4), []
    for everything in (True, False):
        tables = random_tables(9, 4)
        for field in fields(tables):
            value = getattr(tables, field.name)
            if value is not None:
                value.requires_grad_(everything or field.name in ("pointer", "pointer_constant"))
        score_actions(
            replace(tables, pointer_shift=None), actions, heads=4, config=SMALL
        ).sum().backward()
        found.append((tables.pointer.grad, tables.pointer_constant.grad))
        assert (tables.key.grad is not None) == everything
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert found[0][0].abs().max() > 1e-3


@pytest.mark.parametrize("rows", [1, 700, 2500])
def test_a_kernel_lists_as_torch_does(rows: int) -> None:
    """The rows kept in rising order, and their number up to each row, agree; by flag, and by score
    and gradient.
    """
    rng = torch.Generator().manual_seed(rows)
    kept = torch.rand(3, rows, generator=rng) < torch.tensor([[0.4], [0.0], [1.0]])
    score, grad = -torch.rand(3, rows, generator=rng), torch.randn(3, rows, generator=rng)
    grad[torch.rand(3, rows, generator=rng) < 0.3] = 0.0
    score[0, rows // 2], grad[0, rows // 2] = torch.nan, 1.0
    pairs = (
        (kernels._list_rows(kept), kernels._list_rows_by_kernel(kept.view(torch.uint8))),
        (
            kernels._list_rows_with_gradient(score, grad, -0.3),
            kernels._list_rows_by_kernel(score, grad, -0.3),
        ),
    )
    for (index, place), (by_kernel, place_by_kernel) in pairs:
        assert torch.equal(place, place_by_kernel)
        for own, other, count in zip(index, by_kernel, place[:, -1].tolist(), strict=True):
            assert torch.equal(own[:count], other[:count])
            assert other[0] == 0 or count  # an empty list begins with a row that exists
    assert bool(
        kernels._list_rows_with_gradient(score, grad, -0.3)[1][0, -1]
    )  # what is not a number is kept


def test_scores_whose_rows_a_kernel_lists(monkeypatch) -> None:
    """As on a GPU, a kernel makes the lists: scores and gradients stay the same, with rows left
    out.
    """
    rng = torch.Generator().manual_seed(3)
    actions = torch.stack([torch.randperm(9, generator=rng) for _ in range(6)]).view(2, 3, 9)
    skip = torch.rand(2, 3, 9, generator=rng) < 0.3
    found = []
    for listed in (False, True):
        monkeypatch.setattr(shared, "on_gpu", lambda _, listed=listed: listed)
        draw = torch.Generator().manual_seed(4)
        names = ("key", "value", "pointer", "query_last", "query_first")
        rows = {name: torch.randn(2, 9, 32, generator=draw).requires_grad_() for name in names}
        tables = ScoringTables(**rows, query_constant=torch.zeros(2, 1, 32))
        scores = score_actions(tables, actions, heads=2, skip=skip, certain=0.6)
        scores.square().sum().backward()
        found.append([scores.detach(), *(x.grad for x in rows.values())])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
        assert one.abs().max() > 1e-3
