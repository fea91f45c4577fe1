"""The rules of the TSP by hand."""

import math

import numpy as np
import pytest
import torch

from rhumbline.errors import Infeasible, InputError
from rhumbline.problems.metrics import scale_to_unit_square
from rhumbline.problems.tsp import TSP, Tour, TSPInstance, tsp_from_array
from rhumbline.testing.contracts import expect_same, random_walk

HOUSE = np.array(
    [[0.0, 0.0], [4.0, 0.0], [4.0, 3.0], [2.0, 5.0], [0.0, 3.0]]
)  # a square with a roof


def tour_of(*order: int) -> torch.Tensor:
    return torch.tensor([[order]])


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


# --- views


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
    actions = random_walk(TSP(), batch, torch.Generator().manual_seed(0)).actions
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
        (np.zeros((10_001, 2)), "has 10,001 cities; up to 10,000"),
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
    replayed = TSP().replay(batch, tours)
    expect_same(replayed, TSP().replay(batch, tours.contiguous()), "strides change nothing")
