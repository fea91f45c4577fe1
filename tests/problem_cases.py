"""Instances and policies of every problem, for the tests of contracts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.policies.jssp import JSSPArchitecture, JSSPPolicy
from rhumbline.policies.jssp_l2d import L2DArchitecture, L2DPolicy
from rhumbline.policies.jssp_machines import JSSPMachinesPolicy, MachinesArchitecture
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems import Problem
from rhumbline.problems.cvrp import CVRP, CVRPInstance
from rhumbline.problems.cvrp import cvrp_from_arrays as vehicles_from_arrays
from rhumbline.problems.jssp import JSSP, JSSPInstance, JSSPLeftShift, JSSPMachines
from rhumbline.problems.jssp import jssp_from_arrays as jobs_from_arrays
from rhumbline.problems.tsp import TSP, tsp_from_array


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


@dataclass(frozen=True)
class Case:
    """What the checks have to know of a set of rules."""

    rules: Problem[Any, Any]
    instance: Callable[[np.ndarray], Any]  # from points
    same_plan: Callable[[list[int]], object]
    policy: Any

    def instances(self, count: int = 3, size: int = 8) -> list[Any]:
        points = 250.0 * np.random.default_rng(0).random((count, size, 2))
        return [self.instance(xy) for xy in points]

    def __str__(self) -> str:
        return self.rules.name


def with_active_latents(policy: Any) -> Any:
    """Return a new policy whose latents matter, as after training; they begin with zero weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for name, weight in policy.named_parameters():
            if name.endswith("_latent"):
                weight.data.normal_(0, 0.02)  # times the amplification of 100
    return policy.requires_grad_(False)


SMALL = {"width": 16, "heads": 2, "layers": 1, "hidden": 16}
CASES = [
    Case(
        TSP(),
        tsp_from_array,
        cycle,
        with_active_latents(TSPPolicy(Architecture(**SMALL, latent=3))),
    ),
    Case(
        CVRP(),
        some_demand,
        routes,
        with_active_latents(CVRPPolicy(Architecture(**SMALL, latent=3))),
    ),
    Case(
        JSSP(),
        some_jobs,
        tuple,
        with_active_latents(JSSPPolicy(JSSPArchitecture(**SMALL, latent=3))),
    ),
    Case(
        JSSPMachines(),
        some_jobs,
        tuple,
        with_active_latents(JSSPMachinesPolicy(MachinesArchitecture(16, 2, 16, latent=3))),
    ),
    Case(
        JSSPLeftShift(),
        some_jobs,
        tuple,
        with_active_latents(L2DPolicy(L2DArchitecture(16, 2, 16, latent=3))),
    ),
]
