"""The rules of the TSP by hand, and a conformance suite that every problem has to pass."""

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from rhumbline.errors import Infeasible, InputError
from rhumbline.problems import PROBLEMS, Problem
from rhumbline.problems.cvrp import CVRPInstance
from rhumbline.problems.cvrp import cvrp_from_arrays as vehicles_from_arrays
from rhumbline.problems.jssp import JSSPInstance
from rhumbline.problems.jssp import jssp_from_arrays as jobs_from_arrays
from rhumbline.problems.metrics import scale_to_unit_square
from rhumbline.problems.tsp import TSP, Tour, TSPInstance, tsp_from_array

SIZES = [1, 2, 3, 7]
HOUSE = np.array(
    [[0.0, 0.0], [4.0, 0.0], [4.0, 3.0], [2.0, 5.0], [0.0, 3.0]]
)  # a square with a roof


def tour_of(*order: int) -> torch.Tensor:
    return torch.tensor([[order]])


def random_rollout(
    problem: Problem[Any, Any], batch: Any, rng: torch.Generator
) -> tuple[torch.Tensor, list[Any]]:
    """Return actions of a uniformly random policy from all starts, and the states before each."""
    start = problem.starts(batch)
    state, actions, states = problem.reset(batch, start), [start], []
    while not problem.finished(state):
        allowed = problem.mask(state)
        assert allowed.any(-1).all(), "a rollout that is not finished has nowhere to go"
        assert len(actions) < problem.horizon(batch)
        states.append(state)
        chance = torch.rand(allowed.shape, generator=rng).masked_fill(~allowed, -1.0)
        actions.append(chance.argmax(-1))
        state = problem.step(state, actions[-1])
    states.append(state)
    return torch.stack(actions, -1), states


# --- by hand


def test_length_of_the_house_by_hand() -> None:
    """Floor 4, walls 3 and 3, roof twice the square root of 8; in metres and scaled."""
    around = 4 + 3 + 3 + 2 * math.sqrt(8)
    instance = TSPInstance("house", "EXACT_2D", xy=HOUSE)
    assert Tour((0, 1, 2, 3, 4)).cost(instance) == pytest.approx(around, rel=1e-12)
    assert TSP().cost(TSP().collate([instance]), tour_of(0, 1, 2, 3, 4)).item() == pytest.approx(
        around / 5, rel=1e-6
    )
    crossing = 5 + 3 + 5 + math.sqrt(8) + math.sqrt(29)  # 0-2, 2-1, 1-4, 4-3, 3-0
    assert Tour((0, 2, 1, 4, 3)).cost(instance) == pytest.approx(crossing, rel=1e-12)


def test_length_of_the_house_in_whole_numbers() -> None:
    """EUC_2D rounds each roof side 2.83 to 3: 16 in all, an int, on the host and on the device."""
    instance = TSPInstance("house", "EUC_2D", xy=HOUSE)
    cost = Tour((0, 1, 2, 3, 4)).cost(instance)
    assert (cost, type(cost)) == (16, int)
    assert TSP().cost(TSP().collate([instance]), tour_of(0, 1, 2, 3, 4)).item() == 16


def test_a_walk_through_the_house() -> None:
    """After 2, 0, 4 the cities 1 and 3 are open, the first is 2 and the last is 4."""
    problem, batch = TSP(), TSP().collate([TSPInstance("house", "EXACT_2D", xy=HOUSE)])
    state = problem.reset(batch, torch.tensor([[2]]))
    assert problem.mask(state).tolist() == [[[True, True, False, True, True]]]
    for city in (0, 4):
        state = problem.step(state, torch.tensor([[city]]))
    assert problem.mask(state).tolist() == [[[False, True, False, True, False]]]
    assert (state.first.item(), state.last.item(), state.count) == (2, 4, 3)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ((0, 1, 2, 3), "house: the tour visits city 5 0 times"),
        ((0, 1, 2, 3, 3), "house: the tour visits city 4 2 times"),
        ((0, 1, 2, 3, 5), "house: the tour visits city index 5 of 5"),
        ((0, 1, 2, 3, -1), "house: the tour visits city index -1 of 5"),
        ((), "house: the tour visits city 1 0 times"),
        ((0, 1, 2, 3, 4, 0), "house: the tour visits city 1 2 times"),
    ],
)
def test_wrong_tours_are_named(order: tuple[int, ...], words: str) -> None:
    """A plan that is no tour is refused with the city's number and count."""
    with pytest.raises(Infeasible, match=f"^{words}$"):
        Tour(order).check(TSPInstance("house", "EXACT_2D", xy=HOUSE))


def test_tours_speak_the_numbers_of_their_file() -> None:
    """Cities are written with the file's numbers, 1..N unless it says otherwise, also in errors."""
    plain = TSPInstance("house", "EXACT_2D", xy=HOUSE)
    odd = TSPInstance("house", "EXACT_2D", xy=HOUSE, numbers=(10, 20, 30, 40, 50))
    assert Tour((3, 0, 1, 2, 4)).to_file_numbers(plain) == [4, 1, 2, 3, 5]
    assert Tour((3, 0, 1, 2, 4)).to_file_numbers(odd) == [40, 10, 20, 30, 50]
    with pytest.raises(Infeasible, match="city 50 0 times"):
        Tour((0, 1, 2, 3)).check(odd)


# --- conformance


def some_demand(xy: np.ndarray) -> CVRPInstance:
    """Return an instance with the first node as depot; a vehicle holds about two others."""
    return vehicles_from_arrays(xy[0], xy[1:], np.arange(len(xy) - 1) % 5, 6)


def some_jobs(points: np.ndarray) -> JSSPInstance:
    """Return half as many jobs as points, of four operations each, on three machines.

    Each job visits some machine twice.
    """
    durations = points.reshape(-1, 4)
    return jobs_from_arrays(durations.astype(int), durations.argsort(axis=1) % 3)


def cycle(order: list[int]) -> object:
    """Return a tour in a form that ignores its start and direction."""
    return frozenset(frozenset(edge) for edge in zip(order, order[1:] + order[:1], strict=True))


def routes(actions: list[int]) -> object:
    """Return routes in a form that ignores their order and direction."""
    words = "".join(chr(96 + a) if a else " " for a in actions).split()
    return frozenset(min(word, word[::-1]) for word in words)


# What the suite has to know of each problem: a random instance over points, and how to compare
# plans.
INSTANCE: dict[str, Callable[[np.ndarray], Any]] = {
    "tsp": tsp_from_array,
    "cvrp": some_demand,
    "jssp": some_jobs,
    "jssp-machines": some_jobs,
}
PLAN_OF: dict[str, Callable[[list[int]], object]] = {
    "tsp": cycle,
    "cvrp": routes,
    "jssp": tuple,
    "jssp-machines": tuple,
}
ONE_PLAN_OF = {"jssp", "jssp-machines"}  # a plan has one sequence there


@pytest.fixture(params=sorted(PROBLEMS))
def problem(request: pytest.FixtureRequest) -> Problem[Any, Any]:
    return PROBLEMS[request.param]


@pytest.mark.parametrize("size", SIZES)
def test_rollouts_end_within_the_horizon(
    problem: Problem[Any, Any], size: int, rng: torch.Generator
) -> None:
    """Before the end something is always allowed, and no sequence is longer than the horizon."""
    batch = problem.sample(3, size, rng)
    actions, _ = random_rollout(problem, batch, rng)  # asserts on the way
    assert actions.shape[2] <= problem.horizon(batch)


@pytest.mark.parametrize("size", SIZES)
def test_finished_rollouts_stay_put(
    problem: Problem[Any, Any], size: int, rng: torch.Generator
) -> None:
    """Any action leaves a finished state as it is."""
    batch = problem.sample(2, size, rng)
    _, states = random_rollout(problem, batch, rng)
    last = states[-1]
    after = problem.step(last, torch.zeros_like(problem.starts(batch)))
    assert problem.finished(after)
    assert_same_state(after, last)


@pytest.mark.parametrize("size", SIZES)
def test_step_is_pure(problem: Problem[Any, Any], size: int, rng: torch.Generator) -> None:
    """Stepping leaves the state it started from untouched."""
    batch = problem.sample(2, size, rng)
    state = problem.reset(batch, problem.starts(batch))
    copy = state.map(torch.clone)
    problem.step(state, problem.mask(state).to(torch.uint8).argmax(-1))
    assert_same_state(state, copy)


def test_random_rollouts_are_plans(problem: Problem[Any, Any]) -> None:
    """Every random rollout passes the plan's check, and its cost, scaled back, is the plan's."""
    instances = [
        INSTANCE[problem.name](xy) for xy in 250.0 * np.random.default_rng(0).random((3, 8, 2))
    ]
    batch = problem.collate(instances)
    actions, _ = random_rollout(problem, batch, torch.Generator().manual_seed(0))
    costs = problem.cost(batch, actions)
    for instance, rows, cost in zip(instances, actions.tolist(), costs.tolist(), strict=True):
        extent = np.ptp(instance.xy, axis=0).max() if hasattr(instance, "xy") else 1.0
        for row, priced in zip(rows, cost, strict=True):
            plan = problem.decode(instance, row)
            plan.check(instance)
            assert plan.cost(instance) == pytest.approx(priced * extent, rel=1e-6)


@pytest.mark.parametrize("size", [2, 3, 6])
def test_replay_is_stepping(problem: Problem[Any, Any], size: int, rng: torch.Generator) -> None:
    """The states that replay reconstructs are those that stepping went through, field by field."""
    batch = problem.sample(3, size, rng)
    actions, states = random_rollout(problem, batch, rng)
    steps, rollouts = len(states) - 1, actions.shape[1]
    replayed = problem.replay(batch, actions)
    assert not problem.finished(replayed)
    for t, state in enumerate(states[:-1]):
        part = replayed.map(
            lambda x, t=t: decisions(x, rollouts, steps)[:, :, t] if x.shape[1] > 1 else x
        )
        assert_same_state(
            part, state, but="count"
        )  # of decisions in progress; replay holds all at once
        assert torch.equal(problem.mask(part), problem.mask(state))


def decisions(x: torch.Tensor, rollouts: int, steps: int) -> torch.Tensor:
    """Return a field of a replayed state with rollouts and steps in two axes.

    Fields of the instance alone have one row.
    """
    return x.view(len(x), rollouts, steps, *x.shape[2:])


def assert_same_state(one: Any, other: Any, but: str = "") -> None:
    compared = 0
    for f in fields(one):
        a, b = getattr(one, f.name), getattr(other, f.name)
        if f.name != but:
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b, f.name
            compared += 1
    assert compared >= 3


def test_views_are_the_same_plans(problem: Problem[Any, Any], rng: torch.Generator) -> None:
    """Views are sequences of the same plans, of the same cost, and not all alike.

    Their first action is a start.
    """
    batch, plan_of = problem.sample(3, 7, rng), PLAN_OF[problem.name]
    plans = random_rollout(problem, batch, rng)[0][:, -1]
    views = problem.views(plans, torch.rand(3, 40, 2, generator=rng))
    starts = problem.starts(batch).tolist()
    for plan, seen, own in zip(plans.tolist(), views.tolist(), starts, strict=True):
        assert {plan_of(v) for v in seen} == {plan_of(plan)}
        assert len({tuple(v) for v in seen}) > 1 or problem.name in ONE_PLAN_OF
        assert {v[0] for v in seen} <= set(own)
    spread = problem.cost(batch, views) - problem.cost(batch, plans[:, None])
    assert spread.abs().max() < 1e-5  # sums of some float32 in another order


def test_views_of_tours_begin_everywhere(rng: torch.Generator) -> None:
    """Views of a tour are the same cyclic tour: from many starts, in both directions."""
    tours = torch.rand(3, 7, generator=rng).argsort(1)
    views = TSP().views(tours, torch.rand(3, 40, 2, generator=rng))
    for tour, seen in zip(tours.tolist(), views.tolist(), strict=True):
        turned = {tuple(way[i:] + way[:i]) for way in (tour, tour[::-1]) for i in range(7)}
        assert {tuple(v) for v in seen} <= turned
        assert len({v[0] for v in seen}) == 7
        assert len({(v[1] - v[0]) for v in seen}) > 7 // 2
        assert any(v[(v.index(tour[0]) + 1) % 7] == tour[1] for v in seen)
        assert any(v[(v.index(tour[0]) + 1) % 7] == tour[-1] for v in seen)


def test_samples_belong_to_their_generator(problem: Problem[Any, Any]) -> None:
    """Equal generator states give equal instances, the next draw others; keys differ."""
    one, two = (problem.sample(4, 6, torch.Generator().manual_seed(5)) for _ in range(2))
    assert_same_state(one, two)
    rng = torch.Generator().manual_seed(5)
    problem.sample(4, 6, rng)
    another, what = problem.sample(4, 6, rng), "duration" if problem.solves == "jssp" else "xy"
    assert not torch.equal(getattr(another, what), getattr(one, what))
    assert len(set(one.key.tolist())) == 4


# --- scaling and starts


def test_one_scale_for_both_axes() -> None:
    """A rectangle of 4 by 1 keeps its shape: its long side becomes 1, its corner goes to 0."""
    plane = np.array([[-2.0, 7.0], [2.0, 7.0], [2.0, 8.0], [-2.0, 8.0]])
    np.testing.assert_allclose(
        scale_to_unit_square(plane), [[0, 0], [1, 0], [1, 0.25], [0, 0.25]], atol=1e-15
    )
    cloud = np.random.default_rng(0).normal(size=(30, 2)) * [50.0, 3.0]
    scaled = scale_to_unit_square(cloud)
    ratio = np.linalg.norm(scaled[1:] - scaled[0], axis=1) / np.linalg.norm(
        cloud[1:] - cloud[0], axis=1
    )
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)
    assert (scaled.min(), scaled.max()) == (0.0, 1.0)


def test_cities_at_one_point_cost_nothing() -> None:
    """Instances without extent are scaled to a point, not to NaN; every tour costs 0."""
    instance = tsp_from_array(np.full((4, 2), 7.5))
    batch = TSP().collate([instance])
    assert batch.xy.eq(0).all()
    assert TSP().cost(batch, tour_of(3, 1, 0, 2)).item() == 0.0
    assert Tour((3, 1, 0, 2)).cost(instance) == 0.0


def test_cities_on_a_line_cost_there_and_back() -> None:
    """The best tour of collinear cities is twice their span."""
    instance = tsp_from_array(np.array([[0.0, 3.0], [10.0, 3.0], [4.0, 3.0], [6.0, 3.0]]))
    assert Tour((0, 2, 3, 1)).cost(instance) == 20.0
    assert TSP().cost(TSP().collate([instance]), tour_of(0, 2, 3, 1)).item() == pytest.approx(
        2.0, rel=1e-6
    )


@pytest.mark.parametrize(("size", "cost"), [(1, 0.0), (2, 10.0), (3, 12.0)])
def test_smallest_instances(size: int, cost: float) -> None:
    """One city costs nothing, two cost the way there and back, three their triangle (3-4-5)."""
    instance = tsp_from_array(np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]])[:size])
    batch = TSP().collate([instance])
    actions, _ = random_rollout(TSP(), batch, torch.Generator().manual_seed(0))
    for row in actions[0].tolist():
        assert TSP().decode(instance, row).cost(instance) == pytest.approx(cost)
    assert TSP().cost(batch, actions).tolist() == [
        [pytest.approx(cost / 4.0 if size > 1 else 0.0)] * size
    ]


def test_every_city_starts_up_to_two_hundred() -> None:
    """Up to 200 cities all are starts; beyond, 100 that are spread over the order."""
    small, large = (
        TSP().starts(TSP().collate([tsp_from_array(np.zeros((n, 2)) + np.arange(n)[:, None])] * 2))
        for n in (200, 250)
    )
    assert small.tolist() == [list(range(200))] * 2
    assert large.shape == (2, 100)
    gaps = large[0].diff()
    assert large[0, 0] == 0
    assert set(gaps.tolist()) == {2, 3}
    assert large.max() < 250


def test_keys_name_instances_not_places() -> None:
    """An instance has the same key in any batch and at any scale."""
    a, b = np.random.default_rng(0).random((2, 5, 2))
    alone = TSP().collate([tsp_from_array(b)]).key
    assert TSP().collate([tsp_from_array(a), tsp_from_array(b)]).key[1] == alone[0]
    assert TSP().collate([tsp_from_array(a)]).key[0] != alone[0]


def test_a_batch_with_a_rounded_metric_prices_in_it() -> None:
    """Costs of rounded metrics and matrices come from the file's own distances, whole and exact."""
    xy = np.random.default_rng(1).random((6, 2)) * 1e5
    instance = TSPInstance("far", "CEIL_2D", xy=xy)
    batch = TSP().collate([instance])
    assert TSP().cost(batch, tour_of(0, 3, 1, 5, 2, 4)).item() == Tour((0, 3, 1, 5, 2, 4)).cost(
        instance
    )


# --- arrays


def test_two_columns_are_coordinates() -> None:
    """Two rows of two are two cities, not a matrix of distances."""
    instance = tsp_from_array(np.array([[0, 1], [1, 0]]))
    assert (instance.metric, instance.size) == ("EXACT_2D", 2)
    assert Tour((0, 1)).cost(instance) == pytest.approx(2 * math.sqrt(2))


def test_matrices_keep_their_numbers() -> None:
    """A tour of a matrix costs the sum of its entries; whole entries give whole costs."""
    matrix = np.array([[0, 2, 9], [2, 0, 4], [9, 4, 0]])
    whole, half = tsp_from_array(matrix), tsp_from_array(matrix / 2.0)
    assert (Tour((0, 1, 2)).cost(whole), type(Tour((0, 1, 2)).cost(whole))) == (15, int)
    assert Tour((0, 1, 2)).cost(half) == 7.5
    assert tsp_from_array(np.zeros((1, 1))).size == 1


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (
            np.zeros((3, 2, 2)),
            r"expected coordinates \[N, 2\] or a distance matrix .* got shape \(3, 2, 2\)",
        ),
        (np.zeros(4), r"got shape \(4,\)"),
        (np.zeros((0, 2)), r"got shape \(0, 2\)"),
        (np.array([["a", "b"]]), "of real numbers"),
        (np.zeros((3, 2), dtype=complex), "of real numbers"),
        (np.zeros((3, 2), dtype=bool), "of real numbers"),
        (np.zeros((1001, 2)), "has 1001 cities; up to 1000"),
        (np.array([[0.0, np.nan]]), "NaN or infinite"),
        (np.array([[0.0, np.inf]]), "NaN or infinite"),
        (np.array([[0.0, 0.0], [1e200, 1.0]]), r"beyond 1e\+12"),
        (np.zeros((3, 4)), r"must be square, got shape \(3, 4\)"),
        (np.array([[0, 1, 2], [1, 0, 3], [2, 4, 0]]), "not symmetric"),
        (np.array([[0, -1, 2], [-1, 0, 3], [2, 3, 0]]), "at least 0"),
        (np.array([[1, 1, 2], [1, 0, 3], [2, 3, 0]]), "zeros on its diagonal"),
    ],
)
def test_arrays_that_are_refused(array: np.ndarray, words: str) -> None:
    """An array that is no instance is refused by name with what was expected."""
    with pytest.raises(InputError, match=f"^mine: .*{words}"):
        tsp_from_array(array, "mine")


def test_replay_and_cost_take_strided_tours(rng: torch.Generator) -> None:
    """Tours stored with steps before rollouts replay and cost as contiguous copies do."""
    batch = TSP().sample(2, 5, rng)
    stored = torch.rand(2, 5, 6, generator=rng).argsort(1)  # [B, T, R]
    tours = stored.transpose(1, 2)
    assert torch.equal(TSP().cost(batch, tours), TSP().cost(batch, tours.contiguous()))
    assert_same_state(TSP().replay(batch, tours), TSP().replay(batch, tours.contiguous()))
