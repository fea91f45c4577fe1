"""Landscapes of a two-dimensional latent space."""

from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
import torch

from rhumbline.bench.figures import landscape
from rhumbline.bench.figures.landscape import (
    compute_landscapes,
    grid_costs,
    read_landscapes,
    search_path,
    write_landscapes,
)
from rhumbline.errors import InputError
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.tsp import TSP, TSPInstance
from rhumbline.search.task import Task, make_task

Maker = Callable[..., list[TSPInstance]]


@pytest.fixture
def task(make_policy: Callable[..., TSPPolicy], make_instances: Maker) -> Task:
    return make_task(TSP(), make_policy(latent=2), make_instances(2, 8, scale=10.0), engine="torch")


def test_each_point_is_the_best_greedy_tour_of_its_latent(task: Task) -> None:
    """A point of the grid equals a greedy rollout with that latent, in the instance's own units. x
    runs along rows.
    """
    first, second = compute_landscapes(task, 5, 3)
    assert (first.name, second.name, first.cost.shape) == ("random-0", "random-1", (5, 5))
    np.testing.assert_allclose(first.axis, [-1.5, -0.75, 0.0, 0.75, 1.5])
    task.forget()
    alone = (
        task.rollout(torch.tensor([0.75, -1.5]).expand(2, 1, 2), 0.0).cost.amin((1, 2))
        * task.batch.scale
    )
    assert [first.cost[0, 3], second.cost[0, 3]] == pytest.approx(alone.tolist())
    assert len(np.unique(first.cost)) > 1


def test_pieces_of_a_grid_make_the_whole(task: Task) -> None:
    """Three latents at a time have the same costs; the corners are where the width says."""
    first, _ = compute_landscapes(task, 4, 2, half_width=3.0)
    grid = torch.cartesian_prod(*[torch.linspace(-3.0, 3.0, 4)] * 2).flip(1)
    in_pieces = landscape.grid_costs(task, grid, max_latents=3)
    np.testing.assert_array_equal(in_pieces[0], first.cost.flatten())
    np.testing.assert_allclose(first.axis, [-3.0, -1.0, 1.0, 3.0])


def test_the_path_begins_in_the_middle_and_moves(task: Task) -> None:
    """The only component starts near the centre with a deviation of 1.

    Every generation moves it.
    """
    means, deviation = search_path(task, 4)
    assert (means.shape, deviation.shape) == ((4, 2, 2), (4, 2))
    assert np.abs(means[0]).max() < 0.05
    np.testing.assert_allclose(deviation[0], 1.0)
    assert (np.abs(np.diff(means, axis=0)).max(axis=(1, 2)) > 0).all()


def test_the_grid_does_not_change_the_path(task: Task) -> None:
    """The path after a grid is the same as without one, because no attempts are carried over."""
    alone, _ = search_path(task, 3)
    grid_costs(task, torch.zeros(4, 2))
    np.testing.assert_array_equal(search_path(task, 3)[0], alone)


def test_other_dimensions_are_refused(
    make_policy: Callable[..., TSPPolicy], make_instances: Maker
) -> None:
    """A plane can be drawn, sixteen dimensions cannot."""
    task = make_task(TSP(), make_policy(latent=4), make_instances(1, 6), engine="torch")
    with pytest.raises(InputError, match="needs a policy with 2 latent dimensions, this one has 4"):
        compute_landscapes(task, 3, 1)


def test_landscapes_can_be_written_and_read(task: Task, tmp_path: Path) -> None:
    """What is read is what was written, bit for bit. The message about another file names it."""
    found, path = compute_landscapes(task, 4, 2), tmp_path / "plane.npz"
    write_landscapes(path, found)
    for ours, kept in zip(found, read_landscapes(path), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(astuple(ours), astuple(kept), strict=True))
    np.savez(path, axis=np.zeros(3))
    with pytest.raises(InputError, match=r"plane\.npz: holds no landscapes"):
        read_landscapes(path)
    path.write_text("no numbers")
    with pytest.raises(InputError, match=r"plane\.npz: holds no landscapes"):
        read_landscapes(path)
