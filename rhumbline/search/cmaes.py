"""COMPASS's search: several CMA-ES components in the latent space, one independent set per instance (spec 4.5)."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.noise import normal
from rhumbline.search import cma
from rhumbline.search.run import Task, check_settings, usual_temperature


@dataclass(frozen=True)
class Search:
    """States of all components, [B, C] on the device, and how many generations have passed in all."""

    components: cma.State
    generation: int = 0


@dataclass(frozen=True)
class CMAES:
    """Components take turns; each generation tries `population` latents of one of them from all starts."""

    components: int = 3
    population: int = 16
    sigma: float = 1.0  # half the width of the latent box, so the first generations look beyond it
    temperature: float | None = None  # of the sampling; None: `usual_temperature`

    def __post_init__(self) -> None:
        check_settings(self.population, self.temperature)
        if self.components < 1 or self.population < 2 or not self.sigma > 0:
            raise InputError("cmaes needs components of at least 1, a population of at least 2 and a sigma above 0")

    def init(self, task: Task) -> Search:
        """Components at the centroids of the latent box."""
        size = task.policy.space.size
        if not size:
            raise InputError("this policy has no latent space to search; use --search sampling or greedy")
        means = cma.centroids(self.components, size).to(task.device, torch.float32)
        return Search(cma.start(means.expand(task.count, -1, -1).contiguous(), self.sigma))

    def step(self, task: Task, state: Search) -> tuple[Search, Float[Tensor, "B K Z"], Rollouts]:
        """One generation of the component whose turn it is."""
        turn = state.generation % self.components
        component = state.components[:, turn]
        latents = cma.ask(component, normal(task.uniforms(self.population)))
        rolled = task.rollout(latents, usual_temperature(task) if self.temperature is None else self.temperature)
        c = cma.constants(latents.shape[2], max(1, self.population // 2))
        cost = rolled.cost.amin(2)
        told = cma.tell(component, latents, cost, c, state.generation // self.components)
        return Search(put(state.components, turn, told), state.generation + 1), latents, rolled


def put(components: cma.State, turn: int, component: cma.State) -> cma.State:
    """All components with one of them replaced."""
    changed: dict[str, Tensor] = {}
    for name, value in vars(components).items():
        changed[name] = value.clone()
        changed[name][:, turn] = getattr(component, name)
    return replace(components, **changed)
