"""Search the latent space first, then adapt the policy from the best latents found.

The paper (Chalumeau et al. 2023) leaves open whether the two add up.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.search.strategies.cmaes import CMAES, CMAESState
from rhumbline.search.strategies.eas import Adaptation, EASEmb
from rhumbline.search.strategy import Distributions, Needs, Step, Strategy
from rhumbline.search.task import Task


@dataclass(frozen=True)
class CMAESEASState:
    """The state of the search until `adaptation` begins, and the best latents it has found."""

    search: CMAESState
    cost: Float[Tensor, "B L"]
    latents: Float[Tensor, "B L Z"]
    adaptation: Adaptation | None = None


@dataclass(frozen=True)
class CMAESEAS(Strategy[CMAESEASState]):
    """CMA-ES with the first part of the budget; then active search under the best latents."""

    needs: ClassVar[Needs] = Needs(latent_space=True, tables=True)

    share: float = 0.5  # of the budget, for the search
    kept: int = 8  # latents that take turns in the adaptation
    components: int = 3
    population: int = 16
    sigma: float = 1.0
    temperature: float | None = None  # of the search; the adaptation samples at 1
    passes: int | None = None  # attempts between two updates; None: 8, or 32 of single rollouts
    rate: float | None = None  # of Adam; None: by problem
    imitation: float | None = None  # weight of imitating the incumbent; None: by problem

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0 or self.kept < 1:
            raise InputError("cmaes-eas needs a share from 0 to 1 and at least 1 kept latent")
        _ = (self.search, self.learning)  # refuse wrong settings

    @property
    def search(self) -> CMAES:
        """Return the first phase.

        It uses all starts: `kept` compares the costs of latents, and fewer starts would bias them.
        """
        return CMAES(self.components, self.population, self.sigma, self.temperature, starts=1.0)

    @property
    def learning(self) -> EASEmb:
        """Return the second phase."""
        return EASEmb(self.passes, self.rate, self.imitation)

    def distributions(self, state: CMAESEASState) -> Distributions:
        """Return the components of the search."""
        return self.search.distributions(state.search)

    def init(self, task: Task) -> CMAESEASState:
        """Return the first state; its only latent, until one is tried, is the centre."""
        search = self.search.init(task)
        space = task.policy.space
        centre = space.centre((task.count, 1), task.device)
        cost = torch.full(
            centre.shape[:2],
            torch.inf,
            device=task.device,
        )
        return CMAESEASState(search, cost, centre)

    def step(self, task: Task, state: CMAESEASState) -> Step:
        """Try a generation of the search, or make an update of the adaptation."""
        adaptation = state.adaptation
        if adaptation is None and task.spent_share < self.share:
            search, latents, rolled = self.search.step(task, state.search)
            cost, best = update_best_latents(
                state,
                latents,
                rolled,
                self.kept,
            )
            return Step(CMAESEASState(search, cost, best), latents, rolled)
        if adaptation is None:
            adaptation = self.learning.init_from_latents(task, state.latents)
        adaptation, latents, rolled = self.learning.step(task, adaptation)
        return Step(replace(state, adaptation=adaptation), latents, rolled)


def update_best_latents(
    state: CMAESEASState, latents: Float[Tensor, "B K Z"], rolled: Rollouts, count: int
) -> tuple[Float[Tensor, "B L"], Float[Tensor, "B L Z"]]:
    """Return the cheapest latents so far with their costs, best first."""
    rolled_cost = rolled.cost.amin(2)
    cost = torch.cat([state.cost, rolled_cost], dim=1)
    cost, order = cost.sort(dim=1, stable=True)
    candidates = torch.cat(
        [state.latents, latents.to(state.latents)],
        dim=1,
    )
    dimensions = latents.shape[2]
    index = order[:, :count, None]
    index = index.expand(-1, -1, dimensions)
    best = candidates.gather(1, index)
    return cost[:, :count], best
