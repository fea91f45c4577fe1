"""Questions about the latents of one instance: a single plan, and the costs of a whole plane."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.search.driver import Budget, start_clock
from rhumbline.search.task import Task
from rhumbline.search.task.account import Spent
from rhumbline.serve.plan_facts import verified_plan


@dataclass(frozen=True)
class LandscapeTuning:
    """The grid of a heat map, and what it may cost."""

    points: int = 24  # of the grid along each axis
    # Policies are trained for latents from -1 to 1; a search may go beyond.
    extents: tuple[float, ...] = (1.5, 3.0, 6.0, 12.0)
    max_starts: int = 8  # of each plan; the cost from all starts differs little
    max_seconds: float = 20.0


LANDSCAPE = LandscapeTuning()


def plan_of_latent(task: Task, latent: Sequence[float]) -> dict[str, Any]:
    """Return the plan that the policy builds at one latent, greedily, from its best start."""
    instance = task.instances[0]
    point = torch.tensor(latent, dtype=torch.float32, device=task.device)
    rolled = task.rollout(point[None, None], temperature=0.0)
    best = int(rolled.cost.argmin())
    actions = rolled.actions.flatten(0, 2)
    plan = task.problem.decode(instance, actions[best].tolist())
    plan.check(instance)
    return verified_plan(instance, plan, plan.cost(instance))


def landscape(task: Task, extent: float) -> dict[str, Any]:
    """Return the greedy costs of a grid over two latent dimensions, row by row upwards.

    The grid reaches from minus to plus the extent on both axes.
    """
    size = task.policy.space.size
    if size != 2:
        advice = "only policies with two (rhumb train --set policy.latent=2) have a heat map"
        raise InputError(f"the latents have {size} dimensions; {advice}")
    start_clock(task, Budget(seconds=LANDSCAPE.max_seconds))
    try:
        costs = grid_costs_of(task, extent)
    except Spent:
        reason = f"did not fit into {LANDSCAPE.max_seconds:.0f} s"
        raise InputError(f"the heat map of an instance of this size {reason}") from None
    return {"extent": extent, "costs": round_rows(costs)}


def grid_costs_of(task: Task, extent: float) -> Float[Tensor, "G G"]:
    """Return the greedy cost of each latent of the grid; raise `Spent` if that takes too long."""
    points = LANDSCAPE.points
    axis = torch.linspace(-extent, extent, points, device=task.device)
    latents = torch.cartesian_prod(axis, axis)
    latents = latents.flip(1)  # the first coordinate changes along a row
    count = task.starts.shape[-1]
    stride = -(-count // LANDSCAPE.max_starts)
    starts = task.starts[:, ::stride]
    rolled = task.rollout(latents[None], temperature=0.0, starts=starts)
    costs = rolled.cost.amin(2)
    costs = costs * task.batch.scale[:, None]
    return costs.reshape(points, points)


def round_rows(table: Float[Tensor, "G G"]) -> list[list[float]]:
    """Return a table with as many digits as a picture needs."""
    on_host = table.cpu().numpy()
    exact = on_host.astype(np.float64)
    rounded = np.round(exact, 4)
    return rounded.tolist()


LATENT_QUESTIONS = {"plan": plan_of_latent, "landscape": landscape}
