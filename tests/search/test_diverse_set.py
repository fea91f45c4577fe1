"""The pool of different plans: what counts as the same, what as near, and what is kept."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rhumbline.decoding import Rollouts
from rhumbline.problems.cvrp import CVRP, Routes
from rhumbline.problems.cvrp import cvrp_from_arrays as cvrp
from rhumbline.problems.jssp import Schedule
from rhumbline.problems.jssp import jssp_from_arrays as shop
from rhumbline.problems.tsp import TSP, Tour, tsp_from_array
from rhumbline.search.plan_sets import diverse
from rhumbline.search.plan_sets.diverse import TUNING, DiverseSet
from rhumbline.search.plan_sets.similarity import PLAN_TOOLS, edge_similarity, plan_edges


def tours(*orders: list[int]) -> torch.Tensor:
    return torch.tensor(orders, dtype=torch.int16)[None]


def alike(problem: str, one: list[int], other: list[int], batch=None) -> float:
    craft = PLAN_TOOLS[problem]
    return float(edge_similarity(plan_edges(craft, batch, one), plan_edges(craft, batch, other)))


def test_tours_share_edges() -> None:
    """Likeness is the part of the edges that two tours share, whatever their starts and
    directions.
    """
    assert alike("tsp", [0, 1, 2, 3, 4, 5], [3, 2, 1, 0, 5, 4]) == 1.0
    assert alike("tsp", [0, 1, 2, 3, 4, 5], [0, 1, 2, 5, 4, 3]) == pytest.approx(
        4 / 6
    )  # 2-opt: two edges of six


def test_routes_share_neighbours() -> None:
    """Of routes each customer's two neighbours count, the depot among them; the order of routes
    does not.
    """
    assert alike("cvrp", [1, 2, 0, 3, 0, 0], [3, 0, 2, 1, 0, 0]) == 1.0
    # 1 has (depot, 2), then (depot, depot); 2 has (1, depot), then (depot, 3); 3 has (depot,
    # depot), then (2, depot)
    assert alike("cvrp", [1, 2, 0, 3, 0, 0], [1, 0, 2, 3, 0, 0]) == pytest.approx(3 / 6)


def test_schedules_share_orders_on_machines() -> None:
    """Of schedules the operations before and behind each on its machine count; jobs on other
    machines do not matter.
    """
    batch = SimpleNamespace(
        machine=torch.tensor([[[0, 1, 2], [1, 0, 2]]])
    )  # two jobs; machine 2 does not exist
    first = [0, 0, 0, 1, 1]  # job 0 before job 1 on both machines
    assert alike("jssp", first, [0, 0, 1, 0, 1], batch) == pytest.approx(
        4 / 8
    )  # machine 1 the other way round
    assert alike("jssp", [0, 0, 1, 0, 1], [0, 1, 0, 1, 0], batch) == 1.0
    with_order_turned = [0, 1, 1, 0, 0]
    assert alike("jssp", first, with_order_turned, batch) == 0.0


def test_spelling_is_the_inverse_of_decoding() -> None:
    """The sequence of a plan decodes to that plan."""
    square, tour = tsp_from_array(np.eye(4)[:, :2]), Tour((2, 0, 1, 3))
    assert TSP().decode(square, PLAN_TOOLS["tsp"].encode_plan(square, tour)) == tour
    delivery, routes = cvrp(np.zeros(2), np.eye(3)[:, :2], np.ones(3), 2), Routes(((3, 1), (2,)))
    assert CVRP().decode(delivery, PLAN_TOOLS["cvrp"].encode_plan(delivery, routes)) == routes
    instance = shop([[2, 0], [4, 1]], [[0, 1], [1, 0]])
    schedule = Schedule(((0, 4), (0, 4)))
    assert PLAN_TOOLS["jssp"].encode_plan(instance, schedule) == [0, 0, 1, 0, 1]


def entered(pool: DiverseSet, cost: list[float], orders: list[list[int]]) -> DiverseSet:
    pool.enter(Rollouts(torch.tensor(cost)[None, None], tours(*orders)[:, None]))
    return pool


def test_copies_take_one_place() -> None:
    """A tour that comes again from another start and backwards is kept once; others follow,
    cheapest first.
    """
    base, other = [0, 1, 2, 3, 4, 5], [0, 2, 4, 1, 3, 5]
    pool = entered(
        DiverseSet(PLAN_TOOLS["tsp"], 3, None), [2.0, 1.0, 1.0], [other, base, base[::-1]]
    )
    entered(pool, [1.0, 3.0], [base[2:] + base[:2], [0, 3, 1, 4, 2, 5]])
    assert pool.cost.tolist() == [[1.0, 2.0, 3.0]]
    assert pool.plans() == [[base, other, [0, 3, 1, 4, 2, 5]]]


def test_a_cheaper_plan_takes_the_place_of_its_neighbours() -> None:
    """Of two tours that differ in two edges of 50 only the cheaper one stays, also if it comes
    later.
    """
    far = np.random.default_rng(0).permutation(50).tolist()
    base = list(range(50))
    near = base[:10] + base[10:20][::-1] + base[20:]
    pool = entered(DiverseSet(PLAN_TOOLS["tsp"], 4, None), [3.0, 4.0], [base, far])
    entered(pool, [2.0], [near])
    assert pool.plans() == [[near, far]]


@pytest.mark.parametrize("size", [1, 3, 8])
def test_pool_against_a_plain_list(size: int) -> None:
    """The best plan of all is always first; costs ascend; no two are near; none is near to
    anything cheaper.
    """
    rng = np.random.default_rng(size)
    pool, seen = DiverseSet(PLAN_TOOLS["tsp"], size, None), []
    for _ in range(6):
        orders = [mutated(rng) for _ in range(5)]
        cost = rng.integers(0, 30, 5).astype(np.float32).tolist()
        seen += list(zip(cost, orders, strict=True))
        entered(pool, cost, orders)
    (kept,), (costs,) = pool.plans(), pool.cost.tolist()
    assert costs[0] == min(c for c, _ in seen)
    assert costs == sorted(costs)
    assert len(kept) == size
    for k, plan in enumerate(kept):
        assert (costs[k], plan) in seen
        assert all(
            alike("tsp", plan, other) <= 1 - TUNING.min_edge_difference for other in kept[:k]
        )


def mutated(rng: np.random.Generator) -> list[int]:
    """One of three tours of 60 cities, a part of it turned round or not."""
    base = np.random.default_rng(rng.integers(3)).permutation(60)
    i, j = sorted(rng.integers(0, 60, 2))
    base[i:j] = base[i:j][::-1].copy()
    return base.tolist()


def test_instances_have_their_own_plans() -> None:
    """A batch keeps the plans of each instance apart, as each alone would."""
    rng = torch.Generator().manual_seed(0)
    actions = torch.rand(3, 4, 5, 20, generator=rng).argsort(-1).to(torch.int16)
    cost = torch.rand(3, 4, 5, generator=rng)
    together = DiverseSet(PLAN_TOOLS["tsp"], 4, None)
    together.enter(Rollouts(cost, actions))
    for row in range(3):
        alone = DiverseSet(PLAN_TOOLS["tsp"], 4, None)
        alone.enter(Rollouts(cost[row : row + 1], actions[row : row + 1]))
        assert alone.plans()[0] == together.plans()[row]


def test_comparing_in_pieces_changes_nothing(monkeypatch) -> None:
    """Few instances at a time find the same plans as all at once."""
    rng = torch.Generator().manual_seed(0)
    actions = torch.rand(5, 2, 6, 30, generator=rng).argsort(-1).to(torch.int16)
    actions[:, 1, :3] = actions[:, 0, :3].roll(4, -1)  # copies from another start
    cost = torch.rand(5, 2, 6, generator=rng)
    whole, pieces = DiverseSet(PLAN_TOOLS["tsp"], 5, None), DiverseSet(PLAN_TOOLS["tsp"], 5, None)
    whole.enter(Rollouts(cost, actions))
    monkeypatch.setattr(diverse, "TUNING", replace(TUNING, max_elements=1))
    pieces.enter(Rollouts(cost, actions))
    assert pieces.plans() == whole.plans()
    assert torch.equal(pieces.cost, whole.cost)


def test_hundreds_of_copies_hide_nothing() -> None:
    """Where nearly all of the cheapest are one tour, the others are found behind it; a plain
    choice is the judge.
    """
    rng = np.random.default_rng(5)
    best = rng.permutation(60)
    others = [mutated(rng) for _ in range(40)]
    orders = [
        np.roll(best[:: rng.choice([-1, 1])], rng.integers(60)).tolist() for _ in range(500)
    ] + others
    cost = [1.0] * 500 + (2.0 + rng.permutation(40)).tolist()
    kept: list[list[int]] = []
    for _, plan in sorted(zip(cost, orders, strict=True), key=lambda pair: pair[0]):
        if len(kept) < 6 and all(
            alike("tsp", plan, other) <= 1 - TUNING.min_edge_difference for other in kept
        ):
            kept.append(plan)
    assert len(kept) == 6
    assert entered(DiverseSet(PLAN_TOOLS["tsp"], 6, None), cost, orders).plans() == [kept]
