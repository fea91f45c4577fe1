"""What a two-dimensional latent space looks like to an instance, and how CMA-ES walks through
it.
"""

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.formats.safe_io import read_bytes, write_bytes
from rhumbline.plots.latent import Landscape
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.task import Task

REACH = (
    1.5  # half the width of the picture; the search may leave the box that latents were trained in
)
SearchPath = tuple[Float[np.ndarray, "T B 2"], Float[np.ndarray, "T B"]]


def compute_landscapes(task: Task, points: int, generations: int) -> list[Landscape]:
    """The landscape of each instance of a task: best greedy cost over all starts at each point
    of a grid.
    """
    if task.policy.space.size != 2:
        raise InputError(
            f"a landscape needs a policy with 2 latent dimensions, this one has {task.policy.space.size}; "
            "train one with --set policy.latent=2"
        )
    axis = torch.linspace(-REACH, REACH, points, device=task.device)
    cost = grid_costs(task, torch.cartesian_prod(axis, axis).flip(1)).reshape(
        task.count, points, points
    )
    means, deviation = search_path(task, generations)
    where = axis.cpu().numpy().astype(np.float64)
    return [
        Landscape(instance.name, where, cost[row], means[:, row], deviation[:, row])
        for row, instance in enumerate(task.instances)
    ]


def write_landscapes(path: Path, found: Sequence[Landscape]) -> None:
    """Keep the numbers of pictures, so that these can be drawn again without the policy; all
    have one grid.
    """
    content = io.BytesIO()
    names = np.array([one.name for one in found])
    cost = np.stack([one.cost for one in found])
    means = np.stack([one.means for one in found])
    deviation = np.stack([one.deviation for one in found])
    np.savez_compressed(
        content, axis=found[0].axis, names=names, cost=cost, means=means, deviation=deviation
    )
    write_bytes(path, content.getvalue())


def read_landscapes(path: Path) -> list[Landscape]:
    """What `write_landscapes` has kept."""
    try:
        with np.load(io.BytesIO(read_bytes(path))) as kept:
            rows = zip(
                kept["names"].tolist(), kept["cost"], kept["means"], kept["deviation"], strict=True
            )
            return [
                Landscape(name, kept["axis"], cost, means, spread)
                for name, cost, means, spread in rows
            ]
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError.at(path, None, f"holds no landscapes ({error})") from error


def grid_costs(task: Task, latents: Float[Tensor, "P 2"]) -> Float[np.ndarray, "B P"]:
    """Cost of every latent for every instance, in the instances' own units."""
    task.forget()
    rolled = task.rollout(latents.expand(task.count, -1, -1), 0.0)
    return (
        (rolled.cost.amin(2) * task.original_batch.scale[:, None]).cpu().numpy().astype(np.float64)
    )


def search_path(task: Task, generations: int) -> SearchPath:
    """Means and deviations of a single CMA-ES component before each generation."""
    task.forget()
    strategy = CMAES(components=1)
    state = strategy.init(task)
    means = list[Any]()
    deviations = list[Any]()
    for _ in range(generations):
        component = state.components[:, 0]
        spread = component.covariance.diagonal(dim1=-2, dim2=-1).mean(-1).sqrt() * component.sigma
        means.append(component.mean.cpu().numpy())
        deviations.append(spread.cpu().numpy())
        state, _, _ = strategy.step(task, state)
    return np.stack(means).astype(np.float64), np.stack(deviations).astype(np.float64)
