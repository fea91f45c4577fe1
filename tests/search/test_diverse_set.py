"""The diverse set: which plans are equal, which are similar, and which are kept."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rhumbline.decoding import Rollouts
from rhumbline.domains import DOMAINS
from rhumbline.problems.cvrp import CVRP, Routes
from rhumbline.problems.cvrp import cvrp_from_arrays as cvrp
from rhumbline.problems.jssp import Schedule
from rhumbline.problems.jssp import jssp_from_arrays as shop
from rhumbline.problems.tsp import TSP, Tour, tsp_from_array
from rhumbline.search.plan_sets import diverse
from rhumbline.search.plan_sets.diverse import TUNING, DiverseSet
from rhumbline.search.plan_sets.similarity import edge_similarity, plan_edges

TOUR_TOOLS = DOMAINS["tsp"].plans
MAX_SIMILARITY = 1 - TUNING.min_edge_difference


def tours(*orders: list[int]) -> torch.Tensor:
    """Return the actions of one instance."""
    return torch.tensor(orders, dtype=torch.int16)[None]


def similarity(problem: str, one: list[int], other: list[int], batch=None) -> float:
    """Return the similarity of two action sequences."""
    tools = DOMAINS[problem].plans
    return float(edge_similarity(plan_edges(tools, batch, one), plan_edges(tools, batch, other)))


def test_tours_share_edges() -> None:
    """Similarity is the share of edges that two tours have in common, whatever their direction."""
    assert similarity("tsp", [0, 1, 2, 3, 4, 5], [3, 2, 1, 0, 5, 4]) == 1.0
    assert similarity("tsp", [0, 1, 2, 3, 4, 5], [0, 1, 2, 5, 4, 3]) == pytest.approx(
        4 / 6
    )  # 2-opt: two edges of six


def test_routes_share_neighbours() -> None:
    """The two neighbours of each customer count, the depot among them.

    The order of routes does not.
    """
    assert similarity("cvrp", [1, 2, 0, 3, 0, 0], [3, 0, 2, 1, 0, 0]) == 1.0
    # 1 has (depot, 2), then (depot, depot); 2 has (1, depot), then (depot, 3); 3 has (depot,
    # depot), then (2, depot)
    assert similarity("cvrp", [1, 2, 0, 3, 0, 0], [1, 0, 2, 3, 0, 0]) == pytest.approx(3 / 6)


def test_schedules_share_orders_on_machines() -> None:
    """The operations before and after each one on its machine count, whatever other machines do."""
    batch = SimpleNamespace(
        machine=torch.tensor([[[0, 1, 2], [1, 0, 2]]])
    )  # two jobs; machine 2 does not exist
    first = [0, 0, 0, 1, 1]  # job 0 before job 1 on both machines
    assert similarity("jssp", first, [0, 0, 1, 0, 1], batch) == pytest.approx(
        4 / 8
    )  # machine 1 the other way round
    assert similarity("jssp", [0, 0, 1, 0, 1], [0, 1, 0, 1, 0], batch) == 1.0
    reversed_order = [0, 1, 1, 0, 0]
    assert similarity("jssp", first, reversed_order, batch) == 0.0


def test_encoding_is_the_inverse_of_decoding() -> None:
    """The action sequence of a plan decodes to that plan."""
    square, tour = tsp_from_array(np.eye(4)[:, :2]), Tour((2, 0, 1, 3))
    assert TSP().decode(square, TOUR_TOOLS.encode_plan(square, tour)) == tour
    delivery, routes = cvrp(np.zeros(2), np.eye(3)[:, :2], np.ones(3), 2), Routes(((3, 1), (2,)))
    assert CVRP().decode(delivery, DOMAINS["cvrp"].plans.encode_plan(delivery, routes)) == routes
    instance = shop([[2, 0], [4, 1]], [[0, 1], [1, 0]])
    schedule = Schedule(((0, 4), (0, 4)))
    assert DOMAINS["jssp"].plans.encode_plan(instance, schedule) == [0, 0, 1, 0, 1]


def enter_plans(pool: DiverseSet, cost: list[float], orders: list[list[int]]) -> DiverseSet:
    """Enter plans into a set."""
    pool.enter(Rollouts(torch.tensor(cost)[None, None], tours(*orders)[:, None]))
    return pool


def test_equal_plans_take_one_place() -> None:
    """A tour that comes again from another start, reversed, is kept once.

    Others follow, cheapest first.
    """
    base, other = [0, 1, 2, 3, 4, 5], [0, 2, 4, 1, 3, 5]
    pool = enter_plans(DiverseSet(TOUR_TOOLS, 3, None), [2.0, 1.0, 1.0], [other, base, base[::-1]])
    enter_plans(pool, [1.0, 3.0], [base[2:] + base[:2], [0, 3, 1, 4, 2, 5]])
    assert pool.cost.tolist() == [[1.0, 2.0, 3.0]]
    assert pool.plans() == [[base, other, [0, 3, 1, 4, 2, 5]]]


def test_a_cheaper_plan_replaces_similar_ones() -> None:
    """Two tours differ in two edges of 50: the cheaper one stays, even if it comes later."""
    far = np.random.default_rng(0).permutation(50).tolist()
    base = list(range(50))
    near = base[:10] + base[10:20][::-1] + base[20:]
    pool = enter_plans(DiverseSet(TOUR_TOOLS, 4, None), [3.0, 4.0], [base, far])
    enter_plans(pool, [2.0], [near])
    assert pool.plans() == [[near, far]]


@pytest.mark.parametrize("size", [1, 3, 8])
def test_against_a_plain_list(size: int) -> None:
    """The best plan is always first, costs ascend, and no two plans are similar."""
    rng = np.random.default_rng(size)
    pool, seen = DiverseSet(TOUR_TOOLS, size, None), []
    for _ in range(6):
        orders = [mutated_tour(rng) for _ in range(5)]
        cost = rng.integers(0, 30, 5).astype(np.float32).tolist()
        seen += list(zip(cost, orders, strict=True))
        enter_plans(pool, cost, orders)
    (kept,), (costs,) = pool.plans(), pool.cost.tolist()
    assert costs[0] == min(c for c, _ in seen)
    assert costs == sorted(costs)
    assert len(kept) == size
    for k, plan in enumerate(kept):
        assert (costs[k], plan) in seen
        assert all(similarity("tsp", plan, other) <= MAX_SIMILARITY for other in kept[:k])


def mutated_tour(rng: np.random.Generator) -> list[int]:
    """Return one of three tours of 60 cities, with a part of it reversed."""
    base = np.random.default_rng(rng.integers(3)).permutation(60)
    i, j = sorted(rng.integers(0, 60, 2))
    base[i:j] = base[i:j][::-1].copy()
    return base.tolist()


def test_instances_have_their_own_plans() -> None:
    """A batch keeps the plans of each instance, as if it were alone."""
    rng = torch.Generator().manual_seed(0)
    actions = torch.rand(3, 4, 5, 20, generator=rng).argsort(-1).to(torch.int16)
    cost = torch.rand(3, 4, 5, generator=rng)
    together = DiverseSet(TOUR_TOOLS, 4, None)
    together.enter(Rollouts(cost, actions))
    for row in range(3):
        alone = DiverseSet(TOUR_TOOLS, 4, None)
        alone.enter(Rollouts(cost[row : row + 1], actions[row : row + 1]))
        assert alone.plans()[0] == together.plans()[row]


def test_comparing_in_pieces_changes_nothing(monkeypatch) -> None:
    """A few instances at a time find the same plans as all at once."""
    rng = torch.Generator().manual_seed(0)
    actions = torch.rand(5, 2, 6, 30, generator=rng).argsort(-1).to(torch.int16)
    actions[:, 1, :3] = actions[:, 0, :3].roll(4, -1)  # copies from another start
    cost = torch.rand(5, 2, 6, generator=rng)
    whole, pieces = DiverseSet(TOUR_TOOLS, 5, None), DiverseSet(TOUR_TOOLS, 5, None)
    whole.enter(Rollouts(cost, actions))
    monkeypatch.setattr(diverse, "TUNING", replace(TUNING, max_elements=1))
    pieces.enter(Rollouts(cost, actions))
    assert pieces.plans() == whole.plans()
    assert torch.equal(pieces.cost, whole.cost)


def test_plans_behind_hundreds_of_copies_are_found() -> None:
    """Nearly all of the cheapest plans are one tour. The others are found as by a plain list."""
    rng = np.random.default_rng(5)
    best = rng.permutation(60)
    others = [mutated_tour(rng) for _ in range(40)]
    orders = [
        np.roll(best[:: rng.choice([-1, 1])], rng.integers(60)).tolist() for _ in range(500)
    ] + others
    cost = [1.0] * 500 + (2.0 + rng.permutation(40)).tolist()
    kept: list[list[int]] = []
    for _, plan in sorted(zip(cost, orders, strict=True), key=lambda pair: pair[0]):
        if len(kept) < 6 and all(
            similarity("tsp", plan, other) <= MAX_SIMILARITY for other in kept
        ):
            kept.append(plan)
    assert len(kept) == 6
    assert enter_plans(DiverseSet(TOUR_TOOLS, 6, None), cost, orders).plans() == [kept]
