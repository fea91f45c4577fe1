"""The nine mutations follow their definitions, one by one and as a set (Bossek et al. 2019)."""

import math

import numpy as np
import pytest

from rhumbline.errors import InputError
from rhumbline.problems.distributions.mutations import (
    OPERATORS,
    compression,
    directions,
    is_repeated,
    mutate,
    sample_line,
    sample_mutated_set,
)

SEEDS = range(20)
BY_PROBABILITY = ("cluster", "rotation", "linear", "axis")
BY_REGION = tuple(set(OPERATORS) - set(BY_PROBABILITY))


def uniform(seed: int, nodes: int = 100) -> np.ndarray:
    return np.random.default_rng([9, seed]).random((nodes, 2))


def moves(
    operator: str, seed: int, power: float = 0.5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the points that an operator takes, where it puts them, and all points."""
    points = uniform(seed)
    chosen, moved = OPERATORS[operator](points, power, np.random.default_rng(seed))
    return points[chosen], moved[chosen], points


def disc(seed: int, radii: tuple[float, float]) -> tuple[np.ndarray, float]:
    """Return centre and radius that an operator with a disc draws first from this seed."""
    rng = np.random.default_rng(seed)
    return rng.random(2), rng.uniform(*radii)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_explosion_leaves_a_hole(seed: int) -> None:
    """It takes exactly the points within the radius; they land outside, on the far side."""
    (centre, radius), (before, after, points) = disc(seed, (0.1, 0.4)), moves("explosion", seed)
    assert len(before) == (np.hypot(*(points - centre).T) < radius).sum()
    assert (np.hypot(*(after - centre).T) >= radius).all()
    there, _ = directions(before - centre)
    np.testing.assert_allclose(directions(after - centre)[0], -there, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_implosion_draws_points_in(seed: int) -> None:
    """Its points go straight towards the centre, by at most the fraction that the radius is."""
    (centre, radius), (before, after, points) = disc(seed, (0.1, 0.3)), moves("implosion", seed)
    assert len(before) == (np.hypot(*(points - centre).T) < radius).sum()
    share = (before - after) / (before - centre)
    np.testing.assert_allclose(share[:, 0], share[:, 1], atol=1e-9)
    assert ((share >= 0.0) & (share <= radius + 1e-9)).all()


@pytest.mark.parametrize("operator", BY_PROBABILITY)
def test_the_power_is_a_probability(operator: str) -> None:
    """Of 10,000 points about a third are taken at power 0.3, and all of them at power 1."""
    points = uniform(0, 10_000)
    chosen, _ = OPERATORS[operator](points, 0.3, np.random.default_rng(1))
    assert abs(chosen.mean() - 0.3) < 4 * math.sqrt(0.3 * 0.7 / 10_000)
    assert OPERATORS[operator](points, 1.0, np.random.default_rng(1))[0].all()


@pytest.mark.parametrize("operator", sorted(BY_REGION))
def test_regions_do_not_depend_on_the_power(operator: str) -> None:
    """The five region operators act the same at every power above 0, as in the published sets."""
    rare, often = (
        OPERATORS[operator](uniform(3), power, np.random.default_rng(3)) for power in (0.1, 0.9)
    )
    np.testing.assert_array_equal(rare[0], often[0])
    np.testing.assert_array_equal(rare[1], often[1])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_has_its_deviation(seed: int) -> None:
    """Points lie about the centre with the deviation drawn for it, and never outside the square."""
    (centre, deviation), (_, after, _) = disc(seed, (0.001, 0.3)), moves("cluster", seed, 1.0)
    free = ((after > 0.0) & (after < 1.0)).all(axis=1)
    assert ((after >= 0.0) & (after <= 1.0)).all()
    assert np.abs((after - centre)[free]).max() < 5 * deviation
    assert np.median(np.abs(after - centre)) < deviation


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rotation_is_rigid(seed: int) -> None:
    """Distances among the rotated points stay, and so does the sense of turning."""
    before, after, _ = moves("rotation", seed)
    a, b = (x[:, None] - x[None] for x in (before, after))
    np.testing.assert_allclose(np.hypot(*a.T), np.hypot(*b.T), atol=1e-9)
    cross = [x[0, 1, 0] * x[0, 2, 1] - x[0, 1, 1] * x[0, 2, 0] for x in (a, b)]
    assert cross[0] == pytest.approx(cross[1])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_linear_projection_moves_points_up_or_down_onto_a_line(seed: int) -> None:
    """x stays; y is the line that was drawn."""
    before, after, _ = moves("linear", seed)
    base, slope = sample_line(np.random.default_rng(seed))
    np.testing.assert_array_equal(after[:, 0], before[:, 0])
    np.testing.assert_allclose(after[:, 1], base + slope * before[:, 0])


def test_lines_cross_the_square() -> None:
    """Low lines rise, high ones fall, by a slope of at most 3."""
    lines = [sample_line(np.random.default_rng(seed)) for seed in range(200)]
    assert all(
        0 <= base <= 1 and abs(slope) <= 3 and (slope > 0) == (base < 0.5) for base, slope in lines
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_an_axis_projection_flattens_one_coordinate(seed: int) -> None:
    """One coordinate becomes a level within its range, the other stays."""
    before, after, _ = moves("axis", seed)
    flat = int((after == after[0]).all(axis=0).argmax())
    assert (after[:, flat] == after[0, flat]).all()
    np.testing.assert_array_equal(after[:, 1 - flat], before[:, 1 - flat])
    assert before[:, flat].min() <= after[0, flat] <= before[:, flat].max()


def height(points: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    """Return signed distances of points to the line of a tube operator, and the tube's radius."""
    rng = np.random.default_rng(seed)
    base, slope = sample_line(rng)
    return (points[:, 1] - base - slope * points[:, 0]) / math.hypot(1.0, slope), rng.uniform(
        0.1, 0.3
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_an_expansion_empties_a_tube(seed: int) -> None:
    """It takes the points of the tube; they leave it at right angles, each on its own side."""
    before, after, points = moves("expansion", seed)
    (old, radius), (new, _), (all_, _) = (height(x, seed) for x in (before, after, points))
    assert len(before) == (np.abs(all_) < radius).sum()
    assert (np.abs(new) >= radius - 1e-9).all()
    np.testing.assert_array_equal(np.sign(new), np.sign(old))
    np.testing.assert_allclose(np.hypot(*(after - before).T), np.abs(new - old), atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_compression_thins_a_tube(seed: int) -> None:
    """Its points come nearer to the line at right angles and never cross it."""
    before, after, points = moves("compression", seed)
    (old, radius), (new, _), (all_, _) = (height(x, seed) for x in (before, after, points))
    assert len(before) == (np.abs(all_) < radius).sum()
    assert (np.abs(new) <= np.abs(old) + 1e-9).all()
    assert (new * old >= -1e-9).all()
    np.testing.assert_allclose(np.hypot(*(after - before).T), np.abs(new - old), atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_grid_is_regular(seed: int) -> None:
    """The g^2 points are the crossings of g vertical and g horizontal lines at equal distances."""
    _, after, _ = moves("grid", seed)
    side = math.isqrt(len(after))
    assert len(after) == side * side
    if side < 2:
        return
    for coordinate in after.T:
        levels = np.unique(np.round(coordinate, 9))
        assert len(levels) == side
        np.testing.assert_allclose(
            np.diff(levels), (levels[-1] - levels[0]) / (side - 1), atol=1e-6
        )
        assert 0.1 - 1e-6 <= levels[-1] - levels[0] <= 0.3 + 1e-6
    assert len(np.unique(np.round(after, 9), axis=0)) == side * side


@pytest.mark.parametrize("operator", OPERATORS)
def test_power_0_changes_nothing(operator: str) -> None:
    """Not even the region operators act."""
    points = uniform(1)
    np.testing.assert_array_equal(mutate(points, operator, 0.0, np.random.default_rng(0)), points)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("power", [0.1, 0.9])
def test_mutants_stay_in_the_square_and_differ(operator: str, power: float) -> None:
    """All points are in the unit square and differ; the input does not change."""
    for seed in SEEDS:
        points = uniform(seed)
        mutant = mutate(points, operator, power, np.random.default_rng(seed))
        assert mutant.shape == points.shape
        assert ((mutant >= 0.0) & (mutant <= 1.0)).all()
        assert not is_repeated(mutant).any()
        np.testing.assert_array_equal(points, uniform(seed))


def test_others_stay_where_they_are() -> None:
    """Points that are not chosen keep their place to the last bit."""
    points = uniform(5)
    chosen, _ = compression(points, 0.5, np.random.default_rng(5))
    mutant = mutate(points, "compression", 0.5, np.random.default_rng(5))
    np.testing.assert_array_equal(mutant[~chosen], points[~chosen])
    assert (mutant[chosen] != points[chosen]).any(axis=1).all()


@pytest.mark.parametrize("operator", BY_PROBABILITY)
def test_one_point_is_too_few(operator: str) -> None:
    """An operator that takes fewer than two points changes nothing."""
    points = uniform(0, 1)
    np.testing.assert_array_equal(mutate(points, operator, 1.0, np.random.default_rng(0)), points)


def test_equal_points_are_found() -> None:
    """Of three equal points the second and third are redrawn, the first stays."""
    assert is_repeated(np.array([[0.5, 0.5], [0.1, 0.2], [0.5, 0.5], [0.5, 0.5]])).tolist() == [
        False,
        False,
        True,
        True,
    ]


def test_sets_begin_alike() -> None:
    """A longer set begins with the shorter one; other powers and seeds give other sets."""
    ten = sample_mutated_set(10, 30, 0.5, 7)
    np.testing.assert_array_equal(sample_mutated_set(4, 30, 0.5, 7), ten[:4])
    assert not (sample_mutated_set(4, 30, 0.6, 7) == ten[:4]).all(axis=(1, 2)).any()
    assert not (sample_mutated_set(4, 30, 0.5, 8) == ten[:4]).all(axis=(1, 2)).any()


@pytest.mark.parametrize(
    ("points", "operator", "power", "message"),
    [
        (
            uniform(0),
            "explode",
            0.5,
            r"no mutation 'explode' .did you mean 'explosion'\?.; known: explosion, ",
        ),
        (uniform(0), "grid", 1.5, "power of a mutation is 1.5, expected 0 to 1"),
        (uniform(0), "grid", float("nan"), "power of a mutation is nan, expected 0 to 1"),
        (2.0 * uniform(0), "grid", 0.5, "points of the unit square; some are outside"),
    ],
)
def test_what_cannot_be_mutated_is_refused(
    points: np.ndarray, operator: str, power: float, message: str
) -> None:
    """Unknown operators, powers that are no probability, and points outside the square."""
    with pytest.raises(InputError, match=message):
        mutate(points, operator, power, np.random.default_rng(0))
