"""Set partitioning: against all selections of routes, and one engine against another."""

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from numba import njit
from triton.runtime.interpreter import InterpretedFunction

from rhumbline import kernels
from rhumbline.kernels.numba import set_partitioning as partition_kernel
from rhumbline.kernels.numba.local_search import launch as local_moves
from rhumbline.kernels.triton import set_partitioning as triton_partitioning
from rhumbline.search.recombine import set_partitioning as sets
from rhumbline.search.recombine.routes import customer_codes
from rhumbline.search.recombine.set_partitioning import (
    DenseRoutes,
    PackedRoutes,
    PartialCover,
    beam_partition,
    customer_prices,
    extend_beam,
)

assert isinstance(triton_partitioning.places_kernel, InterpretedFunction), (
    "imported before conftest.py was read"
)

pytestmark = [
    # Triton 3.6 turns arrays of one element into scalars, which numpy 2.3 only announces to refuse.
    pytest.mark.filterwarnings(
        "ignore:Conversion of an array with ndim > 0 to a scalar:DeprecationWarning:triton.*"
    ),
]


def random_pool(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return costs, customers and codes of 30 routes; they hold a partition and a gap."""
    rng = torch.Generator().manual_seed(seed)
    served = (torch.rand(30, 8, generator=rng) < 0.3).float()
    served[:3] = torch.nn.functional.one_hot(torch.randint(3, (8,), generator=rng), 3).T.float()
    cost = torch.rand(30, generator=rng) + 0.2
    cost[(served.sum(1) == 0) | (torch.arange(30) == 29)] = torch.inf
    cost[:3] += 0.5
    code = (served.long() * customer_codes(9, torch.device("cpu"))).sum(1)
    return cost[None], served[None], code[None]


def cheapest_partition(cost: torch.Tensor, served: torch.Tensor, most: int) -> float:
    """Return the cost of the best selection, by trying all of them."""
    sums = [float("inf")]
    rows = [i for i in range(len(cost)) if cost[i].isfinite() and served[i].any()]
    for count in range(1, most + 1):
        for some in combinations(rows, count):
            if (served[list(some)].sum(0) == 1).all():
                sums.append(cost[list(some)].sum().item())
    return min(sums)


@pytest.mark.parametrize("seed", range(6))
def test_a_wide_beam_is_exact(seed: int) -> None:
    """With prices or without. The bound of the prices is never above the optimum."""
    cost, served, code = random_pool(seed)
    best = torch.arange(30)[None] < 3
    known = cost[best].nan_to_num(posinf=0.0).sum()
    wanted = cheapest_partition(cost[0], served[0], 4)
    price = customer_prices(cost / known, served, best) * known
    bound = price.sum() + (cost - (served @ price[..., None])[..., 0]).clamp(max=0).sum()
    assert bound <= wanted + 1e-4
    depth = torch.tensor([4])
    for worth in (torch.zeros_like(price), price):
        value = cost - (served @ worth[..., None])[..., 0]
        everything = torch.tensor([torch.inf])
        for some in (
            DenseRoutes.build(value, served, code, everything),
            DenseRoutes.build(value, served.bfloat16(), code, everything),  # as a GPU counts
            PackedRoutes.build(value, served, code, everything),
        ):
            total, chosen = beam_partition(some, depth, 1000)
            rows = chosen[chosen >= 0]
            assert (served[0, rows].sum(0) == 1).all()
            assert total + worth.sum() == pytest.approx(wanted, abs=1e-5)
            assert cost[0, rows].sum() == pytest.approx(wanted, abs=1e-5)


def compiled_beam(
    cost: torch.Tensor,
    served: torch.Tensor,
    code: torch.Tensor,
    ceiling: float,
    depth: int,
    width: int,
) -> list[int]:
    """Return what the compiled beam selects; the first three routes are a plan of cost 1."""
    real = cost[0].isfinite().nonzero()[:, 0]
    members, begins = served[0, real].nonzero()[:, 1].int(), served[0, real].sum(1).long().cumsum(0)
    routes = [
        torch.nn.functional.pad(begins, (1, 0)),
        members,
        cost[0, real].double(),
        code[0, real],
    ]
    descent = sets.TUNING.descent
    arrays, best = [x.numpy() for x in routes], (real < 3).numpy()
    return real[
        local_moves.find_cheapest_partition(arrays, best, 8, ceiling, descent, depth, width, 4)
    ].tolist()


def test_codes_are_noted_once() -> None:
    """Codes with the same last bits too, at the end of the table, and negative ones."""

    @njit
    def noted(codes, table):
        return [partition_kernel.is_new(table, code) for code in codes]

    codes = np.array(
        [7, 15, 7, -1, 23, 15, -1, 8, 23]
    )  # in a table of eight all but 8 belong to its last place
    assert noted(codes, np.zeros(8, np.int64)) == [
        True,
        True,
        False,
        True,
        True,
        False,
        False,
        True,
        False,
    ]


def test_only_routes_that_are_cheap_enough_are_free() -> None:
    """Other routes are not counted, nor those that serve a customer twice."""

    @njit
    def chosen(begin, members, words, value, cover, room, free, choices):
        return partition_kernel.next_customer(
            (begin, members, words), value, cover, 0, room, free, choices
        )

    begin, members = (
        np.array([0, 2, 3, 5, 6]),
        np.array([0, 1, 2, 1, 2, 3], np.int32),
    )  # 01, 2, 12, 3
    words = np.array([[0b0011], [0b0100], [0b0110], [0b1000]], np.uint64)
    value, cover = np.array([0.1, 0.2, 0.3, 0.4]), np.array([[0b1000]], np.uint64)
    free, choices = np.zeros(4, np.int32), np.zeros(4, np.int32)
    assert chosen(begin, members, words, value, cover, 0.9, free, choices) == (0, 3)
    assert (free[:3].tolist(), choices.tolist()) == ([0, 1, 2], [1, 2, 2, 0])
    assert chosen(begin, members, words, value, cover, 0.3, free, choices) == (0, 2)
    assert choices.tolist() == [1, 1, 1, 0]
    assert chosen(begin, members, words, value, cover, 0.2, free, choices) == (
        -1,
        1,
    )  # the third customer has no route left


def test_compiled_prices_are_those_of_tensors(monkeypatch) -> None:
    """After one round they agree.

    Later, values near 0 have either sign. With more rounds the bound never falls.
    """

    @njit
    def priced(
        begin, members, cost, best, rounds, pace, momentum, patience, price, value, way, lack, kept
    ) -> None:
        partition_kernel.initial_prices(begin, members, cost, best, price, lack)
        partition_kernel.raise_prices(
            begin, members, cost, rounds, pace, momentum, patience, price, value, way, lack, kept
        )

    descent, best = sets.TUNING.descent[1:], torch.arange(30)[None] < 3
    for seed in range(6):
        cost, served, _ = random_pool(seed)
        cost = cost / cost[best].nan_to_num(posinf=0.0).sum()
        real = cost[0].isfinite().nonzero()[:, 0]
        pool, costs = served[0, real].double().numpy(), cost[0, real].double().numpy()
        price, value = np.empty(8), np.empty(len(real))
        begins, members = (
            np.concatenate([[0], pool.sum(1).cumsum()]).astype(int),
            pool.nonzero()[1].astype(np.int32),
        )
        bounds = list[float]()
        for rounds in (*range(1, 40), sets.TUNING.price_rounds):
            room = [np.empty(8) for _ in range(3)]
            priced(
                begins, members, costs, (real < 3).numpy(), rounds, *descent, price, value, *room
            )
            assert value == pytest.approx(costs - pool @ price)
            bounds.append(price.sum() + np.minimum(value, 0.0).sum())
        assert all(later >= earlier for earlier, later in pairwise(bounds))
        assert bounds[-1] <= cheapest_partition(cost[0], served[0], 4) + 1e-6
        monkeypatch.setattr(sets, "TUNING", replace(sets.TUNING, price_rounds=1))
        wanted = customer_prices(cost, served, best)[0].double().numpy()
        monkeypatch.undo()
        assert bounds[0] == pytest.approx(
            wanted.sum() + np.minimum(costs - pool @ wanted, 0.0).sum(), abs=1e-5
        )


@pytest.mark.parametrize("seed", range(12))
def test_the_compiled_beam_is_exact(seed: int) -> None:
    """It finds the optimum if it is wide, and never one that breaks a limit."""
    cost, served, code = random_pool(seed)
    cost = cost / cost[0, :3].nan_to_num(posinf=0.0).sum()
    wanted = cheapest_partition(cost[0], served[0], 4)
    for width in (1, 3, 64, 1000):
        rows = compiled_beam(cost, served, code, 1.01, 4, width)
        assert not rows or (served[0, rows].sum(0) == 1).all()
        if width == 1000:
            assert cost[0, rows].sum().item() == pytest.approx(wanted, abs=1e-5)
    assert not compiled_beam(cost, served, code, wanted - 1e-4, 4, 1000)
    fewer = compiled_beam(cost, served, code, 1.01, 2, 1000)
    assert (cost[0, fewer].sum().item() if fewer else 1.01) == pytest.approx(
        min(cheapest_partition(cost[0], served[0], 2), 1.01), abs=1e-5
    )


def test_an_impossible_selection_costs_infinity() -> None:
    """A customer without a route, too few routes allowed, or all too expensive."""
    cost, served, code = random_pool(0)
    everything, enough = torch.tensor([torch.inf]), torch.tensor([4])
    lonely = served.clone()
    lonely[..., 5] = 0.0
    for pool, most, depth in (
        (lonely, everything, enough),
        (served, everything, torch.tensor([1])),
        (served, torch.tensor([0.1]), enough),
    ):
        for kind in (DenseRoutes, PackedRoutes):
            total, chosen = beam_partition(kind.build(cost, pool, code, most), depth, 64)
            assert total.isinf().all()
            assert (chosen == -1).all()


def list_at_most(monkeypatch: pytest.MonkeyPatch, routes: int) -> None:
    """Make the kernel list at most that number of routes for each place of the beam."""
    tuning = replace(sets.TUNING, kernel_routes_per_place=routes)
    monkeypatch.setattr(sets, "TUNING", tuning)


@pytest.mark.parametrize(("customers", "plans"), [(8, 4), (32, 3), (33, 4), (64, 3), (100, 3)])
def test_the_kernel_adds_the_same_routes(monkeypatch, customers: int, plans: int) -> None:
    """At every place for the same customer; as many as are listed, the best first."""
    monkeypatch.setattr(
        triton_partitioning, "LOOK", 16
    )  # several looks at values, the last one not full
    rng = torch.Generator().manual_seed(customers)
    orders = torch.stack([torch.randperm(customers, generator=rng) for _ in range(2 * plans)]).view(
        2, plans, -1
    )
    served = torch.nn.functional.one_hot(orders // 3).mT.flatten(1, 2).float()  # routes of three
    routes = served.shape[1]
    value = torch.rand(2, routes, generator=rng) - 0.1
    value[:, -2:] = torch.inf
    code, most = (
        (served.long() * customer_codes(customers + 1, torch.device("cpu"))).sum(2),
        torch.tensor([3.0, torch.inf]),
    )
    dense, packed = (kind.build(value, served, code, most) for kind in (DenseRoutes, PackedRoutes))
    states = [
        PartialCover(x.empty_cover(), torch.zeros(2, 1), code[:, :1] * 0) for x in (dense, packed)
    ]
    for _ in range(3):
        sums, none = dense.additions(states[0].cover, states[0].score)
        assert none is None
        assert sums.isfinite().any()
        list_at_most(monkeypatch, routes)
        more, added = packed.additions(states[1].cover, states[1].score)
        list_at_most(monkeypatch, 2)
        two, few = packed.additions(states[1].cover, states[1].score)
        list_at_most(monkeypatch, 128)
        assert two.tolist() == more[..., :2].tolist()
        assert few[two.isfinite()].tolist() == added[..., :2][two.isfinite()].tolist()
        named = packed.original_indices(added.flatten(1).long()).view_as(added)
        again = torch.full((2, more.shape[1], routes), torch.inf).scatter_reduce(
            2, named, more, "amin"
        )
        width = min(sums.shape[1], more.shape[1])
        torch.testing.assert_close(again[:, :width], sums[:, :width])
        assert again[:, width:].isinf().all()
        assert sums[:, width:].isinf().all()
        states = [
            extend_beam(state, offer, 40)[0]
            for state, offer in zip(states, (dense, packed), strict=True)
        ]


def test_the_best_engine(monkeypatch) -> None:
    """Kernels on a GPU if the customers fit into a tile.

    On a CPU the compiled beam if there is numba.
    """
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert [sets.best_partition_engine(gpu, n, "auto") for n in (100, 256, 257)] == [
        "kernels",
        "kernels",
        "tensors",
    ]
    assert [sets.best_partition_engine(cpu, n, "auto") for n in (100, 257, 5000)] == [
        "compiled"
    ] * 3
    assert {sets.best_partition_engine(where, 100, "torch") for where in (cpu, gpu)} == {"tensors"}
    monkeypatch.setattr(kernels, "why_not_numba", lambda: "there is none")
    assert sets.best_partition_engine(cpu, 100, "auto") == "tensors"


def test_customers_are_listed_route_by_route() -> None:
    """In order, one below the other, as many rows as the longest route has. Gaps have none."""
    served = torch.tensor(
        [[[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]], [[0, 0, 0, 1], [1, 1, 0, 0], [0, 0, 0, 0]]]
    )
    members, size = sets.list_members(served.float())
    assert size.tolist() == [[3, 0, 1], [1, 2, 0]]
    assert members[0].tolist() == [[0, 0, 1], [2, 0, 0], [3, 0, 0]]
    assert members[1].tolist() == [[3, 0, 0], [0, 1, 0], [0, 0, 0]]


def price_bound(cost: torch.Tensor, served: torch.Tensor, price: torch.Tensor) -> torch.Tensor:
    """Return a lower bound on all selections at these prices."""
    value = cost.double() - (served.double() @ price.double()[..., None])[..., 0]
    return price.double().sum(1) + value.clamp(max=0.0).sum(1)


def test_prices_of_the_kernel_are_those_of_tensors(monkeypatch) -> None:
    """The first prices are random, so that no value is near 0, where rounding decides the sign.

    After many rounds the bound is as high, and it never falls. Prices of an instance do not depend
    on the batch.
    """
    monkeypatch.setattr(triton_partitioning, "PRICED", 16)  # several tiles, the last one not full
    best, pools = torch.arange(30)[None] < 3, [random_pool(seed) for seed in range(6)]
    cost, served = (torch.cat([pool[i] for pool in pools]) for i in range(2))
    best = best.expand(6, -1)
    cost = cost / cost.masked_fill(~best | cost.isinf(), 0.0).sum(1, keepdim=True)
    known = torch.tensor([cheapest_partition(c, s, 4) for c, s in zip(cost, served, strict=True)])
    first = sets.initial_prices(cost, served, best) * (
        0.7 + 0.6 * torch.rand(6, 8, generator=torch.manual_seed(0))
    )
    monkeypatch.setattr(
        sets, "initial_prices", lambda cost, *_: first if len(cost) == 6 else first[2:3]
    )
    lowest = price_bound(cost, served, first)
    for rounds in (1, 2, 5, 30, 60):  # the last with a pace that was halved
        monkeypatch.setattr(sets, "TUNING", replace(sets.TUNING, price_rounds=rounds))
        found, wanted = (
            sets.customer_prices_by_kernel(cost, served, best),
            customer_prices(cost, served, best),
        )
        if rounds <= 5:
            torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
        bound = price_bound(cost, served, found)
        assert (bound >= lowest - 1e-6).all()
        assert (bound <= known + 1e-5).all()
        torch.testing.assert_close(bound, price_bound(cost, served, wanted), atol=0.02, rtol=0)
        lowest = bound
        alone = sets.customer_prices_by_kernel(cost[2:3], served[2:3], best[2:3])
        assert alone.tolist() == found[2:3].tolist()
