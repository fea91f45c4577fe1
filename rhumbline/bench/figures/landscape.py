"""Compute what a two-dimensional latent space is like for an instance.

A landscape holds the greedy cost of each latent of a grid, and the path of CMA-ES through it.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.formats.npz import read_arrays
from rhumbline.formats.safe_io import write_bytes
from rhumbline.plots.latent import Landscape
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.task import Task

# Means [generations, instances, 2] and deviations [generations, instances]
SearchPath = tuple[Float[np.ndarray, "T B 2"], Float[np.ndarray, "T B"]]


def compute_landscapes(
    task: Task, points: int, generations: int, half_width: float = 1.5
) -> list[Landscape]:
    """Return the landscape of each instance of a task, on a grid of `points` by `points` latents.

    The grid goes from -half_width to half_width along both axes. Latents were trained in [-1, 1],
    which a search may leave. The cost of a latent is the best greedy cost over all starts.
    """
    dimensions = task.policy.space.size
    if dimensions != 2:
        raise InputError(
            f"a landscape needs a policy with 2 latent dimensions, this one has {dimensions}; "
            "train one with --set policy.latent=2"
        )
    axis = torch.linspace(-half_width, half_width, points, device=task.device)
    grid = torch.cartesian_prod(axis, axis)
    latents = grid.flip(1)
    cost = grid_costs(task, latents)
    cost = cost.reshape(task.count, points, points)
    means, deviation = search_path(task, generations)
    coordinates = axis.cpu().numpy().astype(np.float64)
    return [
        Landscape(instance.name, coordinates, cost[row], means[:, row], deviation[:, row])
        for row, instance in enumerate(task.instances)
    ]


def write_landscapes(path: Path, landscapes: Sequence[Landscape]) -> None:
    """Write landscapes of one grid, so that they can be drawn again without the policy."""
    content = io.BytesIO()
    np.savez_compressed(
        content,
        axis=landscapes[0].axis,
        names=np.array([landscape.name for landscape in landscapes]),
        cost=np.stack([landscape.cost for landscape in landscapes]),
        means=np.stack([landscape.means for landscape in landscapes]),
        deviation=np.stack([landscape.deviation for landscape in landscapes]),
    )
    write_bytes(path, content.getvalue())


def read_landscapes(path: Path) -> list[Landscape]:
    """Read what `write_landscapes` has written."""
    stored = read_arrays(path, "holds no landscapes")
    try:
        axis = stored["axis"]
        names = stored["names"].tolist()
        rows = zip(names, stored["cost"], stored["means"], stored["deviation"], strict=True)
        return [
            Landscape(name, axis, cost, means, deviation) for name, cost, means, deviation in rows
        ]
    except (TypeError, ValueError, KeyError) as error:
        raise InputError.at(path, None, f"holds no landscapes ({error})") from error


def grid_costs(
    task: Task, latents: Float[Tensor, "P 2"], max_latents: int = 2048
) -> Float[np.ndarray, "B P"]:
    """Return the cost of every latent for every instance, in the instances' own units.

    One rollout decodes at most `max_latents` of each instance, which bounds the memory.
    """
    scale = task.original_batch.scale[:, None]
    pieces: list[np.ndarray] = []
    for piece in latents.split(max_latents):
        task.forget()
        per_instance = piece.expand(task.count, -1, -1)
        rollouts = task.rollout(per_instance, 0.0)
        cost = rollouts.cost.amin(2) * scale
        pieces.append(to_float64(cost))
    return np.concatenate(pieces, axis=1)


def search_path(task: Task, generations: int) -> SearchPath:
    """Return the mean and the deviation of one CMA-ES component before each generation."""
    task.forget()
    strategy = CMAES(components=1)
    state = strategy.init(task)
    means: list[np.ndarray] = []
    deviations: list[np.ndarray] = []
    for _ in range(generations):
        component = state.components[:, 0]
        variances = component.covariance.diagonal(dim1=-2, dim2=-1)
        deviation = variances.mean(-1).sqrt() * component.sigma
        means.append(to_float64(component.mean))
        deviations.append(to_float64(deviation))
        state, _, _ = strategy.step(task, state)
    return np.stack(means), np.stack(deviations)


def to_float64(values: Tensor) -> Float[np.ndarray, "..."]:
    """Copy values to the host, in double precision."""
    on_host = values.cpu().numpy()
    return on_host.astype(np.float64)
