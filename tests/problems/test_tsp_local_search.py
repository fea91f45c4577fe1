"""2-opt and Or-opt: every reported change is true, and no improving move is missed."""

from itertools import permutations

import pytest
import torch

from rhumbline.problems.tsp import TSP
from rhumbline.problems.tsp.local_search import (
    TUNING,
    best_move,
    improve_tours,
    new_positions,
)

KINDS = range(2 * TUNING.max_segment + 1)


def length(xy: torch.Tensor, tour: torch.Tensor) -> torch.Tensor:
    """Return the length in float64, one tour for each row of points."""
    points = xy.double().gather(1, tour[..., None].expand(-1, -1, 2))
    return (points - points.roll(-1, 1)).norm(dim=-1).sum(-1)


def neighbours(tour: list[int]) -> set[tuple[int, ...]]:
    """Return all tours one 2-opt or Or-opt move away, without the code under test."""
    size, found = len(tour), set()
    for turn in range(size):
        t = tour[turn:] + tour[:turn]
        for j in range(2, size + 1):
            found.add(tuple(t[:j][::-1] + t[j:]))
        for cut in range(1, TUNING.max_segment + 1):
            segment, rest = t[:cut], t[cut:]
            for at in range(1, len(rest)):
                found |= {tuple(rest[:at] + s + rest[at:]) for s in (segment, segment[::-1])}
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [5, 6, 9])
def test_every_move_costs_what_it_is_priced(
    kind: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reported change of each kind of move is the true one, and tours stay permutations."""
    rng = torch.Generator().manual_seed(10 * size + kind)
    points = torch.rand(200, size, 2, generator=rng)
    stack = torch.stack

    def only_one_kind(
        tensors, dim=0
    ):  # best_move stacks the prices of all kinds: leave one of them in the race
        chosen = [t if k == kind else torch.full_like(t, 100.0) for k, t in enumerate(tensors)]
        return stack([torch.where(t == 0, 50.0, t) for t in chosen], dim)

    monkeypatch.setattr(torch, "stack", only_one_kind)
    gain, taken, place = best_move(points)
    monkeypatch.undo()
    assert taken.eq(kind).all()
    order = new_positions(taken, place, size).argsort(1)
    assert torch.equal(order.sort(1).values, torch.arange(size).expand_as(order))
    identity = torch.arange(size).expand_as(order)
    change = length(points, order) - length(points, identity)
    real = gain < 49.0
    assert real.sum() > 50  # reversing three of five cities changes nothing, so many cost exactly 0
    assert (gain - change)[real].abs().max() < 2e-6  # six float32 distances of at most 1.41


@pytest.mark.parametrize("size", [5, 9, 12])
def test_best_move_is_the_best_neighbour(size: int) -> None:
    """No tour one move away is better than what the best move promises, and one is as good."""
    rng = torch.Generator().manual_seed(size)
    points = torch.rand(6, size, 2, generator=rng)
    gain, _, _ = best_move(points)
    here = length(points, torch.arange(size).expand(6, -1))
    around = torch.tensor(sorted(neighbours(list(range(size)))))
    for row in range(6):
        change = length(points[row].expand(len(around), -1, -1), around) - here[row]
        assert min(change.min().item(), 0.0) == pytest.approx(min(gain[row].item(), 0.0), abs=2e-6)


@pytest.mark.parametrize("size", [9, 12])
def test_improvement_ends_in_a_local_optimum(size: int) -> None:
    """After enough rounds no 2-opt or Or-opt move shortens any tour, by brute force."""
    rng = torch.Generator().manual_seed(size)
    xy, tour = torch.rand(8, size, 2, generator=rng), torch.rand(8, size, generator=rng).argsort(1)
    done = improve_tours(xy, tour, 100)
    assert torch.equal(improve_tours(xy, done, 1), done)
    for row in range(8):
        around = torch.tensor(sorted(neighbours(done[row].tolist())))
        best = length(xy[row].expand(len(around), -1, -1), around).min()
        assert best > length(xy[row : row + 1], done[row : row + 1]) - 2e-6


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 20])
def test_improvement_never_lengthens(size: int) -> None:
    """Each round gives permutations that are no longer than before."""
    rng = torch.Generator().manual_seed(size)
    xy, tour = (
        torch.rand(50, size, 2, generator=rng),
        torch.rand(50, size, generator=rng).argsort(1),
    )
    before = length(xy, tour)
    start = before
    for _ in range(8):
        tour = improve_tours(xy, tour, 1)
        assert torch.equal(tour.sort(1).values, torch.arange(size).expand_as(tour))
        after = length(xy, tour)
        assert (after <= before).all()
        before = after
    if size > 4:
        assert (before < start - 1e-3).float().mean() > 0.5


def test_coinciding_and_collinear_cities_do_no_harm() -> None:
    """Cities at one point are left alone, and a shuffled line is straightened."""
    tour = torch.tensor([[3, 1, 4, 0, 2, 5]])
    assert torch.equal(improve_tours(torch.zeros(1, 6, 2), tour, 5), tour)
    line = torch.stack([torch.arange(6) / 5.0, torch.zeros(6)], 1)[None]
    assert length(line, improve_tours(line, tour, 20)).item() == pytest.approx(2.0, abs=1e-6)


def test_problem_improves_all_rollouts_of_all_instances() -> None:
    """The problem's improve treats each (instance, rollout) as the function treats it alone."""
    rng = torch.Generator().manual_seed(0)
    batch, tours = TSP().sample(3, 8, rng), torch.rand(3, 4, 8, generator=rng).argsort(2)
    together, xy = TSP().improve(batch, tours, 3), batch.xy
    for b in range(3):
        for r in range(4):
            assert torch.equal(
                together[b, r], improve_tours(xy[b : b + 1], tours[b, r][None], 3)[0]
            )


def test_four_cities_are_left_alone() -> None:
    """Below five cities nothing is tried, although four cities may have a crossing."""
    xy = torch.tensor([[[0.0, 0], [1, 1], [1, 0], [0, 1]]])
    for tour in permutations(range(4)):
        assert improve_tours(xy, torch.tensor([tour]), 3).tolist() == [list(tour)]
