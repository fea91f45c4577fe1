"""Varied instances: the batched operators against their definition, and whole batches."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rhumbline.problems.cvrp import CVRP, CVRPBatch
from rhumbline.problems.distributions.mutations import OPERATORS, RANGES
from rhumbline.problems.distributions.varied import (
    BATCH_OPERATORS,
    MutationDraws,
    fill_unit_square,
    gather_into_clusters,
    interpolate,
    move_depot,
    mutate_batch,
    sample_draws,
    vary_cvrp,
    vary_tsp,
)
from rhumbline.problems.metrics import scale_to_unit_square
from rhumbline.problems.tsp import TSP


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def uniform(count: int, nodes: int, seed: int = 0) -> Tensor:
    return torch.rand(count, nodes, 2, generator=seeded(seed))


def only(kind: str, d: MutationDraws) -> MutationDraws:
    """Return the same draws, but with one kind for all instances."""
    number = list(BATCH_OPERATORS).index(kind)
    return replace(d, kind=torch.full_like(d.kind, number))


class Given(np.random.Generator):
    """A NumPy generator that hands an operator of `mutate` the draws of one instance."""

    def __init__(self, d: MutationDraws, row: int):
        super().__init__(np.random.PCG64())
        self.d, self.row = d, row

    def of(self, name: str) -> np.ndarray:
        return getattr(self.d, name)[self.row].double().numpy()

    def random(self, count: int | None = None):
        if count is None:
            return self.of("base").item()
        return self.of("centre")[0] if count == 2 else self.of("uniform")[:, 0]

    def uniform(self, low: float, high: float, count: int | None = None):
        if count == 2:
            return low + (high - low) * self.of("sides")[0]
        if high == 2.0 * math.pi:
            return self.of("angle").item()
        steep = (low, high) in ((0.0, RANGES.max_slope), (-RANGES.max_slope, 0.0))
        return self.of("slope").item() if steep else low + (high - low) * self.of("size").item()

    def standard_normal(self, shape: tuple[int, int]) -> np.ndarray:
        return self.of("normal")[:, : shape[1]]

    def exponential(self, mean: float, shape: tuple[int, int]) -> np.ndarray:
        return -mean * np.log(1.0 - self.of("share"))

    def integers(self, high: int) -> int:
        return int(high * self.of("base").item())

    def permutation(self, items: np.ndarray) -> np.ndarray:
        return items


def nearest(xy: Tensor) -> Tensor:
    """Return the mean distance of each instance's points to their nearest neighbours."""
    return (torch.cdist(xy, xy) + 9.0 * torch.eye(xy.shape[1])).amin(2).mean(1)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_do_what_their_definition_does(name: str) -> None:
    """With equal random numbers, batched operators move the same points to the same places."""
    operator = BATCH_OPERATORS[name]
    points, d = uniform(20, 60), sample_draws(20, 60, seeded(1))
    chosen, moved = operator(points, d)
    for row in range(20):
        stub, power = Given(d, row), d.power[row].item()
        taken, there = OPERATORS[name](points[row].double().numpy(), power, stub)
        assert chosen[row, :, 0].tolist() == taken.tolist()
        np.testing.assert_allclose(moved[row][taken].numpy(), there[taken], atol=1e-4)
        # single precision: which way a point next to the middle line flies is known to few digits
    assert 20 < chosen.sum() < 20 * 60


def test_an_instance_gets_its_own_operator() -> None:
    """What one batch of all kinds holds is what each kind alone makes of its instances."""
    points, d = uniform(200, 30), sample_draws(200, 30, seeded(1))
    mixed = mutate_batch(points, d)
    assert set(d.kind.flatten().tolist()) == set(range(len(BATCH_OPERATORS)))
    for number, kind in enumerate(BATCH_OPERATORS):
        mine = d.kind[:, 0, 0] == number
        assert torch.equal(mixed[mine], mutate_batch(points, only(kind, d))[mine])


def test_shares_of_the_kinds() -> None:
    """A twelfth of the instances for each mutation, a quarter for clusters."""
    counts = torch.bincount(sample_draws(12_000, 1, seeded(0)).kind.flatten(), minlength=10)
    assert (counts[:9] - 1000).abs().max() < 4.5 * math.sqrt(1000)
    assert abs(counts[9] - 3000) < 4.5 * math.sqrt(3000 * 0.75)


@pytest.mark.parametrize("seed", range(3))
def test_points_stay_in_the_square(seed: int) -> None:
    """Whatever is drawn, all points are finite and in the unit square."""
    xy = vary_tsp(TSP().sample(500, 23, seeded(seed)), 1.0, seeded(seed + 10)).xy
    assert torch.isfinite(xy).all()
    assert xy.min() >= 0.0
    assert xy.max() <= 1.0


def test_points_that_left_are_redrawn() -> None:
    """A quarter turn about the origin takes (x, y) to (-y, x).

    With a shift of (0.25, 0) two of three points are outside.
    """
    points = torch.tensor([[[0.5, 0.5], [0.2, 0.4], [0.3, 0.0]]])
    d, one = only("rotation", sample_draws(1, 3, seeded(0))), torch.ones(1, 1, 1)
    d = replace(d, power=one, angle=one * math.pi / 2, centre=torch.tensor([[[0.25, 0.0]]]))
    found = mutate_batch(points, d)
    assert torch.equal(found[:, :2], d.replacement[:, :2])
    assert torch.allclose(found[0, 2], torch.tensor([0.25, 0.3]))


@pytest.mark.parametrize("name", ["cluster", "rotation", "linear", "axis"])
def test_one_point_is_too_few(name: str) -> None:
    """An operator that takes a single point changes nothing; of two it changes both."""
    points, d = uniform(1, 5), only(name, sample_draws(1, 5, seeded(0)))
    for few in (1, 2):
        uniforms = torch.where(torch.arange(5) < few, 0.0, 1.0)[None, :, None]
        found = mutate_batch(points, replace(d, uniform=uniforms, power=torch.full((1, 1, 1), 0.5)))
        changed = (found != points).any(2)[0].tolist()
        assert changed == ([False] * 5 if few == 1 else [True, True, False, False, False])


def test_clusters_are_clustered() -> None:
    """Without loose points the nearest neighbour is at under half the uniform distance."""
    points, d = uniform(300, 100), only("clusters", sample_draws(300, 100, seeded(2)))
    tight = replace(d, power=torch.zeros_like(d.power))
    reference = nearest(points).mean()
    assert nearest(mutate_batch(points, tight)).mean() < 0.5 * reference
    assert nearest(mutate_batch(points, d)).mean() < 0.65 * reference
    assert (
        nearest(vary_tsp(TSP().sample(300, 100, seeded(0)), 1.0, seeded(1)).xy).mean()
        < 0.9 * reference
    )


def test_clusters_lie_about_their_centres() -> None:
    """The lowest size uses one centre, the highest all eight; points are within 5 deviations."""
    points, d = uniform(40, 200), sample_draws(40, 200, seeded(3))
    d = replace(d, power=torch.zeros_like(d.power), centres=interpolate((0.35, 0.65), d.centres))
    for size, used in ((0.0, 1), (0.99, 8)):
        chosen, moved = gather_into_clusters(points, replace(d, size=torch.full_like(d.size, size)))
        assert chosen.all()
        distance = torch.cdist(moved, d.centres[:, :used]) / d.deviations[:, None, :used, 0]
        assert distance.amin(2).max() < 5.0
        assert set(distance.argmin(2).flatten().tolist()) == set(range(used))


def test_loose_points_stay() -> None:
    """At power 1 half of the points stay where they were, at power 0.5 and below none."""
    points, d = uniform(50, 100), sample_draws(50, 100, seeded(4))
    for power, share in ((0.2, 0.0), (0.5, 0.0), (1.0, 0.5)):
        chosen, _ = gather_into_clusters(points, replace(d, power=torch.full_like(d.power, power)))
        assert (
            abs(1.0 - chosen.float().mean() - share)
            < 4.5 * math.sqrt(share * (1 - share) / 5000) + 1e-9
        )


def test_filling_is_what_files_get() -> None:
    """One factor serves both axes, as in `scale_to_unit_square`.

    Points that coincide go to the corner.
    """
    points = uniform(4, 9) * torch.tensor([0.5, 0.2]) + 0.3
    for one, by_file in zip(fill_unit_square(points), points.double().numpy(), strict=True):
        np.testing.assert_allclose(one.numpy(), scale_to_unit_square(by_file), atol=1e-6)
    assert fill_unit_square(points).amax((1, 2)).tolist() == [1.0] * 4
    assert not fill_unit_square(torch.full((1, 3, 2), 0.7)).any()


def test_half_of_the_instances_fill_the_square() -> None:
    """The longer side of every other instance is exactly 1."""
    xy = vary_tsp(TSP().sample(1000, 20, seeded(0)), 1.0, seeded(1)).xy
    full = ((xy.amax(1) - xy.amin(1)).amax(1) == 1.0).float().mean()
    assert abs(full - 0.5) < 4.5 * math.sqrt(0.25 / 1000)


@pytest.mark.parametrize("problem", [TSP(), CVRP()], ids=lambda p: p.name)
def test_batches_are_reproducible(problem: TSP | CVRP) -> None:
    """The same generator gives the same batch, another one another."""
    vary = vary_tsp if isinstance(problem, TSP) else vary_cvrp
    one, two, other = (vary(problem.sample(6, 12, seeded(0)), 1.0, seeded(s)) for s in (1, 1, 2))
    assert all(
        torch.equal(x, y)
        for x, y in zip(vars(one).values(), vars(two).values(), strict=True)
        if x is not None
    )
    assert not torch.equal(one.xy, other.xy)


class Operations(TorchDispatchMode):
    """The names of all tensor operations that run inside."""

    def __init__(self) -> None:
        super().__init__()
        self.names = set[str]()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.names.add(function.overloadpacket.__name__)
        return function(*arguments, **options or {})


@pytest.mark.parametrize("problem", [TSP(), CVRP()], ids=lambda p: p.name)
def test_a_graph_could_record_it(problem: TSP | CVRP) -> None:
    """Nothing is read back from the device, copied to it, or of a shape that depends on numbers."""
    vary = vary_tsp if isinstance(problem, TSP) else vary_cvrp
    batch = problem.sample(6, 12, seeded(0))
    with Operations() as seen:
        vary(batch, 0.7, seeded(1))
    assert {"rand", "where", "gather"} <= seen.names
    assert not seen.names & {
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "index",
        "lift_fresh",
        "copy_",
    }


def test_the_rest_is_uniform() -> None:
    """At share 0.7 about three of ten instances keep everything to the last bit."""
    plain = CVRP().sample(1000, 30, seeded(0))
    batch = vary_cvrp(plain, 0.7, seeded(1))
    same = [
        (one == two).flatten(1).all(1)
        for one, two in ((batch.xy, plain.xy), (batch.demand, plain.demand))
    ]
    kept = same[0] & same[1] & (batch.capacity == plain.capacity)
    assert abs(kept.float().mean() - 0.3) < 4.5 * math.sqrt(0.21 / 1000)
    assert abs(same[1].float().mean() - (0.3 + 0.7 / 4)) < 4.5 * math.sqrt(
        0.25 / 1000
    )  # a quarter has such demands


@pytest.fixture(scope="module", params=[20, 100])
def fleet(request) -> CVRPBatch:
    return vary_cvrp(CVRP().sample(2000, request.param, seeded(0)), 1.0, seeded(1))


def test_demands_are_whole_and_fit(fleet: CVRPBatch) -> None:
    """The depot has no demand; customers have 1 to 100, never more than the capacity."""
    assert fleet.demand.dtype == fleet.capacity.dtype == torch.int64
    assert not fleet.demand[:, 0].any()
    assert fleet.demand[:, 1:].min() == 1
    assert fleet.demand.max() == 100
    assert (fleet.demand.amax(1) <= fleet.capacity).all()


def test_routes_have_4_to_20_customers(fleet: CVRPBatch) -> None:
    """Capacities are 4 to 20 mean demands, rounded up, and that whole range occurs."""
    mean = fleet.demand[:, 1:].double().mean(1)
    length = fleet.capacity / mean
    assert length.min() >= 4.0 - 1e-4
    assert ((fleet.capacity - 1) / mean).max() <= 20.0
    log = length.log()
    counts = torch.histc(log.float(), 4, math.log(4), math.log(20))
    assert counts.min() > 300  # of 2000, were it not for large demands 500 each


def test_kinds_of_demand(fleet: CVRPBatch) -> None:
    """A quarter each: 1 to 9, all equal, up to 100, and few large ones among small ones."""
    customers = fleet.demand[:, 1:]
    small, equal = (customers <= 9).all(1) & (customers > 1).any(1), (customers == 1).all(1)
    uneven = ~((customers > 10) & (customers < 50)).any(1) & (customers > 9).any(1)
    for kind in (small, equal, uneven):
        assert abs(kind.float().mean() - 0.25) < 4.5 * math.sqrt(0.1875 / 2000)
    assert 0.1 < (customers[uneven] >= 50).float().mean() < 0.25


def test_depots() -> None:
    """A third each is in a corner, in the centre, and unchanged; customers stay."""
    before = uniform(3000, 4)
    after = move_depot(before, seeded(1))
    assert torch.equal(after[:, 1:], before[:, 1:])
    depot = after[:, 0]
    corners = torch.unique(
        depot[((depot == 0.0) | (depot == 1.0)).all(1)], dim=0, return_counts=True
    )
    assert corners[0].tolist() == [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    counts = [
        int(corners[1].sum()),
        int((depot == 0.5).all(1).sum()),
        int((depot == before[:, 0]).all(1).sum()),
    ]
    assert sum(counts) == 3000
    assert all(abs(c - 1000) < 4.5 * math.sqrt(2000 / 3) for c in counts)
    assert corners[1].min() > 190  # of 250
